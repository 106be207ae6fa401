"""Code of the application around a call: it never blocks the loop, it ends, and whatever it raises has a result."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from policy import one_way, process_tools
from policy.one_way import POLICIES, Work
from policy.samples import Thought
from policy.ways import WAYS, make_request
from toolmason import Allow, Chat, Limits, McpServer, Tool, Toolbox, ToolContext, ToolReturn, prompt
from toolmason.extend import EngineSettings
from toolmason.testing import ScriptedModel

BOUND = 5.0
Place = Callable[[Callable[[], Any]], Toolbox]


async def work() -> str:
    """Work."""
    return "ran"


async def fail() -> str:
    """Fail."""
    raise ValueError("no")


def _made(function: Any = work, **options: Any) -> Tool:
    return Tool.from_function(function, name="work", **options)


BRIEF = {"timeout": 0.05, "settings": EngineSettings(max_timeout=0.1)}


def _approver(run: Callable[[], Any]) -> Toolbox:
    return Toolbox(_made(), approve="all", approver=lambda request: run() and Allow(), **BRIEF)


def _predicate(run: Callable[[], Any]) -> Toolbox:
    return Toolbox(_made(approval=lambda arguments, context: run()), approver=lambda request: Allow(), **BRIEF)


def _preview(run: Callable[[], Any]) -> Toolbox:
    made = _made(approval=True, preview=lambda arguments: run())
    return Toolbox(made, approver=lambda request: Allow(), **BRIEF)


def _error_function(run: Callable[[], Any]) -> Toolbox:
    return Toolbox(_made(fail), on_error=lambda error: f"{run()} was seen", **BRIEF)


def _hook(run: Callable[[], Any]) -> Toolbox:
    def hook(call: Any, following: Any) -> Awaitable[Any]:
        run()
        return following(call)

    box = Toolbox(_made(), **BRIEF)
    box.use(hook)  # type: ignore[arg-type]
    return box


def _callback(run: Callable[[], Any]) -> Toolbox:
    return Toolbox(_made(), **BRIEF).augmented(Thought, on_arguments=lambda call: run())


def _auth(run: Callable[[], Any]) -> Toolbox:
    def sign_in(context: ToolContext) -> str:
        return str(run())

    return Toolbox(McpServer.of("memory", Toolbox(_made()), auth=sign_in, connect_timeout=0.1), **BRIEF)


def _converter(run: Callable[[], Any]) -> Toolbox:
    return Toolbox(_made(converter=lambda value, kind: str(run())), **BRIEF)


def _iterator(run: Callable[[], Any]) -> Toolbox:
    async def produce() -> Iterator[bool]:
        return (run() for _ in range(1))

    return Toolbox(_made(produce), **BRIEF)


def _wrapped_iterator(run: Callable[[], Any]) -> Toolbox:
    async def produce() -> ToolReturn:
        return ToolReturn(run() for _ in range(1))

    return Toolbox(_made(produce), **BRIEF)


def _resolver(run: Callable[[], Any]) -> Toolbox:
    class Resolver:
        def resolve(self, name: str) -> Tool | None:
            return _made() if run() else None

    return Toolbox(resolvers=[Resolver()], **BRIEF)


PLACES: dict[str, Place] = {
    "approver=": _approver,
    "approval=": _predicate,
    "preview=": _preview,
    "on_error=": _error_function,
    "hook": _hook,
    "on_arguments=": _callback,
    "auth=": _auth,
    "converter=": _converter,
    "iterator": _iterator,
    "iterator in a ToolReturn": _wrapped_iterator,
    "resolver": _resolver,
}
"""Where the application can give a function, and a toolbox that calls it."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread has done its part."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 - a thread does not tell the loop
            await asyncio.sleep(0.001)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("place", PLACES)
async def test_a_sync_function_does_not_block_the_loop(place: str, release: threading.Event):
    """07-redesign.md: a sync approver blocked the loop, and with it every other call."""
    entered = threading.Event()
    answers: list[bool] = []

    def run() -> bool:
        entered.set()
        # Only the loop sets it. If this function blocks the loop, the wait ends without it.
        answers.append(release.wait(1))
        return True

    box = PLACES[place](run)
    calling = asyncio.create_task(box.call("work", {"thought": "so"}, timeout=30))
    await until(lambda: entered.is_set() or calling.done())
    release.set()
    await asyncio.wait_for(calling, BOUND)
    await until(lambda: bool(answers))

    assert answers[0] is True


@pytest.mark.parametrize("place", PLACES)
async def test_a_function_that_hangs_ends_with_the_time_of_its_call(place: str, release: threading.Event):
    def run() -> bool:
        release.wait(30)
        raise RuntimeError("too late")

    result = await asyncio.wait_for(PLACES[place](run).call("work", {"thought": "so"}), BOUND)

    assert not result.ok


async def test_a_hook_that_hangs_ends_soon_if_nothing_needs_approval():
    async def hang(call: Any, following: Any) -> Any:
        await asyncio.Event().wait()

    box = Toolbox(_made(), timeout=0.05)
    box.use(hang)

    result = await asyncio.wait_for(box.call("work"), 1)

    assert not result.ok


