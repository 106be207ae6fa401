"""The tools on the page, and their calls."""

import asyncio
from pathlib import Path

import pytest

from toolmason import Toolbox, tool
from toolmason.ui.page import MAX_REQUESTS, MAX_UNREAD
from ui.sample_page import PIXEL, Gate, ask, make_app


async def test_the_state_names_the_target_the_models_and_the_limits():
    state = (await ask(make_app(), "state")).json

    assert state["target"] == "app.py:box"
    assert state["models"] == [{"name": "offline", "note": "words"}]
    assert state["limits"]["steps"] == 25
    assert state["journal"] is None


async def test_the_list_has_effects_tags_source_and_tokens():
    tools = {entry["name"]: entry for entry in (await ask(make_app(), "tools")).json["tools"]}

    assert list(tools) == ["add", "count", "delete", "draw", "fail"]
    assert tools["add"]["effects"] == ["read_only"]
    assert tools["add"]["tags"] == ["math"]
    assert tools["add"]["source"] == ""
    assert tools["add"]["tokens"] > 10


async def test_a_tool_has_its_schema_and_the_verdict_of_each_provider():
    entry = (await ask(make_app(), "tools/add")).json

    assert entry["input_schema"]["properties"]["a"]["description"] == "First number"
    assert {verdict["provider"]: verdict["status"] for verdict in entry["providers"]}.keys() == {
        "openai",
        "anthropic",
        "gemini",
    }
    assert "sample_page" in entry["origin"]
    assert str(Path.cwd()) not in entry["origin"]


async def test_an_unknown_tool_is_not_found_and_the_nearest_is_named():
    answer = await ask(make_app(), "tools/ad")

    assert answer.status == 404
    assert "'add'" in answer.json["error"]["message"]


async def test_a_check_says_what_is_wrong_and_where():
    plan = (await ask(make_app(), "checks", {"tool": "add", "arguments": {"a": "x"}})).json

    assert plan["error"]["code"] == "invalid_arguments"
    assert plan["error"]["parameters"][0]["path"] == "$.a"


async def test_a_check_has_repairs_defaults_preview_and_the_need_for_approval():
    app = make_app()

    repaired = (await ask(app, "checks", {"tool": "add", "arguments": {"a": "2"}})).json
    destructive = (await ask(app, "checks", {"tool": "delete", "arguments": {"path": "a.txt"}})).json

    assert repaired["arguments"] == {"a": 2, "b": 1}
    assert [repair["after"] for repair in repaired["repairs"]] == [2]
    assert destructive["needs_approval"] is True
    assert destructive["preview"] == "Delete a.txt"


async def test_a_call_streams_progress_and_its_result():
    answer = await ask(make_app(), "calls", {"tool": "count", "arguments": {"steps": 2}})

    assert [event["type"] for event in answer.events] == ["progress", "progress", "result"]
    assert answer.events[1] == {"type": "progress", "done": 2, "total": 2, "message": "step 2"}
    result = answer.events[-1]["result"]
    assert result["ok"] is True
    assert result["content"] == [{"type": "text", "text": "counted"}]
    assert result["attempts"] == 1
    assert result["duration"] > 0


async def test_broken_json_reaches_the_engine_as_a_model_would_send_it():
    app = make_app()

    [repaired] = (await ask(app, "calls", {"tool": "add", "arguments": '{"a": "2"}'})).events
    [broken] = (await ask(app, "calls", {"tool": "add", "arguments": '{"a": 2'})).events

    assert repaired["result"]["content"] == [{"type": "text", "text": "3"}]
    assert broken["result"]["error"]["code"] == "invalid_arguments"


async def test_an_image_arrives_as_base64():
    [event] = (await ask(make_app(), "calls", {"tool": "draw"})).events

    assert event["result"]["content"] == [{"type": "image", "data": PIXEL, "mime_type": "image/png"}]


async def test_an_error_of_a_tool_is_a_result():
    [event] = (await ask(make_app(), "calls", {"tool": "fail"})).events

    assert event["result"]["ok"] is False
    assert event["result"]["error"]["message"] == "this \u202etool fails"


async def test_a_large_result_is_sent_once():
    @tool(max_result_bytes=10_000_000)
    def dump() -> dict[str, str]:
        """Return much."""
        return {"text": "x" * 5_000_000}

    answer = await ask(make_app(dump), "calls", {"tool": "dump"})

    assert len(answer.body) < 5_100_000
    assert answer.events[0]["result"]["structured"] is None


