"""Typed answers while they are written, and those of a run that another process goes on with."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from toolmason import Chat, WindowMemory
from toolmason.chat import AnswerProgress, Done, TextDelta
from toolmason.models import ArgumentsDelta, CallClosed, CallOpened, Finished, ScriptedModel
from toolmason.providers import check_conversation

PROGRAM = str(Path(__file__).with_name("answer_run.py"))


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


@dataclass
class Dog:
    kind: Literal["dog"]
    name: str


@dataclass
class Order:
    state: Literal["open", "closed"]
    lines: list[Dog]
    total: float


class Characters(ScriptedModel):
    """A model that sends its text in pieces of one character."""

    async def stream(self, request):
        reply = await self.respond(request)
        for character in reply.text:
            yield TextDelta(character)
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            for character in call.raw:
                yield ArgumentsDelta(call.id, character)
            yield CallClosed(call)
        yield Finished(reply)


async def progress(output, *turns):
    events = [event async for event in Chat(Characters([*turns]), output=output).stream("x")]
    assert isinstance(events[-1], Done)
    return [event.data for event in events if isinstance(event, AnswerProgress)], events[-1].reply


ORDER = '{"state": "closed", "lines": [{"kind": "dog", "name": "Rex"}, {"kind": "dog", "name": "Bo"}], "total": 12.50}'


@pytest.mark.parametrize("turn", [ORDER, [("final_answer", ORDER)]], ids=["text", "call"])
async def test_every_value_that_is_shown_is_valid(turn):
    shown, reply = await progress(Order, turn)

    assert shown[0] == {"state": "closed"}
    assert shown[1] == {"state": "closed", "lines": []}
    assert {"state": "closed", "lines": [{"kind": "dog", "name": "Re"}]} in shown
    assert {data["total"] for data in shown if "total" in data} == {12.5}
    assert shown[-1] == json.loads(ORDER)
    assert reply.output.lines == [Dog("dog", "Rex"), Dog("dog", "Bo")]


async def test_a_value_of_a_union_is_shown_as_soon_as_one_branch_may_fit():
    shown, reply = await progress(Cat | Dog | int, '{"answer": {"kind": "cat", "lives": 9}}')

    assert shown == [{"kind": "cat"}, {"kind": "cat", "lives": 9}]
    assert reply.output == Cat(kind="cat", lives=9)


async def test_a_list_grows():
    shown, _ = await progress(list[int], '{"answer": [1, 23, 4]}')

    assert shown == [[], [1], [1, 23], [1, 23, 4]]


async def test_a_wrong_answer_is_shown_up_to_its_fault_and_the_next_from_its_start():
    shown, reply = await progress(Dog, '{"kind": "dog", "name": 3}', '{"kind": "dog", "name": "Rex"}')

    assert shown[0] == {"kind": "dog"}
    assert shown[1] == {"kind": "dog"}
    assert shown[-1] == {"kind": "dog", "name": "Rex"}
    assert reply.output == Dog("dog", "Rex")


async def test_what_is_not_json_is_not_shown():
    shown, reply = await progress(Dog, "Well, let me think.", '{"kind": "dog", "name": "Rex"}')

    assert shown[0] == {"kind": "dog"}
    assert reply.answer.attempts == 2


async def test_a_long_answer_is_not_read_at_each_of_its_characters():
    shown, reply = await progress(str, json.dumps({"answer": "a" * 20_000}))

    assert len(shown) < 400
    assert reply.output == "a" * 20_000


def test_progress_is_json():
    assert AnswerProgress({"a": 1}).to_dict() == {"type": "AnswerProgress", "data": {"a": 1}}


# --- memory and other processes --------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ['{"kind": "dog"}', [("final_answer", {"kind": "dog"})]], ids=["text", "call"])
async def test_a_conversation_with_typed_answers_goes_on(wrong):
    right = '{"kind": "dog", "name": "Rex"}'
    model = ScriptedModel([wrong, right, [("final_answer", right)], "Rex it is."])
    chat = Chat(model, memory=WindowMemory(), output=Dog)

    await chat.send("Which dog?", conversation="c")
    await chat.send("Again?", conversation="c")
    last = await chat.step("In words?", conversation="c")

    assert check_conversation(model.requests[-1].messages) == []
    assert right in model.requests[-1].messages[3].text
    assert last.text == "Rex it is."


@pytest.mark.parametrize("kind", ["text", "call"])
@pytest.mark.parametrize("point", range(6))
def test_a_killed_run_has_the_same_answer_in_another_process(kind, point, forks, tmp_path):
    first = forks.run([sys.executable, PROGRAM, str(tmp_path), kind, str(point)])
    again = forks.run([sys.executable, PROGRAM, str(tmp_path), kind, "0"])

    assert (first.returncode == 0) is (point == 0)
    assert again.returncode == 0, again.stderr
    output, roles = map(json.loads, again.stdout.splitlines())
    assert output == ["Trip(city='Oslo', days=3)", 3, "stop"]
    between = ["user"] if kind == "text" else ["tool"]
    assert roles == [
        "user",
        "assistant",
        *between,
        "assistant",
        *between,
        "assistant",
        *(between if kind == "call" else []),
    ]
    log = (tmp_path / "log").read_text().splitlines()
    # What had ended before the kill is not done again.
    assert len(log) == 5 + (point > 0)


async def test_a_saved_reply_keeps_the_number_of_answers():
    reply = await Chat(ScriptedModel(["no"] * 3), output=Dog).send("x")

    loaded = type(reply).load(json.loads(json.dumps(reply.save())))

    assert loaded.answer.attempts == 3