@pytest.mark.filterwarnings("error")
async def test_a_sync_hook_that_ends_late_leaves_no_coroutine_behind(
    release: threading.Event, caplog: pytest.LogCaptureFixture
):
    def hook(call: Any, following: Any) -> Any:
        coroutine = following(call)
        release.wait(30)
        return coroutine

    box = Toolbox(_made(), timeout=0.05)
    box.use(hook)
    result = await asyncio.wait_for(box.call("work"), BOUND)
    release.set()
    await until(lambda: "its result was dropped" in caplog.text)
    await asyncio.sleep(0.05)
    gc.collect()

    assert result.error is not None
    assert result.error.code == "timeout"


@pytest.mark.parametrize("place", ["approver=", "prompt"])
async def test_sync_functions_that_wait_leave_threads_for_tools(place: str, release: threading.Event):
    """An approver that asks a person in a terminal waits for minutes."""

    @prompt
    def ask() -> str:
        return str(release.wait(30))

    def answer() -> str:
        return "ran"

    made = _made()
    asking = Toolbox(made, ask, approve="all", approver=lambda request: release.wait(30))
    calls = [
        asking.prompt("ask") if place == "prompt" else asking.call("work") for _ in range(EngineSettings().threads)
    ]
    waiting = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)

    try:
        result = await asyncio.wait_for(Toolbox(answer).call("answer"), 1)
    finally:
        release.set()
        await asyncio.wait(waiting, timeout=BOUND)

    assert result.text == "ran"


async def test_the_time_of_a_run_bounds_its_execute_predicate():
    async def hang(request: Any, reply: Any) -> bool:
        await asyncio.Event().wait()
        return True

    chat = Chat(ScriptedModel([[("work", {})], "Done."]), [_made()], execute=hang, limits=Limits(seconds=0.05))

    reply = await asyncio.wait_for(chat.send("Go."), 1)

    assert reply.finish == "limit"


async def test_an_error_function_that_hangs_leaves_a_result_for_an_unknown_tool():
    async def hang(error: Any) -> str:
        await asyncio.Event().wait()
        return "late"

    result = await asyncio.wait_for(Toolbox(on_error=hang, timeout=0.05).call("unheard_of"), BOUND)

    assert result.error is not None
    assert result.error.code == "unknown_tool"


async def test_an_async_error_function_is_awaited():
    """review/seeds.md, bug 4: the model read `<coroutine object …>`."""

    async def explain(error: Any) -> str:
        await asyncio.sleep(0)
        return f"sorry: {error.tool}"

    assert (await Toolbox(_made(fail), on_error=explain).call("work")).text == "sorry: work"
    assert (await Toolbox(on_error=explain).call("work")).text == "sorry: work"


async def test_async_functions_are_awaited_everywhere():
    async def ask(arguments: Any, context: Any) -> bool:
        return True

    async def show(arguments: Any) -> str:
        return "would work"

    seen: list[str | None] = []

    async def approve(request: Any) -> Allow:
        seen.append(request.preview)
        return Allow()

    box = Toolbox(_made(approval=ask, preview=show), approver=approve)

    assert (await box.call("work")).ok
    assert seen == ["would work"]


# --- whatever a tool raises ------------------------------------------------------------------------------


LEAVING = {
    "sync": lambda: Tool.from_function(process_tools.leave, name="work"),
    "async": lambda: Tool.from_function(process_tools.leave_async, name="work"),
    "loop": lambda: Tool.from_function(process_tools.leave, name="work", runs_on="loop"),
    "process": lambda: Tool.from_function(process_tools.leave, name="work", runs_on="process"),
    "slots": lambda: Tool.from_function(process_tools.leave_async, name="work", max_concurrency=1, lock="key"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LEAVING)
async def test_a_tool_that_raises_generator_exit_has_a_result(kind: str, way: str):
    one_way.start_afresh()
    options: dict[str, Any] = {"approve": "all"} if "resume" in way else {}
    request = make_request(POLICIES["hook"], Work(Toolbox(LEAVING[kind](), **options)))

    [outcome] = await asyncio.wait_for(WAYS[way](request), BOUND)

    assert not outcome.ok
    assert "GeneratorExit" in outcome.text


@pytest.mark.parametrize("place", [place for place in PLACES if place != "on_error="])
async def test_a_function_of_the_application_that_raises_generator_exit_leaves_a_result(place: str):
    def run() -> bool:
        raise GeneratorExit

    result = await asyncio.wait_for(PLACES[place](run).call("work", {"thought": "so"}), BOUND)

    assert result.call_id


async def test_a_chat_goes_on_after_a_tool_that_raises_generator_exit():
    model = ScriptedModel([[("work", {"how": "x"}), ("other", {})], "Done."])

    reply = await Chat(model, [LEAVING["async"](), Tool.from_function(work, name="other")]).send("Go.")

    assert [result.ok for result in reply.results] == [False, True]
    assert reply.finish == "stop"
