"""Provide `FaultyModel`, which reproduces common model faults deterministically."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, iter_reply_events
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError, ModelError

Fault = Callable[["FaultyModel", ModelRequest], ModelReply]


class FaultyModel:
    """Model that picks one of `faults` at random for each request; all of `FAULTS` by default.

    The same seed gives the same faults. The fault `"none"` is a valid reply.
    """

    @explain_arguments
    def __init__(self, seed: int = 0, faults: Sequence[str] = (), *, answers_after: int | None = 8) -> None:
        chosen = tuple(faults) or tuple(FAULTS)
        if unknown := set(chosen) - FAULTS.keys():
            raise ConfigError(f"Unknown fault {min(unknown)!r}. Available: {', '.join(sorted(FAULTS))}.")
        self.name = "faulty"
        self.faults = chosen
        self.answers_after = answers_after
        """Number of requests after which it answers, or None to never answer."""
        self.requests: list[ModelRequest] = []
        self.rng = random.Random(seed)  # noqa: S311 - deterministic on purpose

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return a reply with a random fault.

        Raises:
            ModelError: the chosen fault is an error.
        """
        self.requests.append(request)
        if self.answers_after is not None and len(self.requests) > self.answers_after:
            return ModelReply(Message("assistant", "I give up."))
        return FAULTS[self.rng.choice(self.faults)](self, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream a reply with a random fault."""
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
        tool_name = tool.name if name is None else name
        return ToolCall(self.make_id(), tool_name, values if arguments is None else arguments)


def _make_value(schema: Any, rng: random.Random) -> Any:
    type_name = schema.get("type") if isinstance(schema, dict) else None
    values = {"integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    return values.get(str(type_name), rng.choice(["text", "", "ž"]))


def _make_calls_reply(*calls: ToolCall) -> ModelReply:
    return ModelReply(Message("assistant", (), calls), finish="calls")


def _make_valid_calls(model: FaultyModel, request: ModelRequest) -> ModelReply:
    return _make_calls_reply(*(model.make_call(request) for _ in range(model.rng.randint(1, 3))))


def _send_bad_json(model: FaultyModel, request: ModelRequest) -> ModelReply:
    text = model.rng.choice(["{a: 1}", "not json", "[1, 2]", "null", "{'a': 1}", "```json\n{}\n```", '"{}"'])
    return _make_calls_reply(model.make_call(request, text))


def _truncate_json(model: FaultyModel, request: ModelRequest) -> ModelReply:
    call = model.make_call(request)
    text = json.dumps(dict(call.arguments)) or "{}"
    truncated = ToolCall(call.id, call.name, text[: len(text) // 2])
    return ModelReply(Message("assistant", (), [truncated]), finish="length")


def _invent_name(model: FaultyModel, request: ModelRequest) -> ModelReply:
    name = model.rng.choice(["do_everything", "", "search.web", "x" * 200])
    return _make_calls_reply(model.make_call(request, name=name))


def _reuse_ids(model: FaultyModel, request: ModelRequest) -> ModelReply:
    first = model.make_call(request)
    second = model.make_call(request)
    duplicate_id = ToolCall(first.id, second.name, second.arguments)
    empty_id = ToolCall("", second.name, second.arguments)
    return _make_calls_reply(first, duplicate_id, empty_id)


def _repeat_last_calls(model: FaultyModel, request: ModelRequest) -> ModelReply:
    last_calls = next((message.calls for message in reversed(request.messages) if message.calls), ())
    if not last_calls:
        return _make_valid_calls(model, request)
    return _make_calls_reply(*(ToolCall(model.make_id(), call.name, call.arguments) for call in last_calls))


def _send_wrong_types(model: FaultyModel, request: ModelRequest) -> ModelReply:
    call = model.make_call(request)
    given = dict(call.arguments)
    wrong = {key: {"unexpected": [value]} for key, value in given.items()}
    return _make_calls_reply(ToolCall(call.id, call.name, {**wrong, "extra": 1}))


def _raise_error(model: FaultyModel, request: ModelRequest) -> ModelReply:
    del request
    raise ModelError(model.name, "the model failed on purpose")


FAULTS: Final[dict[str, Fault]] = {
    "none": _make_valid_calls,
    "bad json": _send_bad_json,
    "cut json": _truncate_json,
    "invented name": _invent_name,
    "same id": _reuse_ids,
    "the same again": _repeat_last_calls,
    "wrong types": _send_wrong_types,
    "says and calls": lambda model, request: ModelReply(
        Message("assistant", "Let me see.", [model.make_call(request)])
    ),
    "silent": lambda _model, _request: ModelReply(Message("assistant", "")),
    "fails": _raise_error,
}
"""Functions that make a reply, by the name of the fault."""
