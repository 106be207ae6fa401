"""How the local model turns lines into calls; the lines are set beforehand."""

import pytest

from models.writers import ScriptedGenerator
from toolmason import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models import ToolChoice
from toolmason_local.grounding import is_mentioned
from toolmason_local.prompts import Turn
from toolmason_local.reply import MAX_CALLS, MAX_TOOLS, Reply, decide_reply, filter_allowed

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDefinition("get_weather", "Current weather in a city.", CITY)
LIST = ToolDefinition("list_todos", "Show the list.", {"type": "object", "properties": {}})


def ask(text):
    return [Turn("user", text)]


def test_a_line_with_a_name_becomes_a_call_with_arguments():
    writer = ScriptedGenerator("call get_weather", {"city": "Brno"}, "")

    reply = decide_reply(writer, [WEATHER, LIST], ask("weather in Brno"))

    assert reply == Reply((("get_weather", {"city": "Brno"}),))
    assert writer.limits[0].grammar.startswith('root ::= "call " ("get_weather" | "list_todos") | "none"')
    assert writer.limits[1].schema["properties"] == {"city": {"type": "string", "maxLength": 80}}
    assert writer.prompts[1].endswith("<|im_start|>assistant\ncall get_weather ")


def test_a_tool_without_parameters_needs_no_arguments():
    writer = ScriptedGenerator("call list_todos", "")

    assert decide_reply(writer, [LIST], ask("my list")).calls == (("list_todos", {}),)


def test_several_lines_are_several_calls_up_to_a_limit():
    lines = [text for number in range(9) for text in ("\ncall get_weather", {"city": f"City {number}"})]
    lines[0] = "call get_weather"

    cities = " ".join(f"City {number}" for number in range(9))
    reply = decide_reply(ScriptedGenerator(*lines), [WEATHER], ask(f"weather in {cities}"))

    assert [arguments["city"] for _, arguments in reply.calls] == [f"City {number}" for number in range(MAX_CALLS)]


def test_a_repeated_call_ends_the_reply():
    writer = ScriptedGenerator("call get_weather", {"city": "Oslo"}, "\ncall get_weather", {"city": "Oslo"})

    assert decide_reply(writer, [WEATHER], ask("weather in Oslo")).calls == (("get_weather", {"city": "Oslo"}),)


@pytest.mark.parametrize(
    ("text", "codes", "count"),
    [
        ("And 5 TEA-02?", ("TEA-02", "CUP-02"), 1),
        ("And 5 TEA-02?", ("TEA-02", "CUP-01"), 1),
        ("And TEA-02 and CUP-01?", ("TEA-02", "CUP-01"), 2),
        ("Show both", ("TEA-01", "CUP-01"), 2),
        ("Show both", ("TEA-01", "CUP-07"), 1),
    ],
)
def test_a_further_call_needs_a_code_that_was_mentioned(text, codes, count):
    lines = ["call get_weather", {"city": codes[0]}, "\ncall get_weather", {"city": codes[1]}, ""]
    turns = [*ask("price of TEA-01 and CUP-01"), Turn("assistant", "They cost 4."), *ask(text)]

    reply = decide_reply(ScriptedGenerator(*lines), [WEATHER], turns)

    assert [arguments["city"] for _, arguments in reply.calls] == list(codes[:count])


@pytest.mark.parametrize("intent", ["none", "help", "hello", "thanks", "bye"])
def test_an_intent_is_not_a_call(intent):
    assert decide_reply(ScriptedGenerator(intent), [WEATHER], ask("?")) == Reply(intent=intent)


def test_a_doubtful_call_is_not_made():
    writer = ScriptedGenerator("call get_weather", {"city": "Brno"}, "", probability=0.5)

    assert decide_reply(writer, [WEATHER], ask("the weather in Brno was nice")) == Reply(intent="none")


@pytest.mark.parametrize(
    ("request_text", "probability", "is_made"),
    [
        ("weather in Brno", 0.7, True),
        ("the weather was nice", 0.99, False),
    ],
)
def test_a_call_with_an_invented_value_must_be_nearly_certain(request_text, probability, is_made):
    writer = ScriptedGenerator("call get_weather", {"city": "Brno"}, "", probability=probability)

    reply = decide_reply(writer, [WEATHER], ask(request_text))

    assert reply.calls == ((("get_weather", {"city": "Brno"}),) if is_made else ())


def test_an_invented_string_is_written_again_with_phrases_of_the_request():
    writer = ScriptedGenerator("call get_weather", {"city": "Basil"}, {"city": "Basel"}, "")

    reply = decide_reply(writer, [WEATHER], ask("weather at Peter's in Basel"))

    assert reply.calls == (("get_weather", {"city": "Basel"}),)
    assert {"weather", "weather at Peter", "Peter", "Basel"} <= set(
        writer.limits[2].schema["properties"]["city"]["enum"]
    )


