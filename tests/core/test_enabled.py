"""`enabled=`: for whom a tool exists, in lists, calls, chats and MCP sessions."""

import asyncio
import json
import logging
import threading

import pytest

from mcp_server.sample_server import running
from toolmason import Chat, McpServer, Tool, Toolbox, tool
from toolmason.chat import Search
from toolmason.errors import DefinitionError
from toolmason.models import ScriptedModel


def is_admin(context):
    return context.get("user") == "admin"


async def is_admin_async(context):
    await asyncio.sleep(0)
    return is_admin(context)


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(params=[is_admin, is_admin_async], ids=["sync", "async"])
def drop(request):
    return Tool.from_function(lambda: "dropped", name="drop", description="Drop.", enabled=request.param)


ADMIN, GUEST = {"user": "admin"}, {"user": "guest"}


def names(tools):
    return [item.name for item in tools]


# --- a toolbox ---------------------------------------------------------------------------------


async def test_a_toolbox_lists_what_its_context_may_use(drop):
    box = Toolbox(drop, look)

    assert names(await box.list()) == ["look"]
    assert names(await box.with_policy(context=ADMIN).list()) == ["drop", "look"]


async def test_a_call_without_the_right_context_has_no_tool(drop):
    box = Toolbox(drop, look)

    refused = await box.call("drop", context=GUEST)
    [in_batch] = await box.call_all([("drop", {})], context=GUEST)
    async with box.run() as run:
        in_run = await run.call("drop", context=GUEST)

    for result in (refused, in_batch, in_run):
        assert (result.error.code, result.attempts) == ("unknown_tool", 0)
        assert result.error.is_disabled
    assert (await box.call("drop", context=ADMIN)).text == "dropped"


async def test_the_hint_of_an_unknown_name_does_not_tell_of_it(drop):
    assert "drop'" not in (await Toolbox(drop, look).call("dropp")).text


async def test_a_tool_that_is_off_is_in_no_list():
    box = Toolbox(Tool.from_function(look, enabled=False), Tool.from_function(look, name="other"))

    assert names(box.tools) == names(await box.list()) == ["other"]
    assert len(box.definitions("openai")) == 1
    assert (await box.call("look")).error.code == "unknown_tool"


async def test_a_nested_toolbox_and_a_view_keep_the_condition(drop):
    for box in (Toolbox(Toolbox(drop)), Toolbox() | Toolbox(drop), Toolbox(drop).prefixed("x_"), Toolbox(drop).run()):
        [name] = names(box.tools)
        assert await box.list() == []
        assert (await box.call(name, context=GUEST)).error.code == "unknown_tool"
        assert (await box.call(name, context=ADMIN)).ok


async def test_a_context_of_an_inner_toolbox_counts(drop):
    box = Toolbox(Toolbox(drop, context=ADMIN))

    assert names(await box.list()) == ["drop"]


@pytest.mark.parametrize("kind", ["local", "server"])
async def test_an_override_sets_a_condition_and_both_must_agree(drop, kind):
    source = look if kind == "local" else McpServer.of("s", Toolbox(look))
    async with Toolbox(source) as box:
        view = box.override("look", enabled=is_admin)
        assert names(await view.list()) == names(await Toolbox(view).list()) == []
        assert names(await view.with_policy(context=ADMIN).list()) == ["look"]
        assert (await view.call("look", context=GUEST)).error.code == "unknown_tool"
    both = Toolbox(drop).override("drop", enabled=lambda context: "key" in context)
    assert (await both.call("drop", context=ADMIN)).error.code == "unknown_tool"
    assert (await both.call("drop", context={**ADMIN, "key": 1})).ok


async def test_a_predicate_runs_off_the_loop_and_a_failure_withholds_the_tool(caplog):
    threads = []

    def fails(context):
        threads.append(threading.current_thread())
        raise RuntimeError

    box = Toolbox(Tool.from_function(look, enabled=fails))

    with caplog.at_level(logging.WARNING):
        assert await box.list() == []
        assert (await box.call("look")).error.code == "unknown_tool"
    assert threading.main_thread() not in threads
    assert "look is withheld: its `enabled=` failed: RuntimeError" in caplog.messages


async def test_a_predicate_that_does_not_answer_ends_at_the_time_out():
    async def waits(context):
        await asyncio.Event().wait()

    box = Toolbox(Tool.from_function(look, enabled=waits), timeout=0.05)

    assert await box.list() == []
    assert (await box.call("look")).error.code == "unknown_tool"


