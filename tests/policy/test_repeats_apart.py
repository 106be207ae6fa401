"""Calls that a run must tell apart, although the model sends the same; and arguments that it cannot compare."""

from typing import Annotated, Any

import pytest

from toolmason import Inject, McpServer, Param, Toolbox, ToolContext
from toolmason._core.call import limits

# --- what the application adds to a call -----------------------------------------------------------


def read_of(tenant: Annotated[str, Inject("tenant")], q: str = "") -> str:
    return f"data of {tenant}"


def read_with(ctx: ToolContext, q: str = "") -> str:
    return f"data of {ctx['tenant']}"


def read_deps(ctx: ToolContext, q: str = "") -> str:
    return f"data of {ctx.deps}"


TENANTS = {"injected": read_of, "context": read_with}


@pytest.mark.parametrize("function", TENANTS.values(), ids=TENANTS)
@pytest.mark.parametrize("options", [{}, {"approve": None, "max_concurrency": 1}], ids=["plain", "with steps"])
async def test_a_call_for_another_tenant_is_another_call(function, options):
    run = Toolbox(function, **options).run()

    texts = [(await run.call(function.__name__, {"q": "x"}, context={"tenant": tenant})).text for tenant in "aabbba"]

    assert [text.splitlines()[0] for text in texts] == [f"data of {tenant}" for tenant in "aabbba"]
    assert ["[This" in text for text in texts] == [False, True, False, True, True, True]


async def test_views_with_other_contexts_make_other_calls():
    run = Toolbox(read_of).run()
    views = {tenant: run.with_policy(context={"tenant": tenant}) for tenant in "ab"}

    results = [await views[tenant].call("read_of", {"q": "x"}) for tenant in "aab"]

    assert results[2].text == "data of b"


async def test_other_objects_of_the_context_make_other_calls():
    run = Toolbox(read_deps).run()

    class Equal:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return True

        def __hash__(self):
            raise TypeError("not hashable")

        def __str__(self):
            return self.name

    ada, bob = Equal("ada"), Equal("bob")
    results = [await run.call("read_deps", context=ToolContext(deps)) for deps in (ada, ada, bob, ada)]

    assert [result.text.splitlines()[0] for result in results] == [
        "data of ada",
        "data of ada",
        "data of bob",
        "data of ada",
    ]
    assert "made before" in results[3].text


async def test_a_server_is_asked_for_each_tenant():
    def read(tenant: str) -> str:
        return f"data of {tenant}"

    async with Toolbox(McpServer.of("s", Toolbox(read))) as box:
        run = box.override("read", arguments={"tenant": Inject("tenant")}).run()
        results = [await run.call("read", {}, context={"tenant": tenant}) for tenant in "aab"]

    assert results[2].text == "data of b"


# --- views of one run --------------------------------------------------------------------------------


def query(options: dict[str, Any], db: str = "main", table: str = "t") -> str:
    return f"{options} of {table} in {db}"


def query_other(options: dict[str, Any]) -> str:
    return "other"


def hide(value):
    return lambda run: run.override("query", arguments={"db": value})


PAIRS = {
    "fixed": (hide("a"), hide("b")),
    "fixed and not": (hide("a"), lambda run: run),
    "injected": (hide(Inject("one")), hide(Inject("two"))),
    "default": (hide(Annotated[str, Param(default="a")]), hide(Annotated[str, Param(default="b")])),
    "through two views": (lambda run: hide("a")(run).prefixed(""), lambda run: hide("b")(run).prefixed("")),
    "renamed": (lambda run: run.renamed({"query": "q"}), lambda run: run.renamed({"query_other": "q"})),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
async def test_views_with_other_arguments_make_other_calls(pair):
    run = Toolbox(query, query_other, context={"one": "a", "two": "b"}).run()
    first, second = [view(run) for view in pair]
    name = "q" if "q" in [tool.name for tool in first] else "query"

    results = [await view.call(name, {"options": {"k": 1}}) for view in (first, first, second, second)]

    assert results[0].text != results[2].text
    assert ["[This" in result.text for result in results] == [False, True, False, True]


async def test_views_with_equal_changes_make_the_same_call():
    run = Toolbox(query).run()

    results = [await hide("a")(run).call("query", {"options": {"k": 1}}) for _ in range(2)]

    assert "second time" in results[1].text


# --- hostile arguments -------------------------------------------------------------------------------


class Broken:
    def __repr__(self):
        raise RuntimeError("broken")


HOSTILE = {
    "surrogate": '{"path":"\ud800"}',
    "surrogate in a mapping": {"path": "\ud800"},
    "long integer": '{"path":[' + "1" * 5000 + "]}",
    "long integer in a mapping": {"path": [10**5000]},
    "repr that fails": {"path": [Broken()]},
    "deep": '{"path":' + "[" * 10_000 + "]" * 10_000 + "}",
}


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
async def test_a_run_answers_whatever_the_arguments_are(arguments):
    def look(path: Any) -> str:
        return "seen"

    alone = await Toolbox(look).call("look", arguments)
    run = Toolbox(look).run()
    results = [await run.call("look", arguments) for _ in range(2)]
    good, bad = await run.call_all([("look", {"path": "a"}), ("look", arguments)])

    assert [result.ok for result in results] == [alone.ok] * 2
    assert good.text == "seen"
    assert bad.ok == alone.ok


async def test_a_text_that_is_refused_for_its_size_is_not_parsed(monkeypatch):
    parsed = []
    monkeypatch.setattr(limits, "parse_json", parsed.append)

    def poll(path: str) -> None: ...

    run = Toolbox(poll).run()
    text = '{"path": "' + "a" * 20_000_000 + '"}'

    first, second = [await run.call("poll", text) for _ in range(2)]

    assert first.error.code == "invalid_arguments"
    assert "second time" in second.text
    assert parsed == []
