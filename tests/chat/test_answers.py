"""Typed answers: kinds of types, repairs, wrong answers and their bound, checks, and other calls of the same turn."""

import asyncio
import enum
import threading
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pytest
from pydantic import BaseModel, Field

from toolmason import Abort, Allow, Chat, Limits, Message, Param, Toolbox, ToolContext, ToolError, tool
from toolmason.chat import Done, ToolLoop
from toolmason.errors import (
    AnswerError,
    ConfigError,
    InvalidArguments,
    LimitExceeded,
    ModelError,
    ToolTimeout,
    UnsupportedType,
)
from toolmason.extend import EngineSettings
from toolmason.models import ModelReply, ScriptedModel
from toolmason.providers import check_conversation
from toolmason.testing import FaultyModel


class Model(BaseModel):
    """A trip."""

    city: str
    days: int = 1


@dataclass
class Data:
    city: str
    days: int = 1


class Typed(TypedDict):
    city: str
    days: int


@attrs.define
class Attrs:
    city: str
    days: int = 1


class Struct(msgspec.Struct):
    city: str
    days: int = 1


class Pair(NamedTuple):
    city: str
    days: int


class Color(enum.Enum):
    RED = "red"


class Tree(BaseModel):
    name: str
    children: list["Tree"] = Field(default_factory=list)


OBJECT = '{"city": "Oslo", "days": 3}'
ANSWER = [("final_answer", {"city": "Oslo", "days": 3})]
NOTHING = '{"days": "no"}'


def script(*turns, **options):
    model = ScriptedModel([*turns])
    return model, Chat(model, **options)


# --- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        pytest.param(Model, OBJECT, Model(city="Oslo", days=3), id="pydantic"),
        pytest.param(Data, OBJECT, Data("Oslo", 3), id="dataclass"),
        pytest.param(Typed, OBJECT, {"city": "Oslo", "days": 3}, id="typed dict"),
        pytest.param(Attrs, OBJECT, Attrs("Oslo", 3), id="attrs"),
        pytest.param(Struct, OBJECT, Struct("Oslo", 3), id="msgspec"),
        pytest.param(
            Tree,
            '{"name": "a", "children": [{"name": "b"}]}',
            Tree(name="a", children=[Tree(name="b")]),
            id="recursive",
        ),
        pytest.param(Annotated[Data, "A trip"], OBJECT, Data("Oslo", 3), id="annotated class"),
        pytest.param(Pair, '{"answer": ["Oslo", 3]}', Pair("Oslo", 3), id="named tuple"),
        pytest.param(int, '{"answer": 3}', 3, id="int"),
        pytest.param(str, '{"answer": "three"}', "three", id="str"),
        pytest.param(bool, '{"answer": false}', False, id="bool"),
        pytest.param(list[Data], '{"answer": [{"city": "Oslo"}]}', [Data("Oslo")], id="list"),
        pytest.param(dict[str, int], '{"answer": {"a": 1}}', {"a": 1}, id="dict"),
        pytest.param(Data | int, '{"answer": {"city": "Oslo"}}', Data("Oslo"), id="union"),
        pytest.param(int | None, '{"answer": null}', None, id="optional"),
        pytest.param(Literal["a", "b"], '{"answer": "b"}', "b", id="literal"),
        pytest.param(Color, '{"answer": "red"}', Color.RED, id="enum"),
        pytest.param(date, '{"answer": "2026-01-02"}', date(2026, 1, 2), id="date"),
        pytest.param(Annotated[int, Field(ge=1)], '{"answer": 3}', 3, id="annotated"),
    ],
)
async def test_an_answer_has_the_type_of_any_parameter(output, text, value):
    _, chat = script(text, output=output)

    reply = await chat.send("x")

    assert reply.output == value
    assert type(reply.output) is type(value)


async def test_what_a_parameter_says_of_itself_is_in_the_schema():
    model, chat = script('{"answer": 3}', output=Annotated[int, Param(description="How many"), Field(ge=1)])

    await chat.send("x")

    [offered] = model.requests[0].tools
    assert offered.input_schema["properties"]["answer"] == {"type": "integer", "description": "How many", "minimum": 1}


async def test_an_empty_object_is_not_none():
    _, chat = script("{}", '{"answer": null}', output=int | None)

    reply = await chat.send("x")

    assert (reply.output, reply.answer.attempts) == (None, 2)


async def test_an_answer_that_is_only_a_number_is_not_a_date():
    _, chat = script('{"answer": "0"}', '{"answer": "2026-01-02"}', output=date)

    reply = await chat.send("x")

    assert (reply.output, reply.answer.attempts) == (date(2026, 1, 2), 2)


