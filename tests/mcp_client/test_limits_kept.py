"""Limits of a server's tools go on through every list of them: a server decides when it is listed again."""

import asyncio
import gc
import weakref

import pytest

from toolmason import Limits, McpServer, Rate, Toolbox, tool
from toolmason._core.define.tool import get_root
from toolmason.chat import Chat
from toolmason.testing import ScriptedModel


@tool
def work(a: int = 0) -> int:
    """Work."""
    return a


def serve(*tools):
    return Toolbox(McpServer.of("far", Toolbox(*tools)))


VIEWS = {
    "view": lambda box: box,
    "nested": Toolbox,
    "renamed": lambda box: box.renamed({"work": "work"}),
    "renamed twice": lambda box: box.renamed({"work": "other"}).renamed({"other": "work"}),
    "override": lambda box: box.override("work", description="Other."),
    "hidden argument": lambda box: box.override("work", arguments={"a": 1}),
}
LIMITED = {
    "max_calls": lambda box: box.override("work", max_calls=2),
    "rate": lambda box: box.override("work", rate=Rate(2, per=3600)),
    "per_tool": lambda box: box.run(Limits(per_tool=2)),
    "max_calls in a run": lambda box: box.override("work", max_calls=2).run(),
}


@pytest.mark.parametrize("limit", LIMITED.values(), ids=LIMITED)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
async def test_a_list_refresh_resets_no_limit(view, limit):
    async with serve(work) as box:
        limited = limit(view(box))
        await limited.list()

        outcomes = []
        for number in range(4):
            outcomes.append((await limited.call("work", {"a": number})).ok)
            await box.refresh()

    assert outcomes == [True, True, False, False]


@pytest.mark.parametrize("options", [{"lock": "a"}, {"max_concurrency": 1}], ids=["lock", "max_concurrency"])
async def test_a_list_refresh_frees_no_slot(options):
    running, started, go = [], asyncio.Event(), asyncio.Event()

    @tool
    async def work(a: int = 0) -> int:
        """Work."""
        running.append(a)
        started.set()
        await go.wait()
        return len(running)

    async with serve(work) as box:
        view = box.override("work", **options)
        first = asyncio.create_task(view.call("work", {"a": 1}))
        await started.wait()
        await box.refresh()
        second = asyncio.create_task(view.call("work", {"a": 1}))
        for _ in range(100):
            await asyncio.sleep(0)
        at_once = len(running)
        go.set()
        await asyncio.gather(first, second)

    assert at_once == 1


async def test_a_chat_counts_on_through_a_refresh():
    async with serve(work) as box:

        async def refresh(call, call_next):
            result = await call_next(call)
            await box.refresh()
            return result

        box.use(refresh)
        model = ScriptedModel([*([("work", {"a": number})] for number in range(5)), "done"])
        reply = await Chat(model, box, limits=Limits(per_tool=2)).send("go")

    assert sum(result.ok for result in reply.results) == 2


async def test_two_tools_of_a_server_have_limits_of_their_own():
    @tool
    def other() -> int:
        """Other."""
        return 1

    async with serve(work, other) as box:
        run = box.run(Limits(per_tool=1))

        outcomes = [(await run.call(name)).ok for name in ("work", "other", "work", "other")]

    assert outcomes == [True, True, False, False]


async def test_limits_keep_no_tool_of_an_earlier_list_alive():
    async with serve(work) as box:
        run = box.run(Limits(per_tool=100))
        view = box.override("work", max_calls=100, max_concurrency=2, lock="a", rate=Rate(100, per=60))
        old = []
        for number in range(200):
            for caller in (run, view):
                await caller.call("work", {"a": number})
            old.append(weakref.ref(get_root(box["work"])))
            await box.refresh()
        gc.collect()

    # An override keeps those that it was applied to last.
    assert sum(reference() is not None for reference in old) <= 65