async def test_a_cancelled_run_ends_a_predicate():
    asked = asyncio.Event()

    async def waits(context):
        asked.set()
        await asyncio.Event().wait()

    async with Toolbox(Tool.from_function(look, enabled=waits)).run() as run:
        task = asyncio.ensure_future(run.call("look"))
        await asked.wait()
        run.cancel()

        assert (await task).error.code == "cancelled"


def test_a_wrong_value_is_refused():
    with pytest.raises(DefinitionError, match="enabled='yes': must be True, False or a function"):
        tool(enabled="yes")


# --- a chat ------------------------------------------------------------------------------------


async def test_a_chat_offers_what_its_context_may_use(drop):
    model = ScriptedModel([[("drop", {})], "no", [("drop", {})], "yes"])
    chat = Chat(model, Toolbox(drop, look))

    refused = await chat.send("drop it", context=GUEST)
    allowed = await chat.send("drop it", context=ADMIN)

    assert [[tool.name for tool in request.tools] for request in model.requests[::2]] == [["look"], ["drop", "look"]]
    assert refused.results[0].error.code == "unknown_tool"
    assert allowed.results[0].text == "dropped"


async def test_a_chat_asks_in_every_turn():
    unlocked = []
    box = Toolbox(
        Tool.from_function(look, enabled=lambda context: bool(unlocked)),
        Tool.from_function(lambda: unlocked.append(1), name="unlock"),
    )
    model = ScriptedModel([[("unlock", {})], [("look", {})], "done"])

    reply = await Chat(model, box).send("look")

    assert [[tool.name for tool in request.tools] for request in model.requests[:2]] == [["unlock"], ["look", "unlock"]]
    assert reply.results[1].text == "seen"


async def test_a_tool_with_a_condition_that_is_added_during_a_run_is_checked(drop):
    box = Toolbox()
    box.add(Tool.from_function(lambda: box.add(drop), name="learn"))
    model = ScriptedModel([[("learn", {})], "done"])

    await Chat(model, box).send("x", context=GUEST)

    assert [tool.name for tool in model.requests[1].tools] == ["learn"]


async def test_a_search_does_not_find_what_is_not_enabled(drop):
    many = [Tool.from_function(lambda: "x", name=f"drop_{number}", description="Drop.") for number in range(5)]
    model = ScriptedModel([[("find_tools", {"query": "drop"})], "done"])

    search = Search(budget=0, limit=20, always_offer=("drop",))
    await Chat(model, Toolbox(drop, *many), search=search).send("x", context=GUEST)

    [result] = model.requests[1].messages[-1].results
    assert sorted(found["name"] for found in json.loads(result.text)["tools"]) == sorted(names(many))


# --- an MCP server -----------------------------------------------------------------------------


def test_an_mcp_client_sees_what_its_identity_may_use(drop):
    with running(Toolbox(drop, look), auth=lambda token: {"user": token}) as server:
        for user, listed in (("guest", ["look"]), ("admin", ["drop", "look"]), ("guest", ["look"])):
            headers = {"authorization": f"Bearer {user}"}
            found = server.ask("tools/list", {}, headers=headers).json["result"]
            answer = server.ask("tools/call", {"name": "drop", "arguments": {}}, headers=headers).json

            assert [entry["name"] for entry in found["tools"]] == listed
            assert found["cacheScope"] == "private"
            if user == "guest":
                assert "not enabled" in answer["error"]["message"]
            else:
                assert answer["result"]["content"][0]["text"] == "dropped"


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_client_of_each_era_sees_what_its_identity_may_use(drop, era):
    with running(Toolbox(drop, look), auth=lambda token: {"user": token}) as server:
        found = {}
        for user in ("guest", "admin"):
            headers = {"Authorization": f"Bearer {user}"}
            async with Toolbox(McpServer.http("s", server.url, headers=headers, era=era)) as box:
                found[user] = names(await box.list()), names(await box.list())

    assert found == {"guest": (["look"],) * 2, "admin": (["drop", "look"],) * 2}


async def test_a_session_in_memory_sees_what_the_toolbox_may_use(drop):
    async with Toolbox(McpServer.of("s", Toolbox(drop, look))) as box:
        assert names(await box.list()) == ["look"]
        assert (await box.call("drop")).error.code == "unknown_tool"
