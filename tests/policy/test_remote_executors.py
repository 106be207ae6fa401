"""An executor of the application: what a toolbox sends to it, and what it does with the outcome."""

import asyncio
import pickle

import pytest

from toolmason import Toolbox, tool
from toolmason.errors import DefinitionError, ExecutionError, ToolTimeout
from toolmason.scale import RemoteExecutor, ToolResources


class Recorder(RemoteExecutor):
    """Runs calls here, after a trip through pickle, and remembers them."""

    def __init__(self, seconds=0.0):
        self.calls, self.cancelled, self.seconds = [], 0, seconds

    async def run(self, call):
        self.calls.append(call)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        function, names, values = pickle.loads(call.payload)
        return function(*[values.pop(name) for name in names], **values)

    async def aclose(self):
        self.calls.clear()


@tool(cpus=2, gpus=0.5, memory=1000, idempotent=True)
def heavy(a: int) -> int:
    """Double."""
    return a * 2


@tool(runs_on="loop")
def here(a: int) -> int:
    """Double here."""
    return a * 2


async def test_a_function_runs_on_the_executor_of_its_toolbox(spans):
    executor = Recorder()

    result = await Toolbox(heavy, executor=executor).call("heavy", {"a": "4"})

    [call] = executor.calls
    assert result.value == 8
    assert (call.name, call.repeatable) == ("heavy", True)
    assert call.resources == ToolResources(cpus=2, gpus=0.5, memory=1000)
    assert spans.tree() == ["execute_tool heavy", "  run_on_executor heavy"]


async def test_the_innermost_executor_runs_a_tool_of_a_nested_toolbox():
    inner, outer = Recorder(), Recorder()
    box = Toolbox(Toolbox(heavy, executor=inner), here, executor=outer)

    await box.call("heavy", {"a": 1})
    await box.call("here", {"a": 1})

    assert (len(inner.calls), len(outer.calls)) == (1, 0)


async def test_the_policy_of_the_toolbox_holds_on_an_executor():
    executor = Recorder(seconds=30)

    result = await Toolbox(heavy, executor=executor, timeout=0.05).call("heavy", {"a": 1})

    assert isinstance(result.error, ToolTimeout)
    assert executor.cancelled == 1


async def test_a_failure_of_an_executor_is_a_result():
    class Broken(Recorder):
        async def run(self, call):
            raise OSError("no worker")

    result = await Toolbox(heavy, executor=Broken()).call("heavy", {"a": 1})

    assert isinstance(result.error, ExecutionError)
    assert isinstance(result.error.__cause__, OSError)


async def test_a_call_that_cannot_cross_is_told(tmp_path):
    result = await Toolbox(tool(lambda: 1, name="f", description="F."), executor=Recorder()).call("f", {})

    assert "cannot be sent to another process: it cannot be pickled" in result.error.message


@pytest.mark.parametrize("options", [{"cpus": -1}, {"gpus": -0.5}, {"memory": 0}])
def test_resources_below_their_minimum_are_refused(options):
    with pytest.raises(DefinitionError, match=next(iter(options))):
        tool(lambda: 1, name="f", description="F.", **options)


def test_an_executor_of_another_type_is_refused():
    with pytest.raises(DefinitionError, match="executor= is of type 'str'"):
        Toolbox(executor="ray")
