"""A server whose next request another process may answer: nothing is kept, and what would need it is refused."""

from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, Running, shelf
from toolmason import Toolbox, ToolContext, tool
from toolmason.errors import ConfigError
from toolmason.mcp_server.http.app import asgi_app

KEY = "a key that all replicas share"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask the user."""
    answer = await ctx.client.elicit("Word?", {"type": "object", "properties": {"w": {"type": "string"}}}, key="q")
    return str(answer.content["w"])


@tool(meta={"mcp": {"task": "optional"}})
async def long() -> str:
    """Run as a task if the client can."""
    return "done"


@tool(meta={"mcp": {"task": "required"}})
async def longest() -> str:
    """Run as a task."""
    return "done"


@pytest.fixture(scope="module")
def server():
    made = Running(shelf() | Toolbox(ask, long, longest), replicas=True, state_key=KEY)
    made.start()
    yield made
    made.stop()


def test_replicas_need_a_key():
    with pytest.raises(ConfigError, match=r"replicas=True needs state_key=.*TOOLMASON_STATE_KEY"):
        asgi_app(Toolbox(), replicas=True)


def test_a_client_of_the_session_era_needs_no_session(server: Running):
    opened = server.ask_in_session("initialize", HELLO)
    listed = server.ask_in_session("tools/list", {})
    called = server.ask_in_session("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})

    assert "mcp-session-id" not in opened.headers
    assert opened.json["result"]["capabilities"].keys() == {"completions", "prompts", "resources", "tools"}
    assert not any(
        settings.get("listChanged") or settings.get("subscribe")
        for settings in opened.json["result"]["capabilities"].values()
    )
    assert any(entry["name"] == "add" for entry in listed.json["result"]["tools"])
    assert called.json["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/subscribe", {"uri": "config://app"}),
        ("resources/unsubscribe", {"uri": "config://app"}),
        ("logging/setLevel", {"level": "debug"}),
    ],
)
def test_what_needs_a_session_is_refused(server: Running, method: str, params: dict[str, Any]):
    error = server.ask_in_session(method, params).json["error"]

    assert error["code"] == -32601
    assert error["message"].startswith(f"{method} is not available: this server runs as replicas")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_streams_and_their_replay_are_refused(server: Running, method: str):
    headers = {"accept": ACCEPT, "mcp-session-id": "x", "last-event-id": "y", "mcp-protocol-version": "2025-11-25"}
    answer = server.send(b"", headers, method)

    assert answer.status == 405
    assert b"runs as replicas" in answer.body


def test_the_stateless_era_offers_no_tasks_and_no_changes(server: Running):
    capabilities = server.ask("server/discover").json["result"]["capabilities"]

    assert set(capabilities) == {"completions", "logging", "prompts", "resources", "tools"}
    assert not any(capabilities.values())


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/get", {"taskId": "x"}),
        ("tasks/cancel", {"taskId": "x"}),
        ("tasks/update", {"taskId": "x", "inputResponses": {}}),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
        ("tools/call", {"name": "longest", "arguments": {}}),
    ],
)
def test_tasks_and_subscriptions_are_refused(server: Running, method: str, params: dict[str, Any]):
    error = server.ask(method, params, meta=TASKS).json["error"]

    assert error["code"] == -32601
    assert "this server runs as replicas, which keep no sessions, tasks or subscriptions" in error["message"]


def test_a_tool_that_may_run_as_a_task_is_awaited(server: Running):
    assert server.call("long", meta=TASKS)["content"][0]["text"] == "done"


@pytest.mark.parametrize(("key", "text"), [(KEY, None), ("another key that is long", "another state_key")])
def test_another_replica_takes_the_answer_if_it_has_the_key(server: Running, key: str, text: str | None):
    asked = server.call("ask", meta={"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
    answers = {name: {"action": "accept", "content": {"w": "yes"}} for name in asked["inputRequests"]}
    params = {"name": "ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers}
    other = Running(shelf() | Toolbox(ask), replicas=True, state_key=key)
    other.start()
    try:
        meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        answer = other.ask("tools/call", params, meta=meta).json
    finally:
        other.stop()

    if text is None:
        assert answer["result"]["content"][0]["text"] == "yes"
    else:
        assert text in answer["error"]["message"]
