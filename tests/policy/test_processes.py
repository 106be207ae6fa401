"""Tools in a process of their own: killed at the deadline, replaced when they die, and nothing left behind."""

import asyncio
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from policy import process_tools as tools
from policy.process_tools import alive, appears, gone_within, write_whole
from toolmason import Abort, Retry, Tool, Toolbox, ToolCall, ToolContext, tool
from toolmason.errors import ExecutionError, ToolError, ToolTimeout
from toolmason.extend import EngineSettings

BOUND = 15.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX")


def one_process() -> EngineSettings:
    return EngineSettings(processes=1)


def pids_in(place: Path) -> list[int]:
    """Wait until a tool has written its process ids."""
    assert appears(place, BOUND), f"{place.name} was never written"
    return [int(word) for word in place.read_text("utf-8").split()]


async def begun(place: Path) -> list[int]:
    """Wait until a tool has written its process ids."""
    return await asyncio.to_thread(pids_in, place)


# --- killed at the deadline ----------------------------------------------------------------------


async def test_a_busy_loop_is_ended_at_its_deadline_and_its_process_is_gone(tmp_path):
    """Issue 3: a 0.2 s deadline ends within 0.5 s of it."""
    box = Toolbox(tools.spin, tools.pid)
    await box.call("pid")

    started = time.monotonic()
    result = await box.call("spin", {"place": str(tmp_path / "pid")}, timeout=0.2)
    took = time.monotonic() - started

    (pid,) = await begun(tmp_path / "pid")
    assert isinstance(result.error, ToolTimeout)
    assert 0.2 <= took <= 0.7
    assert gone_within(pid, 1)


async def test_a_child_that_the_tool_started_is_gone_with_it(tmp_path):
    box = Toolbox(tools.spin_with_a_child, tools.pid)
    await box.call("pid")

    result = await box.call("spin_with_a_child", {"place": str(tmp_path / "pids")}, timeout=0.5)

    worker, child = await begun(tmp_path / "pids")
    assert isinstance(result.error, ToolTimeout)
    assert gone_within(worker, 1)
    assert gone_within(child, 1)


async def test_the_call_after_a_killed_one_works(tmp_path):
    box = Toolbox(tools.spin, tools.add, settings=one_process())
    await box.call("add", {"a": 1})

    await box.call("spin", {"place": str(tmp_path / "pid")}, timeout=0.1)
    result = await box.call("add", {"a": 1})

    assert result.unwrap() == 2


async def test_waiting_for_a_process_counts_towards_the_deadline(tmp_path):
    box = Toolbox(tools.hold, tools.leave_a_mark, settings=one_process())
    first, release = tmp_path / "first", tmp_path / "release"
    holding = asyncio.create_task(box.call("hold", {"begun": str(first), "release": str(release)}))
    await begun(first)

    try:
        async with asyncio.timeout(3):
            result = await box.call("leave_a_mark", {"place": str(tmp_path / "mark")}, timeout=0.2)
    finally:
        write_whole(release, "")
        await holding

    assert isinstance(result.error, ToolTimeout)


async def test_a_call_that_timed_out_while_it_waited_for_a_process_never_runs(tmp_path):
    box = Toolbox(tools.hold, tools.leave_a_mark, tools.add, settings=one_process())
    first, release, mark = tmp_path / "first", tmp_path / "release", tmp_path / "mark"
    holding = asyncio.create_task(box.call("hold", {"begun": str(first), "release": str(release)}))
    await begun(first)

    results = asyncio.create_task(box.call_all([("leave_a_mark", {"place": str(mark)})], timeout=0.1))
    await asyncio.wait([results], timeout=1)
    write_whole(release, "")
    await holding
    outcome = (await results)[0]
    await box.call("add", {"a": 1})

    assert isinstance(outcome.error, ToolTimeout)
    assert not mark.exists()


