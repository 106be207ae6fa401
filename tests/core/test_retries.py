"""Another attempt: for whom, after what, and what each attempt gets."""

import asyncio
import threading

import pytest

from toolmason import Abort, Retry, Tool, Toolbox, ToolContext, ToolError, tool
from toolmason.errors import DefinitionError, ExecutionError, InvalidArguments, ToolTimeout

AT_ONCE = Retry(attempts=3, delay=0, jitter=False)


class Flaky:
    """Fails some times, then answers; counts how often it was called."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("gone")
        self.runs = 0

    def __call__(self) -> str:
        self.runs += 1
        if self.runs <= self.failures:
            raise self.error
        return "done"


def tool_of(flaky: Flaky, **options):
    @tool(**options)
    async def fetch() -> str:
        await asyncio.sleep(0)
        return flaky()

    return fetch


async def pass_on(call, call_next):
    return await call_next(call)


async def test_nothing_is_tried_again_unless_someone_says_so():
    flaky = Flaky(1)

    result = await Toolbox(tool_of(flaky, read_only=True)).call("fetch")

    assert isinstance(result.error, ExecutionError)
    assert (flaky.runs, result.attempts) == (1, 1)


@pytest.mark.parametrize(
    ("effects", "runs"),
    [
        ({}, 1),
        ({"read_only": True}, 2),
        ({"idempotent": True}, 2),
        ({"destructive": True}, 1),
        ({"read_only": False}, 1),
    ],
    ids=["not said", "read only", "idempotent", "destructive", "not read only"],
)
async def test_a_retry_of_the_toolbox_is_for_tools_that_may_run_twice(effects, runs):
    flaky = Flaky(1)

    result = await Toolbox(tool_of(flaky, **effects), retry=AT_ONCE).call("fetch")

    assert flaky.runs == runs
    assert result.ok is (runs == 2)
    assert result.attempts == runs


async def test_a_retry_on_the_tool_itself_means_what_it_says():
    flaky = Flaky(2)

    result = await Toolbox(tool_of(flaky, destructive=True, retry=AT_ONCE)).call("fetch")

    assert result.unwrap() == "done"
    assert (flaky.runs, result.attempts) == (3, 3)


@pytest.mark.row("L4-19", "L4-20")
async def test_a_retry_on_the_call_means_what_it_says():
    flaky = Flaky(1)

    result = await Toolbox(tool_of(flaky)).call("fetch", retry=AT_ONCE)

    assert result.unwrap() == "done"
    assert result.attempts == 2


@pytest.mark.parametrize("where", ["tool", "call"])
async def test_none_on_the_tool_or_the_call_says_no_retry(where):
    flaky = Flaky(1)
    fetch = tool_of(flaky, read_only=True, **({"retry": None} if where == "tool" else {}))

    await Toolbox(fetch, retry=AT_ONCE).call("fetch", **({"retry": None} if where == "call" else {}))

    assert flaky.runs == 1


async def test_after_the_last_attempt_the_last_error_is_the_result():
    flaky = Flaky(9)

    result = await Toolbox(tool_of(flaky, retry=AT_ONCE)).call("fetch")

    assert isinstance(result.error, ExecutionError)
    assert isinstance(result.error.__cause__, ConnectionError)
    assert (flaky.runs, result.attempts) == (3, 3)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError("disk"), True),
        (ValueError("no"), False),
        (SystemExit(1), False),
        (asyncio.CancelledError(), False),
        (ToolError("no"), False),
        (ToolError("busy", retryable=True), True),
    ],
    ids=["connection", "timeout", "os", "value", "exit", "cancel", "told", "told retryable"],
)
async def test_only_failures_that_can_pass_are_tried_again(error, again):
    flaky = Flaky(1, error)

    await Toolbox(tool_of(flaky, retry=AT_ONCE)).call("fetch")

    assert flaky.runs == (2 if again else 1)


async def test_the_developer_says_what_is_worth_another_attempt():
    flaky = Flaky(1, ValueError())

    result = await Toolbox(tool_of(flaky, retry=Retry(attempts=2, delay=0, on=(ValueError,)))).call("fetch")

    assert result.unwrap() == "done"


async def test_an_abort_is_never_tried_again():
    flaky = Flaky(1, Abort("enough"))

    with pytest.raises(Abort):
        await Toolbox(tool_of(flaky, retry=Retry(delay=0, on=(Exception,)))).call("fetch")

    assert flaky.runs == 1


async def test_bad_arguments_are_not_tried_again():
    ran = []

    @tool(retry=Retry(attempts=3, delay=0, on=(Exception,)))
    async def note(n: int) -> None:
        ran.append(n)

    result = await Toolbox(note).call("note", {"n": "x"})

    assert isinstance(result.error, InvalidArguments)
    assert ran == []


@pytest.mark.row("L4-21")
async def test_each_attempt_is_under_the_timeout_and_a_timeout_is_tried_again():
    runs = []

    @tool(timeout=0.02, retry=AT_ONCE)
    async def slow() -> str:
        runs.append(1)
        if len(runs) < 3:
            await asyncio.Event().wait()
        return "done"

    async with asyncio.timeout(5):
        result = await Toolbox(slow).call("slow")

    assert result.unwrap() == "done"
    assert result.attempts == 3


async def test_timeouts_are_not_tried_again_where_the_developer_named_other_errors():
    runs = []

    @tool(timeout=0.02, retry=Retry(delay=0, on=(ValueError,)))
    async def slow() -> None:
        runs.append(1)
        await asyncio.Event().wait()

    result = await Toolbox(slow).call("slow")

    assert isinstance(result.error, ToolTimeout)
    assert runs == [1]


async def test_a_sync_tool_is_tried_again_too():
    flaky = Flaky(1)

    @tool(retry=AT_ONCE)
    def fetch() -> str:
        return flaky()

    result = await Toolbox(fetch).call("fetch")

    assert (result.unwrap(), result.attempts) == ("done", 2)


async def test_each_attempt_sees_its_own_number_and_deadline():
    seen: list[ToolContext] = []

    @tool(retry=AT_ONCE)
    async def fetch(ctx: ToolContext) -> None:
        assert ctx.attempt == len(seen) + 1
        seen.append(ctx)
        await asyncio.sleep(0.002)
        raise ConnectionError

    result = await Toolbox(fetch).call("fetch")

    assert isinstance(result.error.__cause__, ConnectionError)
    assert [ctx.attempt for ctx in seen] == [1, 2, 3]
    assert len({ctx.deadline for ctx in seen}) == 3


async def test_every_attempt_that_was_given_up_sees_that_it_was():
    """§7: `ctx.cancelled` is how a sync tool learns that nobody waits; a retry must not take it back."""
    seen: list[ToolContext] = []
    release = threading.Event()

    @tool(timeout=0.02, retry=Retry(attempts=2, delay=0))
    def stuck(ctx: ToolContext) -> None:
        seen.append(ctx)
        release.wait(5)

    result = await Toolbox(stuck).call("stuck")
    release.set()

    assert isinstance(result.error, ToolTimeout)
    assert [ctx.cancelled for ctx in seen] == [True, True]


async def test_each_attempt_gets_the_arguments_as_they_were_sent():
    seen = []

    @tool(retry=AT_ONCE)
    async def consume(items: list[int]) -> None:
        seen.append(list(items))
        items.clear()
        raise ConnectionError

    await Toolbox(consume).call("consume", '{"items": [1, 2]}')

    assert seen == [[1, 2], [1, 2], [1, 2]]


async def test_a_call_cancelled_between_attempts_is_not_tried_again():
    ran = []
    failed = asyncio.Event()

    @tool(retry=Retry(attempts=5, delay=60, jitter=False))
    async def fetch() -> None:
        ran.append(1)
        failed.set()
        raise ConnectionError

    call = asyncio.create_task(Toolbox(fetch).call("fetch"))
    await failed.wait()

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert ran == [1]


# --- the arithmetic ----------------------------------------------------------------------------


@pytest.mark.row("L4-20")
def test_the_wait_grows_by_its_factor():
    retry = Retry(delay=0.5, factor=3.0, jitter=False)

    assert [retry.wait(n) for n in (1, 2, 3)] == [0.5, 1.5, 4.5]


def test_jitter_keeps_the_wait_between_half_and_whole():
    retry = Retry(delay=1.0, factor=2.0, jitter=True)

    waits = [retry.wait(2) for _ in range(200)]

    assert all(1.0 <= wait <= 2.0 for wait in waits)
    assert len(set(waits)) > 100


@pytest.mark.parametrize("words", [{"attempts": 0}, {"attempts": -1}, {"delay": -0.1}, {"factor": 0.5}], ids=str)
def test_a_retry_that_makes_no_sense_is_refused(words):
    with pytest.raises(DefinitionError):
        Retry(**words)


@pytest.mark.parametrize("retry", [3, True, "3", 0.5], ids=repr)
def test_a_retry_that_is_no_policy_is_refused_when_it_is_defined(retry):
    async def fetch() -> str:
        return "done"

    with pytest.raises(DefinitionError, match="Retry"):
        Tool.from_function(fetch, retry=retry)
    with pytest.raises(DefinitionError, match="Retry"):
        Toolbox(fetch, retry=retry)


async def test_a_retry_that_is_no_policy_is_refused_by_a_call():
    @tool
    async def fetch() -> str:
        return "done"

    with pytest.raises(DefinitionError, match="Retry"):
        await Toolbox(fetch).call("fetch", retry=3)


@pytest.mark.parametrize("has_hook", [False, True], ids=["no hook", "hook"])
async def test_a_retry_may_have_more_attempts_than_a_float_has_powers(has_hook):
    flaky = Flaky(1100)
    box = Toolbox(tool_of(flaky, retry=Retry(attempts=2000, delay=0)))
    if has_hook:
        box.use(pass_on)

    result = await box.call("fetch")

    assert (result.text, result.attempts) == ("done", 1101)


async def test_pauses_without_end_do_not_end_a_call_with_a_hook():
    box = Toolbox(tool_of(Flaky(0), retry=Retry(attempts=2000)))
    box.use(pass_on)

    assert (await box.call("fetch")).text == "done"
