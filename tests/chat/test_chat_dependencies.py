"""A run of a chat keeps its dependencies until it ends, and a chat refuses a context without those of its tools."""

from collections.abc import AsyncIterator
from typing import Annotated, Protocol

import pytest

from toolmason import Allow, Depends, Toolbox, ToolContext, tool
from toolmason.chat.chat import Chat
from toolmason.errors import ConfigError
from toolmason.models.scripted import ScriptedModel

LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    LOG.clear()


async def connect(ctx: ToolContext) -> AsyncIterator[str | None]:
    LOG.append("open")
    yield ctx.run_id
    LOG.append("close")


@tool(repeats="allow")
async def use(value: Annotated[str, Depends(connect, scope="run")]) -> str:
    """Use it."""
    LOG.append("use")
    return value


@tool(approval=True)
async def ask(value: Annotated[str, Depends(connect, scope="run")]) -> str:
    """Use it after approval."""
    LOG.append("ask")
    return value


class Database:
    """A class of the application."""


class Named(Protocol):
    """A protocol of the application."""

    name: str


@tool
def look_up(key: str, ctx: ToolContext[Database]) -> str:
    """Look up a key."""
    return type(ctx.deps).__name__


@tool
def show_name(ctx: ToolContext[Named]) -> str:
    """Show the name."""
    return ctx.deps.name


async def test_a_run_of_a_chat_opens_it_once_and_closes_it_at_its_end():
    reply = await Chat(ScriptedModel([[("use", {}), ("use", {})], [("use", {})], "done"]), [use]).send("go")

    assert {result.text for result in reply.results if result.text == reply.run} == {reply.run}
    assert LOG == ["open", "use", "use", "use", "close"]


async def test_a_chat_that_is_called_as_a_tool_has_its_own():
    inner = Chat(ScriptedModel([[("use", {})], "inner"]), [use]).as_tool("inner", "Inner.")

    await Chat(ScriptedModel([[("use", {})], [("inner", {"prompt": "go"})], "done"]), [use, inner]).send("go")

    assert LOG == ["open", "use", "open", "use", "close", "close"]


async def test_a_run_that_waits_closes_it_and_opens_it_again():
    box = Toolbox(use, ask)
    reply = await Chat(ScriptedModel([[("use", {})], [("ask", {})]]), box).send("go")
    waiting = [*LOG]
    decision = box.approvals.decide(reply.pending[0], Allow())
    await Chat(ScriptedModel(["done"]), box).resume(reply.save(), [decision])

    assert waiting == ["open", "use", "close"]
    assert LOG[3:] == ["open", "ask", "close"]


# --- deps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [[look_up], Toolbox(look_up).prefixed("a_")], ids=["list", "view"])
def test_deps_of_another_class_are_refused_when_the_chat_is_built(tools):
    with pytest.raises(ConfigError, match="deps of type Database, but they are of type str"):
        Chat("offline", tools, context=ToolContext(deps="text"))


async def test_missing_deps_are_refused_before_the_first_request():
    model = ScriptedModel([[("look_up", {"key": "a"})], "done"])
    chat = Chat(model, [look_up])
    with pytest.raises(ConfigError, match=r"look_up: .* and there are none"):
        await chat.send("go")

    reply = await chat.send("go", context=ToolContext(deps=Database()))

    assert reply.results[0].text == "Database"


async def test_deps_of_another_class_in_a_request_are_refused():
    with pytest.raises(ConfigError, match="but they are of type int"):
        await Chat("offline", [look_up], context=ToolContext(deps=Database())).send("go", context=ToolContext(deps=1))


@pytest.mark.parametrize("name", ["tools", "add_tools"])
async def test_the_tools_of_a_request_are_checked(name):
    with pytest.raises(ConfigError, match="look_up: "):
        await Chat("offline", [use]).send("go", **{name: [look_up]})


async def test_deps_of_a_toolbox_and_of_a_protocol_fit():
    box = Toolbox(look_up, context=ToolContext(deps=Database()))

    reply = await Chat(ScriptedModel([[("look_up", {"key": "a"})], "done"]), box).send("go")
    Chat("offline", [show_name], context=ToolContext(deps=Database()))

    assert reply.results[0].text == "Database"


def test_a_subclass_fits():
    class Better(Database):
        pass

    assert Chat("offline", [look_up], context=ToolContext(deps=Better()))