# --- workers that die ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exit", "SIGKILL", "SIGTERM", "segfault"])
async def test_a_worker_that_dies_gives_a_typed_result_and_the_next_call_works(how):
    box = Toolbox(tools.die, tools.add, settings=one_process())

    result = await box.call("die", {"how": how})
    after = await box.call("add", {"a": 1})

    assert isinstance(result.error, ExecutionError)
    assert "worker process" in result.error.message
    assert after.unwrap() == 2


@pytest.mark.parametrize(("how", "told"), [("exit", "code 3"), ("SIGKILL", "signal 9")])
async def test_the_error_says_how_the_worker_ended(how, told):
    result = await Toolbox(tools.die).call("die", {"how": how})

    assert told in result.error.message


async def test_a_worker_that_was_killed_while_idle_is_replaced():
    box = Toolbox(tools.pid, settings=one_process())
    first = (await box.call("pid")).unwrap()

    os.kill(first, signal.SIGKILL)
    assert gone_within(first, BOUND)
    second = (await box.call("pid")).unwrap()

    assert second != first
    assert alive(second)


async def test_siblings_in_a_batch_outlive_a_worker_that_dies():
    box = Toolbox(tools.die, tools.add)

    results = await box.call_all([("add", {"a": 1}), ("die", {"how": "exit"}), ("add", {"a": 2})])

    assert [result.ok for result in results] == [True, False, True]


# --- errors cross --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "ValueError",
        "FileNotFoundError",
        "PermissionError",
        "ConnectionError",
        "BrokenPipeError",
        "TimeoutError",
        "EOFError",
        "Rich",
    ],
)
async def test_an_error_keeps_its_type_and_message(kind):
    result = await Toolbox(tools.fail).call("fail", {"kind": kind})

    cause = result.error.__cause__
    assert isinstance(result.error, ExecutionError)
    assert (type(cause).__name__, str(cause)) == (kind, str(tools.RAISED[kind]))


async def test_an_error_keeps_its_fields():
    box = Toolbox(tools.fail)

    rich = (await box.call("fail", {"kind": "Rich"})).error.__cause__
    missing = (await box.call("fail", {"kind": "FileNotFoundError"})).error.__cause__

    assert rich.code == 7
    assert (missing.errno, missing.filename) == (2, "data.csv")


@pytest.mark.parametrize("kind", ["ValueError", "FileNotFoundError", "EOFError", "Stubborn", "SystemExit"])
async def test_a_tool_that_raises_does_not_cost_its_worker(kind):
    box = Toolbox(tools.fail, tools.pid, settings=one_process())
    before = (await box.call("pid")).unwrap()

    await box.call("fail", {"kind": kind})

    assert (await box.call("pid")).unwrap() == before


async def test_an_error_keeps_its_cause():
    result = await Toolbox(tools.fail_for_a_reason).call("fail_for_a_reason")

    assert isinstance(result.error.__cause__, ValueError)
    assert isinstance(result.error.__cause__.__cause__, KeyError)


async def test_a_tool_error_crosses_with_its_words_and_data():
    result = await Toolbox(tools.fail_in_words).call("fail_in_words")

    assert isinstance(result.error, ToolError)
    assert (result.error.message, result.error.retryable, result.error.data) == (
        "Ask again tomorrow.",
        True,
        {"day": 2},
    )
    assert result.error.tool == "fail_in_words"


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "CancelledError", "GeneratorExit"])
async def test_what_would_end_a_program_is_an_error_result(kind):
    result = await Toolbox(tools.fail).call("fail", {"kind": kind})

    assert isinstance(result.error, ExecutionError)
    assert asyncio.current_task().cancelling() == 0


async def test_an_abort_passes_through():
    with pytest.raises(Abort, match="stop it all"):
        await Toolbox(tools.fail).call("fail", {"kind": "Abort"})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("Stubborn", "stubborn words", id="does not come back"),
        pytest.param("Clinging", "clinging words", id="does not pickle"),
    ],
)
async def test_an_error_that_cannot_cross_leaves_its_name_and_words(kind, words):
    result = await Toolbox(tools.fail).call("fail", {"kind": kind})

    assert kind in result.error.message
    assert words in result.error.message


