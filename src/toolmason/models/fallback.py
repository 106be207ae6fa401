"""Let the next model answer if the one before is not available, and skip a model that keeps failing."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from typing_extensions import override

from toolmason._core.toolbox.exchange import Finished, ModelEvent, ModelReply, ModelRequest
from toolmason._core.values.messages import Message
from toolmason._explain import explain_arguments
from toolmason._text import to_line
from toolmason.errors import ConfigError, ModelError
from toolmason.models.by_name import model as make_model
from toolmason.models.protocol import Model, check_model, check_options

_log = logging.getLogger("toolmason")
MAX_FAILURES: Final = 3
"""Failures in a row after which a model is skipped."""
SKIP_SECONDS: Final = 30.0
"""Seconds for which it is skipped."""
_SHARED_OPTIONS: Final = frozenset({"timeout", "max_retries", "proxy", "headers", "options"})


def make_fallback(models: Sequence[Any], given: Mapping[str, Any]) -> FallbackModel:
    """Return a model that asks several, from names or models. Options apply to those that are given by name.

    Raises:
        ConfigError: there are fewer than two models, or an option fits only one of them.
    """
    if len(models) < 2:  # noqa: PLR2004 - one model has no other
        raise ConfigError(f"model({models!r:.80}): name at least two models, or pass one name as a string.")
    if single := given.keys() - _SHARED_OPTIONS:
        raise ConfigError(
            f"model([...], {min(single)}=…): it fits only one of the models. Write [model(..., {min(single)}=…), ...]."
        )
    made: list[Model] = []
    for number, each in enumerate(models, 1):
        # With another model to ask, waiting for this one only costs time.
        retries: dict[str, Any] = {} if number == len(models) else {"max_retries": 0}
        made.append(make_model(each, **{**retries, **given}) if isinstance(each, str) else each)
        check_model(made[-1])
    return FallbackModel(made)


@dataclass(slots=True, eq=False)
class _Circuit:
    """Failures of one model."""

    model: Model
    failures: int = 0
    skipped_until: float = 0.0


class FallbackModel:
    """Models in order of preference. The next one is asked on outage, overload and time-out.

    A model that failed `failures` times in a row is skipped for `seconds`, unless all are.
    """

    @explain_arguments
    def __init__(
        self,
        models: Sequence[Model],
        *,
        failures: int = MAX_FAILURES,
        seconds: float = SKIP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = tuple(models)
        for model in self.models:
            check_model(model)
        if not self.models or failures < 1 or seconds < 0:
            raise ConfigError(
                f"FallbackModel({len(self.models)} models, failures={failures!r}, seconds={seconds!r}): at least one "
                "model and one failure are needed."
            )
        self.name = " or ".join(model.name for model in self.models)
        self._circuits = [_Circuit(model) for model in self.models]
        self._failures, self._seconds, self._clock = failures, seconds, clock

    @property
    def codec(self) -> Any:
        """Codec of the models if all have the same format, else None: what only one has must not be sent."""
        codecs = [getattr(model, "codec", None) for model in self.models]
        return codecs[0] if len({getattr(codec, "name", None) for codec in codecs}) == 1 else None

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ConfigError if a model does not support an option."""
        for model in self.models:
            check_options(model, options)

    def _get_order(self) -> list[_Circuit]:
        now = self._clock()
        return [circuit for circuit in self._circuits if circuit.skipped_until <= now] or self._circuits

    def _record_failure(self, circuit: _Circuit, error: ModelError) -> bool:
        """Count a failure. Return False if another model would fail as well."""
        if not error.retryable:
            return False
        circuit.failures += 1
        if circuit.failures >= self._failures:
            circuit.skipped_until = self._clock() + self._seconds
        return True

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the reply of the first model that is available.

        Raises:
            ModelError: the last model failed, or one rejected the request.
        """
        notes: list[str] = []
        order = self._get_order()
        for circuit in order:
            try:
                reply = await circuit.model.respond(self._prepare(circuit.model, request, notes))
            except ModelError as error:
                if not self._record_failure(circuit, error) or circuit is order[-1]:
                    raise
                notes.append(_describe_failure(circuit.model, error))
            else:
                return _finish(circuit, reply, notes)
        raise AssertionError  # pragma: no cover - the last model returns or raises

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply of the first model that is available. After its first event, no other is asked.

        Raises:
            ModelError: the last model failed, or one failed after it began to answer.
        """
        notes: list[str] = []
        order = self._get_order()
        for circuit in order:
            has_output = False
            try:
                async for event in circuit.model.stream(self._prepare(circuit.model, request, notes)):
                    has_output = True
                    yield Finished(_finish(circuit, event.reply, notes)) if isinstance(event, Finished) else event
            except ModelError as error:
                if not self._record_failure(circuit, error) or has_output or circuit is order[-1]:
                    raise
                notes.append(_describe_failure(circuit.model, error))
            else:
                return

    def _prepare(self, model: Model, request: ModelRequest, notes: list[str]) -> ModelRequest:
        """Return the request without the state that another model keeps in it, such as encrypted reasoning."""
        foreign = [
            message for message in request.messages if _get_owner(message, self.models[0]) not in (None, model.name)
        ]
        if not foreign:
            return request
        note = f"{model.name} does not get the reasoning state of {len(foreign)} messages of another model"
        if note not in notes:
            notes.append(note)
        dropped = set(map(id, foreign))
        messages = (
            replace(message, provider_state=None) if id(message) in dropped else message for message in request.messages
        )
        return request.with_messages(messages)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for model in self.models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    @override
    def __repr__(self) -> str:
        return f"<model {self.name!r}>"


def _get_owner(message: Message, first: Model) -> str | None:
    """Return the name of the model whose state a message has, or None. Without a name, it is the first model's."""
    state = message.provider_state
    return str(state.get("model", first.name)) if state is not None and message.role == "assistant" else None


def _describe_failure(model: Model, error: ModelError) -> str:
    note = to_line(f"{model.name} was not available: {error}")
    _log.warning("fallback: %s", note)
    return note


def _finish(circuit: _Circuit, reply: ModelReply, notes: Sequence[str]) -> ModelReply:
    """Return the reply with the name of its model, and close the circuit."""
    circuit.failures, circuit.skipped_until = 0, 0.0
    name, message = circuit.model.name, reply.message
    if message.provider_state is not None:
        message = replace(message, provider_state={**message.provider_state, "model": name})
    return replace(reply, message=message, model=reply.model or name, notes=(*notes, *reply.notes))
