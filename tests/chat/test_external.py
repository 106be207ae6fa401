"""Calls that the application or a browser runs: handed out when they are valid, and resumed with their results."""

import json
from typing import TypedDict

import pytest

from chat.asgi_client import request
from mcp_server.sample_server import running
from toolmason import Allow, Edit, Limits, Message, Tool, Toolbox, ToolCall, ToolError, ToolResult, WindowMemory, tool
from toolmason.chat import CallFinished, Compact, Done, Reply, SqliteRuntime, sse
from toolmason.chat.chat import Chat
from toolmason.errors import ConfigError, DefinitionError, ExternalCall, InvalidArguments
from toolmason.models.scripted import ScriptedModel
from toolmason.providers import check_conversation

KEY = "k" * 16


@tool(external=True)
def pick(kind: str, most: int = 1) -> str:
    """Pick a file."""
    raise AssertionError(kind)


@tool(external=True, approval=True)
def erase(name: str) -> str:
    """Erase a file."""


class Place(TypedDict):
    """Place."""

    lat: float
    lon: float


@tool(external=True)
def locate() -> Place:
    """Locate the user."""


@tool(read_only=True)
def clock() -> str:
    """Read the clock."""
    return "10:30"


def asks(*calls):
    return [ToolCall(f"c{number}", *call) for number, call in enumerate(calls)]


PICK = ("pick", {"kind": "image"})


def make_chat(*script, tools=(pick, erase, locate, clock), **options):
    return Chat(ScriptedModel([*script]), Toolbox(*tools, approval_key=KEY), **options)


# --- handing out -----------------------------------------------------------------------------------


async def test_own_tools_run_and_the_others_wait():
    chat = make_chat(asks(("clock", {}), PICK), "done")

    waiting = await chat.send("go")
    reply = await chat.resume(waiting, results=[ToolResult("c1", "", value="cat.png")])

    assert (waiting.finish, waiting.pending) == ("pending", ())
    assert waiting.external == (ToolCall("c1", "pick", {"kind": "image", "most": 1}),)
    assert [result.text for result in reply.results] == ["10:30", "cat.png"]
    assert (reply.text, reply.external) == ("done", ())
    assert check_conversation(chat.model.requests[-1].messages) == []


async def test_wrong_arguments_go_back_to_the_model():
    chat = make_chat(asks(("pick", {"most": 5})), asks(("pick", '{"kind": "a", "most": "2"}')))

    reply = await chat.send("go")

    assert isinstance(reply.results[0].error, InvalidArguments)
    assert [call.arguments for call in reply.external] == [{"kind": "a", "most": 2}]


@pytest.mark.parametrize("verdict", [Allow(), Edit({"name": "b"})], ids=["allowed", "edited"])
async def test_approval_comes_first(verdict):
    chat = make_chat(asks(("erase", {"name": "a"})), "done")

    waiting = await chat.send("go")
    approved = await chat.resume(waiting, [chat.box.approvals.decide(waiting.pending[0], verdict)])
    reply = await chat.resume(approved, results=[ToolResult("c0", "", value="erased")])

    assert (waiting.external, len(waiting.pending)) == ((), 1)
    assert approved.pending == ()
    assert [call.arguments for call in approved.external] == [{"name": "b" if isinstance(verdict, Edit) else "a"}]
    assert (reply.text, reply.results[-1].text) == ("done", "erased")


async def test_an_approval_and_a_result_may_come_together():
    chat = make_chat(asks(("erase", {"name": "a"}), PICK), "done")

    first = await chat.send("go")
    decision = chat.box.approvals.decide(first.pending[0], Allow())
    second = await chat.resume(first, [decision], results=[ToolResult("c1", "", value="cat.png")])

    assert [call.id for call in first.external] == ["c1"]
    assert [call.id for call in second.external] == ["c0"]


