"""Whatever model and tools do: one result for each call, within the limits, and a valid conversation."""

import asyncio
import random
from collections import Counter

import pytest

from toolwright import Limits, Toolbox, ToolError, tool
from toolwright.chat.chat import Chat
from toolwright.errors import ConfigError, ModelError
from toolwright.providers.conversation import check_conversation
from toolwright.testing import FAULTS, FaultyModel

RUNS = 300


def faulty_tools(seed: int) -> Toolbox:
    chance = random.Random(seed)  # noqa: S311 - the seed is the test

    @tool(read_only=True)
    async def good(n: int, text: str = "") -> str:
        """Work."""
        return f"{n} {text}"

    @tool
    async def bad(kind: str) -> str:
        """Fail in some way."""
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
        return "x" * chance.choice([1, 10_000])

    return Toolbox(good, bad, seldom)


@pytest.mark.parametrize("part", range(4))
async def test_every_run_ends_well(part):
    for seed in range(part * RUNS, (part + 1) * RUNS):
        chance = random.Random(seed)  # noqa: S311 - the seed is the test
        model = FaultyModel(seed, answers_after=chance.choice([3, 8, None]))
        limits = Limits(steps=chance.randint(1, 12), calls=chance.randint(1, 30), seconds=20)
        chat = Chat(model, faulty_tools(seed), limits=limits)
        sending = asyncio.ensure_future(chat.send("go", conversation="c"))
        if seed % 5 == 0:
            for _ in range(chance.randint(0, 8)):
                await asyncio.sleep(0)
            chat.cancel("c")

        try:
            reply = await sending
        except ModelError:
            continue

        calls = [call.id for message in reply.messages for call in message.calls]
        results = [result.call_id for message in reply.messages for result in message.results]
        assert Counter(calls) == Counter(results), seed
        assert max(Counter(calls).values(), default=1) == 1, seed
        assert len(model.requests) <= limits.steps, seed
        assert check_conversation(reply.messages) == [], seed


def test_a_fault_that_is_none_is_named():
    with pytest.raises(ConfigError, match="There is no fault 'boredom'"):
        FaultyModel(faults=["boredom"])


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_can_be_asked_for(fault):
    model = FaultyModel(3, [fault], answers_after=2)

    try:
        reply = await Chat(model, faulty_tools(1)).send("go")
    except ModelError:
        assert fault == "fails"
    else:
        assert reply.finish in {"stop", "limit"}
