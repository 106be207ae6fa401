"""The ordered, checked set: what goes in, what is found, how it can be looked at."""

import types

import pytest

from toolmason import Tool, Toolbox, ToolContext, ToolDefinition, ToolOptions, prompt, tool
from toolmason.errors import DefinitionError, DuplicateTool, UnknownTool


@tool(read_only=True, tags={"weather", "public"})
def get_weather(city: str) -> str:
    """Current weather in a city."""
    return f"sunny in {city}"


@tool(read_only=True, tags="time")
def get_time() -> str:
    """Current time."""
    return "noon"


@tool(destructive=True, tags=("weather",))
def delete_station(station: str) -> None:
    """Take a station off the map."""


@prompt
def greeting() -> str:
    return "Hello"


class Clock:
    @tool
    def now(self) -> str:
        return "noon"


def names(box: Toolbox) -> list[str]:
    return [found.name for found in box.tools]


class Shelf:
    """A resolver that counts how often it was asked."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = {item.name: item for item in tools}
        self.asked: list[str] = []

    def resolve(self, name: str) -> Tool | None:
        self.asked.append(name)
        return self.tools.get(name)


def made(name: str, value: str = "made") -> Tool:
    return Tool.from_schema(name, "", {}, lambda arguments, context: value)


# --- sources -----------------------------------------------------------------------------------


def test_the_tools_are_sorted_by_name_whatever_the_order_they_came_in():
    assert names(Toolbox(get_weather, delete_station, get_time)) == ["delete_station", "get_time", "get_weather"]
    assert names(Toolbox(get_time, get_weather, delete_station)) == ["delete_station", "get_time", "get_weather"]


async def test_list_gives_the_same_tools():
    box = Toolbox(get_weather, get_time)

    assert await box.list() == box.tools


def plain(n: int) -> int:
    """A function that nobody decorated."""
    return n


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (get_weather, ["get_weather"]),
        (plain, ["plain"]),
        (Clock(), ["now"]),
        ([get_weather, Clock()], ["get_weather", "now"]),
        ((get_time, [get_weather]), ["get_time", "get_weather"]),
        (Tool.from_function(plain, name="other"), ["other"]),
        (Toolbox(get_time), ["get_time"]),
        (greeting, []),
    ],
    ids=["function", "plain function", "bundle", "list", "nested", "tool", "toolbox", "prompt"],
)
def test_a_toolbox_takes_tools_from_many_kinds_of_source(source, expected):
    assert names(Toolbox(source)) == expected


def test_a_toolbox_takes_tools_from_a_module():
    module = types.ModuleType("weather")
    module.get_weather, module.helper = get_weather, plain

    assert names(Toolbox(module)) == ["get_weather"]


def test_a_toolbox_takes_tools_from_any_object_that_says_so():
    class Shop:
        def __tools__(self):
            yield made("buy")
            yield made("sell")

    assert names(Toolbox(Shop())) == ["buy", "sell"]


@pytest.mark.parametrize("source", [5, None, {"a": 1}, object()], ids=["number", "none", "dict", "object"])
def test_what_is_no_source_is_refused_with_what_one_can_be(source):
    with pytest.raises(DefinitionError, match=r"source|@tool"):
        Toolbox(source)


@pytest.mark.row("L4-27")
def test_a_toolbox_knows_what_it_holds():
    box = Toolbox(get_weather, get_time, name="shop")

    assert len(box) == 2
    assert "get_weather" in box
    assert "nothing" not in box
    assert 5 not in box
    assert box["get_weather"].name == "get_weather"
    assert [found.name for found in box] == ["get_time", "get_weather"]
    assert "get_time" in repr(box)


def test_a_name_that_is_not_there_is_a_key_error_with_the_nearest_name():
    with pytest.raises(KeyError, match="get_weather"):
        Toolbox(get_weather)["get_wether"]


def test_a_keyword_that_a_toolbox_does_not_know_is_refused():
    with pytest.raises(TypeError, match="timeouts"):
        Toolbox(get_weather, timeouts=5)


# --- duplicates --------------------------------------------------------------------------------


@pytest.mark.row("SP-6", "MA-31")
def test_two_tools_of_one_name_are_refused_with_both_origins():
    def first() -> None: ...
    def second() -> None: ...

    one, two = Tool.from_function(first, name="same"), Tool.from_function(second, name="same")

    with pytest.raises(DuplicateTool) as caught:
        Toolbox(one, two)

    error = caught.value
    assert error.name == "same"
    assert "'first'" in error.first
    assert "'second'" in error.second
    assert all(f"{__file__}:" in origin for origin in (error.first, error.second))
    assert error.first in str(error)
    assert error.second in str(error)
    assert "replace=True" in str(error)


def test_a_tool_can_be_replaced_on_purpose():
    box = Toolbox(made("same", "old"))

    box.add(made("same", "new"), replace=True)

    assert box.call_sync("same").text == "new"
    assert len(box) == 1


def test_replacing_a_tool_takes_effect_for_a_name_that_was_called_before():
    box = Toolbox(made("same", "old"))
    before = box.call_sync("same").text

    box.add(made("same", "new"), replace=True)

    assert (before, box.call_sync("same").text) == ("old", "new")


def test_a_run_that_began_before_does_not_bring_a_replaced_tool_back():
    box = Toolbox(made("same", "old"))
    run = box.run()

    box.add(made("same", "new"), replace=True)
    box.add(made("more", "more"))

    assert run.call_sync("same").text == "old"
    assert (box.call_sync("same").text, box.run().call_sync("same").text) == ("new", "new")
    assert (box.call_sync("more").ok, run.call_sync("more").ok) == (True, False)


def test_a_tool_added_after_an_unknown_call_is_found():
    box = Toolbox()
    before = box.call_sync("late").error

    box.add(made("late"))

    assert isinstance(before, UnknownTool)
    assert box.call_sync("late").ok


def test_the_same_tool_given_twice_is_one_tool():
    one = made("same")

    assert names(Toolbox(one, one, [one])) == ["same"]


def test_two_prompts_of_one_name_are_refused():
    @prompt(name="greeting")
    def other() -> str:
        return "Hi"

    with pytest.raises(DuplicateTool):
        Toolbox(greeting, other)


def test_a_tool_and_a_prompt_may_share_a_name():
    box = Toolbox(made("greeting"), greeting)

    assert names(box) == ["greeting"]
    assert [found.name for found in box.prompts] == ["greeting"]


def test_a_source_that_clashes_adds_nothing():
    box = Toolbox(made("b", "old"))

    with pytest.raises(DuplicateTool):
        box.add([made("a"), made("b", "new"), made("c")])

    assert names(box) == ["b"]


# --- look-up -----------------------------------------------------------------------------------


@pytest.mark.row("MA-28")
async def test_look_up_is_exact_then_by_a_unique_match_that_ignores_case():
    box = Toolbox(made("getUser", "camel"), made("getuser", "lower"), made("Delete", "delete"))

    assert (await box.call("getUser")).text == "camel"
    assert (await box.call("getuser")).text == "lower"
    assert (await box.call("DELETE")).text == "delete"
    assert "delete" in box


async def test_a_tool_that_is_added_after_an_unknown_name_is_found_in_any_case():
    @tool
    def search() -> str:
        return "found"

    box = Toolbox()
    unknown = await box.call("SEARCH", {})

    box.add(search)

    assert not unknown.ok
    assert (await box.call("SEARCH", {})).text == "found"


async def test_a_name_that_could_mean_two_tools_is_unknown():
    box = Toolbox(made("getUser"), made("getuser"))

    result = await box.call("GETUSER")

    assert isinstance(result.error, UnknownTool)
    assert await box.resolve("GETUSER") is None


@pytest.mark.row("L4-27")
async def test_resolve_gives_the_tool_that_a_call_would_run():
    box = Toolbox(get_weather)

    assert await box.resolve("get_weather") is box["get_weather"]
    assert await box.resolve("GET_WEATHER") is box["get_weather"]
    assert await box.resolve("nothing") is None


# --- names -------------------------------------------------------------------------------------


@pytest.mark.row("CO-3", "CO-4")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("getURL", "get_url"),
        ("getURLForUser", "get_url_for_user"),
        ("parseHTML5", "parse_html5"),
        ("already_snake", "already_snake"),
        ("HTTPServer", "http_server"),
        ("getX", "get_x"),
    ],
)
def test_snake_naming_keeps_acronyms_together(written, expected):
    def fn() -> None: ...

    fn.__name__ = written

    assert names(Toolbox(fn, naming="snake")) == [expected]


async def test_naming_may_be_a_function_and_calls_use_the_new_name():
    box = Toolbox(plain, naming=lambda name: f"app.{name}")

    assert names(box) == ["app.plain"]
    assert (await box.call("app.plain", {"n": 1})).value == 1
    assert isinstance((await box.call("plain", {"n": 1})).error, UnknownTool)


def test_naming_leaves_a_name_that_the_developer_wrote():
    @tool(name="MyTool")
    def fn() -> None: ...

    class Bundle:
        @tool(name="keepMe")
        def one(self) -> None: ...

        @tool
        def takeMe(self) -> None: ...  # noqa: N802 - the case is the test

    assert names(Toolbox(fn, Bundle(), naming="snake")) == ["MyTool", "keepMe", "take_me"]


def test_names_that_naming_makes_the_same_are_refused():
    def getUser() -> None: ...  # noqa: N802 - the case is the test
    def get_user() -> None: ...

    with pytest.raises(DuplicateTool):
        Toolbox(getUser, get_user, naming="snake")


@pytest.mark.parametrize("name", ["", "   "], ids=repr)
def test_an_empty_name_is_refused(name):
    with pytest.raises(DefinitionError, match="name"):
        Toolbox(plain, naming=lambda _: name)
    with pytest.raises(DefinitionError, match="name"):
        Tool.from_schema(name, "", {}, lambda arguments, context: None)
    with pytest.raises(DefinitionError, match="name"):
        tool(name=name)(plain)


# --- views -------------------------------------------------------------------------------------


@pytest.fixture
def box() -> Toolbox:
    return Toolbox(get_weather, get_time, delete_station, greeting)


@pytest.mark.parametrize(
    ("patterns", "words", "expected"),
    [
        (("get_*",), {}, ["get_time", "get_weather"]),
        (("get_time", "delete_*"), {}, ["delete_station", "get_time"]),
        ((), {"tags": {"weather"}}, ["delete_station", "get_weather"]),
        ((), {"tags": "time"}, ["get_time"]),
        ((), {"tags": {"time", "public"}}, ["get_time", "get_weather"]),
        ((), {"read_only": True}, ["get_time", "get_weather"]),
        ((), {"read_only": False}, ["delete_station"]),
        ((), {"destructive": True}, ["delete_station"]),
        (("get_*",), {"tags": {"weather"}, "read_only": True}, ["get_weather"]),
        ((), {}, ["delete_station", "get_time", "get_weather"]),
        (("nothing*",), {}, []),
    ],
    ids=[
        "pattern",
        "two patterns",
        "tag",
        "tag as text",
        "two tags",
        "read only",
        "not read only",
        "destructive",
        "all at once",
        "nothing said",
        "no match",
    ],
)
def test_select_keeps_what_matches(box, patterns, words, expected):
    assert names(box.select(*patterns, **words)) == expected


def test_exclude_drops_what_matches(box):
    assert names(box.exclude("get_*")) == ["delete_station"]
    assert names(box.exclude(tags={"weather"})) == ["get_time"]
    assert names(box.exclude("get_time", tags="public")) == ["delete_station"]
    assert names(box.exclude()) == names(box)


async def test_a_tool_outside_a_view_cannot_be_called_through_it(box):
    view = box.select(read_only=True)

    result = await view.call("delete_station", {"station": "a"})

    assert isinstance(result.error, UnknownTool)
    assert "delete_station" not in result.error.known
    assert "delete_station" not in view


async def test_a_prefix_is_on_every_name_and_calls_use_it(box):
    seen = []

    @tool
    async def who(ctx: ToolContext) -> None:
        seen.append(ctx.tool_name)

    view = Toolbox(who, get_weather).prefixed("wx_")
    result = await view.call("wx_who")

    assert names(view) == ["wx_get_weather", "wx_who"]
    assert result.name == "wx_who"
    assert seen == ["wx_who"]
    assert isinstance((await view.call("who")).error, UnknownTool)


async def test_renamed_gives_some_tools_other_names(box):
    view = box.renamed({"get_weather": "weather"})

    assert names(view) == ["delete_station", "get_time", "weather"]
    assert (await view.call("weather", {"city": "Prague"})).text == "sunny in Prague"


def test_renaming_what_is_not_there_is_refused(box):
    with pytest.raises(DefinitionError, match="get_wether"):
        box.renamed({"get_wether": "weather"})


def test_renaming_to_a_name_that_is_taken_is_refused(box):
    with pytest.raises(DuplicateTool):
        box.renamed({"get_weather": "get_time"})


def test_two_tools_may_swap_their_names(box):
    view = box.renamed({"get_weather": "get_time", "get_time": "get_weather"})

    assert view["get_time"].description == "Current weather in a city."
    assert view["get_weather"].description == "Current time."


def test_a_view_leaves_the_toolbox_as_it_was(box):
    box.prefixed("wx_")
    box.renamed({"get_time": "time"})

    assert names(box) == ["delete_station", "get_time", "get_weather"]


async def test_two_toolboxes_can_be_joined(box):
    both = box.select("get_*") | Toolbox(made("other"))

    assert names(both) == ["get_time", "get_weather", "other"]
    assert (await both.call("other")).text == "made"


def test_joining_two_toolboxes_that_clash_is_refused(box):
    with pytest.raises(DuplicateTool):
        box | Toolbox(made("get_time"))


def test_views_of_one_toolbox_can_be_joined_again(box):
    assert names(box.select("get_*") | box.select(tags="weather")) == names(box)


async def test_a_joined_toolbox_keeps_the_policy_of_the_left():
    @tool
    async def fail() -> None:
        raise ValueError

    left = Toolbox(on_error=lambda error: "left")

    assert (await (left | Toolbox(fail)).call("fail")).text == "left"


async def test_a_view_shares_the_policy_and_the_context():
    @tool
    async def tenant(ctx: ToolContext) -> str:
        return ctx["tenant"]

    @tool
    async def fail() -> None:
        raise ValueError

    view = Toolbox(tenant, fail, context={"tenant": "acme"}, on_error=lambda error: "ours").prefixed("x_").select("x_*")

    assert (await view.call("x_tenant")).text == "acme"
    assert (await view.call("x_fail")).text == "ours"


def test_a_view_keeps_the_prompts(box):
    assert [found.name for found in box.prefixed("x_").prompts] == ["greeting"]


def test_what_is_added_to_a_view_stays_in_the_view(box):
    @prompt
    def farewell() -> str:
        return "Bye"

    for view in (box.select("get_*"), box.exclude("get_*"), box.prefixed("x_")):
        view.add([made("extra"), farewell])

    assert names(box) == ["delete_station", "get_time", "get_weather"]
    assert [found.name for found in box.prompts] == ["greeting"]


class Echo(Tool):
    """A tool as a developer writes it from scratch."""

    definition = ToolDefinition(
        "echo", "Say it again.", {"properties": {"text": {"type": "string"}}, "required": ["text"]}
    )
    options = ToolOptions(read_only=True)

    async def invoke(self, arguments: dict, context: ToolContext) -> str:
        return f"{context.tool_name}: {arguments['text']}"


class Computed(Echo):
    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition("echo", "Say it again.", {"properties": {"text": {"type": "string"}}})


@pytest.mark.row("SP-2")
@pytest.mark.parametrize("kind", [Echo, Computed], ids=["attribute", "property"])
async def test_a_tool_of_your_own_class_works_under_its_name_and_another(kind):
    box = Toolbox(kind())

    assert (await box.call("echo", {"text": "a"})).text == "echo: a"
    assert (await box.prefixed("x_").call("x_echo", {"text": "a"})).text == "x_echo: a"
    assert names(box.select(read_only=True)) == ["echo"]


async def test_the_arguments_of_a_tool_of_your_own_class_are_checked():
    result = await Toolbox(Echo()).call("echo", {})

    assert result.error.code == "invalid_arguments"


# --- resolvers ---------------------------------------------------------------------------------


@pytest.mark.row("SP-54")
async def test_own_tools_come_before_resolvers_and_resolvers_in_their_order():
    first, second = Shelf(made("b", "first")), Shelf(made("b", "second"), made("c", "second"))
    box = Toolbox(made("a", "own"), resolvers=[first, second])

    texts = [(await box.call(name)).text for name in "abc"]

    assert texts == ["own", "first", "second"]
    assert "a" not in first.asked
    assert second.asked == ["c"]


async def test_what_no_resolver_knows_is_unknown():
    box = Toolbox(resolvers=[Shelf(), Shelf()])

    assert isinstance((await box.call("zzz")).error, UnknownTool)


async def test_a_tool_is_resolved_once():
    shelf = Shelf(made("b"))
    box = Toolbox(resolvers=[shelf])

    for _ in range(3):
        await box.call("b")

    assert shelf.asked == ["b"]


async def test_a_name_given_as_a_source_is_looked_up_by_the_resolvers():
    box = Toolbox("currentWeather", resolvers=[Shelf(made("currentWeather", "sunny"))])

    assert names(box) == ["currentWeather"]
    assert (await box.call("currentWeather")).text == "sunny"


def test_a_name_given_as_a_source_that_nobody_knows_is_refused():
    with pytest.raises(DefinitionError, match="currentWeather"):
        Toolbox("currentWeather", resolvers=[Shelf()])


@pytest.mark.parametrize(
    "narrow", [lambda box: box.exclude("danger"), lambda box: box.select("safe")], ids=["exclude", "select"]
)
async def test_a_view_keeps_a_tool_out_that_a_resolver_knows_too(narrow):
    """A view narrows what a model may call; falling back to a resolver would undo that."""
    ran = []
    danger = Tool.from_schema("danger", "", {}, lambda arguments, context: ran.append(1))
    box = Toolbox(made("safe"), "danger", resolvers=[Shelf(danger)])

    result = await narrow(box).call("danger")

    assert isinstance(result.error, UnknownTool)
    assert ran == []
