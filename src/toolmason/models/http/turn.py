"""Run one model request, plain or streaming, with a codec and a sender."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest
from toolmason.errors import ModelError
from toolmason.models.http.redaction import redact_error
from toolmason.models.http.sender import Sender
from toolmason.providers.codec import Codec, PreparedRequest
from toolmason.providers.tool_set import RequestCache


class ModelClient:
    """Client that encodes requests, sends them and decodes the replies."""

    def __init__(self, model: str, codec: Codec, sender: Sender, options: Mapping[str, Any] | None) -> None:
        self.model, self.codec, self._sender = model, codec, sender
        self._cache = RequestCache()
        self._options = ModelRequest((), (), None, options).options

    def _merge_options(self, request: ModelRequest) -> ModelRequest:
        if not self._options:
            return request
        body = {**self._options.get("body", {}), **request.options.get("body", {})}
        options = {**self._options, **request.options, **({"body": body} if body else {})}
        return ModelRequest(request.messages, [*request.tools, *request.native], request.tool_choice, options)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the reply."""
        merged = self._merge_options(request)
        prepared = self.codec.prepare(merged, self.model, self._cache)
        try:
            return self.codec.decode(await self._sender.post(prepared.body), prepared.names)
        except ModelError as error:
            redact_error(error, self._sender.secrets)
            raise

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply as events."""
        merged = self._merge_options(request)
        prepared = self.codec.prepare(merged, self.model, self._cache, stream=True)
        for attempt in count():
            has_output = False
            try:
                async for event in self._events(prepared):
                    has_output = True
                    yield event
            except ModelError as error:
                # Emitted events cannot be withdrawn, so only a request without output so far is retried.
                if has_output or not await self._sender.wait_for_retry(error, attempt):
                    redact_error(error, self._sender.secrets)
                    raise
            else:
                return

    async def _events(self, prepared: PreparedRequest) -> AsyncIterator[ModelEvent]:
        reader = self.codec.reader(prepared.names)
        async for data in self._sender.events(prepared.body):
            for event in reader.feed(data):
                yield event
        for event in reader.get_final_events(reader.end()):
            yield event