@pytest.mark.parametrize("output", [threading.Lock, ToolContext, 3], ids=["object", "context", "value"])
def test_a_type_that_no_model_can_write_is_refused_at_once(output):
    with pytest.raises(UnsupportedType, match="output="):
        Chat(ScriptedModel([]), output=output)


async def test_a_request_may_have_its_own_type():
    _, chat = script('{"answer": 3}', OBJECT, output=Data)

    first = await chat.send("x", output=int)
    second = await chat.send("x")

    assert (first.output, second.output) == (3, Data("Oslo", 3))


async def test_a_chat_without_a_type_has_no_output():
    _, chat = script("hello")

    reply = await chat.send("x")

    assert reply.answer is None
    with pytest.raises(AnswerError, match="has no `output=`"):
        _ = reply.output


# --- repairs and wrong answers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ['{"city": "Oslo", "days": "3"}', f"```json\n{OBJECT}\n```", '{"city": "Oslo", "days": 3.0}', f"\n {OBJECT}\n"],
    ids=["text for a number", "code fence", "float", "space"],
)
async def test_an_answer_is_repaired_as_arguments_are(text):
    _, chat = script(text, output=Data)

    assert (await chat.send("x")).output == Data("Oslo", 3)


async def test_every_problem_goes_back_to_the_model():
    model, chat = script(NOTHING, OBJECT, output=Data)

    reply = await chat.send("x")

    told = model.requests[1].messages[-1]
    assert told.role == "user"
    assert "$.city: required but missing" in told.text
    assert "$.days: input should be a valid integer" in told.text
    assert "final_answer" in told.text
    assert reply.answer.attempts == 2


async def test_a_wrong_call_gets_a_result_with_every_problem():
    model, chat = script([("final_answer", {"days": "no"})], ANSWER, output=Data)

    reply = await chat.send("x")

    [result] = model.requests[1].messages[-1].results
    assert isinstance(result.error, InvalidArguments)
    assert len(result.error.problems) == 2
    assert reply.output == Data("Oslo", 3)


@pytest.mark.parametrize("text", ["", "  ", "I do not know.", "[]", "null", '{"city": '], ids=repr)
async def test_what_is_not_an_answer_ends_with_an_error_that_says_so(text):
    _, chat = script(*[text] * 3, output=Data)

    reply = await chat.send("x")

    assert (reply.finish, reply.answer.attempts) == ("limit", 3)
    with pytest.raises(AnswerError, match="The last answer was wrong") as caught:
        _ = reply.output
    assert isinstance(caught.value.__cause__, InvalidArguments)


class Loose(BaseModel):
    note: str = ""


async def test_an_empty_text_is_not_an_answer_of_defaults():
    _, chat = script("", "{}", output=Loose)

    reply = await chat.send("x")

    assert (reply.output, reply.answer.attempts) == (Loose(), 2)


@pytest.mark.parametrize("wrong", [NOTHING, [("final_answer", {})]], ids=["text", "call"])
async def test_the_number_of_answers_is_bounded(wrong):
    model, chat = script(*[wrong] * 5, output=Data, limits=Limits(answers=2))

    reply = await chat.send("x")

    assert len(model.requests) == 2
    assert (reply.finish, reply.answer.attempts) == ("limit", 2)
    assert reply.answer.problem


async def test_a_limit_can_be_raised_as_an_error():
    _, chat = script(*[NOTHING] * 3, output=Data, on_limit="raise")

    with pytest.raises(LimitExceeded, match="limit of 3 answers"):
        await chat.send("x")


async def test_the_last_step_may_be_a_wrong_answer():
    _, chat = script(NOTHING, output=Data, limits=Limits(steps=1))

    reply = await chat.send("x")

    assert reply.finish == "limit"
    with pytest.raises(AnswerError, match=r"\$\.city"):
        _ = reply.output


@pytest.mark.parametrize(("finish", "words"), [("refusal", "the model refused"), ("filter", "a filter removed")])
async def test_a_refusal_ends_the_run(finish, words):
    model, chat = script(ModelReply(Message("assistant", "No."), finish=finish), output=Data)

    reply = await chat.send("x")

    assert (len(model.requests), reply.finish, reply.text) == (1, finish, "No.")
    with pytest.raises(AnswerError, match=f"{words}.*: No"):
        _ = reply.output


# --- checks ----------------------------------------------------------------------------------------


async def test_a_check_refuses_with_a_reason_for_the_model():
    model, chat = script('{"city": "Rome"}', OBJECT, output=Data)
    threads = []

    @chat.check
    def is_north(trip: Data) -> None:
        threads.append(threading.current_thread())
        if trip.city == "Rome":
            raise ToolError("only cities in Norway")

    reply = await chat.send("x")

    assert reply.output.city == "Oslo"
    assert "only cities in Norway" in model.requests[1].messages[-1].text
    assert threading.main_thread() not in threads


