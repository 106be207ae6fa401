"""Augmented tools: extra fields in the schema, their values for a callback, and the tool none the wiser."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from policy import process_tools
from toolmason import Allow, Deny, Param, Retry, Tool, Toolbox, ToolContext, ToolError, tool
from toolmason.errors import DefinitionError, ExecutionError, InvalidArguments, ToolTimeout
from toolmason.extend import AugmentedCall


class Thinking(BaseModel):
    """What a model thinks."""

    thought: str = Field(description="Why this call")
    confidence: float = 0.5


@dataclass
class ThinkingClass:
    """The same, as a dataclass."""

    thought: Annotated[str, Param(description="Why this call")]
    confidence: float = 0.5


class ThinkingDict(TypedDict):
    """The same, as a dict."""

    thought: str


ran: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@tool(read_only=True)
async def get_weather(city: str, unit: str = "C") -> str:
    """Current weather in a city."""
    ran.append((city, unit))
    return f"sunny in {city}"


SENT = {"city": "Prague", "thought": "the user asked", "confidence": 0.9}


# --- the schema ----------------------------------------------------------------------------------


def test_the_model_sees_the_tools_fields_and_the_extra_ones():
    (augmented,) = Toolbox(get_weather).augmented(Thinking).tools

    schema = augmented.definition.input_schema
    assert list(schema["properties"]) == ["city", "unit", "thought", "confidence"]
    assert schema["required"] == ["city", "thought"]
    assert schema["properties"]["thought"]["description"] == "Why this call"
    assert (augmented.name, augmented.description) == ("get_weather", "Current weather in a city.")


def test_the_tool_itself_is_as_it_was():
    box = Toolbox(get_weather)
    box.augmented(Thinking)

    assert list(box["get_weather"].definition.input_schema["properties"]) == ["city", "unit"]


def test_models_of_one_name_in_tool_and_extra_keep_apart():
    def own():
        class Item(BaseModel):
            price: float

        return Item

    def extra():
        class Item(BaseModel):
            reason: str

        class Plan(BaseModel):
            items: list[Item]

        return Plan

    Priced = own()  # noqa: N806 - a class

    @tool
    def order(item: Priced, others: list[Priced]) -> str:
        return f"{item.price}"

    box = Toolbox(order).augmented(extra())
    arguments = {"item": {"price": 1.0}, "others": [{"price": 2.0}], "items": [{"reason": "x"}]}

    text = str(box["order"].definition.input_schema)
    assert "price" in text
    assert "reason" in text
    assert box.call_sync("order", arguments).unwrap() == "1.0"


@pytest.mark.parametrize("model", [int, str, list[int]], ids=["int", "str", "list"])
def test_what_has_no_fields_cannot_augment(model):
    with pytest.raises(DefinitionError, match="BaseModel"):
        Toolbox(get_weather).augmented(model)


@pytest.mark.row("SP-56")
def test_a_field_with_the_name_of_a_parameter_is_refused():
    class Clash(BaseModel):
        city: str

    with pytest.raises(DefinitionError, match="'city'"):
        Toolbox(get_weather).augmented(Clash)


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
async def test_an_extra_field_never_fills_an_injected_parameter(keep, tmp_path):
    """MA-15: the model cannot override `project_dir`."""

    @tool
    def where(project_dir: Path) -> str:
        return str(project_dir)

    class Sneaky(BaseModel):
        project_dir: str

    box = Toolbox(where, project_dir=tmp_path)
    try:
        view = box.augmented(Sneaky, keep=keep)
    except DefinitionError:
        return
    result = await view.call("where", {"project_dir": "/etc"})

    assert result.unwrap() == str(tmp_path)


# --- the callback --------------------------------------------------------------------------------


@pytest.mark.row("SP-55", "SP-57")
@pytest.mark.parametrize("model", [Thinking, ThinkingClass], ids=["BaseModel", "dataclass"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_the_callback_gets_the_typed_extra_the_definition_and_the_raw_arguments(model, kind):
    told = []

    async def told_async(call: AugmentedCall) -> None:
        await asyncio.sleep(0)
        told.append(call)

    box = Toolbox(get_weather)
    view = box.augmented(model, on_arguments=told.append if kind == "sync" else told_async)

    result = await view.call("get_weather", SENT)

    assert result.text == "sunny in Prague"
    assert told == [AugmentedCall(box["get_weather"].definition, model(thought="the user asked", confidence=0.9), SENT)]
    assert ran == [("Prague", "C")]


async def test_a_typed_dict_arrives_as_a_dict():
    told = []

    await (
        Toolbox(get_weather)
        .augmented(ThinkingDict, on_arguments=told.append)
        .call("get_weather", {"city": "Oslo", "thought": "x"})
    )

    assert told[0].arguments == {"thought": "x"}
    assert ran == [("Oslo", "C")]


async def test_raw_is_the_json_text_where_that_came():
    told = []
    text = '{"city": "Oslo", "thought": "x"}'

    await Toolbox(get_weather).augmented(Thinking, on_arguments=told.append).call("get_weather", text)

    assert told[0].raw == text
    assert told[0].arguments == Thinking(thought="x")


@pytest.mark.row("SP-57")
async def test_the_callback_is_told_before_the_tool_runs():
    log = []

    @tool
    async def act() -> None:
        log.append("tool")

    await Toolbox(act).augmented(Thinking, on_arguments=lambda _: log.append("callback")).call("act", {"thought": "x"})

    assert log == ["callback", "tool"]


async def test_the_callback_is_told_once_however_often_the_tool_is_tried():
    told = []

    @tool(retry=Retry(attempts=3, delay=0.001))
    async def flaky(ctx: ToolContext) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    result = await Toolbox(flaky).augmented(Thinking, on_arguments=told.append).call("flaky", {"thought": "x"})

    assert result.unwrap() == 3
    assert len(told) == 1


async def test_without_a_callback_the_extra_is_dropped():
    result = await Toolbox(get_weather).augmented(Thinking).call("get_weather", SENT)

    assert result.ok
    assert ran == [("Prague", "C")]


@pytest.mark.parametrize("policy", ["message", "redact", "raise"])
async def test_a_callback_that_fails_follows_the_error_policy_and_the_tool_does_not_run(policy):
    def broken(call):
        raise ValueError("row 4711 is locked")

    view = Toolbox(get_weather, on_error=policy).augmented(Thinking, on_arguments=broken)

    if policy == "raise":
        with pytest.raises(ExecutionError):
            await view.call("get_weather", SENT)
    else:
        result = await view.call("get_weather", SENT)
        assert isinstance(result.error, ExecutionError)
        assert ("row 4711" in result.text) is (policy == "message")
    assert ran == []


async def test_a_callback_may_refuse_in_words():
    def refuse(call):
        raise ToolError("Think again.")

    result = await Toolbox(get_weather).augmented(Thinking, on_arguments=refuse).call("get_weather", SENT)

    assert (result.error.code, result.error.message) == ("tool_error", "Think again.")
    assert ran == []


async def test_a_callback_that_hangs_is_under_the_calls_timeout():
    async def hangs(call):
        await asyncio.Event().wait()

    view = Toolbox(get_weather, timeout=0.05).augmented(Thinking, on_arguments=hangs)

    async with asyncio.timeout(2):
        result = await view.call("get_weather", SENT)

    assert isinstance(result.error, ToolTimeout)
    assert ran == []


# --- arguments that do not fit -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "paths"),
    [
        pytest.param({"city": "Oslo"}, {"$.thought"}, id="extra missing"),
        pytest.param({"thought": "x"}, {"$.city"}, id="own missing"),
        pytest.param({"city": "Oslo", "thought": 7, "confidence": []}, {"$.thought", "$.confidence"}, id="wrong types"),
        pytest.param({}, {"$.city", "$.thought"}, id="both missing"),
        pytest.param({"city": 1, "thought": 2}, {"$.city", "$.thought"}, id="both wrong"),
    ],
)
async def test_every_problem_of_own_and_extra_fields_is_told_at_once(sent, paths):
    told = []

    result = await Toolbox(get_weather).augmented(Thinking, on_arguments=told.append).call("get_weather", sent)

    assert isinstance(result.error, InvalidArguments)
    assert {problem.path for problem in result.error.problems} == paths
    assert (ran, told) == ([], [])


async def test_extra_fields_are_read_as_leniently_as_own_ones():
    told = []
    sent = {"city": "Oslo", "thought": "x", "confidence": "0.25"}

    result = await Toolbox(get_weather).augmented(Thinking, on_arguments=told.append).call("get_weather", sent)

    assert told[0].arguments.confidence == 0.25
    assert [repair.path for repair in result.repairs] == ["$.confidence"]


@pytest.mark.parametrize("size", [10, 300_000], ids=["short", "long"])
@pytest.mark.parametrize("encode", [json.dumps, dict], ids=["text", "mapping"])
async def test_extra_fields_are_taken_whatever_the_size_of_the_arguments(size, encode):
    told = []
    sent = encode({"city": "x" * size, "thought": "long"})

    result = await Toolbox(get_weather).augmented(Thinking, on_arguments=told.append).call("get_weather", sent)

    assert result.ok
    assert [call.arguments.thought for call in told] == ["long"]


async def test_a_tool_that_forbids_other_arguments_still_takes_the_extra_ones():
    @tool(extra="forbid")
    def strict(a: int) -> int:
        return a

    view = Toolbox(strict).augmented(Thinking)

    assert (await view.call("strict", {"a": 1, "thought": "x"})).unwrap() == 1
    assert (await view.call("strict", {"a": 1, "thought": "x", "b": 2})).error.code == "invalid_arguments"


# --- what is kept --------------------------------------------------------------------------------


@pytest.mark.row("SP-56")
async def test_keep_passes_the_extra_fields_on_to_a_tool_that_takes_them():
    @tool
    def takes(a: int, **others: Any) -> dict[str, Any]:
        return others

    box = Toolbox(takes)
    sent = {"a": 1, "thought": "x"}

    assert (await box.augmented(Thinking, keep=True).call("takes", sent)).unwrap() == {"thought": "x"}
    assert (await box.augmented(Thinking).call("takes", sent)).unwrap() == {}


async def test_keep_does_no_harm_to_a_tool_that_does_not_take_them():
    result = await Toolbox(get_weather).augmented(Thinking, keep=True).call("get_weather", SENT)

    assert result.unwrap() == "sunny in Prague"


@pytest.mark.row("P9", "SP-56")
async def test_promise_9_an_augmented_return_direct_tool_stays_return_direct():
    """seeds.md §3b, promise 9 (SP-56)."""

    @tool(return_direct=True)
    async def answer() -> str:
        return "42"

    box = Toolbox(answer)

    result = await box.augmented(Thinking).call("answer", {"thought": "x"})

    assert result.return_direct is True
    assert (await box.call("answer")).return_direct is True


@pytest.mark.row("SP-56")
def test_every_option_of_the_tool_survives():
    @tool(destructive=True, timeout=3, max_calls=2, lock="path", approval=True, tags=["x"], meta={"k": 1})
    def write(path: str) -> None:
        """Write a file."""

    box = Toolbox(write)

    assert box.augmented(Thinking)["write"].options == box["write"].options


async def test_approval_is_asked_for_and_a_denied_call_tells_nobody():
    told = []

    @tool(approval=True)
    async def delete(path: str) -> None:
        ran.append(path)

    sent = {"path": "a", "thought": "x"}
    denied = Toolbox(delete, approver=lambda request: Deny()).augmented(Thinking, on_arguments=told.append)
    allowed = Toolbox(delete, approver=lambda request: Allow()).augmented(Thinking, on_arguments=told.append)

    assert (await denied.call("delete", sent)).error.code == "approval_denied"
    assert (ran, told) == ([], [])
    assert (await allowed.call("delete", sent)).ok
    assert (ran, len(told)) == (["a"], 1)


async def test_limits_hold_for_the_augmented_tool():
    @tool(max_calls=1)
    async def once() -> None:
        ran.append(1)

    view = Toolbox(once).augmented(Thinking)
    codes = [(await view.call("once", {"thought": str(n)})).error for n in range(2)]

    assert codes[0] is None
    assert codes[1].code == "limit_exceeded"


# --- where it runs -------------------------------------------------------------------------------


async def test_an_augmented_tool_runs_in_a_thread():
    told = []

    @tool
    def blocks(ctx: ToolContext, n: int) -> list[Any]:
        return [n, ctx.tool_name]

    result = await Toolbox(blocks).augmented(Thinking, on_arguments=told.append).call("blocks", {"n": 1, "thought": ""})

    assert result.unwrap() == [1, "blocks"]
    assert len(told) == 1


async def test_an_augmented_tool_runs_in_a_process():
    told = []
    view = Toolbox(process_tools.add).augmented(Thinking, on_arguments=told.append)

    result = await view.call("add", {"a": 1, "b": 2, "thought": "x"})

    assert result.unwrap() == 3
    assert [call.arguments.thought for call in told] == ["x"]


# --- views over views ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        pytest.param(lambda box, told: box.prefixed("wx_").augmented(Thinking, on_arguments=told), "wx_get_weather"),
        pytest.param(lambda box, told: box.augmented(Thinking, on_arguments=told).prefixed("wx_"), "wx_get_weather"),
        pytest.param(lambda box, told: box.augmented(Thinking, on_arguments=told).renamed({"get_weather": "w"}), "w"),
        pytest.param(lambda box, told: box.augmented(Thinking, on_arguments=told).select("get_*"), "get_weather"),
        pytest.param(lambda box, told: box.augmented(Thinking, on_arguments=told).run(), "get_weather"),
        pytest.param(lambda box, told: box.run().augmented(Thinking, on_arguments=told), "get_weather"),
        pytest.param(lambda box, told: Toolbox(box.augmented(Thinking, on_arguments=told)), "get_weather"),
        pytest.param(lambda box, told: Toolbox() | box.augmented(Thinking, on_arguments=told), "get_weather"),
    ],
    ids=["of prefixed", "prefixed", "renamed", "selected", "run", "of run", "in a toolbox", "joined"],
)
async def test_a_view_of_an_augmented_view_still_tells_the_callback(make, name):
    told = []
    view = make(Toolbox(get_weather), told.append)

    result = await view.call(name, SENT)

    assert result.unwrap() == "sunny in Prague"
    assert [call.arguments for call in told] == [Thinking(thought="the user asked", confidence=0.9)]
    assert "thought" in view[name].definition.input_schema["properties"]


async def test_a_tool_can_be_augmented_twice():
    class Cost(BaseModel):
        budget: int

    first, second = [], []
    view = (
        Toolbox(get_weather).augmented(Thinking, on_arguments=first.append).augmented(Cost, on_arguments=second.append)
    )

    result = await view.call("get_weather", {**SENT, "budget": 5})

    assert result.unwrap() == "sunny in Prague"
    assert [call.arguments for call in first] == [Thinking(thought="the user asked", confidence=0.9)]
    assert [call.arguments for call in second] == [Cost(budget=5)]


async def test_a_tool_that_a_resolver_finds_is_augmented_too():
    class Finder:
        def resolve(self, name: str) -> Tool | None:
            return Tool.from_function(get_weather, name=name) if name == "found" else None

    told = []
    view = Toolbox(resolvers=[Finder()]).augmented(Thinking, on_arguments=told.append)

    without = await view.call("found", {"city": "Oslo"})
    result = await view.call("found", SENT)

    assert isinstance(without.error, InvalidArguments)
    assert result.unwrap() == "sunny in Prague"
    assert len(told) == 1


@pytest.mark.parametrize("text", ['"city":"Rome","city":"Oslo"', '"city":"Rome","c\\u0069ty":"Rome"'])
async def test_a_key_that_appears_twice_is_refused(text):
    box = Toolbox(get_weather).augmented(ThinkingClass)

    result = await box.call("get_weather", "{" + text + ',"thought":"t"}')

    assert "the key 'city' appears twice" in result.text
    assert ran == []


async def test_a_lone_surrogate_is_an_invalid_argument():
    result = await Toolbox(get_weather).augmented(Thinking).call("get_weather", '{"city":"\ud800","thought":"t"}')

    assert isinstance(result.error, InvalidArguments)


@pytest.mark.parametrize("arguments", ["[1]", "5", '"x"', "true", "[]", "NaN", [1], 5])
async def test_arguments_that_are_no_object_are_refused_as_without_extra_fields(arguments):
    @tool
    async def look(n: int = 0) -> int:
        return n

    plain, augmented = Toolbox(look), Toolbox(look).augmented(Thinking)

    results = [await box.call("look", arguments) for box in (plain, augmented)]

    assert [type(result.error) for result in results] == [InvalidArguments, InvalidArguments]
