"""Find problems in a request body that the provider's API rejects but its types allow.

Covers ids of calls and results, names, and the rules of strict mode; meant for tests of request bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolmason.providers.conversation import Flaw
from toolmason.providers.registry import codec
from toolmason.providers.schema.dialects import OPENAI_STRICT

_OPENAI_ID: Final = re.compile(r".{1,64}", re.DOTALL)
_ANTHROPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRICT_KEYWORDS: Final = (OPENAI_STRICT.keywords or frozenset()) | {"description", "title"}


@dataclass(frozen=True, slots=True)
class _ConversationStep:
    """Call, result or message in a conversation."""

    kind: Literal["call", "result", "user", "assistant"]
    place: str
    id: Any = None
    name: Any = None


def check_body(provider: str, body: Mapping[str, Any]) -> list[Flaw]:
    """Return the problems in a body that its provider rejects but no type shows; empty if there are none.

    Raises:
        UnsupportedProvider: the provider is unknown; the message lists the known ones.
    """
    provider_codec = codec(provider)
    tools = list(_iter_tools(body, provider_codec.name))
    flaws = list(_check_tools(tools, provider_codec.rules.name_pattern))
    flaws += _check_choice(body, {name for name, _, _ in tools})
    flaws += _check_steps(_STEP_ITERATORS[provider_codec.name](body), provider_codec.name)
    return flaws


def _check_tools(tools: list[tuple[Any, Any, bool]], name_pattern: str) -> Iterator[Flaw]:
    seen: set[Any] = set()
    for number, (name, schema, strict) in enumerate(tools):
        place = f"tool {number}"
        if not isinstance(name, str) or not re.fullmatch(name_pattern, name):
            yield Flaw(place, "name", f"the provider rejects the name {name!r}")
        if name in seen:
            yield Flaw(place, "duplicate tool", f"two tools are named {name!r}")
        seen.add(name)
        if isinstance(schema, Mapping):
            if schema.get("type") != "object":
                yield Flaw(place, "schema", f"the parameters have type {schema.get('type')!r}, not 'object'")
            if strict:
                yield from _check_strict(schema, f"{place} $")


def _check_strict(node: Any, place: str) -> Iterator[Flaw]:
    """Yield the violations of OpenAI's strict mode in a schema."""
    if not isinstance(node, Mapping):
        return
    if "properties" in node or node.get("type") == "object":
        properties = node.get("properties") or {}
        if node.get("additionalProperties") is not False:
            yield Flaw(place, "strict", "additionalProperties is not false")
        if set(node.get("required") or ()) != set(properties):
            yield Flaw(place, "strict", "not every property is required")
    for keyword in node.keys() - _STRICT_KEYWORDS:
        yield Flaw(place, "strict", f"`{keyword}` is not allowed in strict mode")
    if "$ref" in node and len(node) > 1:
        yield Flaw(place, "strict", "a `$ref` has sibling keywords")
    if not node.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        yield Flaw(place, "strict", "the schema has no type")
    for part, inner in _iter_children(node, place):
        yield from _check_strict(part, inner)


