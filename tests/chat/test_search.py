"""`Chat(search=...)`: a large toolbox is searched, not sent."""

from contextlib import closing

import pytest

from toolmason import Allow, Chat, Message, Toolbox, ToolResult, WindowMemory, tool
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.search import Search, collect_found_names
from toolmason.errors import ConfigError, DefinitionError
from toolmason.models import ScriptedModel
from toolmason.models.lexical.index import ToolIndex
from toolmason.providers import codec

ALWAYS = Search(budget=0, limit=2)


@tool(read_only=True)
def get_weather(city: str) -> str:
    """Current weather in a city."""
    return f"sunny in {city}"


@tool(read_only=True)
def convert_currency(amount: float, target: str) -> str:
    """Convert an amount of money into another currency."""
    return f"{amount} {target}"


@tool(destructive=True)
def cancel_order(order: str) -> str:
    """Cancel an order of a customer."""
    return f"cancelled {order}"


def box() -> Toolbox:
    return Toolbox(get_weather, convert_currency, cancel_order)


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in model.requests]


async def test_a_found_tool_is_offered_from_the_next_turn_on():
    model = ScriptedModel([[("find_tools", {"query": "weather"})], [("get_weather", {"city": "Brno"})], "It is sunny."])

    reply = await Chat(model, box(), search=ALWAYS).send("What is the weather in Brno?")

    assert offered(model) == [["find_tools"], ["find_tools", "get_weather"], ["find_tools", "get_weather"]]
    assert [result.ok for result in reply.results] == [True, True]
    assert reply.text == "It is sunny."


async def test_a_tool_that_was_not_found_cannot_be_called():
    model = ScriptedModel([[("cancel_order", {"order": "A-17"})], "Sorry."])

    reply = await Chat(model, box(), search=ALWAYS).send("Cancel order A-17")

    assert reply.results[0].error.code == "unknown_tool"
    assert "find_tools" in reply.results[0].text


async def test_a_found_tool_still_needs_its_approval():
    model = ScriptedModel([[("find_tools", {"query": "cancel an order"})], [("cancel_order", {"order": "A-17"})]])

    reply = await Chat(model, box(), search=ALWAYS).send("Cancel order A-17")

    assert reply.finish == "pending"
    assert reply.pending[0].tool == "cancel_order"


async def test_a_found_tool_that_waits_for_its_approval_is_found_again_elsewhere():
    model = ScriptedModel(
        [[("find_tools", {"query": "cancel an order"})], [("cancel_order", {"order": "A-17"})], "It is cancelled."]
    )
    boxed = Toolbox(box(), approval_key="k" * 32)
    held = await Chat(model, boxed, search=ALWAYS).send("Cancel order A-17")

    reply = await Chat(model, boxed, search=ALWAYS).resume(
        held.save(), [boxed.approvals.decide(held.pending[0], Allow())]
    )

    assert reply.results[-1].text == "cancelled A-17"
    assert offered(model)[-1] == ["find_tools", "cancel_order"]
    assert reply.text == "It is cancelled."


async def test_a_durable_run_goes_on_with_what_it_had_found(tmp_path):
    class Gone(BaseException):
        """The process ends here."""

    def dies(request):
        raise Gone

    found, asked = [("find_tools", {"query": "weather"})], [("get_weather", {"city": "Brno"})]
    first = ScriptedModel([found, asked, dies])
    with closing(SqliteRuntime(tmp_path / "runs.db")) as runtime, pytest.raises(Gone):
        await Chat(first, box(), search=ALWAYS, runtime=runtime).send("The weather in Brno?", run="r")
    later = ScriptedModel(["It is sunny."])

    with closing(SqliteRuntime(tmp_path / "runs.db")) as runtime:
        reply = await Chat(later, box(), search=ALWAYS, runtime=runtime).send("The weather in Brno?", run="r")

    assert offered(later) == [["find_tools", "get_weather"]]
    assert [result.ok for result in reply.results] == [True, True]
    assert reply.text == "It is sunny."


