"""A server that turns calls into tasks: awaited, asked about, called off; and one that says odd things of them."""

import asyncio

import pytest

from adversaries.raw_http import served
from toolmason import McpServer, Toolbox
from toolmason.errors import DefinitionError
from toolmason.mcp_client.calls import tasks

DONE = {"status": "completed", "result": {"content": [{"type": "text", "text": "built"}]}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ASKS = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(tasks, "MIN_POLL_SECONDS", 0.001)
    monkeypatch.setattr(tasks, "DEFAULT_POLL_SECONDS", 0.001)


async def called(states, **options):
    with served("task") as server:
        server.states = states
        async with Toolbox(McpServer.http("raw", server.url), **options) as box:
            return await box.call("echo", {"text": "x"}), server


async def test_a_task_is_awaited():
    result, server = await called([{"status": "working"}, {"status": "working", "pollIntervalMs": 1}, DONE])

    assert result.text == "built"
    assert server.seen.count("tasks/get") == 3


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"status": "failed", "error": {"code": -32000, "message": "no disk"}}, "no disk"),
        ({"status": "failed", "error": "no form"}, "the task failed"),
        ({"status": "failed", "error": {"code": "x"}}, "the task failed"),
        ({"status": "cancelled"}, "the server cancelled the task"),
        ({"status": "input_required", "inputRequests": ["x"]}, "requires input but does not list it"),
        ({"status": "completed", "result": {"content": "x"}}, "does not match the protocol"),
    ],
)
async def test_a_task_that_comes_to_nothing_is_an_error_that_says_why(state, reason):
    result, _ = await called([state])

    assert result.error.code == "remote_error"
    assert reason in result.error.reason


@pytest.mark.parametrize("pause", ["soon", True, -5, None, 1e-9])
async def test_an_odd_pause_is_no_pause(pause):
    result, _ = await called([{"status": "working", "pollIntervalMs": pause}, DONE])

    assert result.ok


async def test_what_a_task_asks_is_answered_by_the_toolbox():
    asks = {"status": "input_required", "inputRequests": {"who": ASKS}}

    result, server = await called([asks, DONE], on_elicit=lambda question: {"name": question.message})

    told = next(body for body in server.bodies if body["method"] == "tasks/update")
    assert result.text == "built"
    assert told["params"]["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Who?"}}}


async def test_nobody_is_asked_twice_where_a_question_is_shown_for_a_while():
    first = {"status": "input_required", "inputRequests": {"who": ASKS}}
    both = {"status": "input_required", "inputRequests": {"who": ASKS, "again": ASKS}}
    asked = []

    result, server = await called(
        [first, first, both, first, DONE], on_elicit=lambda _: asked.append(1) or {"name": "x"}
    )

    told = [body["params"]["inputResponses"] for body in server.bodies if body["method"] == "tasks/update"]
    assert result.text == "built"
    assert [list(answers) for answers in told] == [["who"], ["again"]]
    assert len(asked) == 2


@pytest.mark.parametrize(("misses", "ok"), [(tasks.MAX_FAILED_POLLS - 1, True), (tasks.MAX_FAILED_POLLS, False)])
async def test_a_look_at_a_task_that_is_lost_on_the_way_costs_that_look(misses, ok):
    lost = [None] * misses

    result, server = await called([*lost, {"status": "working"}, *lost, DONE])

    assert result.ok is ok
    assert server.seen.count("tools/call") == 1


async def test_what_nobody_can_answer_ends_the_call():
    asks = {"status": "input_required", "inputRequests": {"who": ASKS}}

    result, _ = await called([asks, DONE])

    assert result.error.code == "remote_error"


async def test_a_call_that_nobody_waits_for_calls_its_task_off():
    with served("task") as server:
        server.states = [{"status": "working"}]
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            call = asyncio.create_task(box.call("echo", {"text": "x"}))
            while "tasks/get" not in server.seen:  # noqa: ASYNC110 - the server is a thread, without an event of ours
                await asyncio.sleep(0.001)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    assert "tasks/cancel" in server.seen