async def test_a_toolbox_reports_that_the_application_has_to_run_it():
    results = await Toolbox(pick, clock).call_all(asks(PICK, ("clock", {})))

    assert isinstance(results[0].error, ExternalCall)
    assert results[0].error.arguments == {"kind": "image", "most": 1}
    assert results[1].text == "10:30"


async def test_a_schema_makes_a_tool_as_well():
    definition = {"name": "show", "description": "Show.", "parameters": {"properties": {"x": {"type": "integer"}}}}
    tools = [Tool.external(definition), Tool.external("hide", "Hide.", {"type": "object", "properties": {}})]
    chat = make_chat(asks(("show", {"x": "5"}), ("hide", {})), "done", tools=tools)

    reply = await chat.send("go")

    assert [call.arguments for call in reply.external] == [{"x": 5}, {}]
    assert Tool.external({"type": "function", "function": definition}).description == "Show."


def test_a_tool_that_does_not_run_here_has_no_place_and_no_missing_name():
    with pytest.raises(DefinitionError, match="external=True and runs_on='thread': it does not run here"):
        tool(external=True, runs_on="thread")
    with pytest.raises(DefinitionError, match="the definition has no `name`"):
        Tool.external({"description": "x"})


# --- results ---------------------------------------------------------------------------------------


async def test_a_missing_result_keeps_the_run_waiting():
    chat = make_chat(asks(PICK, ("locate", {})), "done")

    waiting = await chat.send("go")
    still = await chat.resume(waiting, results=[ToolResult("c0", "", value="a")])
    reply = await chat.resume(still, results=[ToolResult("c1", "", value={"lat": 1.0, "lon": 2.0})])

    assert [call.id for call in still.external] == ["c1"]
    assert [result.text for result in reply.results[-2:]] == ["a", '{"lat":1.0,"lon":2.0}']
    assert reply.results[-1].structured == {"lat": 1.0, "lon": 2.0}


@pytest.mark.parametrize(
    ("results", "problem"),
    [
        ([ToolResult("other", "", value=1)], "does not wait for call 'other'. It waits for: 'c0'"),
        ([ToolResult("c0", "", value={"lat": 1.0, "lon": 1.0})] * 2, "two results of call 'c0'"),
        ([ToolResult("c0", "", value={"lat": "x", "lon": 1.0})], "'locate' does not match its output schema: .*lat"),
        ([ToolResult("c0", "", value="here")], "'locate' does not match its output schema"),
        ([{"call_id": "c0"}], "is not a ToolResult"),
        ([ToolResult("c0", "pick", value="a")], "call 'c0' is one of 'locate', not of 'pick'"),
    ],
    ids=["unknown", "twice", "wrong field", "no object", "no result", "another tool"],
)
async def test_a_result_that_does_not_fit_is_refused_and_the_run_goes_on_waiting(results, problem):
    chat = make_chat(asks(("locate", {})), "done")
    waiting = await chat.send("go")

    with pytest.raises(ConfigError, match=problem):
        await chat.resume(waiting, results=results)

    reply = await chat.resume(waiting, results=[ToolResult("c0", "", value={"lat": 1.0, "lon": 2.0})])
    assert reply.text == "done"


async def test_a_failure_of_the_application_goes_to_the_model():
    chat = make_chat(asks(("locate", {})), "done")

    reply = await chat.resume(
        await chat.send("go"), results=[ToolResult("c0", "", error=ToolError("The user declined."))]
    )

    assert "The user declined." in chat.model.requests[-1].messages[-1].results[0].text
    assert reply.text == "done"


async def test_a_run_that_waits_for_nothing_takes_no_results():
    with pytest.raises(ConfigError, match="not waiting"):
        await make_chat("x").resume(await make_chat("done").send("go"), results=[ToolResult("c0", "", value=1)])


