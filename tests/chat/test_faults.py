"""Whatever model and tools do: one result for each call, within the limits, and a valid conversation."""

import asyncio
import json
import random
from collections import Counter

import pytest

from providers.body_checks import check_body as check_body_of
from providers.samples import CHATS
from toolmason import Chat, Limits, Message, Parallel, Sequential, Toolbox, ToolError, WindowMemory, tool
from toolmason.errors import ConfigError, ModelError
from toolmason.models import ModelRequest
from toolmason.providers import check_conversation, codec
from toolmason.testing import FAULTS, FaultyModel

RUNS = 200


def faulty_tools(seed: int, made: list[str] | None = None) -> Toolbox:
    made = [] if made is None else made
    chance = random.Random(seed)  # noqa: S311 - the seed is the test

    @tool(read_only=True)
    async def good(n: int, text: str = "") -> str:
        """Work."""
        made.append("good")
        return f"{n} {text}"

    @tool
    async def bad(kind: str) -> str:
        """Fail in some way."""
        made.append("bad")
        what = chance.randrange(5)
        if what == 0:
            raise ToolError("no")
        if what == 1:
            raise RuntimeError("broken")
        if what == 2:
            raise SystemExit(1)
        if what == 3:
            return float("nan")
        await asyncio.sleep(0)
        return kind

    @tool(max_calls=2)
    def seldom() -> str:
        """Do it twice at most."""
        made.append("seldom")
        return "x" * chance.choice([1, 10_000])

    return Toolbox(good, bad, seldom)


def pytest_generate_tests(metafunc):
    if "part" in metafunc.fixturenames:
        metafunc.parametrize("part", range(50 if metafunc.config.getoption("full") else 2))


@pytest.mark.fuzz
async def test_every_run_ends_well(part):
    """10,000 runs at full size; a sample of 400 in `make test`."""
    for seed in range(part * RUNS, (part + 1) * RUNS):
        chance = random.Random(seed)  # noqa: S311 - the seed is the test
        model = FaultyModel(seed, answers_after=chance.choice([3, 8, None]))
        limits = Limits(steps=chance.randint(1, 12), calls=chance.randint(1, 30), seconds=20)
        made, kept = [], WindowMemory(10_000)
        memory = chance.choice([None, kept])
        strategy = chance.choice([Parallel(), Parallel(2), Sequential()])
        chat = Chat(model, faulty_tools(seed, made), limits=limits, memory=memory, strategy=strategy)
        failed, reply = await driven(chat, chance, seed)

        said = await kept.load("c") if memory is not None else reply.messages if reply is not None else ()
        assert reply is not None or failed, seed
        assert len(model.requests) <= limits.steps, seed
        assert len(made) <= limits.calls, seed
        for messages in (said, reply.messages if reply is not None else ()):
            check(messages, seed)
            for provider in CHATS:
                check_body(messages, provider, seed)


async def driven(chat, chance, seed):
    """Drive a run: plainly, as a stream, called off, or with its task cancelled."""
    how = seed % 5
    sending = asyncio.ensure_future(streamed(chat) if how == 1 else chat.send("go", conversation="c"))
    if how in (2, 3):
        for _ in range(chance.randint(0, 12)):
            await asyncio.sleep(0)
        _ = chat.cancel("c") if how == 2 else sending.cancel()
    try:
        return False, await sending
    except (ModelError, asyncio.CancelledError):
        return True, None


async def streamed(chat):
    events = [event async for event in chat.stream("go", conversation="c")]
    return events[-1].reply


def check(messages, seed):
    calls = Counter(call.id for message in messages for call in message.calls)
    results = Counter(result.call_id for message in messages for result in message.results)
    assert calls == results, seed
    assert max(calls.values(), default=1) == 1, seed
    assert check_conversation(messages) == [], seed
    again = [Message.from_dict(json.loads(json.dumps(message.to_dict()))) for message in messages]
    assert [message.to_dict() for message in again] == [message.to_dict() for message in messages], seed


def check_body(messages, provider, seed):
    if messages:
        body = codec(provider).encode(ModelRequest(messages), "m")
        assert check_body_of(provider, body) == [], (seed, provider)


def test_a_fault_that_is_none_is_named():
    with pytest.raises(ConfigError, match="Unknown fault 'boredom'"):
        FaultyModel(faults=["boredom"])


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_can_be_asked_for(fault):
    model = FaultyModel(3, [fault], answers_after=2)

    try:
        reply = await Chat(model, faulty_tools(1)).send("go")
    except ModelError:
        assert fault == "fails"
    else:
        assert reply.finish in ({"error"} if fault == "silent" else {"stop", "limit"})
