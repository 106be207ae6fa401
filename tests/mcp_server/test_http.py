"""One suite over both ways into a server: the answers must be the same."""

import json
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, CANCELLED, Running, running, shelf


def test_a_call_gives_text_and_structured_content(server: Running):
    found = server.call("add", {"a": 2, "b": 3})

    assert found["content"] == [{"type": "text", "text": "5"}]
    assert found["structuredContent"] == {"result": 5}
    assert found["isError"] is False


def test_every_result_says_its_type_and_whose_it_is(server: Running):
    found = server.call("echo", {"text": "hi"})

    assert found["resultType"] == "complete"
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "shelf"


@pytest.mark.row("AJ-10", "AJ-8")
def test_every_kind_of_content_goes_over_the_wire(server: Running):
    kinds = [(part["type"], *sorted(part)) for part in server.call("everything")["content"]]

    assert [kind[0] for kind in kinds] == ["text", "image", "audio", "resource_link", "resource", "resource"]


def test_arguments_that_do_not_fit_are_a_result_with_the_path(server: Running):
    found = server.call("add", {"a": "x"})

    assert found["isError"] is True
    assert "$.a" in found["content"][0]["text"]


def test_an_unknown_tool_is_a_protocol_error(server: Running):
    answer = server.ask("tools/call", {"name": "nothing", "arguments": {}})

    assert answer.status == 400
    assert answer.json["error"]["code"] == -32602


def test_a_failure_is_redacted_over_http(server: Running):
    found = server.call("explode")

    assert found["isError"] is True
    assert "hunter2" not in json.dumps(found)


def test_a_toolbox_that_says_so_sends_the_words_of_failures():
    from mcp_server.sample_server import shelf

    with running(shelf(on_error="message")) as server:
        found = server.call("explode")

    assert "password=… at /srv/app" in found["content"][0]["text"]


def test_tools_are_listed_with_title_hints_and_schemas(server: Running):
    tools = {tool["name"]: tool for tool in server.ask("tools/list").json["result"]["tools"]}

    assert tools["echo"]["title"] == "Echo"
    assert tools["echo"]["annotations"] == {"readOnlyHint": True}
    assert tools["add"]["inputSchema"]["required"] == ["a", "b"]
    assert tools["add"]["outputSchema"]["properties"]["result"]["type"] == "integer"
    assert list(tools) == sorted(tools)


def test_lists_carry_cache_hints(server: Running):
    found = server.ask("tools/list").json["result"]

    assert found["ttlMs"] >= 0
    assert found["cacheScope"] == "public"


def test_progress_and_log_records_come_before_the_result(server: Running):
    meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"}

    answer = server.ask("tools/call", {"name": "steps", "arguments": {}}, meta=meta)

    methods = [event.get("method", "result") for event in answer.events]
    told = {event["method"]: event["params"] for event in answer.events[:-1]}
    assert methods[-1] == "result"
    assert told["notifications/progress"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
    assert told["notifications/message"]["data"] == "be careful with this"


def test_no_log_record_comes_unasked(server: Running):
    answer = server.ask("tools/call", {"name": "steps", "arguments": {}}, meta={"progressToken": 1})

    assert "notifications/message" not in answer.body.decode()


def test_prompts_are_listed_and_rendered(server: Running):
    listed = server.ask("prompts/list").json["result"]["prompts"]
    found = server.ask("prompts/get", {"name": "review", "arguments": {"language": "perl"}}).json["result"]

    assert listed[0]["arguments"] == [{"name": "language", "required": True}]
    assert found["messages"] == [{"role": "user", "content": {"type": "text", "text": "Review this perl."}}]


def test_completions_come_from_the_schema(server: Running):
    params = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "p"}}

    found = server.ask("completion/complete", params).json["result"]["completion"]

    assert found["values"] == ["python", "perl"]


def test_resources_and_templates_are_listed_and_read(server: Running):
    resources = server.ask("resources/list").json["result"]["resources"]
    templates = server.ask("resources/templates/list").json["result"]["resourceTemplates"]
    read = server.ask("resources/read", {"uri": "notes://a%20b"}).json["result"]["contents"]

    assert [entry["uri"] for entry in resources] == ["config://app"]
    assert [entry["uriTemplate"] for entry in templates] == ["notes://{name}"]
    assert read == [{"uri": "notes://a%20b", "mimeType": "text/plain", "text": "note a b"}]


def test_a_missing_resource_is_named_in_the_error(server: Running):
    answer = server.ask("resources/read", {"uri": "nothing://here"})

    assert answer.json["error"]["code"] == -32602
    assert answer.json["error"]["data"] == {"uri": "nothing://here"}


def test_a_cursor_that_is_not_ours_is_refused(server: Running):
    answer = server.ask("tools/list", {"cursor": "made-up"})

    assert answer.status == 400
    assert "cursor" in answer.json["error"]["message"]


def test_a_session_lists_and_calls_both_ways(server: Running):
    headers = {"content-type": "application/json", "accept": ACCEPT}
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }

    opened = server.send(rpc("initialize", hello), headers)
    session = {**headers, "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    call = server.send(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}), session)
    ended = server.send(b"", session, "DELETE")
    after = server.send(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}), session)

    assert opened.json["result"]["capabilities"]["tools"] == {"listChanged": True}
    assert call.json["result"]["structuredContent"] == {"result": 2}
    assert "resultType" not in call.json["result"]
    assert ended.status == 200
    assert after.status == 404


def test_a_parameter_mirrored_in_a_header_must_agree(server: Running):
    good = server.call("region", {"place": "eu"}, headers={"mcp-param-place": "eu"})
    bad = server.ask("tools/call", {"name": "region", "arguments": {"place": "eu"}}, headers={"mcp-param-place": "us"})

    assert good["isError"] is False
    assert (bad.status, bad.json["error"]["code"]) == (400, -32020)


def test_h6_a_client_that_hangs_up_calls_the_tool_off(server: Running):
    """H6 of the fault catalogue."""
    CANCELLED.clear()
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "endless", "_meta": meta()}}
    ).encode()

    with server.socket() as raw:
        raw.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
            b"mcp-method: tools/call\r\nmcp-name: endless\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        server.call("echo", {"text": "still there"})

    assert CANCELLED.wait(10)


def test_a_call_that_needs_approval_is_refused_where_nobody_can_be_asked(server: Running):
    found = server.call("wipe", {"disk": "a"})

    assert found["isError"] is True
    assert "approval" in found["content"][0]["text"]


async def test_pages_follow_each_other_to_the_end():
    from toolmason.mcp_server.lists import ToolboxLists

    lists = ToolboxLists(running_box(), page_size=2)
    seen, cursor = [], None
    while True:
        page = await lists.fetch_page("tools", cursor)
        seen += [entry["name"] for entry in page["tools"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break

    assert seen == [tool.name for tool in running_box()]


def running_box():
    from mcp_server.sample_server import shelf

    return shelf()


def meta():
    from mcp_server.sample_server import ENVELOPE

    return ENVELOPE


def rpc(method: str, params: dict) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


@pytest.mark.parametrize("words", [{"on_error": "raise"}, {}, {"on_error": "redact"}], ids=repr)
def test_f42_a_failure_that_is_to_be_raised_loses_its_words_on_the_wire(words: dict[str, Any]):
    with running(shelf(**words)) as server:
        found = server.call("explode")

    assert found["isError"] is True
    assert "hunter2" not in json.dumps(found)
    assert "internal error" in found["content"][0]["text"]
