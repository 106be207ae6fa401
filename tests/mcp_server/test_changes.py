"""Who is told of subscriptions, within bounds; tasks that end, and tasks for which there is no room."""

import asyncio
from typing import Any

import pytest

from mcp_server.sample_server import running
from toolmason import Abort, Toolbox, ToolContext, tool
from toolmason.mcp_client.specification import RpcError
from toolmason.mcp_server import subscriptions
from toolmason.mcp_server.call_tool import CallHandler, Request
from toolmason.mcp_server.lists import ToolboxLists
from toolmason.mcp_server.subscriptions import Subscriptions
from toolmason.mcp_server.tasks import ServedTask, TaskStore

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


class Ear:
    """A session that hears, or is gone."""

    def __init__(self, *, gone: bool = False) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.gone = gone

    async def __call__(self, kind: str, uri: str | None) -> None:
        if self.gone:
            raise OSError("gone")
        self.heard.put_nowait(uri or kind)


@tool
def newcomer() -> str:
    """Come later."""
    return "new"


async def test_a_session_that_is_gone_costs_the_others_nothing():
    box = Toolbox()
    told, gone, alive = Subscriptions(ToolboxLists(box)), Ear(gone=True), Ear()
    told.add_session("gone", gone)
    told.add_session("alive", alive)
    told.subscribe("a://b", "gone", gone)
    told.log_levels["gone"] = "debug"

    box.add(newcomer)
    async with asyncio.timeout(5):
        heard = await alive.heard.get()
    told.close()

    assert heard == "tools"
    assert set(told.sessions) == {"alive"}
    assert not told.log_levels
    assert told.subscribers == {"a://b": {}}


async def test_after_the_end_nobody_is_told():
    box = Toolbox()
    told, ear = Subscriptions(ToolboxLists(box)), Ear()
    told.add_session("one", ear)
    box.servers.notify_resource_changed("a://b")
    told.close()
    told.close()

    box.add(newcomer)
    await asyncio.sleep(0)

    assert ear.heard.empty()


async def test_t18_sessions_and_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "MAX_SESSIONS", 2)
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 2)
    told = Subscriptions(ToolboxLists(Toolbox()))
    for key in "abc":
        told.add_session(key, Ear())
    taken = [told.subscribe(f"x://{number}", "b", Ear()) for number in range(3)]
    told.remove_session("b")
    after = told.subscribe("x://3", "c", Ear())
    told.unsubscribe("x://3", "c")
    told.unsubscribe("x://never", "c")
    told.close()

    assert list(told.sessions) == ["c"]
    assert taken == [True, True, False]
    assert after
    assert told.subscribers == {}


def test_t18_subscriptions_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 0)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with running() as server:
        opened = server.ask_in_session("initialize", hello)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        refused = server.ask_in_session("resources/subscribe", {"uri": "config://app"}, session)
        tasks = server.ask_in_session("tasks/get", {"taskId": "x"}, session)

    assert "Too many subscriptions" in refused.json["error"]["message"]
    assert tasks.json["error"]["code"] == -32601


# --- tasks -----------------------------------------------------------------------------------------


async def test_t18_the_oldest_task_that_is_done_makes_room(monkeypatch: pytest.MonkeyPatch):
    tasks = TaskStore(max_tasks=20)
    first, second = tasks.create("a"), tasks.create("a")
    with pytest.raises(RpcError, match="Too many tasks"):
        tasks.create("a")

    first.set_status("completed", result={})
    third = tasks.create("a")

    assert tasks.find(first.id, "a") is None
    assert tasks.find(second.id, "a") is second
    assert tasks.find(third.id, "b") is None
    assert tasks.find(7, "a") is None


async def test_a_task_that_is_done_long_ago_is_forgotten():
    tasks = TaskStore()
    old = tasks.create("a")
    old.set_status("completed")
    old.updated -= 10_000

    tasks.create("a")

    assert tasks.find(old.id, "a") is None


async def test_an_end_is_an_end():
    tasks = TaskStore()
    task = tasks.create("a")

    tasks.cancel(task)
    task.set_status("completed", result={"late": True})

    assert (task.status, task.result) == ("cancelled", None)


async def test_a_task_waits_until_every_question_is_answered():
    task = ServedTask("t", "a")
    asking = asyncio.create_task(task.ask({"x": {"method": "q"}, "y": {"method": "q"}}))
    await asyncio.sleep(0)
    task.add_answers({"x": {"one": 1}, "strange": {}})
    await asyncio.sleep(0)
    seen = task.to_dict()
    task.add_answers({"y": {"two": 2}})

    assert seen["status"] == "input_required"
    assert set(seen["inputRequests"]) == {"y"}
    assert await asking == {"x": {"one": 1}, "y": {"two": 2}}


