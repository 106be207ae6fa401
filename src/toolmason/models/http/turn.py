"""Run one model request, plain or streaming, with a codec and a sender, or count its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any, Final

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest
from toolmason._services import Service
from toolmason.errors import ConfigError, ModelError
from toolmason.models.http.redaction import redact_error
from toolmason.models.http.sender import Sender
from toolmason.providers.codec import Codec, PreparedRequest
from toolmason.providers.option_rules import merge_options
from toolmason.providers.tool_set import RequestCache


class ModelClient:
    """Client that encodes requests, sends them and decodes the replies."""

    def __init__(self, model: str, codec: Codec, sender: Sender, options: Mapping[str, Any]) -> None:
        self.model, self.codec, self.sender = model, codec, sender
        self._options = options
        self._cache = RequestCache()

    def _prepare(self, request: ModelRequest, *, stream: bool = False) -> PreparedRequest:
        if self._options:
            request = request.with_messages(request.messages, options=merge_options(self._options, request.options))
        return self.codec.prepare(request, self.model, self._cache, stream=stream)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the reply."""
        prepared = self._prepare(request)
        try:
            # In a task of its own: each wake-up at the socket would otherwise pass through every layer above.
            body = await asyncio.get_running_loop().create_task(self.sender.post(prepared.body))
            return self.codec.decode(body, prepared.names)
        except ModelError as error:
            redact_error(error, self.sender.secrets)
            raise

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the number of input tokens of a request, as the provider counts them."""
        body = _make_count_body(self._prepare(request).body, self.codec.service, self.model)
        try:
            answer = await self.sender.post(body, count=True)
            return _read_count(answer, self.codec.service)
        except ModelError as error:
            redact_error(error, self.sender.secrets)
            raise

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply as events."""
        prepared = self._prepare(request, stream=True)
        for attempt in count():
            has_output = False
            reader = self.codec.reader(prepared.names)
            try:
                async for data in self.sender.events(prepared.body):
                    for event in reader.feed(data):
                        has_output = True
                        yield event
                for event in reader.get_final_events(reader.end()):
                    yield event
            except ModelError as error:
                # Emitted events cannot be withdrawn, so only a request without output so far is retried.
                if has_output or not await self.sender.wait_for_retry(error, attempt):
                    redact_error(error, self.sender.secrets)
                    raise
            else:
                return


_COUNTED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "openai": frozenset(
        {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"}
    ),
    "anthropic": frozenset(
        {"model", "messages", "system", "tools", "tool_choice", "thinking", "mcp_servers", "output_config"}
    ),
}
"""Fields of a request that the API that counts its tokens has as well."""
_COUNTS: Final = {"openai": "input_tokens", "anthropic": "input_tokens", "gemini": "totalTokens"}


def _make_count_body(body: Mapping[str, Any], service: Service, model: str) -> dict[str, Any]:
    """Return the body that asks for the number of tokens of a request.

    Raises:
        ConfigError: the provider has no API for it.
    """
    if service.format == "gemini":
        name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
        return {"generateContentRequest": {"model": name, **body}}
    if service.format not in _COUNTED_FIELDS:
        raise ConfigError(f"{service.name} has no API that counts tokens. `usage` of a reply has them.")
    return {key: value for key, value in body.items() if key in _COUNTED_FIELDS[service.format]}


def _read_count(answer: Any, service: Service) -> int:
    """Return the number of tokens in the answer.

    Raises:
        ModelError: there is none.
    """
    count = answer.get(_COUNTS[service.format]) if isinstance(answer, Mapping) else None
    if not isinstance(count, int):
        raise ModelError(service.name, f"the response has no number of tokens: {str(answer)[:200]}")
    return count
