"""Mistakes of the developer are told where they are made, not as a failure of the first call."""

import logging
from typing import Annotated, Any

import pytest

from toolmason import (
    Chat,
    Inject,
    McpServer,
    Message,
    Param,
    Tool,
    Toolbox,
    ToolContext,
    ToolDefinition,
    ToolOptions,
    WebSearch,
    tool,
)
from toolmason.errors import ConfigError, DefinitionError
from toolmason.models import ModelRequest
from toolmason.providers import codec
from toolmason.testing import ScriptedModel


class Database:
    url = "db://local"


def plain(a: int) -> int:
    """Return a number."""
    return a


@pytest.mark.parametrize("model", [[ScriptedModel([]), 3], ScriptedModel, 3], ids=str)
def test_a_chat_refuses_what_is_no_model(model):
    with pytest.raises(ConfigError, match="this is not a model"):
        Chat(model)


def test_a_chat_refuses_a_system_message_that_is_no_string():
    with pytest.raises(DefinitionError, match="system= is of type"):
        Chat(ScriptedModel([]), system=5)


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


MAKERS = {
    "@tool": lambda **options: Toolbox(tool(**options)(plain)),
    "from_function": lambda **options: Tool.from_function(plain, **options),
    "from_schema": lambda **options: Tool.from_schema("plain", "", SCHEMA, lambda arguments, context: 1, **options),
    "a class": lambda **options: Toolbox(type("Own", (OwnTool,), {"options": ToolOptions(**options)})()),
    "override": lambda **options: Toolbox(Tool.from_function(plain, name="plain")).override("plain", **options),
}
SCHEMA = {"properties": {"a": {"type": "integer"}}}


class OwnTool(Tool):
    definition = ToolDefinition("own", "Own.", SCHEMA)

    async def invoke(self, arguments, context):
        return 1


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"approval": "x"}, r"approval='x': must be True, False or a function of \(arguments, context\)"),
        ({"enabled": "x"}, "enabled='x': must be True, False or a function of the context"),
        ({"preview": "x"}, "preview='x': must be a function of the arguments"),
        ({"reconcile": 1}, "reconcile=1: must be a function of the arguments"),
        ({"lock": "pth"}, r"lock='pth' names no parameter of the tool\. Parameters: a\."),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_an_option_that_cannot_work_is_refused_when_it_is_written(make, options, text):
    try:
        plain.__dict__.clear()
        with pytest.raises(DefinitionError, match=text):
            make(**options)
    finally:
        plain.__dict__.clear()


def test_a_lock_may_have_any_name_of_a_parameter():
    def write(path: Annotated[str, Param(name="file")], user: Annotated[str, Inject("user")]) -> None:
        """Write."""

    def pick(**values: int) -> None:
        """Pick."""

    for name in ("path", "file", "user"):
        assert Tool.from_function(write, lock=name).options.lock == name
    assert Tool.from_function(pick, lock="anything")
    renamed = Toolbox(write).override("write", arguments={"file": Param(name="target")}, lock="target")
    assert renamed["write"].options.lock == "target"


async def test_a_lock_on_a_tool_of_a_server_names_a_parameter_of_it():
    async with Toolbox(McpServer.of("s", Toolbox(plain))) as box:
        await box.list()
        assert box.override("plain", lock="a")["plain"].options.lock == "a"
        with pytest.raises(DefinitionError, match=r"override\('plain'\): lock='b' names no parameter"):
            box.override("plain", lock="b")


@pytest.mark.parametrize("key", ["", " ", 3])
def test_an_injected_value_has_a_name(key):
    with pytest.raises(DefinitionError, match=r"Inject\(key="):
        Inject(key)


@pytest.mark.parametrize("key", ["name", "title", "description"])
@pytest.mark.parametrize("value", ["", " \n", 3])
def test_an_override_refuses_an_empty_text(key, value):
    with pytest.raises(DefinitionError, match=rf"override\('plain'\): {key}="):
        Toolbox(plain).override("plain", **{key: value})


async def test_an_override_of_an_unknown_name_is_refused_as_soon_as_all_names_are_known(caplog):
    box = Toolbox(McpServer.of("s", Toolbox(plain)), McpServer.stdio("down", "there-is-no-such-program"))
    async with Toolbox(McpServer.of("s", Toolbox(plain))) as known:
        await known.list()
        with pytest.raises(DefinitionError, match=r"override\('plian'\): no such tool\. Did you mean 'plain'\?"):
            known.override("plian", timeout=1)
    with caplog.at_level(logging.WARNING):
        async with box:
            await box.override("plian", timeout=1).list()
    assert "override('plian')" not in caplog.text

    view = Toolbox(McpServer.of("s", Toolbox(plain))).override("plian", timeout=1)
    async with view:
        await view.list()
    assert "override('plian'): neither the toolbox nor its servers have a tool of this name. Did you mean 'plain'?" in (
        caplog.text
    )


def test_a_view_refuses_an_unknown_keyword_with_the_nearest():
    with pytest.raises(DefinitionError, match=r"select\(readonly=\.\.\.\): no such keyword\. Did you mean 'read_only'"):
        Toolbox(plain).select(readonly=True)
    with pytest.raises(DefinitionError, match=r"exclude\(tag=\.\.\.\): no such keyword\. Did you mean 'tags'\?"):
        Toolbox(plain).exclude(tag="x")


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "gemini"])
def test_a_codec_refuses_what_is_no_request(provider):
    with pytest.raises(ConfigError, match=r"encode\(request=\[Message.*must be a ModelRequest"):
        codec(provider).encode([Message("user", "Hi")])
    with pytest.raises(ConfigError, match=r"encode\(model=''\): must be the name of a model"):
        codec(provider).encode(ModelRequest("Hi"))
