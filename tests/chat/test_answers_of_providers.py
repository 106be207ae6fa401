"""Typed answers through every provider's format, over a real connection: native, as a tool, and as JSON."""

import json
from dataclasses import dataclass

import pytest

from chat.simulated_replies import BASES, NATIVE, OTHER, reply, stream
from models.server import answer, provider
from models.server import stream as streamed
from providers.judges import objections
from providers.samples import CHATS
from toolmason import Chat, Limits, Toolbox, model, tool
from toolmason.chat import AnswerProgress, Done
from toolmason.errors import AnswerError

MODES = ("native", "tool", "json")


@dataclass
class Invoice:
    """An invoice."""

    number: str
    total: float
    currency: str = "EUR"


@tool
def find_invoice(customer: str) -> str:
    """Find the invoice of a customer."""
    return f"{customer}: A-17, 99.5"


RIGHT = {"number": "A-17", "total": 99.5, "currency": "USD"}
INVOICE = Invoice("A-17", 99.5, "USD")
FIND = ("find_invoice", {"customer": "Ada"})


def made_by(server, kind, mode, **options):
    name = NATIVE[kind] if mode == "native" else OTHER[kind]
    return model(f"{kind}:{name}", base_url=server.url + BASES[kind], api_key="k", **options)


def written(kind, mode, data):
    """Return a reply with an answer, in the way that a mode asks for it."""
    return reply(kind, call=("final_answer", data)) if mode == "tool" else reply(kind, json.dumps(data))


def options_of(mode):
    return {"options": {"answer": "json"}} if mode == "json" else {}


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_has_its_type(kind, mode):
    with provider(answer(written(kind, mode, RIGHT))) as server:
        async with made_by(server, kind, mode) as made:
            got = await Chat(made, output=Invoice, **options_of(mode)).send("Read A-17.")

    assert got.output == INVOICE
    assert (got.finish, got.answer.mode, got.answer.attempts) == ("stop", mode, 1)
    assert json.loads(got.text) == RIGHT
    assert objections(kind, server.requests[0][2]) == []


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_model_calls_tools_before_it_answers(kind, mode):
    replies = [answer(reply(kind, call=FIND)), answer(written(kind, mode, RIGHT))]
    with provider(*replies) as server:
        async with made_by(server, kind, mode) as made:
            got = await Chat(made, [find_invoice], output=Invoice, **options_of(mode)).send("The invoice of Ada?")

    assert got.output == INVOICE
    assert got.answer.mode == mode
    assert got.results[0].text == "Ada: A-17, 99.5"
    assert [flaw for _, _, body in server.requests for flaw in objections(kind, body)] == []


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_wrong_answer_goes_back_with_every_problem(kind, mode):
    wrong = answer(written(kind, mode, {"total": "many"}))
    with provider(wrong, answer(written(kind, mode, RIGHT))) as server:
        async with made_by(server, kind, mode) as made:
            got = await Chat(made, output=Invoice, **options_of(mode)).send("Read A-17.")

    assert got.output == INVOICE
    assert got.answer.attempts == 2
    second = json.dumps(server.requests[1][2])
    assert "$.number: required but missing" in second
    assert "$.total: input should be a valid number" in second
    assert objections(kind, server.requests[1][2]) == []


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_cut_answer_is_answered_as_cut(kind, mode):
    cut = reply(kind, '{"number": "A-1', finish="length")
    with provider(answer(cut)) as server:
        async with made_by(server, kind, mode) as made:
            chat = Chat(made, output=Invoice, limits=Limits(answers=2), **options_of(mode))
            got = await chat.send("Read A-17.")

    assert got.finish == "limit"
    assert got.answer.attempts == len(server.requests) == 2
    with pytest.raises(AnswerError, match="truncated"):
        _ = got.output


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_refusal_is_not_asked_again(kind, mode):
    with provider(answer(reply(kind, "I cannot help with that.", finish="refusal"))) as server:
        async with made_by(server, kind, mode) as made:
            got = await Chat(made, output=Invoice, **options_of(mode)).send("Read A-17.")

    assert len(server.requests) == 1
    assert got.finish in ("refusal", "filter")
    with pytest.raises(AnswerError, match=r"refused to answer|a filter removed"):
        _ = got.output


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_is_shown_while_it_is_written(kind, mode):
    call = ("final_answer", RIGHT) if mode == "tool" else None
    body = stream(kind, call=call) if call else stream(kind, json.dumps(RIGHT))
    with provider(streamed(body)) as server:
        async with made_by(server, kind, mode) as made:
            chat = Chat(made, output=Invoice, **options_of(mode))
            events = [event async for event in chat.stream("Read A-17.")]

    shown = [event.data for event in events if isinstance(event, AnswerProgress)]
    assert shown[-1] == RIGHT
    assert all(data.get("total") in (None, 99.5) for data in shown)
    assert isinstance(events[-1], Done)
    assert events[-1].reply.output == INVOICE
    assert len(shown) == 1 or (kind, mode) != ("gemini", "tool")


async def test_a_server_without_tools_answers_under_one_schema():
    turn = {"calls": [{"name": "find_invoice", "arguments": {"customer": "Ada"}}]}
    replies = [reply("openai-chat", json.dumps(turn)), reply("openai-chat", json.dumps({"answer": RIGHT}))]
    with provider(*map(answer, replies)) as server:
        async with made_by(server, "openai-chat", "json", tool_mode="json_schema") as made:
            got = await Chat(made, [find_invoice], output=Invoice).send("The invoice of Ada?")

    assert got.output == INVOICE
    assert got.answer.mode == "json"
    schema = server.requests[0][2]["response_format"]["json_schema"]["schema"]
    assert schema["anyOf"][1]["properties"]["answer"]["required"] == ["number", "total"]


async def test_a_server_without_tools_and_a_chat_without_them():
    with provider(answer(reply("openai-chat", json.dumps(RIGHT)))) as server:
        async with made_by(server, "openai-chat", "json", tool_mode="json_schema") as made:
            got = await Chat(made, output=Invoice).send("Read A-17.")

    assert got.output == INVOICE
    assert server.requests[0][2]["response_format"]["json_schema"]["schema"]["required"] == ["number", "total"]


async def test_the_tools_of_older_gemini_models_exclude_a_schema():
    with provider(answer(reply("gemini", call=("final_answer", RIGHT)))) as server:
        base = server.url + BASES["gemini"]
        async with model("gemini:gemini-2.5-pro", base_url=base, api_key="k") as made:
            with_tools = await Chat(made, Toolbox(find_invoice), output=Invoice).send("x")
            server.answers = [answer(reply("gemini", json.dumps(RIGHT)))]
            without = await Chat(made, output=Invoice).send("x")

    assert (with_tools.answer.mode, without.answer.mode) == ("tool", "native")


async def test_fields_of_the_body_are_kept_beside_the_format():
    options = {"body": {"text": {"verbosity": "low"}}}
    with provider(answer(reply("openai", json.dumps(RIGHT)))) as server:
        async with made_by(server, "openai", "native") as made:
            await Chat(made, output=Invoice, options=options).send("x")

    text = server.requests[0][2]["text"]
    assert text["verbosity"] == "low"
    assert text["format"]["strict"] is True
