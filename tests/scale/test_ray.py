"""Tools on a Ray cluster on this machine."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scale import ray_tools
from toolmason import Toolbox, tool
from toolmason.errors import ConfigError, DefinitionError, ExecutionError, ToolTimeout
from toolmason.scale import RayExecutor, RayObject

KILLS = int(os.environ.get("KILLS") or 8)
pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def cluster():
    executor = RayExecutor(init={"num_cpus": 2, "object_store_memory": 200 * 2**20})
    ray = executor.connect()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    yield executor
    asyncio.run(executor.aclose())
    assert not ray.is_initialized()


@pytest.fixture(params=["tasks", "actors"])
def executor(request, cluster):
    if request.param == "tasks":
        yield cluster
        return
    with_actors = RayExecutor(actors=2, cpus=0.5)
    yield with_actors
    asyncio.run(with_actors.aclose())


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition):
    while not condition():  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.02)


async def test_a_tool_runs_in_a_process_of_the_cluster(executor):
    box = Toolbox(ray_tools.add, ray_tools.add_later, ray_tools.where, executor=executor)

    results = await box.call_all([("add", {"a": 2, "b": 3}), ("add_later", {"a": 4, "b": 5}), ("where", {})])

    assert [result.value for result in results[:2]] == [5, 9]
    assert results[2].value != os.getpid()


async def test_a_tool_asks_for_ray_by_name(cluster):
    box, inner = Toolbox(ray_tools.where_on_ray, executor=cluster), Toolbox(ray_tools.where)

    assert (await box.call("where_on_ray", {})).value != os.getpid()
    assert (await Toolbox(inner, executor=cluster).call("where", {})).value != os.getpid()
    assert (await inner.call("where", {})).value == os.getpid()


async def test_a_tool_that_says_where_it_runs_does_not_run_on_ray(cluster):
    box = Toolbox(ray_tools.where_here, executor=cluster)

    assert (await box.call("where_here", {})).value == os.getpid()


async def test_errors_come_back_as_they_were(executor):
    box = Toolbox(ray_tools.refuse, ray_tools.fail, executor=executor)

    refused = await box.call("refuse", {"reason": "no"})
    failed = await box.call("fail", {})

    assert refused.error.message == "refused: no"
    assert isinstance(failed.error, ExecutionError)
    assert isinstance(failed.error.__cause__, ValueError)
    assert isinstance(failed.error.__cause__.__cause__, KeyError)


async def test_wrong_arguments_do_not_reach_the_cluster(cluster):
    result = await Toolbox(ray_tools.add, executor=cluster).call("add", {"a": "x", "b": 1})

    assert result.error.code == "invalid_arguments"


async def test_an_image_comes_back(executor):
    result = await Toolbox(ray_tools.draw, executor=executor).call("draw", {})

    assert result.content[0].mime_type == "image/png"


async def test_a_large_value_stays_in_the_object_store(executor):
    result = await Toolbox(ray_tools.repeat_text, executor=executor).call("repeat_text", {"size": 3_000_000})

    assert isinstance(result.value, RayObject)
    assert "bytes, kept in the object store" in result.text
    assert len(result.text) < 3000
    assert result.value.get() == "x" * 3_000_000


async def test_progress_comes_back_in_order(executor):
    seen = []
    box = Toolbox(ray_tools.report_steps, executor=executor)

    result = await box.call("report_steps", {"steps": 3}, on_progress=lambda report: seen.append(report.message))

    assert result.text == "done"
    assert seen == ["step 1", "step 2", "step 3"]


async def test_a_worker_belongs_to_the_trace_of_its_call(executor, spans):
    result = await Toolbox(ray_tools.current_trace, executor=executor).call("current_trace", {})

    call, run = spans.one("execute_tool current_trace"), spans.one("run_on_ray current_trace")
    assert spans.tree() == ["execute_tool current_trace", "  run_on_ray current_trace"]
    assert result.text == f"{call.context.trace_id:032x}-{run.context.span_id:016x}"


async def test_a_hung_tool_is_killed_at_its_deadline(executor, tmp_path):
    # Enough for a worker to start on a busy machine: a call that has not started leaves no process to look for.
    box = Toolbox(ray_tools.hang, executor=executor, timeout=10)
    calls = asyncio.ensure_future(box.call("hang", {"folder": str(tmp_path)}))
    await until(lambda: any(tmp_path.iterdir()) or calls.done())
    pid = int(next(tmp_path.iterdir()).stem)

    result = await calls

    assert isinstance(result.error, ToolTimeout)
    await until(lambda: not is_running(pid))


async def test_a_cancelled_call_ends_its_work(executor, tmp_path):
    call = asyncio.ensure_future(Toolbox(ray_tools.hang, executor=executor).call("hang", {"folder": str(tmp_path)}))
    await until(lambda: any(tmp_path.iterdir()))
    pid = int(next(tmp_path.iterdir()).stem)

    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call

    await until(lambda: not is_running(pid))


async def test_a_lost_worker_is_told_and_the_call_not_repeated(executor, tmp_path):
    box = Toolbox(ray_tools.mark, executor=executor)
    call = asyncio.ensure_future(box.call("mark", {"folder": str(tmp_path), "name": "one", "seconds": 30}))
    await until(lambda: (tmp_path / "one").exists() and (tmp_path / "one").read_text())

    os.kill(int((tmp_path / "one").read_text()), signal.SIGKILL)
    result = await call

    assert "worker process on Ray was lost" in str(result.error.__cause__)
    assert len((tmp_path / "one").read_text().splitlines()) == 1
    assert (await box.call("mark", {"folder": str(tmp_path), "name": "two"})).text == "two"


async def test_a_lost_call_of_an_idempotent_tool_is_repeated_once(executor, tmp_path):
    box = Toolbox(ray_tools.mark_again, executor=executor)
    call = asyncio.ensure_future(box.call("mark_again", {"folder": str(tmp_path), "name": "one", "seconds": 2}))
    await until(lambda: (tmp_path / "one").exists() and (tmp_path / "one").read_text())

    os.kill(int((tmp_path / "one").read_text()), signal.SIGKILL)
    result = await call

    assert result.text == "one"
    assert len((tmp_path / "one").read_text().splitlines()) == 2


async def test_a_call_that_no_node_can_run_ends_at_its_deadline(cluster):
    result = await Toolbox(ray_tools.too_large, executor=cluster, timeout=2).call("too_large", {})

    assert isinstance(result.error, ToolTimeout)


async def test_a_function_that_a_worker_cannot_load_is_named(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def f() -> int:\n    '''F.'''\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    result = await Toolbox(tool(only_here.f), executor=cluster).call("f", {})

    assert isinstance(result.error.__cause__, ConfigError)
    assert "The worker cannot load the tool: No module named 'only_here'" in str(result.error.__cause__)


async def test_other_versions_on_a_worker_are_named(cluster, monkeypatch):
    monkeypatch.setattr("toolmason.scale.ray_executor.describe_program", lambda: ("3.99.0", "9.9"))

    result = await Toolbox(ray_tools.add, executor=cluster).call("add", {"a": 1, "b": 2})

    assert "the program has Python 3.99.0 with toolmason 9.9. Install the same versions." in str(result.error.__cause__)


async def test_a_cluster_that_is_not_there_is_named():
    lines = await run_program(
        "box = Toolbox(ray_tools.add, executor=RayExecutor('127.0.0.1:1'))",
        "print(asyncio.run(box.call('add', {'a': 1, 'b': 2})).error.__cause__)",
    )

    assert lines[0].startswith("RayExecutor(address='127.0.0.1:1'): cannot connect")


async def test_a_lost_node_ends_its_calls_and_the_others_go_on(tmp_path):
    lines = await run_program(
        "from ray.cluster_utils import Cluster",
        "from pathlib import Path",
        "import sys",
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False})",
        "node = cluster.add_node(num_cpus=1)",
        f"folder = Path({str(tmp_path)!r})",
        "async def main():",
        "    box = Toolbox(ray_tools.mark, ray_tools.mark_again, executor=RayExecutor(cluster.address))",
        "    names = ['mark_again', 'mark_again', 'mark_again', 'mark_again']",
        "    calls = [(name, {'folder': str(folder), 'name': f'{i}', 'seconds': 2}) for i, name in enumerate(names)]",
        "    batch = asyncio.ensure_future(box.call_all(calls))",
        "    while len(list(folder.iterdir())) < 2:",
        "        await asyncio.sleep(0.02)",
        "    cluster.remove_node(node, allow_graceful=False)",
        "    print([result.text for result in await batch])",
        "    print((await box.call('mark', {'folder': str(folder), 'name': 'last'})).text)",
        "asyncio.run(main())",
        "import ray",
        "ray.shutdown()",
        "cluster.shutdown()",
    )

    assert [line for line in lines if line in ("['0', '1', '2', '3']", "last")] == ["['0', '1', '2', '3']", "last"]
    assert sum(len(file.read_text().splitlines()) for file in tmp_path.iterdir()) <= 4 + 1 + 1


@pytest.mark.parametrize("name", ["mark", "mark_again"])
async def test_calls_are_killed_at_random_moments_and_none_runs_too_often(executor, tmp_path, name, count_kills):
    box, rng = Toolbox(ray_tools.mark, ray_tools.mark_again, executor=executor), random.Random(7)  # noqa: S311 - not for secrets
    begun, kills, lost = Counter(), 0, 0
    for number in range(KILLS):
        file = tmp_path / str(number)
        call = asyncio.ensure_future(box.call(name, {"folder": str(tmp_path), "name": file.name, "seconds": 0.2}))
        # A worker that was killed after its call may get the next one, which is lost before it starts.
        await until(lambda file=file, call=call: call.done() or (file.exists() and file.read_text()))
        await asyncio.sleep(rng.random() * 0.3)
        for pid in read_starts(file)[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
                kills += 1
        result = await call
        starts = len(read_starts(file))
        begun[f"{'pay' if name == 'mark' else 'look'} {number}"] = starts
        lost += not result.ok
        assert starts or not result.ok
        assert result.ok or "was lost" in str(result.error.__cause__)

    count_kills(kills, begun, lost)
    assert max(begun.values()) == (1 if name == "mark" else 2)
    assert name == "mark_again" or 0 < lost <= KILLS


def read_starts(file):
    return file.read_text().splitlines() if file.exists() else []


async def run_program(*lines):
    """Run a program of its own, because a process joins one cluster. Return what it prints."""
    first = (
        "import asyncio",
        "from scale import ray_tools",
        "from toolmason import Toolbox",
        "from toolmason.scale import RayExecutor",
    )
    variables = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment = {**variables, "PYTHONPATH": str(Path(__file__).parents[1]), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", "\n".join((*first, *lines))]
    found = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout.splitlines()


@pytest.mark.parametrize("options", [{"actors": 0}, {"cpus": -1}])
def test_wrong_numbers_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        RayExecutor(**options)


def test_wrong_executors_and_resources_are_refused():
    with pytest.raises(DefinitionError, match="executor= is of type 'str'"):
        Toolbox(executor="ray")
    with pytest.raises(DefinitionError, match="cpus=-1"):
        tool(lambda: 1, name="f", description="F.", cpus=-1)
