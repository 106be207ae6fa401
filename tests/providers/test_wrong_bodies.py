"""Bodies that an API refuses are caught: by the providers' own types, or by our checker where those are silent."""

import copy

import pytest

from providers.body_checks import check_body
from providers.judges import objections
from providers.samples import CHATS
from toolmason.errors import UnsupportedProvider

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FLAT = {"type": "function", "name": "t", "description": "d", "parameters": SCHEMA, "strict": True}
NESTED = {"type": "function", "function": {"name": "t", "description": "d", "parameters": SCHEMA, "strict": True}}
CALL = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
RIGHT = {
    "openai": {
        "model": "m",
        "input": [
            {"type": "message", "role": "user", "content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
        ],
        "tools": [FLAT],
        "tool_choice": "auto",
    },
    "openai-chat": {
        "model": "m",
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ],
        "tools": [NESTED],
        "tool_choice": "auto",
    },
    "anthropic": {
        "model": "m",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "t", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "1"}]},
        ],
        "tools": [{"name": "t", "description": "d", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "t", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "t", "response": {"output": 1}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "t", "description": "d", "parametersJsonSchema": SCHEMA}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    },
}
GONE = object()
STRICT = ("tools", 0, "parameters")
# Provider, where, what stands there instead; GONE takes it away.
WRONG = [
    ("openai", ("model",), 3),
    ("openai", ("input", 1, "call_id"), GONE),
    ("openai", ("input", 1, "call_id"), "x" * 65),
    ("openai", ("input", 1, "arguments"), {"a": 1}),
    ("openai", ("input", 1), GONE),
    ("openai", ("input", 2), GONE),
    ("openai", ("input", 2, "call_id"), "c2"),
    ("openai", ("input", 2, "output"), {"a": 1}),
    ("openai", ("input", 0, "role"), "bot"),
    ("openai", ("tools", 0), NESTED),
    ("openai", ("tools", 0, "name"), "a.b"),
    ("openai", ("tools", 0, "name"), ""),
    ("openai", ("tools", 0, "inputs"), {}),
    ("openai", (*STRICT, "required"), []),
    ("openai", (*STRICT, "additionalProperties"), True),
    ("openai", (*STRICT, "properties", "a"), {}),
    ("openai", (*STRICT, "properties", "a", "minLength"), 1),
    ("openai", (*STRICT, "properties", "a", "$ref"), "#/$defs/x"),
    ("openai", ("tool_choice",), {"type": "function", "name": "u"}),
    ("openai", ("tool_choice",), "any"),
    ("openai", ("tools",), GONE),
    ("openai-chat", ("messages", 1, "tool_calls", 0, "id"), GONE),
    ("openai-chat", ("messages", 1, "tool_calls", 0, "function", "arguments"), {}),
    ("openai-chat", ("messages", 1, "tool_calls", 0, "function", "name"), GONE),
    ("openai-chat", ("messages", 1), GONE),
    ("openai-chat", ("messages", 2), GONE),
    ("openai-chat", ("messages", 2), {"role": "user", "content": "1"}),
    ("openai-chat", ("messages", 2, "tool_call_id"), GONE),
    ("openai-chat", ("messages", 2, "tool_call_id"), "c2"),
    ("openai-chat", ("messages", 2, "content"), [{"type": "image_url", "image_url": {"url": "data:"}}]),
    ("openai-chat", ("messages", 2, "role"), "function_result"),
    ("openai-chat", ("tools", 0), FLAT),
    ("openai-chat", ("tools", 0, "function", "name"), "x" * 65),
    ("openai-chat", ("tools", 0, "function", "parameters", "type"), "array"),
    ("openai-chat", ("tool_choice",), {"type": "function", "name": "t"}),
    ("openai-chat", ("tool_choice",), {"type": "function", "function": {"name": "u"}}),
    ("openai-chat", ("stream_option",), {}),
    ("anthropic", ("max_tokens",), GONE),
    ("anthropic", ("temperature",), 1),
    ("anthropic", ("tool_choice",), "auto"),
    ("anthropic", ("tool_choice",), {"type": "required"}),
    ("anthropic", ("tool_choice",), {"type": "tool", "name": "u"}),
    ("anthropic", ("tools", 0, "input_schema"), GONE),
    ("anthropic", ("tools", 0, "parameters"), SCHEMA),
    ("anthropic", ("tools", 0, "name"), "a b"),
    ("anthropic", ("messages", 1, "content", 0, "input"), "{}"),
    ("anthropic", ("messages", 1, "content", 0, "id"), "c 1"),
    ("anthropic", ("messages", 2, "content", 0, "tool_use_id"), "c2"),
    ("anthropic", ("messages", 2, "content", 0), {"type": "text", "text": "1"}),
    ("anthropic", ("messages", 2), GONE),
    ("anthropic", ("messages", 2, "role"), "tool"),
    ("anthropic", ("messages", 2, "content", 0, "error"), True),
    ("gemini", ("contents", 0, "parts", 0), {"type": "text", "text": "x"}),
    ("gemini", ("contents", 1, "parts", 0, "functionCall", "arguments"), "{}"),
    ("gemini", ("contents", 1, "parts", 0, "functionCall", "args"), "{}"),
    ("gemini", ("contents", 2), GONE),
    ("gemini", ("contents", 2, "parts", 0, "functionResponse", "name"), "u"),
    ("gemini", ("contents", 2, "parts", 0, "functionResponse", "response"), "1"),
    ("gemini", ("tools", 0), {"type": "function", "name": "t"}),
    ("gemini", ("tools", 0, "functionDeclarations", 0, "name"), "1 2"),
    ("gemini", ("toolConfig", "functionCallingConfig", "mode"), "SOMETIMES"),
    ("gemini", ("toolConfig", "functionCallingConfig", "allowedFunctionNames"), ["u"]),
    ("gemini", ("maxTokens",), 5),
]


