"""The model in the box, as it is: SmolLM2 through llama.cpp, on one thread."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel

from toolmason import Chat, Message, RemoteMcp, Toolbox, ToolDefinition, WebSearch, WindowMemory, model, tool
from toolmason.chat.search import Search
from toolmason.errors import ConfigError, ModelError
from toolmason.models import CallClosed, CallOpened, Finished, Model, ModelRequest, TextDelta
from toolmason_local.engine import GenerationStopped, LlamaEngine, get_engine
from toolmason_local.weights import find_adapter, find_weights
from toolmason_local.writer import GenerationLimits


@tool(read_only=True)
def get_weather(city: Annotated[str, "City name"], unit: Literal["C", "F"] = "C") -> str:
    """Current weather in a city."""
    return f"21 {unit} in {city}"


@tool(read_only=True)
def quote_price(sku: Annotated[str, "Article number"], quantity: int = 1) -> float:
    """Quote the price of an article in euros."""
    return 4.5 * quantity


BOX = Toolbox(get_weather, quote_price)


@pytest.fixture(scope="module")
def session():
    return get_engine(find_weights(None), find_adapter(find_weights(None))).start_session(lambda: False)


@dataclass
class Trip:
    city: str
    days: int


class Invoice(BaseModel):
    number: str
    total: float
    paid: bool


# --- typed answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        pytest.param(Trip, 'A trip of 3 days to "Brno"', Trip("Brno", 3), id="dataclass"),
        pytest.param(
            Invoice, 'Invoice "A-17", a total of 99.5, paid', Invoice(number="A-17", total=99.5, paid=True), id="model"
        ),
        pytest.param(int, "I need 12 eggs", 12, id="scalar"),
        pytest.param(Literal["red", "blue"], "The blue one", "blue", id="literal"),
        pytest.param(list[int], "The numbers [4, 8, 15]", [4, 8, 15], id="list"),
    ],
)
async def test_it_answers_with_a_type(output, text, value):
    reply = await Chat("local", output=output).send(text)

    assert reply.output == value
    assert reply.answer.attempts == 1


async def test_a_union_and_an_open_schema_are_valid_too():
    chat = Chat("local")

    union = await chat.send('3 days in "Brno"', output=Trip | Invoice)
    table = await chat.send("a is 1", output=dict[str, int])

    assert isinstance(union.output, Trip | Invoice)
    assert isinstance(table.output, dict)


async def test_a_typed_answer_is_taken_from_the_results_of_tools():
    @dataclass
    class Quote:
        price: float

    reply = await Chat("local", BOX, output=Quote).send("What is the price of 3 TEA-01?")

    assert [call.name for call in reply.calls] == ["quote_price"]
    assert reply.output == Quote(13.5)


# --- a conversation ------------------------------------------------------------------------------


async def test_it_calls_a_tool_and_says_what_came_of_it():
    reply = await Chat("local", BOX).send("What is the price of 3 TEA-01?")

    assert [(call.name, call.arguments) for call in reply.calls] == [("quote_price", {"sku": "TEA-01", "quantity": 3})]
    assert "13.5" in reply.text
    assert "quote_price(" not in reply.text


async def test_it_writes_arguments_in_words_of_the_request():
    reply = await Chat("local", BOX).send("What is the weather in Brno?")

    assert reply.calls[0].arguments == {"city": "Brno"}
    assert reply.usage.output_tokens > 0


async def test_it_talks_if_there_are_no_tools():
    events = [event async for event in model("local").stream(ModelRequest("Hello!", (), None, {"max_tokens": 8}))]

    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert len(events) > 3
    assert isinstance(events[-1], Finished)
    assert said.strip() == events[-1].reply.text != ""
    assert events[-1].reply.finish in ("stop", "length")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Hi!", "Hello! Ask for something that my tools can do, or say help."),
        ("What can you do?", "I can: current weather in a city; quote the price of an article in euros."),
        (
            "Who wrote Hamlet?",
            "None of my tools fits. I can: current weather in a city; quote the price of an article in euros.",
        ),
    ],
    ids=["greeting", "help", "no tool fits"],
)
async def test_it_invents_nothing_if_no_tool_is_meant(text, answer):
    reply = await Chat("local", BOX).send(text)

    assert (reply.calls, reply.text) == ((), answer)


async def test_it_makes_two_calls_for_two_requests():
    reply = await Chat("local", BOX).send("Price of 2 TEA-01 and 3 CUP-01?")

    assert [call.arguments for call in reply.calls] == [
        {"sku": "TEA-01", "quantity": 2},
        {"sku": "CUP-01", "quantity": 3},
    ]
    assert len(reply.text.splitlines()) == 2


async def test_it_reads_other_languages():
    reply = await Chat("local", BOX).send("Wie ist das Wetter in Brno?")

    assert [(call.name, call.arguments) for call in reply.calls] == [("get_weather", {"city": "Brno"})]


async def test_thanks_in_a_conversation_are_not_a_call():
    chat = Chat("local", BOX, memory=WindowMemory(20))
    await chat.send("What is the weather in Brno?")

    reply = await chat.send("thanks")

    assert (reply.calls, reply.text) == ((), "You're welcome.")


async def test_a_follow_up_is_about_the_tool_before():
    chat = Chat("local", BOX, memory=WindowMemory(20))
    await chat.send("What is the weather in Brno?")

    reply = await chat.send("And in Oslo?")

    assert reply.calls[0].name == "get_weather"
    assert reply.calls[0].arguments["city"] == "Oslo"


async def test_calls_come_as_events_too():
    events = [event async for event in model("local").stream(ModelRequest("The price of TEA-01?", BOX))]

    assert isinstance(events[0], CallOpened)
    assert next(event.call.arguments for event in events if isinstance(event, CallClosed)) == {"sku": "TEA-01"}


@pytest.mark.parametrize(
    ("choice", "names"), [("none", []), ("get_weather", ["get_weather"])], ids=["none", "one that must be called"]
)
async def test_a_choice_holds(choice, names):
    request = ModelRequest("The price of TEA-01?", BOX, choice, {"max_tokens": 4})

    assert [call.name for call in (await model("local").respond(request)).calls] == names


async def test_it_searches_a_large_toolbox_and_calls_what_it_found():
    reply = await Chat("local", BOX, search=Search(budget=0)).send("What is the price of 3 TEA-01?")

    assert [call.name for call in reply.calls] == ["find_tools", "quote_price"]
    assert "13.5" in reply.text


async def test_a_call_without_valid_arguments_is_not_made():
    part = {"type": "string", "pattern": "^(?=q)qqq-[0-9]{9}$"}
    paint = ToolDefinition(
        "paint", "Paint a picture.", {"type": "object", "properties": {"x": part}, "required": ["x"]}
    )

    reply = await model("local").respond(ModelRequest("paint a qqq", [paint], "required"))

    assert (reply.calls, reply.text) == ((), "None of my tools fits. I can: paint a picture.")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("system", "Be brief.")],
        [Message("user", "")],
        [Message("user", "<|im_end|>" * 3000)],
        [Message("assistant", "x")],
    ],
    ids=["none", "system", "empty", "tokens", "assistant"],
)
async def test_odd_conversations_get_an_answer(messages):
    reply = await model("local").respond(ModelRequest(messages, BOX, None, {"max_tokens": 3, "stop": "\n"}))

    assert isinstance(reply.text, str)


@pytest.mark.parametrize("native", [WebSearch(), RemoteMcp("x", "https://x.example")], ids=["search", "server"])
async def test_tools_that_a_provider_runs_are_refused(native):
    with pytest.raises(ConfigError, match="The local model does not support"):
        await model("local").respond(ModelRequest("x", [native]))


# --- the thread ----------------------------------------------------------------------------------


async def test_the_loop_goes_on_while_the_model_thinks():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await model("local").respond(ModelRequest("Hello!", options={"max_tokens": 4}))
    counting.cancel()

    assert turns > 100


async def test_whoever_stops_listening_stops_the_model():
    local = model("local")
    stream: AsyncIterator = local.stream(ModelRequest("Tell a very long story.", options={"max_tokens": 1000}))
    await anext(stream)
    await stream.aclose()

    reply = await asyncio.wait_for(local.respond(ModelRequest("The price of TEA-01?", BOX)), 30)

    assert reply.calls[0].name == "quote_price"


async def test_a_cancelled_request_that_waits_is_never_begun():
    local = model("local")
    first = asyncio.create_task(local.respond(ModelRequest("Tell a story.", options={"max_tokens": 400})))
    second = asyncio.create_task(local.respond(ModelRequest("Tell another.", options={"max_tokens": 400})))
    await asyncio.sleep(0)

    second.cancel()
    first.cancel()
    done = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 30)

    assert all(isinstance(one, asyncio.CancelledError) for one in done)


async def test_several_at_once_wait_for_each_other():
    local = model("local")

    replies = await asyncio.gather(*(local.respond(ModelRequest(f"The price of {n} TEA-01?", BOX)) for n in (2, 3, 4)))

    assert [reply.calls[0].arguments["quantity"] for reply in replies] == [2, 3, 4]
    assert isinstance(local, Model)
    assert repr(local) == "<model 'local'>"


# --- llama.cpp -----------------------------------------------------------------------------------


def test_a_grammar_that_is_none_and_a_prompt_without_end_are_errors(session):
    with pytest.raises(ModelError, match=r"llama\.cpp failed"):
        session.generate("x", GenerationLimits(grammar="root ::= ("))
    with pytest.raises(ModelError, match=r"llama\.cpp failed"):
        session.generate("word " * 9000, GenerationLimits())


def test_a_caller_who_has_gone_is_not_answered():
    with pytest.raises(GenerationStopped):
        get_engine(find_weights(None), find_adapter(find_weights(None))).start_session(lambda: True).generate(
            "x", GenerationLimits()
        )


def test_nobody_else_on_this_machine_can_use_the_port(session):
    address = get_engine(find_weights(None), find_adapter(find_weights(None))).address
    request = urllib.request.Request(  # noqa: S310 - an address of our own
        f"{address}/v1/completions", b'{"prompt": "x"}', {"Content-Type": "application/json"}
    )

    assert address.startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)  # noqa: S310 - as above
    assert refused.value.code == 401
    refused.value.close()


async def test_a_file_that_is_damaged_is_an_error(tmp_path):
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(b"GGUF" + bytes(500))

    with pytest.raises(ModelError, match=r"model\.gguf could not be loaded"):
        await model(f"local:{damaged}").respond(ModelRequest("x"))
    assert LlamaEngine(damaged).path == damaged
