"""A request, a codec and a sender → one turn of a model.

Lives here: plain and streaming. Not here: formats (`toolmason.providers`), or connections (`transport`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any

from toolmason._core.toolbox.exchange import Finished, ModelEvent, ModelReply, ModelRequest
from toolmason.errors import ModelError
from toolmason.models.http.redaction import strike_out
from toolmason.models.http.sender import Sender
from toolmason.providers.aliases import Names
from toolmason.providers.codec import Codec
from toolmason.providers.tool_set import Kept


class Turn:
    """What a model does with each request."""

    def __init__(self, model: str, codec: Codec, sender: Sender, options: Mapping[str, Any] | None) -> None:
        self.model, self.codec, self._sender = model, codec, sender
        self._kept = Kept()
        self._options = ModelRequest((), (), None, options).options

    def _merged(self, request: ModelRequest) -> ModelRequest:
        if not self._options:
            return request
        body = {**self._options.get("body", {}), **request.options.get("body", {})}
        options = {**self._options, **request.options, **({"body": body} if body else {})}
        return ModelRequest(request.messages, [*request.tools, *request.native], request.tool_choice, options)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the answer."""
        asked = self._merged(request)
        body = self.codec.encode(asked, self.model, kept=self._kept)
        names = self.codec.offered(asked).names
        try:
            return self.codec.decode(await self._sender.post(body), names)
        except ModelError as error:
            strike_out(error, self._sender.secrets)
            raise

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer piece by piece."""
        asked = self._merged(request)
        body = self.codec.encode(asked, self.model, stream=True, kept=self._kept)
        names = self.codec.offered(asked).names
        for attempt in count():
            said = False
            try:
                async for event in self._events(body, names):
                    said = True
                    yield event
            except ModelError as error:
                # What was said cannot be taken back; before the first word the same request may be sent again.
                if said or not await self._sender.again(error, attempt):
                    strike_out(error, self._sender.secrets)
                    raise
            else:
                return

    async def _events(self, body: Mapping[str, Any], names: Names) -> AsyncIterator[ModelEvent]:
        reader = self.codec.reader(names)
        async for told in self._sender.events(body):
            for event in reader.feed(told):
                yield event
        reply = reader.end()
        for event in reader.late(reply):
            yield event
        yield Finished(reply)
