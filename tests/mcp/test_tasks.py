"""A server that turns calls into tasks: awaited, asked about, called off; and one that says odd things of them."""

import asyncio

import pytest

from adversaries.raw_http import served
from toolwright import McpServer, Toolbox
from toolwright.mcp import tasks

DONE = {"status": "completed", "result": {"content": [{"type": "text", "text": "built"}]}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ASKS = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(tasks, "SHORTEST", 0.001)
    monkeypatch.setattr(tasks, "POLL_SECONDS", 0.001)


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
        ({"status": "input_required", "inputRequests": ["x"]}, "wants input and does not say which"),
        ({"status": "completed", "result": {"content": "x"}}, "does not fit the protocol"),
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
