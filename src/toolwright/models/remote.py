"""A codec and a sender → a model.

Lives here: one turn, plain or streaming. Not here: formats (`toolwright.providers`), or connections (`transport`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Self, TypeVar

from typing_extensions import override

from toolwright._core.exchange import Finished, ModelEvent, ModelReply, ModelRequest
from toolwright.errors import ModelError
from toolwright.models.secrets import strike_out
from toolwright.models.sender import Sender
from toolwright.providers.codec import Codec
from toolwright.providers.kept import Kept

_T = TypeVar("_T")


class RemoteModel:
    """A model behind an API."""

    def __init__(self, name: str, codec: Codec, sender: Sender, options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        """As it was asked for: `openai:gpt-5`."""
        self.codec = codec
        self.model = name.partition(":")[2]
        """As the provider knows it."""
        self._kept = Kept()
        self._sender, self._options = sender, ModelRequest((), (), None, options).options

    def _merged(self, request: ModelRequest) -> ModelRequest:
        if not self._options:
            return request
        body = {**self._options.get("body", {}), **request.options.get("body", {})}
        options = {**self._options, **request.options, **({"body": body} if body else {})}
        return ModelRequest(request.messages, [*request.tools, *request.native], request.tool_choice, options)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request.

        Raises:
            ModelError: there is none; says why, and whether the same request may succeed later.
        """
        asked = self._merged(request)
        body = self.codec.encode(asked, self.model, kept=self._kept)
        names = self.codec.offered(asked).names
        try:
            return self.codec.decode(await self._sender.post(body), names)
        except ModelError as error:
            strike_out(error, self._sender.secrets)
            raise

    def respond_sync(self, request: ModelRequest) -> ModelReply:
        """Run `respond` to its end, from code that is not async; no connection stays open."""

        async def once() -> ModelReply:
            async with self:
                return await self.respond(request)

        return _run_to_end(once())

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer piece by piece; the last event is `Finished` with the whole of it.

        Raises:
            ModelError: there is none, or it was cut; says why.
        """
        asked = self._merged(request)
        body = self.codec.encode(asked, self.model, stream=True, kept=self._kept)
        reader = self.codec.reader(self.codec.offered(asked).names)
        try:
            async for told in self._sender.events(body):
                for event in reader.feed(told):
                    yield event
            reply = reader.end()
            for event in reader.late(reply):
                yield event
        except ModelError as error:
            strike_out(error, self._sender.secrets)
            raise
        yield Finished(reply)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._sender.aclose()

    def close_sync(self) -> None:
        """Run `aclose` to its end, from code that is not async."""
        _run_to_end(self.aclose())

    @override
    def __repr__(self) -> str:
        return f"<model {self.name!r}>"


def _run_to_end(coro: Coroutine[Any, Any, _T]) -> _T:
    # A loop in a thread: asyncio costs as much as the rest of a first model, and many a model is never asked this way.
    from toolwright._core.sync import run_to_end  # noqa: PLC0415

    return run_to_end(coro)