async def test_what_was_found_stays_found_in_a_conversation_that_is_remembered():
    model = ScriptedModel(
        [[("find_tools", {"query": "weather"})], "Ask me.", [("get_weather", {"city": "Oslo"})], "Sunny."]
    )
    chat = Chat(model, box(), search=ALWAYS, memory=WindowMemory(50))

    await chat.send("Can you tell the weather?")
    reply = await chat.send("Then tell it for Oslo.")

    assert reply.results[0].text == "sunny in Oslo"


async def test_a_small_toolbox_is_offered_whole():
    model = ScriptedModel(["Hello."])

    await Chat(model, box(), search="auto").send("Hello")

    assert offered(model) == [["cancel_order", "convert_currency", "get_weather"]]


async def test_kept_and_forced_tools_are_offered_without_a_search():
    model = ScriptedModel(["Hello."])

    chat = Chat(model, box(), search=Search(budget=0, always_offer=("get_weather",)))
    await chat.send("Hello", tool_choice="cancel_order")

    assert offered(model) == [["find_tools", "get_weather", "cancel_order"]]


async def test_a_search_that_finds_nothing_says_so():
    model = ScriptedModel([[("find_tools", {"query": "xylophone"})], "No."])

    reply = await Chat(model, box(), search=ALWAYS).send("Play")

    assert "Try other keywords" in reply.results[0].text


async def test_a_tool_of_ones_own_by_that_name_takes_the_place_of_the_search():
    @tool(overrides_builtin=True)
    def find_tools(query: str) -> str:
        """Find tools in the workshop."""
        return "hammer"

    model = ScriptedModel([[("find_tools", {"query": "nail"})], "Take the hammer."])

    reply = await Chat(model, Toolbox(find_tools, get_weather), search=ALWAYS).send("What drives a nail?")

    assert reply.results[0].text == "hammer"
    assert offered(model)[0] == ["find_tools", "get_weather"]


async def test_a_provider_with_a_search_of_its_own_gets_every_tool_and_the_marks():
    model = ScriptedModel([[("cancel_order", {"order": "A-17"})]])
    model.codec = codec("anthropic")
    chat = Chat(model, box(), search=Search(budget=0, always_offer=("get_weather",), native=True))

    reply = await chat.send("Cancel order A-17")

    assert offered(model) == [["cancel_order", "convert_currency", "get_weather"]]
    assert model.requests[0].options == {"defer": ("cancel_order", "convert_currency")}
    assert reply.finish == "pending"


def test_a_provider_without_a_search_is_refused_when_the_chat_is_built():
    with pytest.raises(ConfigError, match="has no built-in tool search"):
        Chat("offline", box(), search=Search(native=True))


def test_a_tool_by_that_name_has_to_say_that_it_means_it():
    @tool
    def find_tools(query: str) -> str:
        """Find tools in the workshop."""
        return "hammer"

    with pytest.raises(DefinitionError, match="'find_tools' is the name of a built-in tool"):
        Toolbox(find_tools)


@pytest.mark.parametrize("wrong", [True, "always", 5], ids=repr)
def test_a_search_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigError, match="search="):
        Chat(ScriptedModel([]), box(), search=wrong)


@pytest.mark.parametrize("words", [{"budget": -1}, {"limit": 0}], ids=["budget", "limit"])
def test_terms_that_make_no_sense_are_refused(words):
    with pytest.raises(ConfigError, match="budget must be at least 0, limit at least 1"):
        Search(**words)


async def test_a_kept_tool_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="'get_time'"):
        await Chat(ScriptedModel(["x"]), box(), search=Search(always_offer=("get_time",))).send("Hello")


@pytest.mark.parametrize("text", ["", "[]", '{"tools": 3}', '{"tools": [{"name": 1}]}', '{"tools": ["x"]}'])
def test_a_result_that_is_no_list_of_tools_finds_nothing(text):
    messages = [Message("tool", results=[ToolResult("1", "find_tools", text=text)])]

    assert collect_found_names(messages) == []


def test_the_index_ranks_by_rare_words_and_knows_words_that_mean_the_same():
    index = ToolIndex(each.definition for each in box())

    assert [found.name for found in index.find("erase my order")] == ["cancel_order"]
    assert [found.name for found in index.find("get_weather", limit=1)] == ["get_weather"]
    assert index.find("weather", limit=0) == []
    assert ToolIndex([]).find("anything") == []