async def test_a_retry_sees_the_real_error_and_each_attempt_its_number():
    box = Toolbox(tools.flaky)

    result = await box.call("flaky", retry=Retry(attempts=3, delay=0.001))

    assert result.unwrap() == 3
    assert result.attempts == 3


# --- what cannot cross ---------------------------------------------------------------------------


async def test_a_value_that_cannot_be_pickled_is_refused_before_the_tool_runs(tmp_path):
    box = Toolbox(tools.take_a_lock, context={"lock": threading.Lock()})

    result = await box.call("take_a_lock", {"place": str(tmp_path / "mark")})

    assert isinstance(result.error, ExecutionError)
    assert "cannot be pickled" in result.error.message
    assert not (tmp_path / "mark").exists()


async def test_a_result_that_cannot_be_pickled_is_an_error_that_says_so():
    box = Toolbox(tools.give_a_lock, tools.add, settings=one_process())

    result = await box.call("give_a_lock")

    assert result.error is not None
    assert "pickle" in result.error.message
    assert (await box.call("add", {"a": 1})).ok


def a_lambda() -> Tool:
    return Tool.from_function(lambda: 1, name="here", runs_on="process")


def a_local_function() -> Tool:
    ran = []

    @tool(name="here", runs_on="process")
    def local() -> int:
        ran.append(1)
        return 1

    return Tool.from_function(local)


@pytest.mark.parametrize("make", [a_lambda, a_local_function])
async def test_a_function_that_no_other_process_can_find_is_refused_with_the_way_out(make):
    result = await Toolbox(make()).call("here")

    assert isinstance(result.error, ExecutionError)
    assert "at module level" in result.error.message


# --- shapes of tools -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name", "arguments", "expected"),
    [
        pytest.param(tools.Shelf(3), "count", {"more": 4}, 7, id="bound method"),
        pytest.param(tools.Shelf(3), "kind", {}, "Shelf", id="class method"),
        pytest.param(tools.Shelf(3), "owner", {}, "Ada", id="static method"),
        pytest.param(tools.Echo(), "echo", {"text": "hi"}, "hi", id="subclass of Tool"),
        pytest.param(tools.waits, "waits", {}, "async", id="async"),
        pytest.param(tools.yields, "yields", {}, 2, id="generator"),
        pytest.param(tools.yields_async, "yields_async", {}, 2, id="async generator"),
        pytest.param(tools.returns_generator, "returns_generator", {}, 2, id="async that returns a generator"),
    ],
)
async def test_every_shape_of_tool_runs_in_another_process(source, name, arguments, expected):
    result = await Toolbox(source).call(name, arguments)

    worker, value = result.unwrap()
    assert worker != os.getpid()
    assert value == expected


async def test_a_tool_from_a_schema_runs_in_another_process():
    schema = {"properties": {"a": {"type": "integer"}}}
    made = Tool.from_schema("made", "Made by hand.", schema, tools.handle, runs_on="process")

    result = await Toolbox(made).call(ToolCall("c1", "made", '{"a": 5}'))

    worker, arguments, call_id = result.unwrap()
    assert worker != os.getpid()
    assert (arguments, call_id) == ({"a": 5}, "c1")


async def test_parameters_by_position_and_by_name_arrive():
    result = await Toolbox(tools.by_position).call("by_position", {"a": 1, "b": 2})

    assert result.unwrap() == [1, 2, 3]


async def test_a_view_runs_the_same_tool_in_a_process():
    result = await Toolbox(tools.pid).prefixed("my_").call("my_pid")

    assert result.unwrap() != os.getpid()


async def test_five_megabytes_come_back_whole():
    box = Toolbox(tools.big, settings=EngineSettings(result_bytes=1000))

    result = await box.call("big", {"size": 5_000_000})

    assert len(result.value) == 5_000_000


