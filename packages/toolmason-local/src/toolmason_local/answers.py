"""Write the answers of the local model: sentences about results, and fixed ones for intents.

The adapter writes the sentence about a result. It is used only if every number, name and code in it occurs in the
result, the arguments or the request; otherwise the result itself is the answer, so that nothing is invented. If a
request has several calls, it names what belongs to the other calls, so it does not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolmason import ToolCall, ToolDefinition, ToolResult
from toolmason_local.history import get_arguments
from toolmason_local.prompts import Intent

_MAX_SENTENCE_CHARS: Final = 400
"""Maximum characters of a result that is put into a sentence; a longer one is shown as it is."""
_MAX_LISTED_TOOLS: Final = 8
_MAX_ARGUMENT_CHARS: Final = 80
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_NAME: Final = re.compile(r"\w*[A-Z0-9_]\w*(?:[-.:/]\w+)*")
_FIXED: Final[dict[str, str]] = {
    "hello": "Hello! Ask for something that my tools can do, or say help.",
    "thanks": "You're welcome.",
    "bye": "Goodbye.",
}


def describe_intent(intent: Intent, tools: Sequence[ToolDefinition]) -> str:
    """Return the answer to a message that needs no call."""
    if intent in _FIXED:
        return _FIXED[intent]
    listed = [_describe_tool(tool) for tool in tools[:_MAX_LISTED_TOOLS]]
    if len(tools) > _MAX_LISTED_TOOLS:
        listed.append(f"and {len(tools) - _MAX_LISTED_TOOLS} more")
    known = f"I can: {'; '.join(listed)}." if listed else "I have no tools."
    return known if intent == "help" else f"None of my tools fits. {known}"


def choose_answer(sentence: str, result: ToolResult, calls: Sequence[ToolCall], request: str) -> str:
    """Return the sentence that the model wrote about a result, or one with the result if it says anything else."""
    call = next((call for call in calls if call.id == result.call_id), None)
    values = _list_values(get_arguments(call))
    sources = [result.text, *values] if len(calls) > 1 else [result.text, request, *values]
    sentence = _name_own_values(sentence, result.text, get_arguments(call), [get_arguments(other) for other in calls])
    numbers = {_to_number(found) for found in _NUMBER.findall(sentence)}
    # "TEA-01 costs 13.5" is wrong if that is the price of three.
    is_complete = all(_to_number(value) in numbers for value in values if _NUMBER.fullmatch(value))
    is_short = len(result.text) <= _MAX_SENTENCE_CHARS
    if not sentence or not is_short or not is_complete or not is_supported(sentence, sources):
        return summarize_results([result], calls)
    return sentence


def _name_own_values(
    sentence: str, result: str, own: Mapping[str, Any], all_arguments: Sequence[Mapping[str, Any]]
) -> str:
    """Return a sentence that names the strings and numbers of its own call instead of those of another call."""
    for name, value in own.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool) and not _names(sentence, value):
            for other in {str(one[name]) for one in all_arguments if type(one.get(name)) is type(value)} - {
                str(value),
                "",
            }:
                if isinstance(value, str):
                    sentence = sentence.replace(other, value)
                elif re.search(_as_number(other), result) is None:
                    sentence = re.sub(_as_number(other), str(value), sentence)
    return sentence


def _names(sentence: str, value: str | float) -> bool:
    return value in sentence if isinstance(value, str) else re.search(_as_number(str(value)), sentence) is not None


def _as_number(digits: str) -> str:
    """Return a pattern for a number that is not a part of a code or of another number."""
    return rf"(?<![\w.,-]){re.escape(digits)}(?![\w-]|[.,]\d)"


def is_supported(sentence: str, sources: Sequence[str]) -> bool:
    """Return True if the numbers, names and codes of a sentence occur in the sources. The first one is the result."""
    text = " ".join(sources)
    folded = text.casefold()
    numbers = {_to_number(found) for found in _NUMBER.findall(text)}
    result = sources[0].lstrip()
    separators = 0 if result.startswith("{") else len(re.findall(r"[,\n]", result))
    items = separators + 1 if separators or result.startswith("[") else 0
    for found in _NUMBER.findall(sentence):
        number = _to_number(found)
        # A small number may be the count of the items in a list.
        if number not in numbers and not (number.is_integer() and number <= items):
            return False
    words = sentence.split(" ", 1)[1] if " " in sentence else ""
    return all(name.casefold() in folded for name in _NAME.findall(words) if not _NUMBER.fullmatch(name))


def summarize_results(results: Sequence[ToolResult], calls: Sequence[ToolCall]) -> str:
    """Return an answer that shows the results as they are, with the arguments of their calls."""
    by_id = {call.id: call for call in calls}
    return "\n".join(_format_result(result, by_id.get(result.call_id)) for result in results)


def _format_result(result: ToolResult, call: ToolCall | None) -> str:
    given = ", ".join(_list_values(get_arguments(call)))[:_MAX_ARGUMENT_CHARS]
    name = result.name.replace("_", " ") + (f" ({given})" if given else "")
    if result.error is not None:
        return f"{name} failed: {result.error.message.removeprefix(f'{result.name} failed: ')}"
    text = result.text.strip()
    if not text or text in ("null", "Success"):
        return f"{name}: done."
    return f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}"


def _describe_tool(tool: ToolDefinition) -> str:
    about = tool.description.strip().split("\n", 1)[0].rstrip(".")
    return f"{about[:1].lower()}{about[1:]}" if about else tool.name.replace("_", " ")


def _list_values(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _list_values(one)]
    if isinstance(value, list):
        return [text for one in value for text in _list_values(one)]
    return [str(value)]


def _to_number(text: str) -> float:
    plain = text.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return float("nan")  # such as 1.2.3: equal to no number
