"""What a toolbox takes from its configuration: servers, provider-run tools, limits, the folder of the project."""

import logging
from pathlib import Path

import pytest

from toolmason import (
    Chat,
    Config,
    Limits,
    McpServer,
    RemoteMcp,
    Toolbox,
    ToolContext,
    WebSearch,
    discover,
    prompt,
    scan,
    tool,
)
from toolmason.errors import ConfigError, DefinitionError
from toolmason.models import ScriptedModel


@tool
def where(project_dir: Path) -> str:
    """Return the folder."""
    return project_dir.name


@tool
def session(ctx: ToolContext) -> str | None:
    """Return the session."""
    return ctx.session_id


def make_config(**values):
    return Config(values, environ={})


# --- servers ---------------------------------------------------------------------------------------


@pytest.mark.row("MA-35", "MA-25")
def test_the_servers_of_a_configuration_join_the_toolbox():
    settings = make_config(
        MCP={"name": "crm", "url": "https://crm.example/mcp"},
        MCP_4={"name": "wiki", "url": "https://wiki.example/mcp"},
        MCP_2={"name": "theirs", "url": "https://theirs.example/mcp", "native": True},
    )

    box = Toolbox(where, config=settings)

    assert list(box.servers) == ["crm", "wiki"]
    assert [item.name for item in box.native] == ["theirs"]


@pytest.mark.row("MA-35")
@pytest.mark.parametrize("native", [False, True], ids=["ours", "of the provider"])
def test_a_server_name_with_blanks_is_normalised_and_told(caplog, native):
    caplog.set_level(logging.INFO, "toolmason")
    settings = make_config(MCP={"name": "Project MCP", "url": "https://crm.example/mcp", "native": native})

    box = Toolbox(config=settings)

    assert [*box.servers, *(item.name for item in box.native)] == ["Project_MCP"]
    assert "code: server 'Project MCP' is called 'Project_MCP': a name has no blanks" in caplog.text


@pytest.mark.row("MA-25", "MA-31")
def test_what_is_written_in_code_beats_the_configuration():
    settings = make_config(
        MCP={"name": "crm", "url": "https://crm.example/mcp"},
        MCP_1={"name": "wiki", "url": "https://wiki.example/mcp", "native": True},
        WebSearchTool={"type": "web_search_preview"},
    )

    box = Toolbox(
        McpServer.http("crm", "https://other.example/mcp"),
        RemoteMcp("wiki", "https://other.example/mcp"),
        WebSearch(),
        config=settings,
    )

    assert list(box.servers) == ["crm"]
    assert box.native == (RemoteMcp("wiki", "https://other.example/mcp"), WebSearch())


def test_two_server_names_that_become_one_are_refused():
    settings = make_config(
        MCP={"name": "my crm", "url": "https://a.example/mcp"}, MCP_1={"name": "my_crm", "url": "https://b.example"}
    )

    with pytest.raises(DefinitionError, match="Two servers are named 'my_crm'"):
        Toolbox(config=settings)


def test_settings_without_servers_keep_the_rest():
    settings = make_config(
        MCP={"name": "crm", "url": "https://crm.example/mcp"},
        MCP_1={"name": "wiki", "url": "https://wiki.example/mcp", "native": True},
        shop={"name": "Tea House"},
    ).without_servers()

    assert [server.name for server in settings.servers] == ["wiki"]
    assert settings["shop.name"] == "Tea House"


# --- limits ----------------------------------------------------------------------------------------


@pytest.mark.row("MA-25")
async def test_the_limits_of_a_run_come_from_the_configuration():
    model = ScriptedModel([[("where", {})], [("where", {"again": 1})], "done"])

    reply = await Chat(model, [where], config={"limits": {"steps": "1"}, "project_dir": "here"}).send("x")

    assert reply.finish == "limit"
    assert len(reply.results) == 1


@pytest.mark.row("MA-25")
@pytest.mark.parametrize("value", [0, "0"], ids=repr)
def test_a_limit_of_zero_is_one_that_allows_nothing_as_in_code(value):
    assert Chat("offline", [where], config={"limits.calls": value}).limits == Limits(calls=0)


