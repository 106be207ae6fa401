"""Who a token stands for, and whose things are."""

from typing import Any

import pytest

from mcp_server.sample_server import running
from toolmason import Toolbox, ToolContext, tool
from toolmason._http.caller import make_identity

TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@tool(meta={"mcp": {"task": "optional"}})
async def report(n: int) -> str:
    """Write a report."""
    return f"report {n}"


def tenant(token: str) -> dict[str, Any]:
    """A check that says nothing of a user."""
    return {"tenant": token}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tenant": "a"}, {"tenant": "b"}),
        ({"user": "ada", "tenant": "a"}, {"user": "ada", "tenant": "b"}),
        ({"user": "ada"}, {"user": "bob"}),
        ({"user": 1}, {"user": "1"}),
        ({"user": "", "tenant": "a"}, {"user": "", "tenant": "b"}),
        ({"a": "b"}, {"b": "a"}),
        ("ada", "bob"),
    ],
)
def test_t16_two_identities_are_two_owners(one: Any, other: Any):
    assert make_identity(one, "token").owner != make_identity(other, "token").owner


@pytest.mark.parametrize("found", [{"tenant": "a"}, {"user": None}, {"user": ""}, {"db": object()}, {"user": object()}])
def test_t16_without_a_user_each_token_is_an_owner(found: Any):
    assert make_identity(found, "one").owner != make_identity(found, "two").owner
    assert make_identity(found, "one").owner == make_identity(dict(found), "one").owner


def test_a_renewed_token_is_of_the_same_owner():
    first = make_identity({"user": "ada", "tenant": "a", "exp": 1, "jti": "x", "db": object()}, "one")
    second = make_identity({"db": object(), "tenant": "a", "user": "ada", "exp": 2, "jti": "y"}, "two")

    assert first.owner == second.owner
    assert second["exp"] == 2


def test_t16_a_task_of_another_tenant_is_not_found():
    with running(Toolbox(report), auth=tenant) as server:
        alice, bob = {"authorization": "Bearer alice"}, {"authorization": "Bearer bob"}
        params = {"name": "report", "arguments": {"n": 1}}
        task = server.ask("tools/call", params, meta=TASKS, headers=alice).json["result"]["taskId"]

        own = server.ask("tasks/get", {"taskId": task}, meta=TASKS, headers=alice)
        stolen = server.ask("tasks/get", {"taskId": task}, meta=TASKS, headers=bob)

    assert own.status == 200
    assert stolen.json["error"]["code"] == -32602


def test_t16_a_session_of_another_tenant_is_not_entered():
    with running(Toolbox(report), auth=tenant) as server:
        alice, bob = {"authorization": "Bearer alice"}, {"authorization": "Bearer bob"}
        session = server.ask_in_session("initialize", HELLO, alice).headers["mcp-session-id"]

        own = server.ask_in_session("tools/list", {}, {**alice, "mcp-session-id": session})
        stolen = server.ask_in_session("tools/list", {}, {**bob, "mcp-session-id": session})

    assert own.status == 200
    assert stolen.status == 404


@tool
def session(ctx: ToolContext) -> str | None:
    """Return the session."""
    return ctx.session_id


@pytest.mark.row("MA-6")
def test_a_tool_sees_the_session_of_its_client():
    params = {"name": "session", "arguments": {}}
    with running(Toolbox(session)) as server:
        known = {"mcp-session-id": server.ask_in_session("initialize", HELLO).headers["mcp-session-id"]}

        in_session = server.ask_in_session("tools/call", params, known)
        without = server.ask("tools/call", params)

    assert in_session.json["result"]["structuredContent"] == {"result": known["mcp-session-id"]}
    assert without.json["result"]["structuredContent"] == {"result": None}
