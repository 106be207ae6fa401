"""Hand out the calls that the application runs, and take their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from toolmason._core.call.approval import ApprovalRequest
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.results import ToolCall, ToolResult, replace_result
from toolmason.chat.reply import Reply
from toolmason.errors import ApprovalRequired, ConfigError, ExternalCall
from toolmason.mcp_client.calls.output_checks import OutputChecker

_SEPARATOR: Final = "/"
"""Between the ID of the call of a chat, and that of a call which the chat leaves to the application."""


def find_waiting(
    results: Iterable[ToolResult], waiting: Mapping[str, Reply[Any]]
) -> tuple[tuple[ApprovalRequest, ...], tuple[ToolCall, ...]]:
    """Return what waits for a decision, and for the application: of these calls, and of the chats that they called.

    The ID of a call in a chat that was called as a tool starts with that of the outer call.
    """
    pending: list[ApprovalRequest] = []
    external: list[ToolCall] = []
    for result in results:
        error = result.error
        if not isinstance(error, ApprovalRequired | ExternalCall):
            continue
        if (reply := waiting.get(result.call_id)) is not None:
            pending += reply.pending
            external += [replace(call, id=f"{result.call_id}{_SEPARATOR}{call.id}") for call in reply.external]
        elif isinstance(error, ApprovalRequired):
            pending.append(error.request)
        else:
            external.append(ToolCall(result.call_id, result.name, error.arguments))
    return tuple(pending), tuple(external)


def make_external_result(call: ToolCall, arguments: Any = None) -> ToolResult:
    """Return the result of a call that the application has not run yet."""
    return ToolResult(call.id, call.name, error=ExternalCall(call.name, arguments), attempts=0)


def take_results(reply: Reply[Any], results: Iterable[Any]) -> tuple[ToolResult, ...]:
    """Return the results that the application gives for the calls of a run, with the names of their calls.

    Raises:
        ConfigError: a result is none, is of another call, or of one that has a result already.
    """
    names = {call.id: call.name for call in reply.external}
    taken: dict[str, ToolResult] = {}
    items: Any = results
    for result in items if isinstance(items, Iterable) else [items]:
        if not isinstance(result, ToolResult):
            raise ConfigError(
                f"results=: {result!r:.80} is not a ToolResult. Pass ToolResult(call.id, call.name, value=...)."
            )
        if result.call_id not in names:
            known = ", ".join(map(repr, names)) or "none"
            raise ConfigError(
                f"results=: the run does not wait for call {result.call_id!r:.80}. It waits for: {known}."
            )
        if result.call_id in taken:
            raise ConfigError(f"results=: there are two results of call {result.call_id!r}. Pass one.")
        name = names[result.call_id]
        if result.name not in ("", name):
            raise ConfigError(f"results=: call {result.call_id!r} is one of {name!r}, not of {result.name!r:.80}.")
        taken[result.call_id] = replace_result(result, name=name)
    return tuple(taken.values())


def select_inner(call: ToolCall, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """Return the results for calls in the chat that a call started, with the IDs that they have there."""
    prefix = f"{call.id}{_SEPARATOR}"
    inner = [result for result in results if result.call_id.startswith(prefix)]
    return tuple(replace_result(result, call_id=result.call_id.removeprefix(prefix)) for result in inner)


async def check_results(box: Toolbox, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """Return results with their structured values, as the output schemas of their tools want them.

    Raises:
        ConfigError: a value does not match the schema.
    """
    return tuple([await _check_result(box, result) for result in results])


async def _check_result(box: Toolbox, result: ToolResult) -> ToolResult:
    if result.error is not None or result.name not in box:
        return result
    tool = box[result.name]
    schema = tool.definition.output_schema
    result = replace_result(result, return_direct=tool.options.return_direct)
    if schema is None:
        return result
    value = result.value if result.structured is None else result.structured
    checker = OutputChecker(schema, tool.name)
    wrapped = {"result": value}
    is_wrapped = schema.get("required") == ["result"] and await checker.find_misfit(wrapped) is None
    structured: Any = wrapped if is_wrapped else value
    misfit = await checker.find_misfit(structured)
    if misfit is not None or not isinstance(structured, Mapping):
        problem = misfit or "$: it must be an object"
        raise ConfigError(f"results=: the result of {tool.name!r} does not match its output schema: {problem}.")
    return replace_result(result, structured=dict(structured))
