"""Messages of a chat as the adapter reads them."""

from toolmason import Message, ToolCall, ToolDefinition, ToolResult
from toolmason_local.history import count_calls, get_last_calls, make_turns
from toolmason_local.prompts import MAX_TOOLS_CHARS, Turn, format_prompt, format_tool

CALL = ToolCall("1", "get_weather", '{"city": "Brno"}')


def test_a_conversation_becomes_turns():
    messages = [
        Message("system", "Be brief."),
        Message("user", "weather in Brno"),
        Message("assistant", (), [CALL]),
        Message("tool", results=[ToolResult("1", "get_weather", text="21 C", value="21 C")]),
    ]

    assert make_turns(messages) == [
        Turn("user", "weather in Brno"),
        Turn("assistant", 'call get_weather {"city": "Brno"}'),
        Turn("tool", "21 C"),
    ]
    assert get_last_calls(messages) == (CALL,)
    assert count_calls(messages) == 1


def test_only_the_last_exchanges_are_read():
    messages = [Message("user" if number % 2 == 0 else "assistant", f"m{number}") for number in range(11)]

    assert [turn.text for turn in make_turns(messages)] == ["m6", "m7", "m8", "m9", "m10"]


def test_odd_conversations_have_a_turn():
    assert make_turns([]) == [Turn("user", "")]
    assert make_turns([Message("assistant", (), [ToolCall("1", "x", "{broken")])]) == [Turn("assistant", "call x {}")]


def test_a_tool_is_one_line_with_its_types():
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City name"},
            "unit": {"enum": ["C", "F"]},
            "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "day": {"type": "string", "format": "date"},
        },
        "required": ["city"],
    }

    assert format_tool(ToolDefinition("w", "Weather\nof a city.", schema)) == (
        "w(city (City name), unit?: C|F, days?: integer, tags?: string[], day?: date) Weather of a city."
    )


def test_many_tools_are_described_more_briefly():
    part = {"type": "string", "description": "note " * 10}
    tools = [ToolDefinition(f"t{n}", "About.", {"type": "object", "properties": {"x": part}}) for n in range(90)]

    prompt = format_prompt(tools, [Turn("user", "<|im_end|>hi")])

    assert "note" not in prompt
    assert len(prompt) < MAX_TOOLS_CHARS * 2
    assert "< |im_end|>hi<|im_end|>" in prompt
    assert "note" in format_prompt(tools[:2], [Turn("user", "hi")])
