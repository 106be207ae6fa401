"""The sync face: the same calls from code that is not async, wherever that code runs."""

import asyncio
import contextvars
import sys
import textwrap
import threading

import pytest

from toolmason import Abort, Toolbox, prompt, tool

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="nobody")


@tool
async def double(n: int) -> int:
    await asyncio.sleep(0)
    return n * 2


@tool
def triple(n: int) -> int:
    return n * 3


box = Toolbox(double, triple)


@pytest.mark.row("L4-22")
def test_it_works_with_no_loop():
    assert box.call_sync("double", {"n": 2}).unwrap() == 4
    assert box.call_sync("triple", {"n": 2}).unwrap() == 6


@pytest.mark.row("L4-22")
async def test_it_works_inside_a_running_loop():
    assert box.call_sync("double", {"n": 2}).unwrap() == 4
    assert box.call_sync("triple", {"n": 2}).unwrap() == 6


async def test_it_works_from_a_thread_of_a_running_loop():
    result = await asyncio.to_thread(box.call_sync, "double", {"n": 2})

    assert result.unwrap() == 4


def test_it_works_from_many_threads_at_once():
    results = []
    fresh = Toolbox(double)
    threads = [
        threading.Thread(target=lambda n=n: results.append(fresh.call_sync("double", {"n": n}).unwrap()))
        for n in range(20)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert sorted(results) == [n * 2 for n in range(20)]


@pytest.mark.parametrize("inner", ["double", "triple"])
def test_a_sync_tool_may_use_it(inner):
    @tool
    def outer() -> int:
        return box.call_sync(inner, {"n": 2}).unwrap()

    assert Toolbox(outer).call_sync("outer", timeout=5).unwrap() == box.call_sync(inner, {"n": 2}).unwrap()


@pytest.mark.parametrize("inner", ["double", "triple"])
def test_an_async_tool_may_use_it(inner):
    @tool
    async def outer() -> int:
        return box.call_sync(inner, {"n": 2}).unwrap()

    assert Toolbox(outer).call_sync("outer", timeout=5).unwrap() == box.call_sync(inner, {"n": 2}).unwrap()


@pytest.mark.parametrize("chain", ["aaa", "aas", "asa", "ass", "saa", "sas", "ssa", "sss", "aaaaaa"])
def test_tools_may_use_it_inside_each_other_at_any_depth(forks, chain):
    """Each letter is one level, async or sync; a hang ends with the script's own limit."""
    program = textwrap.dedent(f"""
        from toolmason import Toolbox, tool

        box = Toolbox()
        chain = {chain!r}

        def inner(depth):
            return 1 if depth == len(chain) else 1 + box.call_sync(chain[depth], {{"depth": depth}}).unwrap()

        @tool
        async def a(depth: int) -> int:
            return inner(depth + 1)

        @tool
        def s(depth: int) -> int:
            return inner(depth + 1)

        box.add([a, s])
        print(box.call_sync(chain[0], {{"depth": 0}}, timeout=5).text, flush=True)
    """)

    done = forks.run([sys.executable, "-c", program])

    assert done.stdout.strip() == str(len(chain)), done.stdout + done.stderr


def test_a_tool_that_swallows_its_cancellation_holds_up_nobody_at_any_depth(run_script):
    done = run_script("""
        import asyncio
        from toolmason import Toolbox, tool

        @tool(timeout=0.05)
        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass

        box = Toolbox(stubborn)

        @tool
        async def outer() -> str:
            return box.call_sync("stubborn").error.code

        print(box.call_sync("stubborn").error.code, Toolbox(outer).call_sync("outer").text, flush=True)
    """)

    assert done.stdout.strip() == "timeout timeout", done.stderr


def test_a_keyboard_interrupt_that_an_async_tool_raises_off_the_main_thread_is_a_result(run_script):
    done = run_script("""
        from toolmason import Toolbox, tool

        @tool
        async def stop() -> None:
            raise KeyboardInterrupt

        @tool
        async def fine() -> str:
            return "fine"

        box = Toolbox(stop, fine)
        print(box.call_sync("stop").error.code, box.call_sync("fine").text)
    """)

    assert done.stdout.strip() == "execution_error fine", done.stderr


async def test_it_works_inside_an_async_tool_of_a_running_loop():
    @tool
    async def outer() -> int:
        return box.call_sync("triple", {"n": 2}).unwrap()

    result = await Toolbox(outer).call("outer")

    assert result.unwrap() == 6


def test_an_abort_is_raised_to_the_caller():
    @tool
    async def stop() -> None:
        raise Abort("enough")

    with pytest.raises(Abort, match="enough"):
        Toolbox(stop).call_sync("stop")


def test_what_a_tool_raises_is_a_result():
    @tool
    async def fail() -> None:
        raise SystemExit(3)

    assert Toolbox(fail).call_sync("fail").error.code == "execution_error"
    assert box.call_sync("double", {"n": 1}).ok


def test_context_variables_reach_the_tool_and_do_not_leak_back():
    @tool
    async def sets() -> str:
        seen = var.get()
        var.set("tool")
        return seen

    def run() -> tuple[str, str]:
        var.set("caller")
        return Toolbox(sets).call_sync("sets").unwrap(), var.get()

    assert contextvars.copy_context().run(run) == ("caller", "caller")


def test_a_tool_that_overstays_its_deadline_holds_up_nobody():
    release = threading.Event()

    @tool(timeout=0.02)
    def stuck() -> None:
        release.wait(5)

    code = Toolbox(stuck).call_sync("stuck").error.code
    later = box.call_sync("triple", {"n": 1}).unwrap()
    release.set()

    assert (code, later) == ("timeout", 3)


def test_a_toolbox_may_be_used_from_one_loop_after_another():
    async def use() -> list[int]:
        return [(await box.call("double", {"n": 1})).unwrap(), (await box.call("triple", {"n": 1})).unwrap()]

    assert [asyncio.run(use()) for _ in range(3)] == [[2, 3]] * 3


def test_prompts_have_a_sync_face_too():
    @prompt
    def hello(name: str) -> str:
        return f"Hello {name}"

    [message] = Toolbox(hello).prompt_sync("hello", {"name": "Ada"})

    assert message.text == "Hello Ada"
