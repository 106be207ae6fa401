"""A server that answers badly by plan: a real process, and what a toolbox makes of it."""

import io
import json

import pytest

from toolmason import Chat, Toolbox
from toolmason.errors import ConfigError
from toolmason.models.scripted import ScriptedModel
from toolmason.testing import MCP_FAULTS, FakeMcpServer
from toolmason.testing.fake_server_process import serve


async def test_it_answers_as_it_is_told_and_knows_what_it_was_asked():
    server = FakeMcpServer({"echo": "pong", "add": {"sum": 3}})

    async with Toolbox(server) as box:
        texts = [(await box.call("echo", {"text": "ping"})).text, (await box.call("add", {"a": 1})).structured]

    assert texts == ["pong", {"sum": 3}]
    assert [(call.name, call.arguments) for call in server.calls] == [("echo", {"text": "ping"}), ("add", {"a": 1})]


@pytest.mark.parametrize("fault", MCP_FAULTS)
async def test_whatever_it_does_the_call_has_a_result_and_the_next_one_is_good(fault):
    server = FakeMcpServer({"echo": "pong"}, [fault], timeout=2.0 if fault == "silent" else None)

    async with Toolbox(server) as box:
        first = await box.call("echo")
        second = await box.call("echo")

    bad = fault in {"fails", "says no", "dies", "silent", "no result"}
    assert first.ok is not bad
    assert second.text == "pong"
    assert len(server.calls) == 2


async def test_a_chat_goes_on_over_a_server_that_dies():
    server = FakeMcpServer({"echo": "pong"}, ["dies"])
    model = ScriptedModel([[("echo", {})], [("echo", {})], lambda request: request.messages[-1].results[0].text])

    async with Toolbox(server) as box:
        reply = await Chat(model, box).send("go")

    assert [result.ok for result in reply.results] == [False, True]
    assert reply.text == "pong"


@pytest.mark.parametrize("words", [{"start": "dies"}, {"start": "silent"}, {"listing": "fails"}])
async def test_a_server_that_does_not_come_up_costs_its_own_tools_alone(words):
    server = FakeMcpServer({"echo": "pong"}, connect_timeout=1.0, **words)

    async with Toolbox(server) as box:
        names = [tool.name for tool in await box.list()]
        healthy = (await box.health())["fake"]

    assert names == []
    assert not healthy or words == {"listing": "fails"}


@pytest.mark.parametrize("words", [{"start": "banner"}, {"listing": "bad definition"}])
async def test_noise_around_the_tools_costs_nothing(words):
    async with Toolbox(FakeMcpServer({"echo": "pong"}, **words)) as box:
        assert (await box.call("echo")).text == "pong"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"faults": ["boredom"]}, "Unknown server fault 'boredom'"),
        ({"start": "late"}, "start='late'"),
        ({"listing": "late"}, "listing='late'"),
    ],
)
def test_a_plan_that_is_none_is_said(words, told):
    with pytest.raises(ConfigError, match=told):
        FakeMcpServer({"echo": "pong"}, **words)


def test_nothing_was_asked_of_a_server_that_was_not_used():
    assert FakeMcpServer({}).calls == ()


def talk(tmp_path, plan, *requests):
    """What the program of the server writes, in this process."""
    whole = {"tools": {}, "faults": [], "start": None, "listing": None, **plan}
    out = io.BytesIO()
    lines = [json.dumps({"jsonrpc": "2.0", **request}).encode() for request in requests]
    serve(whole, tmp_path / "log", lines, out)
    return [json.loads(line) for line in out.getvalue().splitlines() if line.startswith(b"{")]


def test_the_program_speaks_the_protocol(tmp_path):
    tools = {"echo": {"description": "Echo.", "input_schema": {"type": "object"}, "answer": "pong"}}
    requests = [
        {"id": 1, "method": "initialize", "params": {}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "ping"},
        {"id": 3, "method": "tools/list"},
        {"id": 4, "method": "tools/call", "params": {"name": "echo"}},
        {"id": 5, "method": "nonsense"},
    ]

    answers = talk(tmp_path, {"tools": tools, "start": "banner"} | {"start": None}, *requests)

    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    assert answers[2]["result"]["tools"][0]["name"] == "echo"
    assert answers[3]["result"]["content"][0]["text"] == "pong"
    assert answers[4]["error"]["code"] == -32601


@pytest.mark.parametrize("fault", [fault for fault in MCP_FAULTS if fault != "dies"])
def test_the_program_follows_its_plan(tmp_path, fault):
    tools = {"add": {"description": "Add.", "input_schema": {"type": "object"}, "answer": {"sum": 3}}}
    call = {"id": 4, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
    odd = {"silent": 0, "twice": 2, "wrong id": 2, "garbage": 1}

    with_fault = [
        a for a in talk_raw(tmp_path, {"tools": tools, "faults": [fault]}, call) if a.startswith(b'{"jsonrpc')
    ]

    assert len(with_fault) == odd.get(fault, 1)


def talk_raw(tmp_path, plan, request):
    whole = {"start": None, "listing": None, **plan}
    out = io.BytesIO()
    serve(whole, tmp_path / "log", [json.dumps(request).encode()], out)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("plan", "answers"), [({"start": "silent"}, 0), ({"listing": "fails"}, 1), ({"listing": "bad definition"}, 1)]
)
def test_the_program_may_fail_before_any_call(tmp_path, plan, answers):
    assert len(talk(tmp_path, plan, {"id": 1, "method": "tools/list"})) == answers


def test_the_program_may_end_at_once(tmp_path):
    with pytest.raises(SystemExit):
        talk(tmp_path, {"start": "dies"})