async def test_a_call_ends_when_its_page_goes_away():
    gate = Gate()

    await ask(make_app(gate), "calls", {"tool": "wait"}, leave_after=1)

    await asyncio.wait_for(gate.cancelled.wait(), 10)


async def test_a_call_runs_after_its_approval():
    app = make_app()
    [event] = (await ask(app, "calls", {"tool": "delete", "arguments": {"path": "a.txt"}})).events
    request = event["result"]["request"]

    [allowed] = (await ask(app, "approvals", {"id": request["id"], "answer": True})).events

    assert request["preview"] == "Delete a.txt"
    assert "signature" not in request
    assert allowed["result"]["content"][0]["text"] == "deleted a.txt"


async def test_an_edited_call_waits_for_no_second_answer():
    app = make_app()
    [event] = (await ask(app, "calls", {"tool": "delete", "arguments": {"path": "a.txt"}})).events
    answer = {"approved": True, "arguments": {"path": "b.txt"}}

    [edited] = (await ask(app, "approvals", {"id": event["result"]["request"]["id"], "answer": answer})).events

    assert edited["result"]["content"][0]["text"] == "deleted b.txt"


async def test_a_denied_call_does_not_run():
    app = make_app()
    [event] = (await ask(app, "calls", {"tool": "delete", "arguments": {"path": "a.txt"}})).events
    answer = {"approved": False, "reason": "not that one"}

    [denied] = (await ask(app, "approvals", {"id": event["result"]["request"]["id"], "answer": answer})).events

    assert denied["result"]["error"]["code"] == "approval_denied"
    assert "not that one" in denied["result"]["error"]["message"]


async def test_a_request_is_answered_once():
    app = make_app()
    [event] = (await ask(app, "calls", {"tool": "delete", "arguments": {"path": "a.txt"}})).events
    body = {"id": event["result"]["request"]["id"], "answer": True}
    await ask(app, "approvals", body)

    again = await ask(app, "approvals", body)

    assert again.status == 404


async def test_the_page_keeps_a_bounded_number_of_requests():
    app = make_app()
    ids = []
    for number in range(MAX_REQUESTS + 1):
        [event] = (await ask(app, "calls", {"tool": "delete", "arguments": {"path": str(number)}})).events
        ids.append(event["result"]["request"]["id"])

    first = await ask(app, "approvals", {"id": ids[0], "answer": True})
    last = await ask(app, "approvals", {"id": ids[-1], "answer": True})

    assert (first.status, last.status) == (404, 200)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("calls", b"{"),
        ("calls", b"[]"),
        ("calls", {"tool": 3}),
        ("calls", {"tool": "add", "arguments": [1]}),
        ("checks", b"\xff"),
        ("approvals", {"id": "x"}),
        ("conversations/c/load", {"messages": [{"role": "nobody"}]}),
        ("conversations/c/load", {"messages": [3]}),
        ("servers/none/approve", {}),
        ("runs/none/reconcile", {"key": "k"}),
    ],
    ids=str,
)
async def test_a_bad_request_is_answered_with_a_reason(path, body):
    answer = await ask(make_app(), path, body)

    assert answer.status in (400, 404)
    assert len(answer.json["error"]["message"]) > 10


async def test_a_body_that_is_too_large_is_refused():
    answer = await ask(make_app(), "calls", b"{}", content_length="999999999")

    assert answer.status == 400
    assert "larger than" in answer.json["error"]["message"]


async def test_open_pages_hear_of_new_tools():
    app = make_app()
    app.page.start()
    changes = app.page.follow()
    hello = await anext(changes)

    @tool
    def later() -> None:
        """Come later."""

    await app.page.replace((Toolbox(later), app.page.options))
    change = await asyncio.wait_for(anext(changes), 10)

    assert (hello["type"], change["type"]) == ("hello", "tools")
    assert [entry["name"] for entry in (await ask(app, "tools")).json["tools"]] == ["later"]


async def test_a_page_that_reads_nothing_keeps_a_bounded_number_of_changes():
    app = make_app()
    app.page.start()
    changes = app.page.follow()
    await anext(changes)
    for _ in range(2 * MAX_UNREAD):
        app.page.notify("tools")
    await asyncio.sleep(0)  # the changes arrive on the loop
    app.page.close_streams()

    assert len([change async for change in changes]) == MAX_UNREAD
