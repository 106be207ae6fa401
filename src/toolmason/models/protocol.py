"""What a model is to the rest of the package.

Lives here: the protocol. Write your own: two methods and a name. Not here: those that we bring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # a model is named before there is a request
    from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest


@runtime_checkable
class Model(Protocol):
    """Something that answers."""

    name: str

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request.

        Raises:
            ModelError: there is none; says why.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer piece by piece; the last event is `Finished` with the whole of it.

        Raises:
            ModelError: there is none, or it was cut; says why.
        """
        ...
