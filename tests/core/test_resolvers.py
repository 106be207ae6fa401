"""Resolvers that we bring: tools by name, from a fixed set, from plugins, from an import path."""

import sys
import threading

import pytest

from installed import on_path
from toolmason import Tool, Toolbox, tool
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool, UnknownTool
from toolmason.extend import EntryPointResolver, ImportResolver, Resolver, StaticResolver


def made(name: str, text: str = "") -> Tool:
    return Tool.from_schema(name, "", {}, lambda arguments, context: text or name)


@tool
def currentWeather(city: str = "Brno") -> str:  # noqa: N802 - as seed 001 names it
    return f"sunny in {city}"


class Bundle:
    @tool
    def step(self) -> int:
        return 1


# --- each kind ---------------------------------------------------------------------------------


def test_a_static_resolver_takes_what_a_toolbox_takes():
    resolver = StaticResolver(currentWeather, Bundle(), Toolbox(made("boxed")), [made("listed")])

    assert resolver.names == ("boxed", "currentWeather", "listed", "step")
    assert resolver.resolve("step").name == "step"
    assert resolver.resolve("CURRENTWEATHER").name == "currentWeather"
    assert resolver.resolve("nothing") is None
    assert isinstance(resolver, Resolver)


def test_a_static_resolver_refuses_two_tools_of_one_name_and_what_is_no_tool():
    with pytest.raises(DuplicateTool):
        StaticResolver(made("a"), made("a"))
    with pytest.raises(DefinitionError):
        StaticResolver(5)


def test_a_server_is_for_a_toolbox_and_not_for_a_resolver():
    class Server:
        name = "far"

        def __remote__(self, host) -> None: ...

    with pytest.raises(DefinitionError, match="Pass it to a toolbox"):
        StaticResolver(Server())


def test_an_entry_point_resolver_finds_what_is_installed_and_loads_nothing_before(with_installed):
    with_installed("alpha-tools", "broken-tools")
    resolver = EntryPointResolver()
    assert "alpha_tools" not in sys.modules

    found = resolver.resolve("forecast")

    assert found is not None
    assert resolver.resolve("forecast") is found
    assert "survivor" in resolver.names


def test_an_entry_point_resolver_is_for_an_application(with_installed):
    with_installed("app-tools")
    from app_tools.host import App

    assert EntryPointResolver(app=App).resolve("for_app") is not None
    assert EntryPointResolver().resolve("for_app") is None


def test_an_entry_point_resolver_of_another_group_knows_nothing(with_installed):
    with_installed("alpha-tools")

    assert EntryPointResolver("someone.else").names == ()


@pytest.fixture
def module(tmp_path):
    (tmp_path / "found_by_import.py").write_text(
        "from toolmason import tool\n@tool\ndef first() -> int:\n    return 1\n"
        "@tool(name='second')\ndef other() -> int:\n    return 2\ndef plain() -> int:\n    return 3\n",
        "utf-8",
    )
    with on_path(tmp_path):
        yield


@pytest.mark.usefixtures("module")
def test_an_import_resolver_imports_at_the_first_look_up():
    resolver = ImportResolver("found_by_import:other", "found_by_import:plain")
    assert "found_by_import" not in sys.modules

    assert resolver.resolve("second").origin
    assert resolver.names == ("plain", "second")
    assert resolver.resolve("first") is None
    assert resolver.resolve("other") is None


@pytest.mark.usefixtures("module")
def test_an_import_resolver_takes_a_whole_module():
    assert ImportResolver("found_by_import").names == ("first", "second")


@pytest.mark.parametrize(
    "target", ["no_such_module:fn", "json:nothing", "json:dumps.nothing", "", ":fn", "a b:c", "json:dumps:x", "../x.py"]
)
def test_an_import_path_that_leads_nowhere_is_told_by_the_look_up(target):
    with pytest.raises(ConfigError, match=r"Check|Use|Did you mean"):
        ImportResolver(target).resolve("fn")


async def test_an_import_path_that_leads_nowhere_costs_one_call():
    box = Toolbox(made("good"), resolvers=[ImportResolver("no_such_module:fn")])

    bad, good = await box.call_all([("fn", None), ("good", None)])

    assert "no_such_module" in bad.text
    assert good.text == "good"


def test_many_threads_load_once(with_installed):
    with_installed("alpha-tools")
    resolver, found = EntryPointResolver(), []
    threads = [threading.Thread(target=lambda: found.append(resolver.resolve("forecast"))) for _ in range(16)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(found) == 16
    assert len({id(item) for item in found}) == 1


# --- in a toolbox ------------------------------------------------------------------------------


@pytest.mark.row("SP-16")
async def test_a_name_is_a_source_and_the_order_of_the_resolvers_decides():
    """SP-16, C23: the order is the list you pass."""
    first, second = StaticResolver(made("a", "first")), StaticResolver(made("a", "second"), made("b", "second"))

    box = Toolbox("a", "b", currentWeather, resolvers=[first, second])

    assert [item.name for item in box] == ["a", "b", "currentWeather"]
    assert [(await box.call(name)).text for name in "ab"] == ["first", "second"]


def test_a_name_that_nobody_knows_is_refused_with_close_ones():
    with pytest.raises(DefinitionError, match="Did you mean 'currentWeather'"):
        Toolbox("curentWeather", resolvers=[StaticResolver(made("x")), StaticResolver(currentWeather)])


def test_a_resolver_that_does_not_tell_its_names_is_fine():
    class Silent:
        def resolve(self, name: str) -> None:
            return None

    with pytest.raises(DefinitionError, match="No resolver knows"):
        Toolbox("a", resolvers=[Silent()])


async def test_c22_in_a_run_only_what_was_offered_may_run():
    """C22: a model that names a tool it was not offered must not run it."""
    ran = []
    danger = Tool.from_schema("danger", "", {}, lambda arguments, context: ran.append(1))
    box = Toolbox(made("offered"), "named", resolvers=[StaticResolver(danger, made("named"))])

    with box.run() as run:
        refused = await run.call("danger")
        batch = await run.call_all([("danger", None), ("named", None), ("offered", None)])

    assert isinstance(refused.error, UnknownTool)
    assert [result.ok for result in batch] == [False, True, True]
    assert ran == []


async def test_c22_the_application_itself_may_call_what_its_resolvers_know():
    box = Toolbox(resolvers=[StaticResolver(made("known"))])

    assert (await box.call("known")).text == "known"
    assert (await box.resolve("known")).name == "known"


@pytest.mark.parametrize("fallback", [True, False])
async def test_c22_the_fallback_can_be_said_outright(fallback):
    box = Toolbox(resolvers=[StaticResolver(made("known"))], resolution_fallback=fallback)

    with box.run() as run:
        inside = await run.call("known")
    outside = await box.call("known")

    assert inside.ok is outside.ok is fallback


def test_a_string_without_resolvers_is_said_to_be_no_tool():
    with pytest.raises(DefinitionError, match="'weather' is a string, not a tool"):
        Toolbox("weather")