async def test_the_same_external_call_may_be_made_again():
    chat = make_chat(asks(PICK), [ToolCall("d", *PICK)], "done")

    first = await chat.send("go")
    second = await chat.resume(first, results=[ToolResult("c0", "", value="a")])
    reply = await chat.resume(second, results=[ToolResult("d", "", value="b")])

    assert [result.text for result in reply.results] == ["a", "b"]


# --- other processes, journals, streams, memories ------------------------------------------------------


async def test_a_saved_run_goes_on_elsewhere():
    memory = WindowMemory()
    saved = json.dumps((await make_chat(asks(("clock", {}), PICK), memory=memory).send("go", conversation="c")).save())

    chat = make_chat([ToolCall("d", "clock", {})], memory=memory, limits=Limits(calls=2))
    reply = await chat.resume(json.loads(saved), results=[ToolResult("c1", "", value="cat.png")])

    assert Reply.load(json.loads(saved)).external[0].arguments == {"kind": "image", "most": 1}
    assert (reply.finish, [result.text for result in reply.results[:2]]) == ("limit", ["10:30", "cat.png"])
    assert [message.role for message in await memory.load("c")] == ["user", *["assistant", "tool"] * 2]


async def test_a_journal_records_the_result_once(tmp_path):
    runtime = SqliteRuntime(tmp_path / "runs.db")
    waiting = await make_chat(asks(PICK), runtime=runtime).send("go", run="r")
    states = [effect.state for effect in runtime.effects("r")]

    reply = await make_chat("done", runtime=runtime).resume(waiting.save(), results=[ToolResult("c0", "", value="a")])
    again = await make_chat(runtime=runtime).send("go", run="r")

    assert states == ["done", "waits"]
    assert runtime.run("r").state == "stop"
    assert (reply.text, again.text, again.results[0].text) == ("done", "done", "a")
    runtime.close()


@pytest.mark.parametrize("method", ["send", "stream", "step", "resume", "stream_resumed"])
async def test_a_misspelt_keyword_is_named_with_the_method(method):
    chat = make_chat(asks(PICK), "done")

    with pytest.raises(TypeError, match=rf"Chat\.{method}\(\) got an unexpected keyword argument 'limit'"):
        await getattr(chat, method)("go", limit=1)


async def test_a_stream_ends_with_the_calls_and_goes_on_with_their_results():
    chat = make_chat(asks(PICK), "done")

    events = [event async for event in chat.stream("go")]
    resumed = chat.stream_resumed(events[-1].reply, results=[ToolResult("c0", "", value="a")])
    more = [event async for event in resumed]

    assert isinstance(events[-1], Done)
    assert [call.id for call in events[-1].reply.external] == ["c0"]
    assert [event.result.text for event in more if isinstance(event, CallFinished)] == ["a"]
    assert more[-1].reply.text == "done"


async def test_a_chat_that_is_called_as_a_tool_waits_in_the_outer_run():
    inner = make_chat(asks(PICK, ("erase", {"name": "x"})), "found", compact=Compact(1, at=2, model=ScriptedModel([])))
    box = Toolbox(inner.as_tool("research", "Research."), pick, approval_key=KEY)
    outer = Chat(ScriptedModel([asks(("research", {"prompt": "x"}), PICK), "done"]), box)

    waiting = Reply.load(json.loads(json.dumps((await outer.send("go")).save())))
    decisions = [box.approvals.decide(item, Allow()) for item in waiting.pending]
    second = await outer.resume(waiting, decisions, results=[ToolResult("c1", "", value="outer")])
    third = await outer.resume(second.save(), results=[ToolResult("c0/c0", "", value="inner")])
    reply = await outer.resume(third, results=[ToolResult("c0/c1", "", value="erased")])

    assert [call.id for call in waiting.external] == ["c0/c0", "c1"]
    assert [call.id for call in second.external] == ["c0/c0", "c0/c1"]
    assert [call.id for call in third.external] == ["c0/c1"]
    assert reply.text == "done"
    assert [result.text for result in reply.results] == ["found", "outer"]
    assert [result.text for result in inner.model.requests[-1].messages[-1].results] == ["inner", "erased"]


