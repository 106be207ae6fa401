"""Protocol of models; implement it to add your own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from toolmason.errors import ConfigError

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


def check_model(model: Any) -> None:
    """Raise ConfigError if `model` is not a model."""
    if isinstance(model, type) or not callable(getattr(model, "respond", None)):
        raise ConfigError(f"Chat({model!r}): this is not a model. Pass a name, or one model, such as `model(...)`.")


def check_options(model: Any, options: Mapping[str, Any]) -> None:
    """Raise ConfigError if a model can tell that it does not support an option."""
    check = getattr(model, "check_options", None)
    if options and check is not None:
        check(options)