async def test_what_the_application_knows_crosses(tmp_path):
    box = Toolbox(
        tools.everything,
        context=ToolContext(deps=tools.Deps("db1"), tenant="acme", session_id="s1"),
        project_dir=tmp_path,
        config={"example": {"prefix": ">"}},
    )

    result = await box.call(ToolCall("c1", "everything", "{}"), context={"user": "ada"}, timeout=30)

    seen = result.unwrap()
    assert seen.pop("pid") != os.getpid()
    assert 0 < seen.pop("left") <= 30
    assert seen == {
        "values": {"tenant": "acme", "session_id": "s1", "user": "ada"},
        "database": ["db1", "db1"],
        "call": ["c1", "everything", "c1", {}],
        "session": "s1",
        "attempt": 1,
        "config": [">", ">"],
        "folder": [str(tmp_path), str(tmp_path)],
        "tenant": "acme",
    }


# --- the pool ------------------------------------------------------------------------------------


async def test_workers_are_warm():
    box = Toolbox(tools.pid, settings=one_process())

    pids = [(await box.call("pid")).unwrap() for _ in range(5)]

    assert len(set(pids)) == 1


async def test_a_warm_worker_finds_a_module_of_a_folder_that_was_added_later(make_package):
    """A worker had the search path of its start, so that a later test or plugin failed with `No module named …`."""
    await Toolbox(tools.pid, settings=one_process()).call("pid")
    make_package("late_plugin", tools="def late(text: str) -> str:\n    return text\n")
    late = importlib.import_module("late_plugin.tools").late

    box = Toolbox(Tool.from_function(late, runs_on="process"), settings=one_process())
    result = await box.call("late", {"text": "found"})

    assert result.text == "found"


async def test_one_process_does_one_call_at_a_time(tmp_path):
    box = Toolbox(tools.hold, tools.leave_a_mark, settings=one_process())
    first, release, mark = tmp_path / "first", tmp_path / "release", tmp_path / "mark"
    holding = asyncio.create_task(box.call("hold", {"begun": str(first), "release": str(release)}))
    await begun(first)

    waiting = asyncio.create_task(box.call("leave_a_mark", {"place": str(mark)}))
    await asyncio.wait([waiting], timeout=0.1)
    ran_early = mark.exists()
    write_whole(release, "")
    await asyncio.gather(holding, waiting)

    assert not ran_early
    assert mark.exists()


async def test_two_processes_do_two_calls_at_once(tmp_path):
    box = Toolbox(tools.hold, settings=EngineSettings(processes=2))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")

    results = await box.call_all([("hold", {"begun": a, "release": b}), ("hold", {"begun": b, "release": a})])

    assert [result.unwrap() for result in results] == ["released", "released"]
    assert await begun(tmp_path / "a") != await begun(tmp_path / "b")


async def test_many_calls_share_few_processes():
    box = Toolbox(tools.pid, settings=EngineSettings(processes=2))

    results = await box.call_all([("pid", {})] * 20)

    assert len({result.unwrap() for result in results}) <= 2


async def test_a_cancelled_caller_ends_the_process_and_frees_its_place(tmp_path):
    box = Toolbox(tools.spin, tools.add, settings=one_process())
    call = asyncio.create_task(box.call("spin", {"place": str(tmp_path / "pid")}))
    (pid,) = await begun(tmp_path / "pid")

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    after = await box.call("add", {"a": 1}, timeout=BOUND)

    assert gone_within(pid, 1)
    assert after.unwrap() == 2


async def test_a_cancelled_run_ends_the_process(tmp_path):
    with Toolbox(tools.spin).run() as run:
        call = asyncio.create_task(run.call("spin", {"place": str(tmp_path / "pid")}))
        (pid,) = await begun(tmp_path / "pid")
        run.cancel()
        result = await call

    assert result.error.code == "cancelled"
    assert gone_within(pid, 1)


