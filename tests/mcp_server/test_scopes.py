"""The answer to a token that lacks a scope: clients ask for another one and repeat the call."""

from typing import Any

import pytest

from mcp_server.sample_server import running
from toolmason import McpServer, Toolbox, tool
from toolmason.mcp import Bearer

RAN: list[str] = []
TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@tool(scopes=["notes:write"], meta={"mcp": {"task": "optional"}})
async def write(text: str) -> str:
    """Write a note."""
    RAN.append(text)
    return f"wrote {text}"


@tool(scopes=["notes:read"])
def read() -> str:
    """Read the notes."""
    return "a note"


@tool(scopes=["admin"], enabled=lambda context: context.get("user") == "root")
def wipe() -> str:
    """Delete everything."""
    return "gone"


def verify(token: str) -> Any:
    known: dict[str, Any] = {
        "reader": {"user": "ada", "scopes": ("notes:read",)},
        "writer": {"user": "ada", "scopes": "notes:read notes:write"},
        "plain": "ada",
        "odd": {"user": "eve", "scopes": ['x"\r\nSet-Cookie: a=b', "notes:read", 7]},
    }
    return known.get(token)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def server():
    RAN.clear()
    auth = Bearer(verify, resource="https://tools.example.com/mcp", authorization_servers=["https://login.example.com"])
    with running(Toolbox(write, read, wipe, context={"scopes": ["notes:write"]}), auth=auth) as started:
        yield started


CALL = {"name": "write", "arguments": {"text": "a"}}


def test_a_token_without_the_scope_gets_the_step_up_answer(server):
    answer = server.ask("tools/call", CALL, headers=bearer("reader"), id="r1")

    assert answer.status == 403
    assert answer.headers["www-authenticate"] == (
        'Bearer error="insufficient_scope", '
        'resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp", '
        'scope="notes:read notes:write"'
    )
    assert answer.json["id"] == "r1"
    assert "write was not run: the caller lacks the scope 'notes:write'." in answer.json["error"]["message"]
    assert not RAN


def test_a_token_with_the_scope_may_call(server):
    assert server.call("write", {"text": "a"}, headers=bearer("writer"))["content"][0]["text"] == "wrote a"


def test_scopes_in_the_context_of_the_toolbox_are_not_for_callers_with_a_token(server):
    assert server.ask("tools/call", CALL, headers=bearer("plain")).status == 403


def test_scopes_of_a_token_cannot_add_headers(server):
    answer = server.ask("tools/call", CALL, headers=bearer("odd"))

    assert answer.status == 403
    assert answer.headers["www-authenticate"].endswith('scope="notes:read notes:write"')
    assert "set-cookie" not in answer.headers


WAYS = {
    "a task": lambda server, headers: server.ask("tools/call", CALL, meta=TASKS, headers=headers),
    "with progress": lambda server, headers: server.ask("tools/call", CALL, meta={"progressToken": 1}, headers=headers),
    "without a session": lambda server, headers: server.ask_in_session("tools/call", CALL, headers),
    "another name in the header": lambda server, headers: server.ask(
        "tools/call", CALL, headers={**headers, "mcp-name": "read"}
    ),
    "another method in the header": lambda server, headers: server.ask(
        "tools/call", CALL, headers={**headers, "mcp-method": "tools/list"}
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_kind_of_request_avoids_the_scopes(server, way: str):
    answer = WAYS[way](server, bearer("reader"))

    assert answer.status == 403
    assert not RAN


def test_a_call_in_a_session_gets_the_same_answer(server):
    session = server.ask_in_session("initialize", HELLO, bearer("reader")).headers["mcp-session-id"]

    answer = server.ask_in_session("tools/call", CALL, {**bearer("reader"), "mcp-session-id": session})

    assert answer.status == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert not RAN


def test_the_list_shows_tools_that_need_more_scopes(server):
    listed = server.ask("tools/list", {}, headers=bearer("reader")).json["result"]["tools"]

    assert sorted(entry["name"] for entry in listed) == ["read", "write"]


def test_a_withheld_tool_does_not_show_by_its_scopes(server):
    withheld = server.ask("tools/call", {"name": "wipe", "arguments": {}}, headers=bearer("reader"))
    missing = server.ask("tools/call", {"name": "none", "arguments": {}}, headers=bearer("reader"))

    assert withheld.status == missing.status == 400
    assert "www-authenticate" not in withheld.headers


def test_without_authentication_no_scope_is_granted():
    with running(Toolbox(write)) as server:
        result = server.call("write", {"text": "a"})

    assert result["isError"]
    assert "the caller lacks the scope 'notes:write'" in result["content"][0]["text"]


async def test_a_gateway_checks_its_own_callers():
    with running(Toolbox(_open_tool())) as upstream:
        inner = Toolbox(McpServer.http("up", upstream.url))
        box = inner.override("open_tool", scopes=["notes:write"])
        async with box:
            refused = await box.call("open_tool", {}, context={"scopes": ["notes:read"]})
            allowed = await box.call("open_tool", {}, context={"scopes": ["notes:write"]})

    assert refused.error.code == "insufficient_scope"
    assert allowed.text == "open"


def _open_tool() -> Any:
    @tool
    def open_tool() -> str:
        """Need no scope."""
        return "open"

    return open_tool
