"""A model that does everything wrong that models do, the same way each time.

Lives here: `FaultyModel`. Give it to a chat in your tests and see what your application does. Not here: anything random
that a seed does not decide.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from toolmason._core.toolbox.exchange import (
    CallClosed,
    CallOpened,
    Finished,
    ModelEvent,
    ModelReply,
    ModelRequest,
    TextDelta,
)
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError, ModelError

Fault = Callable[["FaultyModel", ModelRequest], ModelReply]


class FaultyModel:
    """A model that picks a fault for each request, by its seed, and in between does what it should."""

    def __init__(self, seed: int = 0, faults: Sequence[str] = (), *, answers_after: int | None = 8) -> None:
        chosen = tuple(faults) or tuple(FAULTS)
        if unknown := set(chosen) - FAULTS.keys():
            raise ConfigError(f"There is no fault {min(unknown)!r}. There are: {', '.join(sorted(FAULTS))}.")
        self.name = "faulty"
        self.faults, self.answers_after = chosen, answers_after
        """After this many requests it answers; `None`: it goes on for ever."""
        self.requests: list[ModelRequest] = []
        self.chance = random.Random(seed)  # noqa: S311 - chosen by a seed on purpose

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Answer wrongly.

        Raises:
            ModelError: that is one of the faults.
        """
        self.requests.append(request)
        if self.answers_after is not None and len(self.requests) > self.answers_after:
            return ModelReply(Message("assistant", "I give up."))
        return FAULTS[self.chance.choice(self.faults)](self, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer wrongly, piece by piece."""
        reply = await self.respond(request)
        if reply.text:
            yield TextDelta(reply.text)
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            yield CallClosed(call)
        yield Finished(reply)

    def id(self) -> str:
        """Return an id for a call."""
        return f"call_{len(self.requests)}_{self.chance.randrange(10**6)}"

    def call(self, request: ModelRequest, arguments: Any = None, name: str | None = None) -> ToolCall:
        """Return a call of some tool that was offered, with arguments of about the right kind."""
        if not request.tools:
            return ToolCall(self.id(), "nothing" if name is None else name, {})
        tool = self.chance.choice(request.tools)
        made = {key: _value(part, self.chance) for key, part in tool.input_schema.get("properties", {}).items()}
        return ToolCall(self.id(), tool.name if name is None else name, made if arguments is None else arguments)


def _value(schema: Any, chance: random.Random) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = {"integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    return kinds.get(str(kind), chance.choice(["text", "", "ž"]))


def _calls(*calls: ToolCall) -> ModelReply:
    return ModelReply(Message("assistant", (), calls), finish="calls")


def _good(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return _calls(*(model.call(request) for _ in range(model.chance.randint(1, 3))))


def _bad_json(model: FaultyModel, request: ModelRequest) -> ModelReply:
    text = model.chance.choice(["{a: 1}", "not json", "[1, 2]", "null", "{'a': 1}", "```json\n{}\n```", '"{}"'])
    return _calls(model.call(request, text))


def _cut_json(model: FaultyModel, request: ModelRequest) -> ModelReply:
    call = model.call(request)
    text = json.dumps(call.arguments) or "{}"
    return ModelReply(Message("assistant", (), [ToolCall(call.id, call.name, text[: len(text) // 2])]), finish="length")


def _invented(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return _calls(model.call(request, name=model.chance.choice(["do_everything", "", "search.web", "x" * 200])))


def _same_id(model: FaultyModel, request: ModelRequest) -> ModelReply:
    one, two = model.call(request), model.call(request)
    return _calls(one, ToolCall(one.id, two.name, two.arguments), ToolCall("", two.name, two.arguments))


def _again(model: FaultyModel, request: ModelRequest) -> ModelReply:
    last = next((message.calls for message in reversed(request.messages) if message.calls), ())
    return (
        _calls(*(ToolCall(model.id(), call.name, call.arguments) for call in last)) if last else _good(model, request)
    )


def _wrong_types(model: FaultyModel, request: ModelRequest) -> ModelReply:
    call = model.call(request)
    given: dict[str, Any] = call.arguments if isinstance(call.arguments, dict) else {}
    wrong = {key: {"unexpected": [value]} for key, value in given.items()}
    return _calls(ToolCall(call.id, call.name, {**wrong, "extra": 1}))


def _says_and_calls(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return ModelReply(Message("assistant", "Let me see.", [model.call(request)]))


def _silent(model: FaultyModel, request: ModelRequest) -> ModelReply:
    del model, request
    return ModelReply(Message("assistant", ""))


def _fails(model: FaultyModel, request: ModelRequest) -> ModelReply:
    del request
    raise ModelError(model.name, "the model failed on purpose")


FAULTS: Final[dict[str, Fault]] = {
    "none": _good,
    "bad json": _bad_json,
    "cut json": _cut_json,
    "invented name": _invented,
    "same id": _same_id,
    "the same again": _again,
    "wrong types": _wrong_types,
    "says and calls": _says_and_calls,
    "silent": _silent,
    "fails": _fails,
}
"""What can go wrong, by name."""
