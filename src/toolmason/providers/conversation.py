"""Check and repair the calls and results of a conversation by the rules that all providers share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from typing_extensions import override

from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult, replace_result
from toolmason.errors import ToolCallError

_ROLES: Final = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Flaw:
    """Problem that makes providers reject a request."""

    place: str
    """Index of the message, or a path in a body."""
    code: str
    """Stable identifier of the rule."""
    message: str

    @override
    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def check_conversation(messages: Iterable[Message]) -> list[Flaw]:
    """Return the problems with the calls and results of a conversation; empty if it can be sent."""
    return find_flaws(messages, set())


def find_flaws(messages: Iterable[Message], seen: set[str]) -> list[Flaw]:
    """Return the problems of messages that follow the calls in `seen`, and add their calls to it."""
    flaws: list[Flaw] = []
    open_calls: dict[str, str] = {}
    for number, message in enumerate(messages):
        place = f"message {number}"
        role, calls, results = message.role, message.calls, message.results
        if role not in _ROLES:
            flaws.append(Flaw(place, "role", f"unknown role {role!r}"))
        if role != "tool" and open_calls:
            problem = "call {!r} has no result before this message"
            flaws += [Flaw(place, "unanswered", problem.format(call_id)) for call_id in open_calls]
            open_calls = {}
        if calls:
            if role != "assistant":
                flaws.append(Flaw(place, "misplaced", f"a message with role {role!r} has calls"))
            flaws += _check_calls(calls, place, seen, open_calls)
        if results:
            if role != "tool":
                flaws.append(Flaw(place, "misplaced", f"a message with role {role!r} has results"))
            flaws += _check_results(results, place, seen, open_calls)
    if open_calls:
        flaws += [Flaw("the end", "unanswered", f"call {call_id!r} has no result") for call_id in open_calls]
    return flaws


def _check_calls(calls: Sequence[ToolCall], place: str, seen: set[str], open_calls: dict[str, str]) -> Iterator[Flaw]:
    for call in calls:
        if not call.id or not call.name:
            yield Flaw(place, "nameless", f"a call has id {call.id!r} and name {call.name!r}; it needs both")
        if call.id in seen:
            yield Flaw(place, "duplicate", f"the id {call.id!r} is already used")
        seen.add(call.id)
        open_calls[call.id] = call.name


def _check_results(
    results: Sequence[ToolResult], place: str, seen: set[str], open_calls: dict[str, str]
) -> Iterator[Flaw]:
    for result in results:
        name = open_calls.pop(result.call_id, None)
        if name is None and result.call_id in seen:
            problem = f"call {result.call_id!r} already has a result, or this one comes too late"
            yield Flaw(place, "duplicate result", problem)
        elif name is None:
            yield Flaw(place, "orphan", f"call {result.call_id!r} was never made")
        elif name != result.name:
            yield Flaw(place, "name", f"the result of {result.call_id!r} names {result.name!r}, not {name!r}")


def repair(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return a conversation that every provider accepts; a valid one is returned unchanged.

    A call without a result gets an error result, a result without a call is removed, and a duplicate id is replaced.
    """
    original = tuple(messages)
    if not find_flaws(original, set()):
        return original
    answers = defaultdict[str, list[tuple[int, ToolResult]]](list)
    for number, message in enumerate(original):
        for result in message.results:
            answers[result.call_id].append((number, result))
    seen: set[str] = set()
    suffixes = count(1)
    repaired: list[Message] = []
    for number, message in enumerate(original):
        if message.role == "tool":
            continue
        if message.role != "assistant" or not message.calls:
            repaired.append(_replace_calls(message, ()))
            continue
        calls: list[ToolCall] = []
        results: list[ToolResult] = []
        for call in message.calls:
            answer = _pop_result(answers[call.id], number)
            call_id = call.id
            while not call_id or call_id in seen:
                call_id = f"{call.id or 'call'}_{next(suffixes)}"
            seen.add(call_id)
            calls.append(replace(call, id=call_id, name=call.name or "unknown"))
            results.append(_make_result(calls[-1], answer))
        repaired += [_replace_calls(message, tuple(calls)), Message("tool", results=results)]
    return tuple(repaired)


def _pop_result(answers: list[tuple[int, ToolResult]], after: int) -> ToolResult | None:
    found = [index for index, (number, _) in enumerate(answers) if number >= after]
    if not found:
        return None
    # A result that came late replaces the report that it is missing.
    return answers.pop(min(found, key=lambda index: is_unavailable(answers[index][1])))[1]


def is_unavailable(result: ToolResult) -> bool:
    """Return True if a result only reports that the real one is missing."""
    error = result.error
    return error is not None and error.message == _make_unavailable_error(error.tool).message


def _make_unavailable_error(tool: str) -> ToolCallError:
    return ToolCallError(f"The result of {tool} is not available. It may or may not have run.", tool=tool)


def _make_result(call: ToolCall, found: ToolResult | None) -> ToolResult:
    if found is None:
        return ToolResult(call.id, call.name, error=_make_unavailable_error(call.name), attempts=0)
    if (found.call_id, found.name) == (call.id, call.name):
        return found
    return replace_result(found, call_id=call.id, name=call.name)


def _replace_calls(message: Message, calls: tuple[ToolCall, ...]) -> Message:
    """Return a message with other calls and without results; the same object if nothing changes."""
    if calls == message.calls and not message.results and message.role in _ROLES:
        return message
    role = message.role if message.role in _ROLES else "user"
    return replace(message, role=role, calls=calls, results=())