# --- tasks that go on alone -------------------------------------------------------------------------

WORKING = {"status": "working"}


def begun(server):
    return server.seen.count("tools/call")


async def test_a_task_that_takes_longer_is_pending_and_the_same_call_waits_on():
    with served("task") as server:
        server.states = [WORKING]
        async with Toolbox(McpServer.http("raw", server.url, task_wait=0)) as box:
            first = await box.call("echo", {"text": "x"})
            second = await box.call("echo", {"text": "x"})
            server.states = [DONE]
            third = await box.call("echo", {"text": "x"})
            count = begun(server)
            server.states = [WORKING]
            await box.call("echo", {"text": "x"})

    assert (first.error.phase, first.error.retryable) == ("task", True)
    assert "task 't1'" in first.text
    assert second.error.phase == "task"
    assert third.text == "built"
    assert count == 1
    assert begun(server) == 2  # what has ended is begun anew
    assert "tasks/cancel" not in server.seen


async def test_another_call_begins_a_task_of_its_own():
    with served("task") as server:
        server.states = [WORKING]
        async with Toolbox(McpServer.http("raw", server.url, task_wait=0)) as box:
            await box.call("echo", {"text": "x"})
            await box.call("echo", {"text": "y"})

    assert begun(server) == 2


async def test_nobody_waits_for_the_task_of_another_identity():
    with served("task") as server:
        server.states = [WORKING]
        crm = McpServer.http("raw", server.url, task_wait=0, auth=lambda context: context.get("user"))
        async with Toolbox(crm) as box:
            await box.call("echo", {"text": "x"}, context={"user": "alice"})
            await box.call("echo", {"text": "x"}, context={"user": "bob"})
            await box.call("echo", {"text": "x"}, context={"user": "alice"})

    assert begun(server) == 2


@pytest.mark.parametrize(
    "end", [{"status": "failed"}, {"status": "cancelled"}, {"status": "completed", "result": {"content": "x"}}]
)
async def test_a_pending_task_that_came_to_nothing_is_told_once(end):
    with served("task") as server:
        server.states = [WORKING]
        async with Toolbox(McpServer.http("raw", server.url, task_wait=0)) as box:
            await box.call("echo", {"text": "x"})
            server.states = [end]
            failed = await box.call("echo", {"text": "x"})
            await box.call("echo", {"text": "x"})

    assert failed.error.phase == "call"
    assert begun(server) == 2


async def test_a_time_out_before_the_wait_is_over_calls_the_task_off():
    with served("task") as server:
        server.states = [WORKING]
        async with Toolbox(McpServer.http("raw", server.url, task_wait=60)) as box:
            result = await box.call("echo", {"text": "x"}, timeout=0.2)
            server.states = [DONE]
            again = await box.call("echo", {"text": "x"})

    assert result.error.code == "timeout"
    assert "tasks/cancel" in server.seen
    assert again.text == "built"
    assert begun(server) == 2


async def test_a_pending_task_is_no_repeat_to_a_run():
    with served("task") as server:
        server.states = [WORKING]
        async with Toolbox(McpServer.http("raw", server.url, task_wait=0)) as box:
            run = box.run()
            for _ in range(5):
                await run.call("echo", {"text": "x"})
            server.states = [DONE]
            result = await run.call("echo", {"text": "x"})

    assert result.text == "built"


async def test_only_so_many_tasks_are_remembered(monkeypatch):
    monkeypatch.setattr(tasks, "MAX_PENDING_TASKS", 2)
    with served("task") as server:
        server.states = [WORKING]
        async with Toolbox(McpServer.http("raw", server.url, task_wait=0)) as box:
            for text in ("a", "b", "c", "c", "a"):
                await box.call("echo", {"text": text})

    assert begun(server) == 4


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_a_wait_that_makes_no_sense_is_an_error(seconds):
    with pytest.raises(DefinitionError, match="task_wait"):
        McpServer.http("raw", "https://x.example", task_wait=seconds)
