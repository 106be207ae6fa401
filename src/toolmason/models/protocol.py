"""Protocol of models; implement it to add your own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # imported for types only: a model is created before there is a request
    from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest


@runtime_checkable
class Model(Protocol):
    """Model that answers requests."""

    name: str

    def respond(self, request: ModelRequest) -> Awaitable[ModelReply]:
        """Return the reply to a request.

        Raises:
            ModelError: the request failed.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply as events; the last one is `Finished` with the complete reply.

        Raises:
            ModelError: the request failed, or the stream ended early.
        """
        ...