async def test_a_check_may_be_async_and_they_run_in_order():
    _, chat = script(OBJECT, output=Data)
    ran = []

    @chat.check
    async def first(trip: Data) -> None:
        ran.append(("first", trip))

    @chat.check
    async def second(trip: Data) -> None:
        ran.append(("second", trip))

    reply = await chat.send("x")

    assert ran == [("first", reply.output), ("second", reply.output)]
    assert ran[0][1] is reply.output


@pytest.mark.parametrize("turn", [OBJECT, ANSWER], ids=["text", "call"])
async def test_a_check_that_breaks_is_not_the_fault_of_the_model(turn):
    model, chat = script(turn, output=Data)

    @chat.check
    def broken(trip: Data) -> None:
        raise KeyError(trip.city)

    reply = await chat.send("x")

    assert (len(model.requests), reply.finish) == (1, "stop")
    with pytest.raises(AnswerError, match="a check of the answer failed: KeyError") as caught:
        _ = reply.output
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_check_has_the_time_of_a_call():
    model = ScriptedModel([OBJECT])
    chat = Chat(model, Toolbox(timeout=0.05, settings=EngineSettings(cancel_grace=0.01)), output=Data)

    @chat.check
    async def endless(trip: Data) -> None:
        await asyncio.Event().wait()

    reply = await chat.send("x")

    with pytest.raises(AnswerError, match="endless did not finish") as caught:
        _ = reply.output
    assert isinstance(caught.value.__cause__, ToolTimeout)


async def test_a_check_ends_with_the_time_of_the_run():
    _, chat = script(OBJECT, output=Data, limits=Limits(seconds=0.05))

    @chat.check
    async def endless(trip: Data) -> None:
        await asyncio.Event().wait()

    reply = await chat.send("x")

    assert reply.finish == "limit"
    with pytest.raises(AnswerError):
        _ = reply.output


async def test_a_check_may_abort_the_run():
    _, chat = script(OBJECT, output=Data)

    @chat.check
    def stop(trip: Data) -> None:
        raise Abort("enough")

    with pytest.raises(Abort, match="enough"):
        await chat.send("x")


async def test_checks_are_of_the_type_of_the_chat_only():
    _, chat = script('{"answer": 3}', output=Data)
    chat.check(lambda trip: trip.city)

    assert (await chat.send("x", output=int)).output == 3


def test_a_check_needs_a_type():
    chat = Chat(ScriptedModel([]))

    with pytest.raises(ConfigError, match="no typed answers"):
        chat.check(print)


# --- tools -----------------------------------------------------------------------------------------


@tool
def look_up(city: str) -> str:
    """Look up a city."""
    if city == "Atlantis":
        raise ToolError("no such city")
    return f"{city} is fine"


@tool(destructive=True)
def book(city: str) -> str:
    """Book a trip."""
    return f"booked {city}"


async def test_other_calls_of_the_turn_run_before_the_answer_counts():
    _, chat = script([("look_up", {"city": "Oslo"}), *ANSWER], tools=[look_up], output=Data)

    reply = await chat.send("x")

    assert reply.output == Data("Oslo", 3)
    assert [result.text for result in reply.results] == ["Oslo is fine", "The answer is accepted."]


async def test_an_answer_beside_a_failed_call_does_not_count():
    model, chat = script([("look_up", {"city": "Atlantis"}), *ANSWER], ANSWER, tools=[look_up], output=Data)

    reply = await chat.send("x")

    assert "does not count" in model.requests[1].messages[-1].results[1].text
    assert (reply.output, len(model.requests)) == (Data("Oslo", 3), 2)


async def test_of_two_answers_the_first_valid_one_counts():
    _, chat = script([("final_answer", {}), ("final_answer", {"city": "Rome"}), *ANSWER], output=Data)

    reply = await chat.send("x")

    assert (reply.output.city, reply.answer.attempts) == ("Rome", 1)


async def test_the_model_must_call_a_tool_unless_the_caller_says_otherwise():
    model, chat = script(
        [("look_up", {"city": "Oslo"})], ANSWER, [("look_up", {"city": "Oslo"})], ANSWER, tools=[look_up], output=Data
    )

    await chat.send("x")
    await chat.send("x", tool_choice="auto")

    choices = [request.tool_choice and request.tool_choice.mode for request in model.requests]
    assert choices == ["required", "required", "auto", None]


async def test_without_other_tools_the_answer_is_the_only_choice():
    model, chat = script(ANSWER, output=Data)

    await chat.send("x")

    assert model.requests[0].tool_choice.names == ("final_answer",)


