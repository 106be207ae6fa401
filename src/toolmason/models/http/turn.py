"""Run one model request, plain or streaming, with a codec and a sender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest
from toolmason.errors import ModelError
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