async def test_a_chat_that_waits_for_the_application_is_an_error_without_a_run():
    result = await Toolbox(make_chat(asks(PICK)).as_tool("research", "R.")).call("research", {"prompt": "x"})

    assert "research waits for the application to run pick" in result.text


# --- front ends --------------------------------------------------------------------------------------


async def test_our_own_events_take_the_results_of_a_run():
    app = sse(make_chat(asks(("locate", {})), "done"))
    reply = (await request(app, {"prompt": "go"})).events[-1]["reply"]
    place = {"value": {"lat": 1.0, "lon": 2.0}}

    wrong = await request(app, {"run": reply["run"], "results": {"c0": {"value": "here"}}})
    unknown = await request(app, {"run": "other", "results": {"c0": place}})
    nameless = await request(app, {"results": {"c0": place}})
    answer = await request(app, {"run": reply["run"], "results": {"c0": place}})
    twice = await request(app, {"run": reply["run"], "results": {"c0": place}})

    assert reply["external"] == [{"id": "c0", "name": "locate", "arguments": {}}]
    assert [each.status for each in (wrong, unknown, nameless, answer, twice)] == [400, 400, 400, 200, 400]
    assert b"does not match its output schema" in wrong.body
    assert answer.events[-1]["reply"]["text"] == "done"


def ag_ui(*messages, **fields):
    return {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "go"}, *messages],
        **fields,
    }


async def test_ag_ui_hands_out_valid_calls_and_takes_messages_of_tools():
    chat = make_chat(asks(("pick", {"most": 5})), asks(("pick", {"kind": "a", "most": "2"})), "done")
    app = sse(chat, protocol="ag-ui")

    first = (await request(app, ag_ui())).events
    calls = [event for event in first if event["type"].startswith("TOOL_CALL")]
    call_id = calls[0]["toolCallId"]
    second = (await request(app, ag_ui({"role": "tool", "toolCallId": call_id, "content": "cat.png"}))).events

    assert [event["type"] for event in calls] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert json.loads(calls[1]["delta"]) == {"kind": "a", "most": 2}
    assert first[-1]["result"]["finish"] == "pending"
    assert [event["delta"] for event in second if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["done"]
    assert not any(event["type"] == "TOOL_CALL_RESULT" for event in second)


async def test_ag_ui_offers_the_tools_of_the_front_end():
    chat = make_chat(asks(("paint", {"color": "red"}), ("clock", {})), "done")
    paint = {"name": "paint", "description": "Paint.", "parameters": {"properties": {"color": {"type": "string"}}}}
    tools = [paint, {**paint, "name": "clock"}]
    app = sse(chat, protocol="ag-ui")

    await request(app, ag_ui(tools=tools))
    answer = await request(app, ag_ui({"role": "tool", "toolCallId": "c0", "content": "ok"}, tools=tools))

    assert "paint" in [each.name for each in chat.model.requests[0].tools]
    assert [result.text for result in chat.model.requests[1].messages[-1].results] == ["ok", "10:30"]
    assert b"done" in answer.body
    assert (await request(app, ag_ui(tools=[{"name": ""}]))).status == 400
    assert (await request(app, ag_ui(tools=[paint] * 129))).status == 400


def vercel(*parts):
    said = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "go"}]}
    return {"id": "chat", "messages": [said, *([{"id": "a", "role": "assistant", "parts": [*parts]}] if parts else ())]}