def _iter_children(node: Mapping[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    for key in ("properties", "$defs"):
        yield from ((part, f"{place}.{name}") for name, part in (node.get(key) or {}).items())
    yield from ((part, place) for part in node.get("anyOf") or ())
    yield node.get("items"), f"{place}[*]"


def _check_choice(body: Mapping[str, Any], names: set[Any]) -> Iterator[Flaw]:
    config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    choice = body.get("tool_choice", config.get("mode"))
    if choice is not None and not body.get("tools"):
        yield Flaw("tool_choice", "choice", "a choice is set but there are no tools")
    chosen_names = list(config.get("allowedFunctionNames") or ())
    if isinstance(choice, Mapping):
        choice_body = choice.get("allowed_tools") if isinstance(choice.get("allowed_tools"), Mapping) else choice
        chosen_tools = (choice_body or {}).get("tools") or [choice]
        chosen_names += [
            (part.get("function") or part).get("name") for part in chosen_tools if isinstance(part, Mapping)
        ]
    for name in chosen_names:
        if name is not None and name not in names:
            yield Flaw("tool_choice", "choice", f"{name!r} is chosen but not offered")


def _check_steps(steps: Iterator[_ConversationStep], provider: str) -> list[Flaw]:
    flaws: list[Flaw] = []
    # Gemini calls may lack ids; calls with the same name are then answered in order.
    open_calls: dict[Any, list[_ConversationStep]] = {}
    seen: set[Any] = set()
    id_pattern = _ANTHROPIC_ID if provider == "anthropic" else _OPENAI_ID
    for step in steps:
        has_no_id = provider == "gemini" and step.id is None
        key = step.name if has_no_id else step.id
        if step.kind in ("user", "assistant"):
            flaws += [Flaw(step.place, "unanswered", f"call {key!r} has no result before this") for key in open_calls]
            open_calls = {}
        elif not has_no_id and (not isinstance(step.id, str) or not id_pattern.fullmatch(step.id)):
            flaws.append(Flaw(step.place, "id", f"the provider rejects the id {step.id!r}"))
        elif step.kind == "call":
            if key in seen and not has_no_id:
                flaws.append(Flaw(step.place, "duplicate", f"the id {key!r} is already used"))
            seen.add(key)
            # A duplicate id is reported above and still counts as one call.
            open_calls[key] = [*open_calls.get(key, ()), step] if has_no_id else [step]
        elif not (calls := open_calls.pop(key, [])):
            flaws.append(Flaw(step.place, "orphan", f"no open call {key!r} for this result"))
        else:
            call = calls.pop(0)
            if calls:
                open_calls[key] = calls
            if step.name is not None and call.name != step.name:
                flaws.append(Flaw(step.place, "name", f"the result names {step.name!r}, the call {call.name!r}"))
    flaws += [Flaw("the end", "unanswered", f"call {key!r} has no result") for key in open_calls]
    return flaws


def _get_objects(parent: Mapping[str, Any], key: str) -> list[Any]:
    """Return the objects in a list, or an empty list if the value is not a list: type checks report that."""
    value = parent.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _iter_responses_steps(body: Mapping[str, Any]) -> Iterator[_ConversationStep]:
    for number, item in enumerate(_get_objects(body, "input")):
        place = f"input {number}"
        kind = item.get("type", "message")
        if kind == "function_call":
            yield _ConversationStep("call", place, item.get("call_id"), item.get("name"))
        elif kind == "function_call_output":
            yield _ConversationStep("result", place, item.get("call_id"))
        elif kind == "message" and item.get("role") == "user":
            yield _ConversationStep("user", place)


def _iter_chat_steps(body: Mapping[str, Any]) -> Iterator[_ConversationStep]:
    for number, message in enumerate(_get_objects(body, "messages")):
        place = f"message {number}"
        if message.get("role") == "tool":
            yield _ConversationStep("result", place, message.get("tool_call_id"))
            continue
        yield _ConversationStep("assistant" if message.get("role") == "assistant" else "user", place)
        for call in _get_objects(message, "tool_calls"):
            yield _ConversationStep("call", place, call.get("id"), (call.get("function") or {}).get("name"))


def _iter_messages_steps(body: Mapping[str, Any]) -> Iterator[_ConversationStep]:
    for number, message in enumerate(_get_objects(body, "messages")):
        place = f"message {number}"
        blocks = _get_objects(message, "content")
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if not results or blocks[0].get("type") != "tool_result":
            yield _ConversationStep("assistant" if message.get("role") == "assistant" else "user", place)
        for block in results:
            yield _ConversationStep("result", place, block.get("tool_use_id"))
        if results:
            yield _ConversationStep("user", place)
        for block in blocks:
            if block.get("type") == "tool_use":
                yield _ConversationStep("call", place, block.get("id"), block.get("name"))


def _iter_gemini_steps(body: Mapping[str, Any]) -> Iterator[_ConversationStep]:
    for number, content in enumerate(_get_objects(body, "contents")):
        place = f"content {number}"
        parts = _get_objects(content, "parts")
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if not results:
            yield _ConversationStep("assistant" if content.get("role") == "model" else "user", place)
        for part in results:
            yield _ConversationStep("result", place, part.get("id"), part.get("name"))
        for part in parts:
            if "functionCall" in part:
                yield _ConversationStep("call", place, part["functionCall"].get("id"), part["functionCall"].get("name"))


def _iter_tools(body: Mapping[str, Any], provider: str) -> Iterator[tuple[Any, Any, bool]]:
    """Yield the name and the schema of each tool, and True if it is strict."""
    for tool in _get_objects(body, "tools"):
        if provider == "gemini":
            for function in _get_objects(tool, "functionDeclarations"):
                yield function.get("name"), function.get("parametersJsonSchema"), False
        elif provider == "anthropic":
            if "mcp_server_name" not in tool:
                yield tool.get("name"), tool.get("input_schema"), False
        elif tool.get("type") == "function":
            function = tool.get("function") or tool
            yield function.get("name"), function.get("parameters"), function.get("strict") is True


_STEP_ITERATORS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[_ConversationStep]]]] = {
    "openai": _iter_responses_steps,
    "openai-chat": _iter_chat_steps,
    "anthropic": _iter_messages_steps,
    "gemini": _iter_gemini_steps,
}