async def test_what_still_runs_is_called_off_at_the_end():
    tasks, gone = TaskStore(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    tasks.start(tasks.create("a"), work())
    await asyncio.sleep(0)
    await tasks.close()
    await TaskStore().close()

    assert gone.is_set()


@tool(meta={"mcp": {"task": "required"}})
async def job(kind: str) -> str:
    """End in some way."""
    if kind == "abort":
        raise Abort("stopped")
    return kind


@tool(meta={"mcp": {"task": "optional"}})
async def asks(ctx: ToolContext) -> str:
    """Ask what the client cannot answer."""
    return await ctx.client.sample("?")


def request(capabilities: dict[str, Any], **params: Any) -> Request:
    return Request("tools/call", params, capabilities=capabilities)


def engine() -> CallHandler:
    box = Toolbox(job, asks)
    return CallHandler(box, ToolboxLists(box))


async def ended(found: CallHandler, name: str, arguments: dict[str, Any]) -> ServedTask:
    begun = await found.call(request(TASKS, name=name, arguments=arguments))
    task = found.tasks.find(begun["taskId"], "")
    assert task is not None
    assert task.work is not None
    await task.work
    return task


async def test_t18_one_user_cannot_take_every_subscription(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "MAX_PER_OWNER", 3)
    told = Subscriptions(ToolboxLists(Toolbox()))

    alone = [told.subscribe(f"x://{number}", "a", Ear(), "ada") for number in range(4)]
    again = told.subscribe("x://0", "a", Ear(), "ada")
    other = told.subscribe("x://3", "b", Ear(), "bob")
    nobody = [told.subscribe(f"x://{number}", "c", Ear()) for number in range(4)]
    stdio = [told.subscribe(f"x://{number}", "", Ear()) for number in range(4)]
    told.close()

    assert alone == nobody == [True, True, True, False]
    assert again
    assert other
    assert stdio == [True] * 4


async def test_t18_a_user_who_comes_back_loses_the_oldest_session_and_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "MAX_PER_OWNER", 3)
    told = Subscriptions(ToolboxLists(Toolbox()))

    for session in ("one", "two"):
        assert told.subscribe("x://0", session, Ear(), "ada")
    more = [told.subscribe(f"x://{number}", "three", Ear(), "ada") for number in range(2)]
    told.close()

    assert more == [True, True]
    assert set(told.subscribers["x://0"]) == {"two", "three"}


async def test_t18_one_user_cannot_take_every_task():
    tasks = TaskStore(max_tasks=20)

    with pytest.raises(RpcError, match="Too many tasks"):
        [tasks.create("ada") for _ in range(3)]
    others = [tasks.create("bob"), tasks.create("")]
    tasks.cancel(next(iter(tasks.tasks.values())))
    after = tasks.create("ada")

    assert len(tasks.tasks) == 4
    assert all(tasks.find(task.id, task.owner) for task in (*others, after))


async def test_t18_a_task_that_nobody_answers_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolmason.mcp_server.tasks.TASK_TTL_SECONDS", 0.01)

    @tool(approval=True, meta={"mcp": {"task": "optional"}})
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    box = Toolbox(wipe)
    found = CallHandler(box, ToolboxLists(box))
    begun = await found.call(request({**TASKS, "elicitation": {}}, name="wipe"))
    task = found.tasks.find(begun["taskId"], "")
    assert task is not None
    assert task.work is not None
    async with asyncio.timeout(10):
        await task.work

    assert task.to_dict()["error"]["message"] == "The task's questions were not answered in time."


async def test_a_task_ends_as_its_call_does():
    found = engine()

    fine = await ended(found, "job", {"kind": "fine"})
    stopped = await ended(found, "job", {"kind": "abort"})
    unable = await ended(found, "asks", {})

    assert fine.to_dict()["result"]["content"][0]["text"] == "fine"
    assert stopped.to_dict()["error"] == {"code": -32603, "message": "stopped"}
    assert unable.to_dict()["error"]["code"] == -32021


async def test_a_tool_that_needs_a_task_is_refused_to_who_cannot_wait_and_where_there_is_no_room():
    found = engine()
    with pytest.raises(RpcError, match="runs as a task"):
        await found.call(request({}, name="job", arguments={"kind": "x"}))

    found.tasks.max_tasks = 0
    with pytest.raises(RpcError, match="Too many tasks"):
        await found.call(request(TASKS, name="job", arguments={"kind": "x"}))


@tool(background=True)
async def print_report() -> str:
    """Print."""
    return "printed"


async def test_a_tool_that_works_in_the_background_is_a_task_for_clients_that_support_them():
    box = Toolbox(print_report)
    found = CallHandler(box, ToolboxLists(box))

    task = await ended(found, "print_report", {})
    waited = await found.call(request({}, name="print_report", arguments={}))

    assert task.to_dict()["result"]["content"][0]["text"] == "printed"
    assert waited["content"][0]["text"] == "printed"
