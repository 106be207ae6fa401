"""Provide `FaultyModel`, which reproduces common model faults deterministically."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, iter_reply_events
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError, ModelError

Fault = Callable[["FaultyModel", ModelRequest], ModelReply]


class FaultyModel:
    """Model that picks a fault, or a valid reply, for each request. The seed determines the choice."""

    def __init__(self, seed: int = 0, faults: Sequence[str] = (), *, answers_after: int | None = 8) -> None:
        chosen = tuple(faults) or tuple(FAULTS)
        if unknown := set(chosen) - FAULTS.keys():
            raise ConfigError(f"Unknown fault {min(unknown)!r}. Available: {', '.join(sorted(FAULTS))}.")
        self.name = "faulty"
        self.faults, self.answers_after = chosen, answers_after
        """Number of requests after which it answers, or None to never answer."""
        self.requests: list[ModelRequest] = []
        self.rng = random.Random(seed)  # noqa: S311 - deterministic on purpose

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return a faulty reply.

        Raises:
            ModelError: the chosen fault is an error.
        """
        self.requests.append(request)
        if self.answers_after is not None and len(self.requests) > self.answers_after:
            return ModelReply(Message("assistant", "I give up."))
        return FAULTS[self.rng.choice(self.faults)](self, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream a faulty reply."""
        for event in iter_reply_events(await self.respond(request)):
            yield event

    def make_id(self) -> str:
        """Return an ID for a call."""
        return f"call_{len(self.requests)}_{self.rng.randrange(10**6)}"

    def make_call(self, request: ModelRequest, arguments: Any = None, name: str | None = None) -> ToolCall:
        """Return a call of a random tool of the request, with arguments of roughly the right types."""
        if not request.tools:
            return ToolCall(self.make_id(), "nothing" if name is None else name, {})
        tool = self.rng.choice(request.tools)
        values = {key: _make_value(part, self.rng) for key, part in tool.input_schema.get("properties", {}).items()}
        return ToolCall(self.make_id(), tool.name if name is None else name, values if arguments is None else arguments)


def _make_value(schema: Any, rng: random.Random) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = {"integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    return kinds.get(str(kind), rng.choice(["text", "", "ž"]))


def _make_calls_reply(*calls: ToolCall) -> ModelReply:
    return ModelReply(Message("assistant", (), calls), finish="calls")


def _make_valid_calls(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return _make_calls_reply(*(model.make_call(request) for _ in range(model.rng.randint(1, 3))))


def _bad_json(model: FaultyModel, request: ModelRequest) -> ModelReply:
    text = model.rng.choice(["{a: 1}", "not json", "[1, 2]", "null", "{'a': 1}", "```json\n{}\n```", '"{}"'])
    return _make_calls_reply(model.make_call(request, text))


def _cut_json(model: FaultyModel, request: ModelRequest) -> ModelReply:
    call = model.make_call(request)
    text = json.dumps(call.arguments) or "{}"
    return ModelReply(Message("assistant", (), [ToolCall(call.id, call.name, text[: len(text) // 2])]), finish="length")


def _invent_name(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return _make_calls_reply(
        model.make_call(request, name=model.rng.choice(["do_everything", "", "search.web", "x" * 200]))
    )


def _same_id(model: FaultyModel, request: ModelRequest) -> ModelReply:
    one, two = model.make_call(request), model.make_call(request)
    return _make_calls_reply(one, ToolCall(one.id, two.name, two.arguments), ToolCall("", two.name, two.arguments))


def _repeat_last_calls(model: FaultyModel, request: ModelRequest) -> ModelReply:
    last = next((message.calls for message in reversed(request.messages) if message.calls), ())
    return (
        _make_calls_reply(*(ToolCall(model.make_id(), call.name, call.arguments) for call in last))
        if last
        else _make_valid_calls(model, request)
    )


def _wrong_types(model: FaultyModel, request: ModelRequest) -> ModelReply:
    call = model.make_call(request)
    given: dict[str, Any] = call.arguments if isinstance(call.arguments, dict) else {}
    wrong = {key: {"unexpected": [value]} for key, value in given.items()}
    return _make_calls_reply(ToolCall(call.id, call.name, {**wrong, "extra": 1}))


def _says_and_calls(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return ModelReply(Message("assistant", "Let me see.", [model.make_call(request)]))


def _silent(model: FaultyModel, request: ModelRequest) -> ModelReply:
    del model, request
    return ModelReply(Message("assistant", ""))


def _fails(model: FaultyModel, request: ModelRequest) -> ModelReply:
    del request
    raise ModelError(model.name, "the model failed on purpose")


FAULTS: Final[dict[str, Fault]] = {
    "none": _make_valid_calls,
    "bad json": _bad_json,
    "cut json": _cut_json,
    "invented name": _invent_name,
    "same id": _same_id,
    "the same again": _repeat_last_calls,
    "wrong types": _wrong_types,
    "says and calls": _says_and_calls,
    "silent": _silent,
    "fails": _fails,
}
"""Faults of a model, by name."""
