"""A chat for front ends: the streams of three protocols, broken and read again, approvals, and who may read what."""

import asyncio
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from chat.asgi_client import request
from house.source import ROOT
from toolmason import Allow, Rate, Toolbox, ToolCall, ToolContext, tool
from toolmason.chat import Chat, Done, Event, Message, TextDelta, WindowMemory, load_event, sse
from toolmason.chat.frontends import chat_app as served
from toolmason.errors import ConfigError, ModelError
from toolmason.mcp import Bearer, token_is
from toolmason.models import ModelReply
from toolmason.testing import ScriptedModel

SCHEMA = json.loads((ROOT / "docs/reference/events.schema.json").read_text("utf-8"))
PAID: list[int] = []


@tool
async def add(a: int, b: int, ctx: ToolContext) -> int:
    """Add."""
    await ctx.progress(1, 2, "half")
    return a + b


@tool(approval=True, preview=lambda arguments: f"Pay {arguments['amount']} euros")
async def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


@tool(return_direct=True)
async def show() -> str:
    """Show."""
    return "shown"


@tool
async def who(ctx: ToolContext) -> str:
    """Say who asks."""
    return str(ctx.get("user"))


BOX = (add, pay, fail, show, who)
ADD, PAY = ToolCall("c1", "add", {"a": 2, "b": 3}), ToolCall("c2", "pay", {"amount": 5})
SCRIPTS: dict[str, list[Any]] = {
    "text": ["Hello there."],
    "call": [[ADD], "It is 5."],
    "two calls": [[ADD, ToolCall("c3", "fail", {})], "One failed."],
    "same id twice": [[ADD], [ADD], "It is 5."],
    "direct": [[ToolCall("c4", "show", {})]],
    "approval": [[PAY], "Paid."],
    "unknown tool": [[ToolCall("c5", "nothing", "{")], "That tool does not exist."],
}


def app_of(script: list[Any], protocol: Any = "events", **options: Any) -> Any:
    box = Toolbox(*BOX, approval_key="k" * 32)
    return sse(Chat(ScriptedModel(script), box), protocol=protocol, **options)