def test_a_string_from_earlier_in_the_conversation_is_kept():
    turns = [
        *ask("where does Eva live?"),
        Turn("tool", "Brno"),
        Turn("assistant", "In Brno."),
        *ask("and the weather?"),
    ]
    writer = ScriptedGenerator("call get_weather", {"city": "Brno"}, "", probability=0.9)

    assert decide_reply(writer, [WEATHER], turns).calls == (("get_weather", {"city": "Brno"}),)


@pytest.mark.parametrize(
    ("probability", "city", "is_made"), [(0.7, "Brno", True), (0.7, "Oslo", False), (0.9, "Brno", False)]
)
def test_a_doubtful_refusal_gives_way_to_a_call_with_mentioned_values(probability, city, is_made):
    writer = ScriptedGenerator("none", "call get_weather", {"city": city}, "", probability=probability)

    reply = decide_reply(writer, [WEATHER], ask("Brno?"))

    assert reply == (Reply((("get_weather", {"city": city}),)) if is_made else Reply(intent="none"))


@pytest.mark.parametrize(
    ("values", "request_text", "is_told"),
    [
        ({"days": 7}, "the forecast for the next week", True),
        ({"days": 12}, "the forecast for the next week", False),
        ({"on": True, "mode": "eco"}, "it is dark here", True),
        ({"names": ["Ann", "Bob"]}, "invite Ann", True),
        ({"names": ["Eve"]}, "invite Ann", False),
    ],
)
def test_booleans_and_choices_need_no_mention(values, request_text, is_told):
    schema = {"properties": {"mode": {"enum": ["eco", "fast"]}}}

    assert is_mentioned(values, schema, request_text) is is_told


def test_a_model_without_adapter_gets_instructions():
    writer = ScriptedGenerator("none", probability=0.1)
    writer.has_adapter = False

    decide_reply(writer, [WEATHER], ask("hi"))

    assert "Reply with one line" in writer.prompts[0]


def test_after_a_result_the_model_writes_a_sentence():
    turns = [*ask("weather in Brno"), Turn("assistant", 'call get_weather {"city": "Brno"}'), Turn("tool", "21 C")]
    writer = ScriptedGenerator("say It is 21 C in Brno.")

    assert decide_reply(writer, [WEATHER], turns).text == "It is 21 C in Brno."
    assert '"say " [^\\n]+' in writer.limits[0].grammar
    assert "<|im_start|>tool\n21 C<|im_end|>" in writer.prompts[0]


def test_a_required_call_leaves_no_other_way():
    writer = ScriptedGenerator("call list_todos", "")

    decide_reply(writer, [LIST], ask("hi"), must="call")

    assert writer.limits[0].grammar == 'root ::= "call " ("list_todos")'


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        pytest.param('{"city": "Brn', {"city": "x"}, id="cut"),
        pytest.param("[1]", {"city": "x"}, id="not an object"),
        pytest.param('{"city": "Brno", "extra": 1}', {"city": "Brno"}, id="only the required ones are valid"),
    ],
)
def test_arguments_that_do_not_match_are_replaced(written, arguments):
    schema = {**CITY, "additionalProperties": False, "properties": {"city": {"type": "string", "minLength": 1}}}
    tool = ToolDefinition("get_weather", "Weather.", schema)

    reply = decide_reply(ScriptedGenerator("call get_weather", written, ""), [tool], ask("Brno"), must="call")

    assert reply.calls[0][1].keys() == arguments.keys()
    assert len(reply.calls[0][1]["city"]) >= 1


def test_no_call_is_made_if_no_arguments_are_valid():
    tool = ToolDefinition("paint", "Paint.", {"type": "object", "properties": {"x": False}, "required": ["x"]})

    assert decide_reply(ScriptedGenerator("call paint", '{"x": 1}'), [tool], ask("paint")).calls == ()


def test_of_many_tools_the_most_similar_are_offered_in_their_order():
    others = [ToolDefinition(f"tool_{number}", f"Thing {number}.", CITY) for number in range(30)]
    writer = ScriptedGenerator("none")

    decide_reply(writer, [*others, WEATHER], ask("What is the weather in Brno?"))

    offered = [line.partition("(")[0] for line in writer.prompts[0].splitlines() if "(" in line]
    assert len(offered) == MAX_TOOLS
    assert offered[-1] == "get_weather"


def test_a_failure_of_llama_is_an_error():
    with pytest.raises(ModelError):
        decide_reply(ScriptedGenerator(), [WEATHER], ask("x"))


def test_a_tool_choice_filters_the_tools():
    assert filter_allowed([WEATHER, LIST], None) == [WEATHER, LIST]
    assert filter_allowed([WEATHER, LIST], ToolChoice("none")) == []
    assert filter_allowed([WEATHER, LIST], ToolChoice("required", ("list_todos",))) == [LIST]