def changed(provider, path, value):
    body = copy.deepcopy(RIGHT[provider])
    held = body
    for step in path[:-1]:
        held = held[step]
    if value is GONE:
        del held[path[-1]]
    else:
        held[path[-1]] = value
    return body


def caught(provider, body):
    return objections(provider, body) + [str(flaw) for flaw in check_body(provider, body)]


@pytest.mark.parametrize("provider", CHATS)
def test_a_right_body_is_not_objected_to(provider):
    assert caught(provider, RIGHT[provider]) == []


@pytest.mark.parametrize(
    ("provider", "path", "value"),
    WRONG,
    ids=[f"{p} {'.'.join(map(str, path))}={'gone' if v is GONE else str(v)[:20]}" for p, path, v in WRONG],
)
def test_a_wrong_body_is_caught(provider, path, value):
    assert caught(provider, changed(provider, path, value))


def test_there_are_enough_wrong_bodies():
    assert len(WRONG) >= 40


@pytest.mark.parametrize("provider", CHATS)
def test_a_second_tool_or_call_of_one_name_is_caught(provider):
    body = copy.deepcopy(RIGHT[provider])
    listed = body["tools"][0]["functionDeclarations"] if provider == "gemini" else body["tools"]
    listed.append(listed[0])

    turns = "contents" if provider == "gemini" else "input" if provider == "openai" else "messages"
    again = copy.deepcopy(RIGHT[provider])
    again[turns] = again[turns] + again[turns][1:]

    assert [flaw.code for flaw in check_body(provider, body)] == ["duplicate tool"]
    assert [flaw.code for flaw in check_body(provider, again)] == ["duplicate"]


def test_a_checker_for_an_unknown_provider_is_an_error():
    with pytest.raises(UnsupportedProvider):
        check_body("mcp", {})


def test_calls_of_one_name_without_ids_are_answered_in_order():
    calls = [{"functionCall": {"name": "f", "args": {}}} for _ in range(2)]
    answers = [{"functionResponse": {"name": "f", "response": {}}} for _ in range(3)]

    def flaws(count):
        contents = [{"role": "model", "parts": calls}, {"role": "user", "parts": answers[:count]}]
        return [flaw.code for flaw in check_body("gemini", {"contents": contents})]

    assert flaws(2) == []
    assert flaws(1) == ["unanswered"]
    assert flaws(3) == ["orphan"]