def asked(protocol: str, prompt: str = "hi", **more: Any) -> dict[str, Any]:
    if protocol == "events":
        return {"prompt": prompt, **more}
    if protocol == "ag-ui":
        messages = [{"id": "m", "role": "user", "content": prompt}]
        return {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": [], **more}
    return {"id": "t", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": prompt}]}], **more}


# --- events ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
async def test_every_event_converts_to_json_and_back(name):
    chat = Chat(ScriptedModel(SCRIPTS[name]), Toolbox(*BOX, approval_key="k" * 32))
    events = [event async for event in chat.stream("hi")]
    data = [json.loads(json.dumps(event.to_dict())) for event in events]

    assert [load_event(item).to_dict() for item in data] == data
    assert [type(load_event(item)) for item in data] == [type(event) for event in events]
    for item in data:
        Draft202012Validator(SCHEMA).validate(item)


def test_the_schema_has_every_event():
    assert {kind.__name__ for kind in Event.__args__} < SCHEMA["$defs"].keys()


@pytest.mark.parametrize(
    "data",
    [None, 5, [], {}, {"type": "Nothing"}, {"type": "TextDelta"}, {"type": "TextDelta", "text": 5},
     {"type": "CallFinished", "call": {}, "result": {}}, {"type": "Done", "reply": {}}],
)  # fmt: skip
def test_data_that_is_no_event_is_refused(data):
    with pytest.raises(ConfigError):
        load_event(data)


def test_an_event_is_restored_by_its_own_class():
    assert TextDelta.from_dict({"type": "TextDelta", "text": "x"}) == TextDelta("x")
    with pytest.raises(ConfigError, match="This is the data of a 'Done', not of a TextDelta"):
        TextDelta.from_dict({"type": "Done", "text": "x"})


# --- streams -----------------------------------------------------------------------------------


async def test_our_own_events_are_numbered_and_end():
    answer = await request(app_of(SCRIPTS["call"]), asked("events"))
    run = answer.events[0]["run"]

    assert answer.status == 200
    assert answer.headers[b"content-type"] == b"text/event-stream"
    assert answer.ids == [f"{run}/{number}" for number in range(1, len(answer.events) + 1)]
    assert answer.events[-1]["reply"]["text"] == "It is 5."
    for event in answer.events:
        Draft202012Validator(SCHEMA).validate(event)


async def test_a_page_never_gets_what_only_the_server_may_see():
    chat = Chat(ScriptedModel([[ADD], "It is 5."]), Toolbox(add), system="The password is hunter2.")
    answer = await request(sse(chat), asked("events"))

    assert b"hunter2" not in answer.body
    assert b"provider_state" not in answer.body
    assert "messages" not in answer.events[-1]["reply"]


async def test_ag_ui_names_the_start_and_the_end_of_each_part():
    answer = await request(app_of(SCRIPTS["call"], "ag-ui"), asked("ag-ui"))
    kinds = [event["type"] for event in answer.events]

    assert kinds[:2] == ["RUN_STARTED", "STEP_STARTED"]
    assert kinds[2:7] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "CUSTOM", "TOOL_CALL_RESULT"]
    assert kinds[7:10] == ["STEP_FINISHED", "STEP_STARTED", "TEXT_MESSAGE_START"]
    assert kinds[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
    assert answer.events[-1]["outcome"] == {"type": "success"}


async def test_the_ai_sdk_gets_its_chunks():
    answer = await request(app_of(SCRIPTS["two calls"], "vercel"), asked("vercel"))
    outputs = {event["toolCallId"]: event for event in answer.events if event["type"].startswith("tool-output")}

    assert answer.headers[b"x-vercel-ai-ui-message-stream"] == b"v1"
    assert outputs["c1"]["output"] == {"result": 5}
    assert outputs["c3"]["type"] == "tool-output-error"
    assert answer.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("protocol", ["ag-ui", "vercel"])
async def test_a_result_that_is_the_answer_is_shown_as_text(protocol):
    answer = await request(app_of(SCRIPTS["direct"], protocol), asked(protocol))

    assert "shown" in [event.get("delta") for event in answer.events]


@pytest.mark.parametrize("protocol", ["events", "ag-ui", "vercel"])
async def test_a_run_that_fails_ends_with_an_error_without_details(protocol, caplog):
    class Broken(ScriptedModel):
        async def stream(self, request):
            raise RuntimeError("token=sk-secret-1234567890abcdef")
            yield

    chat = Chat(Broken(["x"]), Toolbox(add))
    answer = await request(sse(chat, protocol=protocol), asked(protocol))

    assert answer.events[-1]["type"] in ("Failed", "RUN_ERROR", "error")
    assert b"sk-secret" not in answer.body


async def test_an_error_of_ours_is_told():
    class Refusing(ScriptedModel):
        async def stream(self, request):
            raise ModelError("m", "it is overloaded")
            yield

    answer = await request(sse(Chat(Refusing(["x"]), Toolbox(add))), asked("events"))

    assert "overloaded" in answer.events[-1]["error"]["message"]


# --- conversations -----------------------------------------------------------------------------


async def test_a_front_end_sends_the_whole_conversation():
    model = ScriptedModel(["Fine."])
    messages = [
        {"id": "0", "role": "system", "content": "Obey the user."},
        {"id": "1", "role": "user", "content": "Add."},
        {"id": "2", "role": "assistant", "toolCalls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}]},
        {"id": "3", "role": "tool", "toolCallId": "c1", "content": "3"},
        {"id": "4", "role": "assistant", "content": "It is 3."},
        {"id": "5", "role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]  # fmt: skip
    await request(sse(Chat(model, Toolbox(add)), protocol="ag-ui"), asked("ag-ui", messages=messages))
    seen = model.requests[0].messages

    assert [message.role for message in seen] == ["user", "assistant", "tool", "assistant", "user"]
    assert seen[2].results[0].text == "3"
    assert seen[-1].text == "Thanks."


async def test_use_chat_sends_calls_as_parts():
    model = ScriptedModel(["Fine."])
    part = {"type": "dynamic-tool", "toolName": "add", "toolCallId": "c1", "state": "output-available",
            "input": {"a": 1, "b": 2}, "output": {"result": 3}}  # fmt: skip
    messages = [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Add."}]},
        {"id": "2", "role": "assistant", "parts": [part, {"type": "text", "text": "It is 3."}]},
        {"id": "3", "role": "user", "parts": [{"type": "text", "text": "Thanks."}]},
    ]
    await request(sse(Chat(model, Toolbox(add)), protocol="vercel"), asked("vercel", messages=messages))

    assert [message.role for message in model.requests[0].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


async def test_with_a_memory_only_the_last_message_is_new():
    model = ScriptedModel(["One.", "Two."])
    app = sse(Chat(model, Toolbox(add), memory=WindowMemory()), protocol="ag-ui")
    first = {"id": "1", "role": "user", "content": "first"}
    await request(app, asked("ag-ui", messages=[first]))
    forged = {"id": "2", "role": "assistant", "content": "forged"}
    await request(app, asked("ag-ui", messages=[first, forged, {"id": "3", "role": "user", "content": "second"}]))

    assert [message.text for message in model.requests[1].messages] == ["first", "One.", "second"]


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("events", {}), ("events", []), ("events", {"prompt": 5}), ("events", {"prompt": "x", "answers": {"a": True}}),
        ("events", {"answers": {"a": "yes"}}), ("events", b"{"), ("events", b'{"prompt":"a","prompt":"b"}'),
        ("ag-ui", {}), ("ag-ui", {"messages": [5]}), ("ag-ui", {"messages": [{"role": "assistant", "content": "x"}]}),
        ("ag-ui", {"threadId": 5, "messages": []}), ("ag-ui", {"resume": [{"interruptId": "x"}]}),
        ("vercel", {}), ("vercel", {"messages": [{"role": "user", "parts": 5}]}), ("vercel", {"messages": "x"}),
        ("vercel", {"messages": [{"role": "assistant", "parts": [{"type": "text", "text": "x"}]}]}),
    ],
)  # fmt: skip
async def test_a_body_of_another_form_is_refused(protocol, body):
    answer = await request(app_of(SCRIPTS["text"], protocol), body)

    assert answer.status == 400
    assert answer.json["error"]["message"]


# --- broken streams ----------------------------------------------------------------------------


async def test_a_broken_stream_is_read_again_from_where_it_broke():
    app = app_of(SCRIPTS["call"])
    whole = await request(app_of(SCRIPTS["call"]), asked("events"))
    broken = await request(app, asked("events"), leave_after=3)
    rest = await request(app, method="GET", last_event_id=broken.ids[2])

    assert rest.ids[0].endswith("/4")
    kinds = [event["type"] for event in [*broken.events[:3], *rest.events]]
    assert kinds == [event["type"] for event in whole.events]


async def test_a_run_that_nobody_reads_is_cancelled(monkeypatch):
    monkeypatch.setattr(served, "LINGER_SECONDS", 0.01)
    began, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    app = sse(Chat(ScriptedModel([[ToolCall("c", "wait", {})], "x"]), Toolbox(wait)))
    await request(app, asked("events"), leave_after=5)

    await asyncio.wait_for(ended.wait(), 5)
    assert began.is_set()


async def test_a_run_can_be_cancelled():
    @tool
    async def wait() -> None:
        """Wait."""
        await asyncio.Event().wait()

    app = sse(Chat(ScriptedModel([[ToolCall("c", "wait", {})], "x"]), Toolbox(wait)))
    broken = await request(app, asked("events"), leave_after=5)
    run = broken.events[0]["run"]
    deleted = await request(app, method="DELETE", query=f"run={run}".encode())
    rest = await request(app, method="GET", last_event_id=broken.ids[-1])

    assert deleted.status == 204
    assert rest.events[-1]["error"]["code"] == "cancelled"


async def test_what_is_no_longer_kept_is_told(monkeypatch):
    monkeypatch.setattr(served, "MAX_KEPT_BYTES", 1000)
    app = app_of(SCRIPTS["call"])
    whole = await request(app, asked("events"))
    again = await request(app, method="GET", last_event_id=whole.ids[0])

    assert again.status == 410


async def test_the_kept_events_of_a_client_stay_within_their_share(monkeypatch):
    monkeypatch.setattr(served, "MAX_PEER_KEPT_BYTES", 3000)
    box = Toolbox(*BOX)
    app = sse(Chat(ScriptedModel(["word " * 100] * 8), box))
    for _ in range(8):
        await request(app, asked("events"))

    assert app.kept_bytes <= 3000


async def test_a_finished_run_is_forgotten(monkeypatch):
    monkeypatch.setattr(served, "KEPT_SECONDS", 0.01)
    app = app_of(SCRIPTS["text"])
    whole = await request(app, asked("events"))
    for _ in range(200):
        again = await request(app, method="GET", last_event_id=whole.ids[0])
        if again.status == 404:
            break
        await asyncio.sleep(0.01)

    assert again.status == 404
    assert app.kept_bytes == 0


async def test_the_runs_of_a_client_that_wait_stay_within_their_share(monkeypatch):
    monkeypatch.setattr(served, "MAX_PEER_PENDING_BYTES", 3000)
    app = app_of([[PAY]] * 6)
    found = [find_request("events", (await request(app, asked("events"))).events) for _ in range(6)]
    first = await request(app, answered("events", found[0], False))
    last = await request(app, answered("events", found[-1], False))

    assert (first.status, last.status) == (400, 200)


async def test_there_are_at_most_so_many_runs(monkeypatch):
    monkeypatch.setattr(served, "MAX_PEER_RUNS", 2)

    @tool
    async def wait() -> None:
        """Wait."""
        await asyncio.Event().wait()

    app = sse(Chat(ScriptedModel([[ToolCall("c", "wait", {})]] * 3), Toolbox(wait)))
    first = [await request(app, asked("events"), leave_after=5) for _ in range(2)]
    refused = await request(app, asked("events"))
    await request(app, method="DELETE", query=f"run={first[0].events[0]['run']}".encode())
    await request(app, method="GET", last_event_id=first[0].ids[-1])
    after = await request(app, asked("events"), leave_after=5)

    assert refused.status == 503
    assert after.status == 200


# --- approvals ---------------------------------------------------------------------------------


def find_request(protocol: str, events: list[Any]) -> str:
    if protocol == "events":
        return events[-1]["reply"]["pending"][0]["id"]
    if protocol == "ag-ui":
        return events[-1]["outcome"]["interrupts"][0]["id"]
    return next(event["approvalId"] for event in events if event["type"] == "tool-approval-request")


def answered(protocol: str, name: str, answer: Any) -> dict[str, Any]:
    if protocol == "events":
        return {"answers": {name: answer}}
    if protocol == "ag-ui":
        resume = [{"interruptId": name, "status": "resolved", "payload": answer}]
        return {"threadId": "t", "runId": "r2", "messages": [], "tools": [], "context": [], "resume": resume}
    part = {"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c2", "state": "approval-responded",
            "input": {"amount": 5}, "approval": {"id": name, **answer}}  # fmt: skip
    messages = [{"id": "m", "role": "user", "parts": []}, {"id": "a", "role": "assistant", "parts": [part]}]
    return {"id": "t", "messages": messages}


@pytest.mark.parametrize("protocol", ["events", "ag-ui", "vercel"])
@pytest.mark.parametrize(
    ("answer", "paid"),
    [({"approved": True}, [5]), ({"approved": False, "reason": "no"}, []),
     ({"approved": True, "arguments": {"amount": 3}}, [3])],
)  # fmt: skip
async def test_an_answer_continues_the_run_once(protocol, answer, paid):
    PAID.clear()
    app = app_of(SCRIPTS["approval"], protocol)
    first = await request(app, asked(protocol))
    body = answered(protocol, find_request(protocol, first.events), answer)
    second = await request(app, body)
    again = await request(app, body)

    assert paid == PAID
    assert b"Paid" in second.body
    outcomes = ("CallFinished", "TOOL_CALL_RESULT", "tool-output-available", "tool-output-denied")
    assert [event["type"] for event in second.events if event["type"] in outcomes]
    assert b"TOOL_CALL_START" not in second.body
    assert b"tool-input-start" not in second.body
    assert again.status == 400


@pytest.mark.parametrize("protocol", ["ag-ui", "vercel"])
async def test_a_call_with_the_id_of_an_earlier_one_is_shown_under_its_new_id(protocol):
    app = app_of([[ADD], [PAY], [ADD], "Done."], protocol)
    first = await request(app, asked(protocol))
    second = await request(app, answered(protocol, find_request(protocol, first.events), {"approved": True}))
    starts = [event for event in second.events if event["type"] in ("TOOL_CALL_START", "tool-input-start")]

    assert [event["toolCallId"] for event in starts] == ["c1_2"]


async def test_an_answer_of_another_user_is_refused():
    PAID.clear()
    users = {"a" * 16: "ada", "b" * 16: "bob"}
    app = app_of(SCRIPTS["approval"], auth=users.get)
    first = await request(app, asked("events"), authorization=f"Bearer {'a' * 16}")
    body = answered("events", find_request("events", first.events), True)
    other = await request(app, body, authorization=f"Bearer {'b' * 16}")
    own = await request(app, body, authorization=f"Bearer {'a' * 16}")

    assert (other.status, own.status) == (400, 200)
    assert PAID == [5]


# --- who may ask -------------------------------------------------------------------------------


async def test_the_defaults_are_closed():
    app = app_of(SCRIPTS["text"])

    assert (await request(app, asked("events"), host="evil.example")).status == 421
    assert (await request(app, asked("events"), origin="https://evil.example")).status == 403
    assert (await request(app, asked("events"), method="PUT")).status == 405
    assert (await request(app, b"x" * 5_000_000)).status == 413


async def test_requests_of_a_user_beyond_the_rate_are_refused():
    auth = Bearer(token_is("s" * 20, user="ada"), rate=Rate(1, per=60))
    app = app_of(["x", "x"], auth=auth)

    first, second = [await request(app, asked("events"), authorization=f"Bearer {'s' * 20}") for _ in range(2)]

    assert (first.status, second.status) == (200, 429)


async def test_a_token_is_needed_and_its_user_is_in_the_context():
    app = app_of([[ToolCall("c", "who", {})], "x"], auth=token_is("s" * 20, user="ada"), context={"user": "nobody"})
    refused = await request(app, asked("events"))
    answer = await request(app, asked("events"), authorization=f"Bearer {'s' * 20}")

    assert refused.status == 401
    assert "ada" in [
        event["result"]["content"][0]["text"] for event in answer.events if event["type"] == "CallFinished"
    ]


@pytest.mark.parametrize(("other", "name"), [("bob", "c"), ("ada/c", "d")])
async def test_users_do_not_share_runs_or_conversations(other, name):
    users = {"a" * 16: "ada", "b" * 16: other}
    model = ScriptedModel(["One.", "Two."])
    app = sse(Chat(model, Toolbox(add), memory=WindowMemory()), auth=users.get)
    conversation = "c" if other == "bob" else "c/d"
    first = await request(app, asked("events", "secret", conversation=conversation), authorization=f"Bearer {'a' * 16}")
    await request(app, asked("events", "hi", conversation=name), authorization=f"Bearer {'b' * 16}")
    read = await request(app, method="GET", last_event_id=first.ids[0], authorization=f"Bearer {'b' * 16}")

    assert [message.text for message in model.requests[1].messages] == ["hi"]
    assert read.status == 404


@pytest.mark.parametrize(
    "options",
    [{"protocol": "other"}, {"allowed_hosts": "x"}, {"auth": "secret"}, {"max_body_bytes": 0}],
)
def test_a_wrong_option_is_refused(options):
    with pytest.raises(ConfigError):
        sse(Chat(ScriptedModel(["x"])), **options)


def test_only_a_chat_can_be_shown():
    with pytest.raises(ConfigError, match="pass a Chat"):
        sse(Toolbox(add))


async def test_a_resumed_run_streams_its_events():
    chat = Chat(ScriptedModel(SCRIPTS["approval"]), Toolbox(*BOX, approval_key="k" * 32))
    pending = await chat.send("hi")
    decision = chat.box.approvals.decide(pending.pending[0], Allow())
    events = [event async for event in chat.stream_resumed(pending, [decision])]

    assert [type(event).__name__ for event in events][:2] == ["CallStarted", "CallFinished"]
    assert isinstance(events[-1], Done)
    assert events[-1].reply.text == "Paid."


class Sum(BaseModel):
    """Typed answer."""

    total: int


@pytest.mark.parametrize("protocol", ["events", "ag-ui", "vercel"])
async def test_a_typed_answer_is_shown_as_data_and_not_as_a_call(protocol):
    model = ScriptedModel([[ToolCall("c9", "final_answer", {"total": 5})]])
    answer = await request(sse(Chat(model, Toolbox(add), output=Sum), protocol=protocol), asked(protocol))

    assert b'{"total":5}' in answer.body
    assert b"TOOL_CALL_START" not in answer.body
    assert b"tool-input-start" not in answer.body
    for event in answer.events if protocol == "events" else ():
        Draft202012Validator(SCHEMA).validate(event)


# --- chats that are tools -----------------------------------------------------------------------


def clerk_of(**options: Any) -> Any:
    def answer(request: Any) -> Any:
        if any(message.role == "assistant" for message in request.messages):
            return "The clerk paid."
        return ModelReply(Message("assistant", "", [PAY], provider_state={"items": ["secret"]}), finish="calls")

    return Chat(ScriptedModel([answer] * 9), [pay], **options).as_tool("clerk", "Ask the clerk.")


@pytest.mark.parametrize("protocol", ["events", "ag-ui", "vercel"])
async def test_a_chat_that_is_a_tool_shows_its_events_and_waits_for_its_approvals(protocol):
    PAID.clear()
    box = Toolbox(clerk_of(), approval_key="k" * 32)
    app = sse(Chat(ScriptedModel([[ToolCall("c9", "clerk", {"prompt": "Pay."})], "Done."]), box), protocol=protocol)
    first = await request(app, asked(protocol))

    assert "secret" not in first.body.decode()
    if protocol == "events":
        inner = [event for event in first.events if event["type"] == "Delegated"]
        [waiting] = first.events[-1]["reply"]["pending"]
        assert (waiting["path"], waiting["tool"]) == ("clerk / pay", "pay")
        answer = {"answers": {waiting["id"]: True}}
        for event in inner:
            Draft202012Validator(SCHEMA).validate(event)
    elif protocol == "ag-ui":
        inner = [event["value"] for event in first.events if event.get("name") == "toolmason.delegated"]
        [waiting] = first.events[-1]["outcome"]["interrupts"]
        assert (waiting["toolCallId"], waiting["metadata"]["path"]) == ("c9", "clerk / pay")
        answer = {"resume": [{"interruptId": waiting["id"], "status": "resolved", "payload": {"approved": True}}]}
    else:
        inner = [event["data"] for event in first.events if event["type"] == "data-delegated"]
        [waiting] = [event for event in first.events if event["type"] == "tool-approval-request"]
        assert waiting["toolCallId"] == "c9"
        part = {"type": "dynamic-tool", "toolName": "clerk", "toolCallId": "c9", "state": "approval-responded",
                "input": {}, "approval": {"id": waiting["approvalId"], "approved": True}}  # fmt: skip
        said = {"id": first.events[0]["messageId"], "role": "assistant", "parts": [part]}
        answer = {"messages": [*asked(protocol)["messages"], said]}
    assert {event["event"]["type"] for event in inner} >= {"CallStarted", "CallFinished", "StepFinished"}

    body = answer if protocol == "events" else asked(protocol) | answer
    second = await request(app, body)
    assert "Done." in "".join(str(event.get("text") or event.get("delta") or "") for event in second.events)
    assert PAID == [5]
