"""APIs that may still change: refused without leave, as they are with it."""

import asyncio
import inspect
import threading
from dataclasses import dataclass

import pytest

from toolmason import Config, Toolbox, tool
from toolmason.errors import ConfigError, DefinitionError, ExperimentalError
from toolmason.extend import allow_experimental, experimental, experimental_is_allowed


@experimental
def double(n: int) -> int:
    """Double it."""
    return n * 2


@experimental("the name may change")
async def later(n: int) -> int:
    return n


@experimental
def walk(n: int):
    got = yield n
    return got


@experimental
async def stream(n: int):
    yield n


@experimental
class Engine:
    def __init__(self, size: int = 1) -> None:
        self.size = size


@pytest.mark.row("CO-18")
def test_use_without_leave_is_refused_with_the_way_to_allow_it():
    with pytest.raises(ExperimentalError, match=r"double is experimental.*allow_experimental\(\)") as caught:
        double(2)

    assert caught.value.name == "double"


async def test_the_reason_is_told():
    with pytest.raises(ExperimentalError, match="the name may change"):
        await later(1)


def test_a_class_is_used_when_an_object_is_made_also_of_a_subclass():
    class Derived(Engine):
        pass

    for kind in (Engine, Derived):
        with pytest.raises(ExperimentalError, match="Engine"):
            kind()
    with allow_experimental():
        assert (Engine(5).size, Derived(size=6).size) == (5, 6)


async def test_every_kind_of_function_works_with_leave():
    with allow_experimental():
        walking = walk(1)

        assert double(2) == 4
        assert await later(3) == 3
        assert next(walking) == 1
        assert [item async for item in stream(4)] == [4]
        with pytest.raises(StopIteration) as stopped:
            walking.send("sent")
        assert stopped.value.value == "sent"


async def test_every_kind_of_function_is_refused_without_leave():
    with pytest.raises(ExperimentalError):
        next(walk(1))
    with pytest.raises(ExperimentalError):
        [item async for item in stream(4)]


def test_what_is_marked_looks_as_it_did():
    assert str(inspect.signature(double)) == "(n: int) -> int"
    assert (double.__name__, double.__doc__) == ("double", "Double it.")
    assert inspect.iscoroutinefunction(later)
    assert inspect.isgeneratorfunction(walk)
    assert inspect.isasyncgenfunction(stream)
    assert isinstance(Engine, type)
    assert str(inspect.signature(Engine)) == "(size: int = 1) -> None"


def test_a_dataclass_and_a_class_with_its_own_new_can_be_marked():
    @experimental
    @dataclass(frozen=True)
    class Point:
        x: int

    @experimental
    class Once:
        def __new__(cls, size: int):
            made = super().__new__(cls)
            made.size = size
            return made

    @experimental
    class Bare:
        pass

    with allow_experimental():
        assert Point(1) == Point(1)
        assert Once(3).size == 3
        assert isinstance(Bare(), Bare)
        with pytest.raises(TypeError):
            Bare(1)


@pytest.mark.parametrize("wrong", [5, staticmethod(len), property(len)], ids=["number", "static", "property"])
def test_only_functions_and_classes_can_be_marked(wrong):
    with pytest.raises(DefinitionError, match="@experimental"):
        experimental(wrong)


# --- leave -------------------------------------------------------------------------------------


def test_leave_ends_with_its_block_also_after_an_error():
    def fail() -> None:
        assert experimental_is_allowed()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), allow_experimental():
        fail()

    assert not experimental_is_allowed()


def test_blocks_nest():
    block = allow_experimental()

    with block, block, allow_experimental():
        pass

    assert not experimental_is_allowed()


def test_leave_for_a_block_does_not_reach_another_thread():
    seen = []

    with allow_experimental():
        thread = threading.Thread(target=lambda: seen.append(experimental_is_allowed()))
        thread.start()
        thread.join(10)

    assert seen == [False]


async def test_leave_for_a_block_is_kept_to_its_task():
    inside, done = asyncio.Event(), asyncio.Event()
    seen = []

    async def other() -> None:
        await inside.wait()
        seen.append(experimental_is_allowed())
        done.set()

    task = asyncio.create_task(other())
    with allow_experimental():
        inside.set()
        await asyncio.wait_for(done.wait(), 10)
        seen.append(await asyncio.create_task(asyncio.to_thread(experimental_is_allowed)))
    await task

    assert seen == [False, True]


def test_a_call_gives_leave_to_the_whole_process(run_script):
    done = run_script(
        """
        import threading
        from toolmason.extend import allow_experimental, experimental

        @experimental
        def double(n): return 2 * n

        allow_experimental()
        with allow_experimental():
            pass
        thread = threading.Thread(target=lambda: print(double(2)))
        thread.start()
        thread.join()
        """
    )

    assert (done.stdout, done.stderr) == ("4\n", "")


@pytest.mark.parametrize(("word", "allowed"), [("true", True), ("1", True), ("Off", False), ("no", False)])
def test_the_environment_gives_leave(monkeypatch, word, allowed):
    monkeypatch.setenv("TOOLMASON_EXPERIMENTAL", word)

    assert experimental_is_allowed() is allowed


def test_a_word_in_the_environment_that_is_neither_is_told(monkeypatch):
    monkeypatch.setenv("TOOLMASON_EXPERIMENTAL", "perhaps")

    with pytest.raises(ConfigError, match=r"TOOLMASON_EXPERIMENTAL='perhaps'.*Use true or false"):
        double(2)


# --- tools -------------------------------------------------------------------------------------


@tool
@experimental
def outer(n: int) -> int:
    return n


@experimental
@tool
async def inner(n: int) -> int:
    return n


@pytest.mark.parametrize("name", ["outer", "inner"])
async def test_a_tool_may_be_marked_in_either_order(name):
    box = Toolbox(outer, inner)

    refused = await box.call(name, {"n": 5})
    with allow_experimental():
        allowed = await box.call(name, {"n": 5})

    assert "experimental" in refused.text
    assert allowed.value == 5


@pytest.mark.parametrize("value", [True, "true", "on"])
async def test_the_setting_of_a_toolbox_gives_leave_to_its_tools(value):
    box = Toolbox(outer, inner, config=Config({"experimental": value}, environ={}))

    results = await box.call_all([("outer", {"n": 5}), ("inner", {"n": 6})])

    assert [result.value for result in results] == [5, 6]
    assert not experimental_is_allowed()
    assert box.call_sync("outer", {"n": 7}).value == 7


def test_a_setting_that_is_neither_on_nor_off_is_told():
    with pytest.raises(ConfigError, match=r"experimental='perhaps' in code.*Use true or false"):
        Toolbox(outer, config={"experimental": "perhaps"})
