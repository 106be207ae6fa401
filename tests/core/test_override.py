"""`Toolbox.override`: other options, texts and arguments of one tool, whatever kind it is."""

import asyncio
import contextlib
import json
import logging
from typing import Annotated, Any, Literal

import mcp_types
import pytest
from mcp.server import Server
from pydantic import BaseModel

from toolmason import Deny, Inject, McpServer, Param, Rate, Retry, Tool, Toolbox, ToolContext, tool
from toolmason._core.define.tool import LazyTool
from toolmason.errors import DefinitionError, DuplicateTool
from toolmason.extend import StaticResolver


class Area(BaseModel):
    x: int = 0


@tool
def search(q: str, tenant: str, limit: int = 5, unit: str = "c", area: Area | None = None) -> dict[str, Any]:
    """Search."""
    return {"q": q, "tenant": tenant, "limit": limit, "unit": unit, "area": area and area.x}


def make_lazy() -> Tool:
    made = Tool.from_function(search)
    return LazyTool(made.definition, made.options, "a manifest", lambda: made)


def answer(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    area = arguments.get("area")
    return {"limit": 5, "unit": "c", **arguments, "area": area and area["x"]}


SCHEMA = Toolbox(search)["search"].definition.input_schema
KINDS = {
    "function": lambda: search,
    "schema": lambda: Tool.from_schema("search", "Search.", SCHEMA, answer),
    "lazy": make_lazy,
    "server": lambda: McpServer.of("s", Toolbox(search)),
    "nested": lambda: Toolbox(search),
    "nested server": lambda: Toolbox(McpServer.of("s", Toolbox(search))),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
async def box(request):
    async with Toolbox(request.param(), context={"tenant": "acme"}) as found:
        await found.list()
        yield found


def schema_of(view: Toolbox, name: str = "search") -> dict[str, Any]:
    return view[name].definition.input_schema


# --- arguments ---------------------------------------------------------------------------------


async def test_an_argument_is_renamed_and_described(box):
    view = box.override("search", arguments={"q": Param(name="query", description="The words")})

    result = await view.call("search", {"query": "tea", "tenant": "t"})

    assert schema_of(view)["properties"]["query"]["description"] == "The words"
    assert schema_of(view)["required"] == ["query", "tenant"]
    assert result.value["q"] == "tea"
    assert (await box.call("search", {"q": "tea", "tenant": "t"})).ok


@pytest.mark.parametrize("fixed", ["zeta", Inject("tenant"), Inject], ids=["fixed", "injected", "bare"])
async def test_a_hidden_argument_never_comes_from_the_model(box, fixed):
    view = box.override("search", arguments={"tenant": fixed})

    for sent in ({"q": "tea"}, {"q": "tea", "tenant": "evil"}, '{"q": "tea", "tenant": "evil"}'):
        result = await view.call("search", sent)
        assert result.value["tenant"] == ("zeta" if fixed == "zeta" else "acme")

    assert "tenant" not in schema_of(view)["properties"]
    assert schema_of(view)["required"] == ["q"]


async def test_a_value_of_the_call_wins_over_that_of_the_toolbox(box):
    view = box.override("search", arguments={"tenant": Inject})

    result = await view.call("search", {"q": "tea"}, context={"tenant": "of the call"})

    assert result.value["tenant"] == "of the call"


async def test_a_value_of_the_context_that_does_not_fit_is_told(box):
    view = box.override("search", arguments={"tenant": Inject})

    result = await view.call("search", {"q": "tea"}, context={"tenant": 7})

    assert "the value of the context does not fit $.tenant" in result.text


async def test_a_default_makes_an_argument_optional(box):
    view = box.override("search", arguments={"tenant": Param(default="d"), "limit": Annotated[int, Param(default=9)]})

    result = await view.call("search", {"q": "tea"})

    assert schema_of(view)["properties"]["limit"]["default"] == 9
    assert schema_of(view)["required"] == ["q"]
    assert (result.value["tenant"], result.value["limit"]) == ("d", 9)


async def test_an_optional_argument_becomes_required(box):
    view = box.override("search", arguments={"limit": Param(required=True)})

    result = await view.call("search", {"q": "tea", "tenant": "t"})

    assert schema_of(view)["required"] == ["q", "tenant", "limit"]
    assert [problem.path for problem in result.error.problems] == ["$.limit"]


@pytest.mark.parametrize("narrow", [Literal["c", "f"], Param(schema={"type": "string", "enum": ["c", "f"]})])
async def test_a_narrower_type_is_shown_checked_and_repaired(box, narrow):
    view = box.override("search", arguments={"unit": narrow})

    wrong = await view.call("search", {"q": "tea", "tenant": "t", "unit": "k"})
    repaired = await view.call("search", {"q": "tea", "tenant": "t", "unit": "F"})

    assert schema_of(view)["properties"]["unit"]["enum"] == ["c", "f"]
    assert [problem.path for problem in wrong.error.problems] == ["$.unit"]
    assert repaired.value["unit"] == "f"


async def test_the_problems_have_the_names_that_the_model_uses(box):
    changes = {"q": Param(name="query"), "unit": Annotated[Literal["c"], Param(name="scale")], "tenant": Inject}
    view = box.override("search", arguments=changes)

    missing = await view.call("search", {"limit": "x"})
    wrong = await view.call("search", {"query": 5, "scale": 5, "limit": {}})

    assert {problem.path for problem in missing.error.problems} == {"$.query", "$.limit"}
    assert {problem.path for problem in wrong.error.problems} == {"$.query", "$.scale", "$.limit"}


async def test_a_renamed_argument_may_take_the_name_of_a_hidden_one(box):
    view = box.override("search", arguments={"tenant": Inject, "q": Param(name="tenant")})

    result = await view.call("search", {"tenant": "tea"})

    assert (result.value["q"], result.value["tenant"]) == ("tea", "acme")


async def test_the_definitions_of_a_hidden_argument_are_not_shown(box):
    view = box.override("search", arguments={"area": {"x": 3}})

    result = await view.call("search", {"q": "tea", "tenant": "t"})

    assert "$defs" not in schema_of(view)
    assert result.value["area"] == 3


async def test_overrides_are_made_on_top_of_each_other(box):
    first = box.override("search", name="find", arguments={"q": Param(name="query")})
    view = first.override("find", arguments={"query": Param(name="text"), "tenant": "t"}).prefixed("my_")

    result = await view.call("my_find", {"text": "tea"})

    assert list(schema_of(view, "my_find")["properties"]) == ["text", "limit", "unit", "area"]
    assert result.value["q"] == "tea"


WRONG = {
    "unknown": ({"nope": 1}, "the tool has no parameter 'nope'. Parameters: q, tenant"),
    "fixed value": ({"limit": "many"}, r"the value of 'limit' does not fit \$.limit"),
    "nested value": ({"area": {"x": "y"}}, r"does not fit \$.area"),
    "default": ({"limit": Param(default="many")}, r"the value of 'limit' does not fit \$.limit"),
    "wider": ({"limit": int | str}, "the type of 'limit' is not narrower than the original one"),
    "other": ({"unit": int}, "the type of 'unit' is not narrower than the original one"),
    "twice": ({"q": Param(name="unit")}, "two parameters are named 'unit': 'q' and 'unit'"),
    "optional": ({"q": Param(required=False)}, "the tool requires 'q', so it needs a default"),
    "object": ({"q": object()}, "argument 'q': .* has no JSON form"),
    "template": ({"q": Param(default="${unit}", template=True)}, "not a template or a factory"),
    "contradiction": ({"q": Param(required=True, default="")}, "is required but has the default"),
    "no schema": ({"q": Param(schema={"type": "strange"})}, "is not valid JSON Schema"),
}


@pytest.mark.parametrize(("arguments", "text"), WRONG.values(), ids=WRONG)
async def test_what_does_not_fit_is_refused_when_it_is_written(box, arguments, text):
    lazy = isinstance(box["search"], LazyTool)

    with pytest.raises(DefinitionError, match=text) if not (lazy and "does not fit" in text) else nothing():
        box.override("search", arguments=arguments)


def nothing():
    return contextlib.nullcontext()


async def test_a_lazy_tool_that_does_not_fit_is_an_error_of_its_call(caplog):
    view = Toolbox(make_lazy()).override("search", arguments={"limit": "many"})

    result = await view.call("search", {"q": "tea", "tenant": "t"})

    assert "the value of 'limit' does not fit $.limit" in result.text
    assert "many" not in result.text + caplog.text  # a fixed value may be a password


async def test_a_schema_that_refers_to_a_parameter_is_not_cut():
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    box = Toolbox(Tool.from_schema("pair", "", schema, lambda arguments, context: arguments))

    with pytest.raises(DefinitionError, match="refers to the schema of a parameter"):
        box.override("pair", arguments={"a": "x"})

    assert (await box.override("pair", timeout=3).call("pair", {"a": "x", "b": "y"})).ok


async def test_an_approver_sees_the_arguments_as_the_model_does():
    requests = []
    box = Toolbox(search, approver=lambda request: requests.append(request) or Deny("no"))
    view = box.override("search", approval=True, arguments={"tenant": "secret", "q": Param(name="query")})

    await view.call("search", {"query": "tea"})

    assert requests[0].arguments == {"query": "tea", "limit": 5, "unit": "c"}


async def test_a_decision_fits_an_overridden_call(box):
    view = box.override("search", approval=True, arguments={"tenant": Inject, "q": Param(name="query")})
    pending = await view.call("search", {"query": "tea"})

    result = await view.approvals.resume(view.approvals.decide(pending.error.request, allow()))

    assert result.value["q"] == "tea"


def allow():
    from toolmason import Allow

    return Allow()


# --- texts and options -------------------------------------------------------------------------


async def test_texts_and_options_are_replaced(box):
    view = box.override(
        "search", name="find", title="Find", description="Find it.", return_direct=True, tags="x", read_only=True
    )

    found = view["find"]
    result = await view.call("find", {"q": "tea", "tenant": "t"})

    assert (found.definition.title, found.description) == ("Find", "Find it.")
    assert (found.options.tags, found.options.read_only) == ({"x"}, True)
    assert result.return_direct
    assert "search" not in view
    assert (await view.call("search", {})).error.code == "unknown_tool"
    assert [item.name for item in await box.list()] == ["search"]


async def test_a_retry_of_the_override_is_used():
    attempts = []

    @tool
    def flaky() -> str:
        """Fail once."""
        attempts.append(1)
        if len(attempts) < 2:
            raise ConnectionError
        return "done"

    view = Toolbox(flaky).override("flaky", retry=Retry(attempts=2, delay=0))

    assert (await view.call("flaky")).text == "done"


async def test_approvals_of_both_are_asked():
    @tool(approval=lambda arguments, context: arguments["amount"] > 100)
    def pay(amount: int, to: str = "") -> str:
        """Pay."""
        return "paid"

    async def is_stranger(arguments, context):
        return arguments["to"] != "ada"

    box = Toolbox(pay)
    view = box.override("pay", approval=is_stranger)
    codes = [
        (result := await view.call("pay", {"amount": amount, "to": to})).error and result.error.code
        for amount, to in [(5, "ada"), (500, "ada"), (5, "eve")]
    ]

    assert codes == [None, "approval_required", "approval_required"]
    with pytest.raises(DefinitionError, match="does not remove that"):
        box.override("pay", approval=False)


@pytest.mark.parametrize(
    ("own", "given", "held"),
    [
        ({"timeout": 5}, {"timeout": 9}, 5),
        ({"timeout": 5}, {"timeout": None}, 5),
        ({}, {"timeout": 9}, 9),
        ({"max_calls": 2}, {"max_calls": 3}, 2),
        ({"max_calls": 2}, {"max_calls": None}, 2),
        ({"max_result_bytes": 300}, {"max_result_bytes": 1000}, 300),
        ({"on_error": "redact"}, {"on_error": "message"}, "redact"),
        ({"meta": {"a": 1, "b": 1}}, {"meta": {"b": 2}}, {"a": 1, "b": 2}),
        ({"destructive": True}, {"read_only": True}, True),
    ],
)
async def test_the_stricter_option_holds(own, given, held):
    view = Toolbox(Tool.from_function(search, **own)).override("search", **given)

    [option] = given
    assert getattr(view["search"].options, option) == held


async def test_both_rates_hold_and_count_for_the_tool():
    box = Toolbox(Tool.from_function(lambda: "x", name="x", rate=Rate(2, per=600), repeats="allow"))
    view = box.override("x", rate=Rate(100, per=600))

    codes = [(await each.call("x")).ok for each in (view, box, view)]

    assert codes == [True, True, False]


async def test_both_limits_of_concurrency_hold():
    running, most = 0, 0

    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "x"

    box = Toolbox(Tool.from_function(work, max_concurrency=3))
    view = box.override("work", max_concurrency=2)

    await asyncio.gather(*(view.call("work", {}) for _ in range(6)))
    in_view, most = most, 0
    await asyncio.gather(*(each.call("work", {}) for each in (box, view) for _ in range(6)))

    assert (in_view, most) == (2, 3)


def test_an_option_that_belongs_to_the_code_is_refused():
    with pytest.raises(DefinitionError, match="'runs_on' belongs to the code of the tool"):
        Toolbox(search).override("search", runs_on="loop")
    with pytest.raises(DefinitionError, match="Unknown tool option 'aproval'"):
        Toolbox(search).override("search", aproval=True)
    locked = Toolbox(Tool.from_function(search, lock="q"))
    with pytest.raises(DefinitionError, match="already locks on 'q'"):
        locked.override("search", lock="tenant")


def test_a_name_that_no_tool_has_is_refused():
    with pytest.raises(DefinitionError, match=r"override\('serch'\): no such tool. Did you mean 'search'\?"):
        Toolbox(search).override("serch", timeout=3)


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(DuplicateTool):
        Toolbox(search, Tool.from_function(lambda: "", name="find")).override("search", name="find")
    with pytest.raises(DefinitionError, match="built-in"):
        Toolbox(search).override("search", name="read_result")


async def test_a_tool_of_a_resolver_is_overridden():
    box = Toolbox(resolvers=[StaticResolver(search)])

    result = await box.override("search", arguments={"tenant": "t"}).call("search", {"q": "tea"})

    assert result.value["tenant"] == "t"


async def test_the_policy_of_a_nested_toolbox_still_travels():
    inner = Toolbox(search, approve="all", approver=lambda request: Deny("not today"))
    view = Toolbox(inner).override("search", arguments={"tenant": "t"}, read_only=True)

    assert (await view.call("search", {"q": "tea"})).error.code == "approval_denied"
    assert (await Toolbox(view).call("search", {"q": "tea"})).error.code == "approval_denied"


async def test_an_augmented_tool_takes_no_value_of_the_context():
    class Why(BaseModel):
        why: str

    box = Toolbox(search, context={"tenant": "acme"})
    with pytest.raises(DefinitionError, match="Override it first"):
        box.augmented(Why).override("search", arguments={"tenant": Inject})

    view = box.override("search", arguments={"tenant": Inject}).augmented(Why)
    fixed = box.augmented(Why).override("search", arguments={"tenant": "t", "why": Param(name="reason")})

    assert (await view.call("search", {"q": "tea", "why": "x"})).value["tenant"] == "acme"
    assert (await fixed.call("search", {"q": "tea", "reason": "x"})).value["tenant"] == "t"
    assert {p.path for p in (await fixed.call("search", {"q": 5})).error.problems} == {"$.q", "$.reason"}


# --- tools of servers that change --------------------------------------------------------------


def make_search(**parameters: Any) -> Tool:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool.from_schema("search", "Search.", schema, lambda arguments, context: arguments)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


async def test_an_override_applies_when_the_server_is_listed_and_after_each_change():
    inner = Toolbox(make_search(q=TEXT, tenant=TEXT))
    async with Toolbox(McpServer.of("s", inner), eager=False) as box:
        view = box.override("search", name="find", arguments={"tenant": "t"})
        assert [item.name for item in await view.list()] == ["find"]

        inner.add(make_search(q=TEXT, tenant=TEXT, page=NUMBER), replace=True)
        await box.refresh()

        assert list(schema_of(view, "find")["properties"]) == ["q", "page"]
        result = await view.call("find", {"q": "tea", "page": 1})
        assert json.loads(result.text) == {"q": "tea", "tenant": "t", "page": 1}


async def test_a_change_that_no_longer_fits_withholds_the_tool(caplog):
    inner = Toolbox(make_search(q=TEXT, tenant=TEXT))
    async with Toolbox(McpServer.of("s", inner)) as box:
        view = box.override("search", arguments={"tenant": "t"})
        inner.add(make_search(q=TEXT, tenant=NUMBER), replace=True)
        await box.refresh()

        with caplog.at_level(logging.WARNING):
            assert await view.list() == []
            assert view.definitions("openai") == []
            result = await view.call("search", {"q": "tea"})

        assert result.error.code == "execution_error"
        assert "the value of 'tenant' does not fit $.tenant" in result.text
        assert [text for text in caplog.messages if "The tool is withheld." in text] != []
        inner.add(make_search(q=TEXT, tenant=TEXT), replace=True)
        await box.refresh()
        assert (await view.call("search", {"q": "tea"})).ok


async def test_a_schema_of_a_server_cannot_make_an_override_expensive(caplog):
    """A definition that names the next one twice has 2^60 alternatives."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"type": "object", "properties": {"q": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d60": TEXT}}

    async def listed(*_):
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="search", input_schema=schema)])

    async with Toolbox(McpServer.of("s", Server("low", version="1", on_list_tools=listed)), eager=False) as box:
        view = box.override("search", arguments={"q": Literal["a"]})

        assert await view.list() == []
        assert "too complex to narrow 'q'" in (await view.call("search", {"q": "a"})).text


async def test_a_schema_of_a_server_that_makes_no_sense_withholds_the_tool():
    entry = mcp_types.Tool(name="search", input_schema={"type": "object", "properties": ["q"]})

    async def listed(*_):
        return mcp_types.ListToolsResult(tools=[entry])

    async with Toolbox(McpServer.of("s", Server("low", version="1", on_list_tools=listed)), eager=False) as box:
        view = box.override("search", arguments={"q": "x"})

        assert await view.list() == []
        assert not (await view.call("search", {})).ok


async def test_an_override_of_a_tool_that_never_appears_is_told_once(caplog):
    view = Toolbox(McpServer.of("s", Toolbox(search))).override("serch", timeout=3)
    with caplog.at_level(logging.WARNING):
        async with view:
            await view.list()
            await view.list()

    [told] = [text for text in caplog.messages if "override('serch')" in text]
    assert told.startswith("override('serch'): neither the toolbox nor its servers have a tool of this name.")
    assert told.endswith("Did you mean 'search'?")


async def test_a_new_name_that_a_server_uses_is_refused():
    async with Toolbox(McpServer.of("s", Toolbox(search, Tool.from_function(lambda: "", name="find")))) as box:
        with pytest.raises(DuplicateTool):
            box.override("search", name="find")


async def test_a_shadowed_tool_of_a_server_is_overridden_by_its_full_name():
    async with Toolbox(make_search(a=TEXT), McpServer.of("s", Toolbox(search))) as box:
        local = box.override("search", arguments={"a": "x"})
        remote = box.override("s__search", arguments={"tenant": "t"})

        assert (await local.call("search", {})).value == {"a": "x"}
        assert [item.name for item in await local.list()] == ["search"]
        assert (await remote.call("s__search", {"q": "tea"})).value["tenant"] == "t"


async def test_a_shadowed_tool_with_a_name_of_its_own_is_listed():
    async with Toolbox(make_search(a=TEXT), McpServer.of("s", Toolbox(search))) as box:
        views = {
            "override": box.override("s__search", name="find", description="Find."),
            "renamed": box.renamed({"s__search": "find"}),
            "prefixed": box.override("s__search", name="find").prefixed("a_"),
            "nested": Toolbox(box.override("s__search", name="find")),
        }
        for kind, view in views.items():
            prefix = "a_" if kind == "prefixed" else ""
            assert [item.name for item in await view.list()] == [f"{prefix}find", f"{prefix}search"], kind
            assert (await view.call(f"{prefix}find", {"q": "tea", "tenant": "t"})).ok
        assert [item.name for item in await box.prefixed("a_").list()] == ["a_search"]


async def test_a_served_view_shows_the_effects_of_the_override():
    upstream = McpServer.of("s", Toolbox(Tool.from_function(search, destructive=True, title="Old")))
    async with Toolbox(upstream) as box:
        view = box.override("search", read_only=True, title="New", description="Find.", arguments={"tenant": "t"})
        async with Toolbox(McpServer.of("gateway", view)) as client:
            [found] = await client.list()
            result = await client.call("search", {"q": "tea", "tenant": "evil"})

    assert (found.options.read_only, found.options.destructive) == (True, None)
    assert (found.definition.title, found.description) == ("New", "Find.")
    assert list(found.definition.input_schema["properties"]) == ["q", "limit", "unit", "area"]
    assert result.value["tenant"] == "t"


@pytest.mark.parametrize("source", ["local", "remote", "remote in one step", "schema", "view of a view"])
@pytest.mark.parametrize(
    ("change", "arguments"),
    [(Param(name="euros"), {"euros": 500}), (500, {}), (Inject("limit"), {}), (Param(default=500), {})],
    ids=["renamed", "fixed", "from the context", "default"],
)
async def test_a_rule_of_approval_sees_the_arguments_of_the_tool(source, change, arguments):
    paid, seen = [], []

    def is_large(given, context):
        seen.append(given["amount"])
        return given["amount"] > 100

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    changes = {"amount": change}
    if source == "local":
        view = Toolbox(Tool.from_function(pay, approval=is_large)).override("pay", arguments=changes)
    elif source == "schema":
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
        own = Tool.from_schema("pay", "Pay.", schema, lambda given, context: pay(**given), approval=is_large)
        view = Toolbox(own).override("pay", arguments=changes)
    elif source == "view of a view":
        view = Toolbox(Tool.from_function(pay, approval=is_large)).override("pay", arguments=changes)
        view = view.override("pay", description="Pay now.").override("pay", title="Pay")
    else:
        box = Toolbox(McpServer.of("bank", Toolbox(pay)))
        await box.list()
        if source == "remote":
            view = box.override("pay", approval=is_large).override("pay", arguments=changes)
        else:
            view = box.override("pay", approval=is_large, arguments=changes)

    result = await view.call("pay", arguments, context={"limit": 900})

    assert result.error is not None
    assert result.error.code == "approval_required"
    assert seen[0] in (500, 900)
    assert paid == []


async def test_a_preview_shows_the_arguments_of_the_tool():
    @tool(approval=True, preview=lambda given: f"pay {given['amount']}")
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    view = Toolbox(pay).override("pay", arguments={"amount": Param(name="euros")})

    assert (await view.call("pay", {"euros": 5})).error.request.preview == "pay 5"


def test_changes_that_are_no_mapping_are_refused():
    with pytest.raises(DefinitionError, match="must be a mapping of changes"):
        Toolbox(search).override("search", arguments=["a"])
