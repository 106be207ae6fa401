"""A name, a codec and a sender → a model.

Lives here: its life from the name to the last closed connection. What a turn needs is loaded with the first one.
Not here: the turn (`turn`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from typing_extensions import override

from toolmason.models.http.sender import Sender

if TYPE_CHECKING:  # these cost more than the model, which may never be asked
    from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest
    from toolmason.models.http.turn import ModelClient
    from toolmason.providers.codec import Codec

_T = TypeVar("_T")


class RemoteModel:
    """A model behind an API."""

    def __init__(
        self, name: str, codec: Callable[[], Codec], sender: Sender, options: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        """As it was asked for: `openai:gpt-5`."""
        self.model = name.partition(":")[2]
        """As the provider knows it."""
        self._codec, self._sender, self._options = codec, sender, options
        if options:
            self._client  # noqa: B018 - what is wrong with them is told now

    @cached_property
    def _client(self) -> ModelClient:
        from toolmason.models.http.turn import ModelClient  # noqa: PLC0415 - see above

        return ModelClient(self.model, self._codec(), self._sender, self._options)

    @property
    def codec(self) -> Codec:
        """The format that it speaks."""
        return self._client.codec

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request.

        Raises:
            ModelError: there is none; says why, and whether the same request may succeed later.
        """
        return await self._client.respond(request)

    def respond_sync(self, request: ModelRequest) -> ModelReply:
        """Run `respond` to its end, from code that is not async; no connection stays open."""

        async def respond_once() -> ModelReply:
            async with self:
                return await self.respond(request)

        return _run_blocking(respond_once())

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer piece by piece; the last event is `Finished` with the whole of it.

        Raises:
            ModelError: there is none, or it was cut; says why.
        """
        return self._client.stream(request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._sender.aclose()

    def close_sync(self) -> None:
        """Run `aclose` to its end, from code that is not async."""
        _run_blocking(self.aclose())

    @override
    def __repr__(self) -> str:
        return f"<model {self.name!r}>"


def _run_blocking(coro: Coroutine[Any, Any, _T]) -> _T:
    # A loop in a thread: asyncio costs as much as the rest of a first model, and many a model is never asked this way.
    from toolmason._core.run.blocking import run_blocking  # noqa: PLC0415

    return run_blocking(coro)
