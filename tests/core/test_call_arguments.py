"""The arguments of a call are a mapping for every model; the form that the model sent stays as `raw`."""

import datetime as dt
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from chat.simulated_replies import reply
from core.takers import refused
from providers.samples import CHATS
from toolmason import Allow, Chat, Edit, McpServer, Message, Toolbox, ToolCall, tool
from toolmason._core.define.tool import compile_tool
from toolmason.errors import InvalidArguments
from toolmason.models import ScriptedModel
from toolmason.providers import codec


@pytest.mark.parametrize("kind", CHATS)
def test_every_format_gives_a_mapping(kind):
    [call] = codec(kind).decode(reply(kind, call=("f", {"x": [1, {"y": None}]}))).calls

    assert call.arguments == {"x": [1, {"y": None}]}
    assert isinstance(call.raw, str) == kind.startswith("openai")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (b'{"a": 1}', {"a": 1}),
        (None, {}),
        ("", {}),
        ("null", {}),
        ('{"a": ', {}),
        ("[1]", {}),
    ],
    ids=repr,
)
def test_arguments_are_a_mapping_whatever_was_sent(raw, arguments):
    call = ToolCall("c", "f", raw)

    assert call.arguments == arguments
    assert call.raw == raw
    assert Message.from_dict(json.loads(json.dumps(Message("assistant", (), [call]).to_dict()))).calls == (call,)


async def test_invalid_text_is_still_reported_with_every_problem():
    cut = await Toolbox(add).call(ToolCall("c", "add", '{"a": 1, "b": '))
    wrong = await Toolbox(add).call(ToolCall("c", "add", '{"a": "x", "b": "y"}'))

    assert not cut.ok
    assert cut.error.code == "invalid_arguments"
    assert {"a", "b"} <= set(wrong.text.replace("$.", " ").replace('"', " ").split())


def test_calls_are_equal_if_their_arguments_are():
    text, mapping = ToolCall("c", "f", '{"a": 1}'), ToolCall("c", "f", {"a": 1})

    assert text == mapping
    assert hash(text) == hash(mapping)
    assert ToolCall("c", "f", "x") != ToolCall("c", "f", "y")
    assert ToolCall("c", "f", "x") != ToolCall("c", "f", {})
    assert ToolCall("c", "f", {}) != ToolCall("c", "f", "x")
    assert text != ToolCall("d", "f", {"a": 1})


def test_a_call_is_copied_with_other_fields():
    call = ToolCall("c", "f", '{"a": 1}')

    assert replace(call, id="d").raw == call.raw
    assert replace(call, raw={"b": 2}).arguments == {"b": 2}
    assert repr(call) == """ToolCall(id='c', name='f', arguments='{"a": 1}')"""
    with pytest.raises(AttributeError):
        call.raw = {}


@pytest.mark.parametrize("raw", [[1, 2], [], 5, 0, 1.5, True, False, object(), bytearray(b"[1]"), [("a", 1), ("b", 2)]])
async def test_arguments_of_another_type_are_empty_and_the_result_says_so(raw):
    call = ToolCall("c", "add", raw)

    assert (call.arguments, call == ToolCall("c", "add", {})) == ({}, False)
    assert (await Toolbox(add).call(call)).error.code == "invalid_arguments"
    assert (await Toolbox(add).run().call(call)).error.code == "invalid_arguments"


class Point(BaseModel):
    """A point."""

    x: int


@dataclass
class Size:
    """A size."""

    x: int


async def in_chat(box, arguments):
    reply = await Chat(ScriptedModel([[("show", arguments)], "x"]), box).send("x")
    return reply.results[0]


async def over_mcp(box, arguments):
    async with Toolbox(McpServer.of("s", box)) as client:
        return await client.call("show", arguments)


async def after(verdict, box, arguments):
    asking = Toolbox(box, approve="all")
    request = (await asking.call("show", arguments)).error.request
    return await asking.approvals.resume(asking.approvals.decide(request, verdict))


UNIONS = [
    pytest.param(dt.date | str, "2026-01-02", id="date"),
    pytest.param(UUID | str, "12345678-1234-5678-1234-567812345678", id="UUID"),
    pytest.param(Path | str, "a", id="path"),
    pytest.param(bytes | str, "a", id="bytes"),
    pytest.param(Decimal | float, 1.5, id="decimal"),
    pytest.param(Point | dict[str, int], {"x": 1}, id="model"),
    pytest.param(Size | dict[str, Any], {"x": 1}, id="dataclass"),
    pytest.param(list[dt.date | str] | None, ["2026-01-02"], id="in a list"),
]


@pytest.mark.parametrize("flatten", [False, True], ids=["plain", "in a model"])
@pytest.mark.parametrize(("hint", "value"), UNIONS)
async def test_a_union_takes_the_same_type_on_every_way(hint, value, flatten):
    holder = type("Holder", (BaseModel,), {"__annotations__": {"value": hint}, "__doc__": "One."})

    def show(value):
        return repr(value)

    show.__annotations__ = {"value": holder if flatten else hint, "return": str}
    box, arguments = Toolbox(tool(flatten=flatten, extra="forbid", description="Show.")(show)), {"value": value}

    text = await box.call("show", json.dumps(arguments))
    others = [
        await box.call("show", arguments),
        await in_chat(box, arguments),
        await over_mcp(box, arguments),
        await after(Allow(), box, json.dumps(arguments)),
        await after(Edit(arguments), box, json.dumps(arguments)),
    ]

    assert text.ok
    assert {other.text for other in others} == {text.text}


@pytest.mark.parametrize("given", [dt.date(2026, 1, 2), Point(x=1)], ids=["date", "model"])
def test_an_object_of_python_stays_what_it_is(given):
    @tool
    def show(value: dt.date | Point | str) -> bool:
        """Show."""
        return value is given

    assert Toolbox(show).call_sync("show", {"value": given}).value is True


@pytest.mark.parametrize("hint", [dt.date | None, int | str | None, list[int] | dict[str, float], Point], ids=str)
def test_arguments_whose_type_is_the_same_in_json_are_not_written_as_json(hint):
    def show(value):
        """Show."""

    show.__annotations__ = {"value": hint, "return": str}

    assert not compile_tool(Toolbox(show)["show"]).inputs.is_ambiguous


@pytest.mark.parametrize("depth", [128, 3_000])
@pytest.mark.parametrize("kind", [Any, dict])
async def test_a_mapping_is_refused_over_the_limit_of_nesting_as_its_text_is(depth, kind):
    @tool
    async def anything(value: kind) -> None: ...

    box, value = Toolbox(anything), {}
    for _ in range(depth - 1):
        value = {"a": value}

    error = await refused(box, "anything", {"value": value})
    in_run = await box.run().call("anything", {"value": value})

    assert "the limit json_depth of 128" in error.message
    assert isinstance(in_run.error, InvalidArguments)
    assert (await box.call("anything", {"value": value.get("a", 1)})).ok is (depth == 128)
