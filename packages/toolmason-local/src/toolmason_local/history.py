"""Turn the messages of a chat into the turns that the adapter reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolmason import Message, ToolCall
from toolmason_local.prompts import Turn, format_call

FIND_TOOLS: Final = "find_tools"
"""Name of the tool with which a chat offers to search its other tools."""
MAX_EARLIER: Final = 2
"""Maximum earlier requests in a prompt; each takes time to process."""


def make_turns(messages: Sequence[Message], earlier: int = MAX_EARLIER) -> list[Turn]:
    """Return the last request of a conversation with what follows it, and some earlier ones."""
    starts = [index for index, message in enumerate(messages) if message.role == "user" and message.text]
    first = starts[-earlier - 1 :][0] if starts else 0
    turns: list[Turn] = []
    for message in messages[first:]:
        # A search for tools is not part of the conversation: the adapter does not know it.
        if calls := [call for call in message.calls if call.name != FIND_TOOLS]:
            lines = [format_call(call.name, get_arguments(call)) for call in calls]
            turns.append(Turn("assistant", "\n".join(lines)))
        elif message.role in ("user", "assistant") and message.text:
            turns.append(Turn("user" if message.role == "user" else "assistant", message.text))
        turns += [Turn("tool", result.text) for result in message.results if result.name != FIND_TOOLS]
    return turns or [Turn("user", "")]


def get_last_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the last message that has any."""
    return next((message.calls for message in reversed(messages) if message.calls), ())


def count_calls(messages: Sequence[Message]) -> int:
    """Return the number of calls since the last message of the user."""
    count = 0
    for message in reversed(messages):
        if message.role == "user" and message.text:
            break
        count += len(message.calls)
    return count


def get_arguments(call: ToolCall | None) -> Mapping[str, Any]:
    """Return the arguments of a call as a mapping; it is empty if they are not one."""
    return {} if call is None else call.arguments