@pytest.mark.parametrize("state", ["output-available", "output-error"])
async def test_vercel_hands_out_valid_calls_and_takes_outputs(state):
    chat = make_chat(asks(("pick", {"most": 5})), asks(("clock", {}), ("pick", {"kind": "a", "most": "2"})), "done")
    app = sse(chat, protocol="vercel")

    first = (await request(app, vercel())).events
    ran = {"type": "dynamic-tool", "toolName": "clock", "toolCallId": "x", "state": "output-available", "output": "1"}
    picked = [event for event in first if event.get("toolName") == "pick"]
    call_id = picked[-1]["toolCallId"]
    done = {"type": "dynamic-tool", "toolName": "pick", "toolCallId": call_id, "state": state, "input": {}}
    answer = await request(app, vercel(ran, {**done, "output": "cat.png", "errorText": "closed"}))

    assert [event["type"] for event in picked] == ["tool-input-start", "tool-input-available"]
    assert picked[-1]["input"] == {"kind": "a", "most": 2}
    assert not any(event.get("toolCallId") == call_id and "output" in event["type"] for event in first)
    result = chat.model.requests[-1].messages[-1].results[-1]
    assert (result.ok, ("cat.png" if result.ok else "closed") in result.text) == (state == "output-available", True)
    assert b"done" in answer.body


async def test_a_front_end_sees_a_call_of_an_inner_chat_too():
    inner = make_chat(asks(PICK), "found")
    outer = Chat(ScriptedModel([asks(("research", {"prompt": "x"})), "done"]), [inner.as_tool("research", "Research.")])
    app = sse(outer, protocol="ag-ui")

    first = (await request(app, ag_ui())).events
    answer = await request(app, ag_ui({"role": "tool", "toolCallId": "c0/c0", "content": "cat.png"}))

    assert [event["toolCallId"] for event in first if event["type"] == "TOOL_CALL_END"] == ["c0", "c0/c0"]
    assert b"done" in answer.body


async def test_a_message_of_the_user_does_not_wait_for_a_call():
    chat = make_chat(asks(PICK), "Fine.")
    app = sse(chat, protocol="ag-ui")
    await request(app, ag_ui())

    answer = await request(app, ag_ui({"role": "user", "content": "Forget it."}))

    assert b"Fine." in answer.body
    assert chat.model.requests[-1].messages[-1] == Message("user", "Forget it.")


async def test_a_served_toolbox_does_not_list_it_and_says_who_runs_it():
    served = Toolbox(pick, clock)

    with running(served) as server:
        listed = [server.ask("tools/list").json["result"]["tools"] for _ in range(2)]
        result = server.call("pick", {"kind": "a"})

    assert [[entry["name"] for entry in entries] for entries in listed] == [["clock"], ["clock"]]
    assert result["isError"]
    assert "pick is run by the application" in result["content"][0]["text"]


async def test_vercel_does_not_run_a_call_before_it_is_approved():
    app = sse(make_chat(asks(("erase", {"name": "a"})), "done"), protocol="vercel")

    first = (await request(app, vercel())).events
    [asked] = [event for event in first if event["type"] == "tool-approval-request"]
    part = {"type": "dynamic-tool", "toolName": "erase", "toolCallId": "c0", "input": {"name": "a"}}
    answer = {**part, "state": "approval-responded", "approval": {"id": asked["approvalId"], "approved": True}}
    second = (await request(app, vercel(answer))).events
    third = await request(app, vercel({**part, "state": "output-available", "output": "erased"}))

    available = [[e["providerExecuted"] for e in s if e["type"] == "tool-input-available"] for s in (first, second)]
    assert available == [[True], [False]]
    assert b"done" in third.body


async def test_a_call_that_was_handed_out_is_not_handed_out_again():
    app = sse(make_chat(asks(PICK, ("pick", {"kind": "b"})), "done"), protocol="ag-ui")

    await request(app, ag_ui())
    second = await request(app, ag_ui({"role": "tool", "toolCallId": "c0", "content": "a"}))
    third = await request(app, ag_ui({"role": "tool", "toolCallId": "c1", "content": "b"}))

    assert b"TOOL_CALL_START" not in second.body
    assert b"done" in third.body