async def test_callers_that_give_up_while_a_process_starts_leave_none_behind():
    box = Toolbox(tools.pid, settings=EngineSettings(processes=3))
    before = {child.pid for child in multiprocessing.active_children()}

    for _ in range(6):
        call = asyncio.create_task(box.call("pid"))
        await asyncio.sleep(0.005)
        call.cancel()
        await asyncio.wait([call])
    results = await box.call_all([("pid", {})] * 3)

    assert all(result.ok for result in results)
    # A call that had begun when its caller gave up ends with its process, which takes a moment to die.
    async with asyncio.timeout(BOUND):
        while len({child.pid for child in multiprocessing.active_children()} - before) > 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_toolboxes_on_two_loops_share_the_processes():
    box = Toolbox(tools.pid, settings=one_process())

    first = asyncio.run(box.call("pid")).unwrap()
    second = asyncio.run(box.call("pid")).unwrap()

    assert first == second == box.call_sync("pid").unwrap()


# --- the end of the program ----------------------------------------------------------------------


def start_program(folder: Path, text: str) -> subprocess.Popen:
    """Start a program that can import this folder's tools."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    # A file and not a pipe: a worker that is left behind would hold a pipe open.
    with (folder / "stderr").open("w") as errors:
        return subprocess.Popen([sys.executable, str(path)], cwd=folder, env=environment, stderr=errors)


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_idle_worker_outlives_the_program(tmp_path, end):
    program = start_program(
        tmp_path,
        f"""
        import os, signal
        from policy import process_tools as tools
        from toolmason import Toolbox

        if __name__ == "__main__":
            tools.write_whole("pid", str(Toolbox(tools.pid).call_sync("pid").unwrap()))
            {end}
        """,
    )
    program.wait(BOUND)

    assert gone_within(pids_in(tmp_path / "pid")[0], 3)


@pytest.mark.parametrize("ending", ["at the end", "killed"])
def test_no_busy_worker_nor_its_child_outlives_the_program(tmp_path, ending):
    program = start_program(
        tmp_path,
        """
        import threading
        from policy import process_tools as tools
        from toolmason import Toolbox

        if __name__ == "__main__":
            box = Toolbox(tools.spin_with_a_child)
            call = lambda: box.call_sync("spin_with_a_child", {"place": "pids"})
            threading.Thread(target=call, daemon=True).start()
            tools.appears(tools.Path("end"))
        """,
    )
    worker, child = pids_in(tmp_path / "pids")
    if ending == "killed":
        program.kill()
    write_whole(tmp_path / "end", "")
    program.wait(BOUND)

    left = [name for name, pid in (("worker", worker), ("child", child)) if not gone_within(pid, 3)]
    for pid in (worker, child):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    assert left == []


def test_a_tool_of_the_main_program_runs_in_a_process(tmp_path):
    program = start_program(
        tmp_path,
        """
        import os
        from pathlib import Path
        from toolmason import Toolbox, tool

        @tool(runs_on="process")
        def pid() -> int:
            return os.getpid()

        if __name__ == "__main__":
            result = Toolbox(pid).call_sync("pid")
            Path("outcome").write_text(str(result.unwrap() != os.getpid()))
        """,
    )
    program.wait(BOUND)

    assert (tmp_path / "outcome").read_text("utf-8") == "True", (tmp_path / "stderr").read_text("utf-8")


def test_a_program_without_a_main_guard_gets_a_typed_result_and_ends(tmp_path):
    program = start_program(
        tmp_path,
        """
        import os
        from pathlib import Path
        from toolmason import Toolbox, tool

        @tool(runs_on="process")
        def pid() -> int:
            return os.getpid()

        error = Toolbox(pid).call_sync("pid").error
        Path(f"outcome{os.getpid()}").write_text("ok" if error is None else error.code)
        """,
    )
    program.wait(BOUND)

    assert (tmp_path / f"outcome{program.pid}").read_text("utf-8") in ("ok", "execution_error"), (
        tmp_path / "stderr"
    ).read_text("utf-8")
