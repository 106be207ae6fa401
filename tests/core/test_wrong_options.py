"""Mistakes of the developer are told where they are made, not as a failure of the first call."""

from typing import Annotated, Any

import pytest

from toolmason import Chat, Inject, Toolbox, ToolContext, WebSearch
from toolmason.errors import ConfigError, DefinitionError
from toolmason.testing import ScriptedModel


class Database:
    url = "db://local"


def plain(a: int) -> int:
    """Return a number."""
    return a


@pytest.mark.parametrize("model", [[ScriptedModel([]), ScriptedModel([])], ScriptedModel, 3], ids=str)
def test_a_chat_refuses_what_is_no_model(model):
    with pytest.raises(ConfigError, match="this is not a model"):
        Chat(model)


def test_a_chat_refuses_a_system_message_that_is_no_string():
    with pytest.raises(ConfigError, match="must be a string"):
        Chat(ScriptedModel([]), system=lambda context: "Be kind.")


def test_a_view_refuses_what_is_no_pattern():
    with pytest.raises(DefinitionError, match="a pattern is a string"):
        Toolbox(plain).select(lambda tool: True)
    with pytest.raises(DefinitionError, match="a pattern is a string"):
        Toolbox(plain).exclude(plain)


def test_a_selected_name_that_no_tool_has_is_told_with_the_nearest():
    with pytest.raises(DefinitionError, match=r"no such tool\. Did you mean 'plain'"):
        Toolbox(plain).select("plian")

    assert Toolbox(plain).select("plian*").tools == []
    assert Toolbox(plain, WebSearch()).select("web_search").native == (WebSearch(),)


async def test_a_context_with_deps_needs_them():
    def read(ctx: ToolContext[Database]) -> str:
        return ctx.deps.url

    missing = await Toolbox(read).call("read")
    given = await Toolbox(read, context=ToolContext(deps=Database())).call("read")

    assert "deps of type Database, and there are none" in missing.text
    assert given.text == "db://local"


@pytest.mark.parametrize("hint", [ToolContext, ToolContext[Any], ToolContext[Database | None]], ids=str)
async def test_a_context_without_a_type_of_deps_needs_none(hint):
    def read(ctx) -> str:
        return str(ctx.deps)

    read.__annotations__["ctx"] = hint

    assert (await Toolbox(read).call("read")).text == "None"


async def test_injected_data_has_its_type():
    def read(data: Annotated[dict[str, str], Inject("db")]) -> str:
        return str(dict(data))

    wrong = await Toolbox(read, context={"db": lambda: 1}).call("read")
    right = await Toolbox(read, context={"db": {"a": "b"}}).call("read")

    assert "injected as dict, but its value is function" in wrong.text
    assert right.text == "{'a': 'b'}"


async def test_an_injected_object_may_be_a_substitute():
    def read(database: Annotated[Database, Inject("db")]) -> str:
        return database.url

    class Substitute:
        url = "db://test"

    assert (await Toolbox(read, context={"db": Substitute()}).call("read")).text == "db://test"