async def test_a_model_that_must_not_call_tools_is_asked_for_json():
    model, chat = script(OBJECT, tools=[look_up], output=Data, system="Be brief.")

    reply = await chat.send("x", tool_choice="none")

    assert (reply.output, reply.answer.mode) == (Data("Oslo", 3), "json")
    [system, _] = model.requests[0].messages
    assert system.text.startswith("Be brief.\n\n")
    assert '"city"' in system.text
    assert reply.messages[0].text == "Be brief."


async def test_a_way_that_the_model_lacks_is_refused():
    _, chat = script(output=Data, options={"answer": "native"})

    with pytest.raises(ConfigError, match="does not support it here"):
        await chat.send("x")


async def test_the_name_of_the_tool_is_taken():
    @tool
    def final_answer() -> str:
        """Answer."""
        return ""

    _, chat = script(tools=[final_answer], output=Data)

    with pytest.raises(ConfigError, match="Rename yours"):
        await chat.send("x")


async def test_limits_and_approval_of_the_toolbox_are_not_for_the_answer():
    model = ScriptedModel([ANSWER])

    reply = await Chat(model, Toolbox(approve="all"), output=Data, limits=Limits(calls=0)).send("x")

    assert reply.output == Data("Oslo", 3)


@pytest.mark.parametrize("turn", [OBJECT, ANSWER], ids=["text", "call"])
async def test_a_step_takes_an_answer_and_does_not_ask_again(turn):
    _, chat = script(turn, tools=[look_up], output=Data)
    wrong_model, wrong_chat = script(NOTHING, output=Data)

    reply = await chat.step("x")
    wrong = await wrong_chat.step("x")

    assert (reply.output, reply.finish) == (Data("Oslo", 3), "stop")
    assert (len(wrong_model.requests), wrong.finish) == (1, "stop")
    assert wrong.answer.problem


async def test_a_step_leaves_other_calls_to_the_caller():
    _, chat = script([("look_up", {"city": "Oslo"}), *ANSWER], tools=[look_up], output=Data)

    reply = await chat.step("x")

    assert reply.finish == "calls"
    with pytest.raises(AnswerError, match="finish='calls'"):
        _ = reply.output


async def test_an_answer_comes_after_a_pending_call():
    box = Toolbox(book, approval_key="a key of a decent size")
    first = await Chat(ScriptedModel([NOTHING, [("book", {"city": "Oslo"}), *ANSWER]]), box, output=Data).send("x")
    decision = box.approvals.decide(first.pending[0], Allow())

    resumed = await Chat(ScriptedModel([ANSWER]), box).resume(first.save(), [decision], output=Data)

    with pytest.raises(AnswerError, match="finish='pending'"):
        _ = first.output
    assert resumed.output == Data("Oslo", 3)
    assert (first.answer.attempts, resumed.answer.attempts) == (2, 3)


async def test_an_advisor_may_answer_in_place_of_the_model():
    async def advisor(turn: Any, call_next: Any) -> ModelReply:
        return ModelReply(Message("assistant", OBJECT))

    reply = await Chat(ScriptedModel([]), output=Data, advisors=[advisor, ToolLoop()]).send("x")

    assert reply.output == Data("Oslo", 3)


async def test_a_cancelled_run_has_no_answer():
    class Stuck(ScriptedModel):
        async def respond(self, request: Any) -> ModelReply:
            asyncio.get_running_loop().call_soon(chat.cancel)
            await asyncio.Event().wait()
            raise AssertionError

    chat = Chat(Stuck([]), output=Data)

    reply = await chat.send("x")

    assert reply.finish == "cancelled"
    with pytest.raises(AnswerError, match="finish='cancelled'"):
        _ = reply.output


def test_the_sync_face_has_types_too():
    _, chat = script(OBJECT, output=Data)

    assert chat.send_sync("x").output == Data("Oslo", 3)


async def test_the_offline_model_answers_from_the_prompt_and_the_results():
    @tool
    def get_weather(city: str) -> str:
        """Weather in a city."""
        return f"12 degrees in {city}"

    @dataclass
    class Weather:
        degrees: int

    reply = await Chat("offline", [get_weather], output=Weather).send("What is the weather in Brno?")

    assert reply.output == Weather(12)
    assert reply.results[0].text == "12 degrees in Brno"


# --- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_a_model_with_faults_ends_in_a_typed_answer_or_in_an_error(seed, streaming):
    chat = Chat(FaultyModel(seed), [look_up], output=Data, limits=Limits(steps=12))
    try:
        if streaming:
            [done] = [event async for event in chat.stream("x") if isinstance(event, Done)]
            reply = done.reply
        else:
            reply = await chat.send("x")
    except ModelError:
        return

    assert check_conversation(reply.messages) == []
    if reply.answer.problem:
        with pytest.raises(AnswerError):
            _ = reply.output
    else:
        assert type(reply.output) is Data
