"""Model behind an HTTP API; the modules that a request needs are imported with the first one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from typing_extensions import override

from toolmason._services import Service
from toolmason.models.http.sender import Sender

if TYPE_CHECKING:  # imported on first use: they cost more than creating a model, which may never be used
    from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest
    from toolmason.models.http.turn import ModelClient
    from toolmason.providers.codec import Codec

_T = TypeVar("_T")


class RemoteModel:
    """Model behind an API."""

    def __init__(
        self,
        name: str,
        make_codec: Callable[[], Codec],
        make_sender: Callable[[], Sender],
        service: Service,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        """Full name, such as `openai:gpt-5`."""
        self.model = name.partition(":")[2]
        """The provider's name of the model."""
        self.service = service
        self._make_codec, self._make_sender = make_codec, make_sender
        self._options = self.check_options(options) if options else {}

    def check_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of a request, or raise ConfigError if one is unknown, invalid or not supported."""
        from toolmason._core.toolbox.exchange import ModelRequest  # noqa: PLC0415 - imported on first use, as above
        from toolmason.providers.option_rules import map_options  # noqa: PLC0415 - as above

        checked = ModelRequest((), (), None, options).options
        map_options(checked, self.service, self.model)
        return checked

    @cached_property
    def codec(self) -> Codec:
        """Codec of the provider's format."""
        return self._make_codec()

    @cached_property
    def _client(self) -> ModelClient:
        from toolmason.models.http.turn import ModelClient  # noqa: PLC0415 - imported on first use, as above

        return ModelClient(self.model, self.codec, self._make_sender(), self._options)

    def respond(self, request: ModelRequest) -> Coroutine[Any, Any, ModelReply]:
        """Return the reply to a request.

        Raises:
            ModelError: the request failed; `retryable` is True if it may succeed later.
        """
        return self._client.respond(request)

    def count_tokens(self, request: ModelRequest) -> Coroutine[Any, Any, int]:
        """Return the number of input tokens of a request, as the provider counts them; the model is not asked.

        Raises:
            ConfigError: the provider has no API for it.
            ModelError: the request failed.
        """
        return self._client.count_tokens(request)

    def respond_sync(self, request: ModelRequest) -> ModelReply:
        """Run `respond` from synchronous code, and close the connections afterwards."""

        async def respond_once() -> ModelReply:
            async with self:
                return await self.respond(request)

        return _run_blocking(respond_once())

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply as events; the last one is `Finished` with the complete reply.

        Raises:
            ModelError: the request failed, or the stream ended early.
        """
        return self._client.stream(request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        if "_client" in vars(self):
            await self._client.sender.aclose()

    def close_sync(self) -> None:
        """Run `aclose` from synchronous code."""
        _run_blocking(self.aclose())

    @override
    def __repr__(self) -> str:
        return f"<model {self.name!r}>"


def _run_blocking(coro: Coroutine[Any, Any, _T]) -> _T:
    # Imported on demand: asyncio costs as much as creating the model, and many models are never used synchronously.
    from toolmason._core.run.blocking import run_blocking  # noqa: PLC0415

    return run_blocking(coro)