@pytest.mark.row("MA-25")
async def test_options_of_the_model_come_from_the_configuration_and_code_beats_it():
    model = ScriptedModel(["done"])
    settings = {"model": {"max_tokens": "500", "temperature": 0}}

    await Chat(model, Toolbox(where, config=settings), options={"temperature": 1}).send("x")

    assert model.requests[0].options == {"max_tokens": 500, "temperature": 1}


def test_an_unknown_option_of_the_model_is_refused():
    with pytest.raises(ConfigError, match=r"model\.max_token"):
        Chat("offline", [where], config={"model.max_token": 5})


@pytest.mark.parametrize("value", [-1, "nan"], ids=repr)
def test_a_limit_below_zero_is_refused(value):
    with pytest.raises(ConfigError, match=r"limits\.calls=.* in code"):
        Toolbox(config={"limits.calls": value})


# --- the folder of the project -----------------------------------------------------------------------


@pytest.mark.row("MA-15")
async def test_a_context_may_name_the_folder_of_the_project_for_a_toolbox_and_for_a_call(tmp_path):
    box = Toolbox(where, context={"project_dir": tmp_path / "box"}, config={"project_dir": "configured"})

    assert (await box.call("where")).value == "box"
    assert (await box.call("where", context={"project_dir": str(tmp_path / "call")})).value == "call"
    assert (await box.call("where", {"project_dir": "/model"})).value == "box"
    reply = await Chat(ScriptedModel([[("where", {})], "x"]), box).send("x", context={"project_dir": "sent"})
    assert reply.results[0].value == "sent"


@pytest.mark.row("MA-15")
async def test_the_option_of_the_toolbox_beats_its_context_and_its_configuration(tmp_path):
    box = Toolbox(
        where, project_dir=tmp_path / "option", context={"project_dir": "context"}, config={"project_dir": "config"}
    )

    assert (await box.call("where")).value == "option"


async def test_a_configuration_without_a_folder_keeps_that_of_the_toolbox():
    box = Toolbox(where, project_dir="own").with_policy(config={"shop.name": "x"})

    assert (await box.call("where")).value == "own"
    assert (await box.with_policy(config={"project_dir": "new"}).call("where")).value == "new"


@pytest.mark.parametrize("value", [5, "", None], ids=repr)
async def test_a_folder_in_a_context_that_is_no_path_is_refused(value):
    with pytest.raises(DefinitionError, match=r"project_dir=.*: must be a path"):
        await Toolbox(where).call("where", context={"project_dir": value})


@pytest.mark.row("MA-15", "MA-19")
async def test_a_prompt_gets_the_folder_of_its_call():
    @prompt
    def look(project_dir: Path) -> str:
        """Look around."""
        return f"Look into {project_dir.name}."

    [message] = await Toolbox(look, project_dir="box").prompt("look", context={"project_dir": "call"})

    assert message.text == "Look into call."


# --- discovery -------------------------------------------------------------------------------------


@pytest.mark.row("MA-3")
@pytest.mark.parametrize("found", ["scan", "discover"])
async def test_discovered_tools_take_a_configuration_and_a_folder(found, tmp_path, monkeypatch):
    (tmp_path / "found_tools.py").write_text(
        "from toolmason import Config, tool\n"
        "@tool\n"
        "def report(config: Config, project_dir: str) -> str:\n"
        '    """Report."""\n'
        "    return config['shop.name'] + project_dir[-4:]\n"
    )
    info = tmp_path / "found_tools-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: found-tools\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[toolmason.tools]\nfound = found_tools\n")
    monkeypatch.syspath_prepend(tmp_path)
    options = {"config": {"shop.name": "Tea"}, "project_dir": "/data"}

    box = scan("found_tools", **options) if found == "scan" else discover(**options)

    assert (await box.call("report")).value == "Teadata"


# --- the session -----------------------------------------------------------------------------------


@pytest.mark.row("MA-6")
async def test_the_conversation_of_a_chat_is_the_session_unless_the_application_names_one():
    async def ask(**options):
        chat = Chat(ScriptedModel([[("session", {})], "x"]), [session])
        return (await chat.send("x", **options)).results[0].value

    assert await ask(conversation="ada") == "ada"
    assert await ask(conversation="ada", context={"session_id": "s1"}) == "s1"
    assert await ask() is None
