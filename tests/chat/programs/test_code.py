"""`Chat(code=True)`: programs of a model that call tools, under the gates of any call."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

import pytest

from toolmason import Allow, Chat, Deny, Inject, Limits, McpServer, Rate, Tool, Toolbox, tool
from toolmason.chat import Code, Delegated, Price, SqliteRuntime, StepFinished
from toolmason.errors import ConfigError
from toolmason.testing import ScriptedModel

KEY = "k" * 32


@tool(read_only=True)
def stock(article: str) -> int:
    """Count the pieces of an article.

    Args:
        article: Name of the article.
    """
    return len(article)


@tool(read_only=True)
def find(text: str = "", limit: int = 5) -> list[dict[str, str]]:
    """Find articles."""
    return [{"name": f"{text}{number}"} for number in range(limit)]


@tool(destructive=True, approval=True)
def order(article: str, pieces: int) -> str:
    """Order an article."""
    return f"ordered {pieces} {article}"


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("secret detail")


def make_chat(program, *tools, box=None, **options):
    """Return a chat whose model runs a program, and then ends."""
    script = [[("run_code", {"code": program})]]
    options = {"code": True, **options}
    return Chat(ScriptedModel([*script, "done"]), box or [*tools], **options)


async def run(program, *tools, **options):
    """Run one program, and return the text of its result."""
    reply = await make_chat(program, *tools, **options).send("go")
    return reply.results[0].text


# --- what a program sees -----------------------------------------------------------------------------


async def test_the_output_is_what_the_program_prints_and_its_last_value():
    text = await run(
        "total = 0\nfor word in ['tea', 'coffee']:\n    total += stock(word)\nprint(total)\nfind('a', limit=2)",
        stock,
        find,
    )

    assert text == '9\n[{"name":"a0"},{"name":"a1"}]'


async def test_the_model_gets_one_tool_and_the_signatures():
    chat = make_chat("1", stock, find, order)
    await chat.send("go")

    request = chat.model.requests[0]
    assert [definition.name for definition in request.tools] == ["run_code"]
    assert [message.role for message in request.messages] == ["system", "user"]
    shown = request.messages[0].text
    assert "def stock(article: str) -> int:" in shown
    assert "article: Name of the article." in shown
    assert "def find(text: str = '', limit: int = 5) -> list[dict[str, str]]:" in shown


async def test_the_system_message_of_the_chat_stays():
    chat = make_chat("1", stock, system="Be brief.")
    await chat.send("go")

    [system, _] = chat.model.requests[0].messages
    assert system.text.startswith("Be brief.\n\nThe tool `run_code`")


async def test_a_tool_cannot_be_called_past_the_program():
    chat = Chat(ScriptedModel([[("stock", {"article": "tea"})], "done"]), [stock], code=True)

    reply = await chat.send("go")

    assert reply.results[0].error.code == "unknown_tool"


async def test_names_that_python_does_not_have_are_changed():
    @tool(name="shop.find-all")
    def first(kind: str) -> str:
        """Find."""
        return kind

    @tool(name="class")
    def second() -> str:
        """Teach."""
        return "taught"

    text = await run("print(shop_find_all('x'), tool_class())", first, second)

    assert text == "x taught"


async def test_a_function_may_be_a_value():
    assert await run("f = {'s': stock}['s']\nf('tea')", stock) == "3"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("x = (", "SyntaxError"),
        ("unknown()", "NameError: name 'unknown' is not defined"),
        ("unknown", "NameError: name 'unknown' is not defined"),
        ("stock('a', 'b')", "TypeError: stock: it takes at most 1 positional arguments, but 2 were given"),
        ("stock('a', article='b')", "TypeError: stock: it got two values for the argument 'article'"),
        ("stock(3)", "RuntimeError: Invalid arguments"),
        ("broken()", "RuntimeError: "),
        ("await stock('a')", "can't be awaited"),
        ("stock(float('nan'))", "RuntimeError: Invalid arguments"),
        ("stock({1, 2} | {print})", "TypeError"),
        ("'\ud800'", "lone surrogates"),
    ],
)
async def test_an_error_of_a_program_is_the_result(code, text):
    box = Toolbox(stock, broken, on_error="redact")
    reply = await make_chat(f"print('before')\n{code}", box=box).send("go")

    [result] = reply.results
    assert result.error.code == "tool_error"
    assert text in result.error.message
    assert "secret detail" not in result.error.message
    if code[-1] != "(" and "\ud800" not in code:
        assert result.error.message.startswith("before\n")


async def test_a_program_may_catch_the_error_of_a_tool():
    text = await run(
        "try:\n    broken()\nexcept RuntimeError as error:\n    print('caught')\nstock('ab')", stock, broken
    )

    assert text == "caught\n2"


async def test_tools_of_a_server_return_their_structured_values():
    @tool(output_schema=False)
    def plain() -> dict[str, int]:
        """Give text."""
        return {"a": 1}

    server = McpServer.of("shop", Toolbox(stock, find, plain))
    async with Toolbox(server) as box:
        text = await run("print(stock('tea') + 1, find(limit=1)[0]['name'] == '0', plain())", box=box)

    assert text == '4 True {"a":1}'


async def test_a_program_without_output_says_so():
    assert await run("x = stock('a')", stock) == "The program printed nothing. Print what you need."


# --- gates ---------------------------------------------------------------------------------------------


def make_box(**options):
    return Toolbox(stock, order, approval_key=KEY, **options)


PROGRAM = "count = stock('tea')\ntext = order('tea', pieces=count)\nprint(text, stock('x'))"


async def test_an_approval_pauses_the_program_and_another_process_resumes_it():
    waiting = await make_chat(PROGRAM, box=make_box()).send("go")
    saved = waiting.save()
    # A chat of another process has no state of the program in memory.
    box = make_box()
    later = Chat(ScriptedModel(["done"]), box, code=True)

    reply = await later.resume(saved, [box.approvals.decide(waiting.pending[0], Allow())])

    assert waiting.finish == "pending"
    assert waiting.pending[0].path == "run_code / order"
    assert dict(waiting.pending[0].arguments) == {"article": "tea", "pieces": 3}
    assert reply.finish == "stop"
    assert reply.results[0].text == "ordered 3 tea 1"


async def test_a_denial_is_an_error_in_the_program():
    code = "try:\n    order('tea', 1)\nexcept RuntimeError as error:\n    print('denied', stock('ab'))"
    chat = make_chat(code, box=make_box())
    waiting = await chat.send("go")

    reply = await chat.resume(waiting, [chat.box.approvals.decide(waiting.pending[0], Deny("no"))])

    assert reply.results[0].text == "denied 2"


async def test_an_approver_decides_while_the_program_waits():
    asked = []

    def approver(request):
        asked.append(request.tool)
        return Allow()

    reply = await make_chat(PROGRAM, stock, order, approver=approver).send("go")

    assert reply.results[0].text == "ordered 3 tea 1"
    assert asked == ["order"]


async def test_a_hook_and_a_rate_see_each_call():
    seen = []

    @tool(rate=Rate(2, per=3600))
    def scarce() -> str:
        """Give."""
        return "given"

    box = Toolbox(scarce)

    @box.use
    async def log(call, call_next):
        seen.append(call.name)
        return await call_next(call)

    code = "for i in range(3):\n    try:\n        print(scarce())\n    except RuntimeError:\n        print('refused')"
    reply = await make_chat(code, box=box).send("go")

    assert reply.results[0].text == "given\ngiven\nrefused"
    assert seen.count("scarce") >= 2


async def test_the_calls_count_for_the_run_and_the_turns_of_a_program_do_not():
    code = "for i in range(20):\n    stock(str(i))\nprint('ok')"
    few = await make_chat(code, stock, limits=Limits(calls=10)).send("go")
    enough = await make_chat(code, stock, limits=Limits(calls=30, steps=2, cost=1.0), price=Price(1, 1)).send("go")

    assert few.finish == "limit"
    assert enough.finish == "stop"
    assert enough.results[0].text == "ok"


async def test_a_program_may_make_the_same_call_often():
    box = Toolbox(Tool.from_function(lambda: next(numbers), name="poll", description="Poll.", output_schema=False))
    numbers = iter([1, 1, 1, 1, 1, 1, 2])

    reply = await make_chat("count = 1\nwhile poll() == '1':\n    count += 1\nprint(count)", box=box).send("go")

    assert reply.results[0].text == "7"


async def test_two_programs_of_a_turn_do_not_share_their_state():
    codes = [f"a = stock('x' * {size})\nb = stock('y')\nprint(a, b, {size})" for size in (1, 2, 3)]
    script = [[("run_code", {"code": code}) for code in codes], "done"]

    reply = await Chat(ScriptedModel(script), [stock], code=True).send("go")

    assert [result.text for result in reply.results] == ["1 1 1", "2 1 2", "3 1 3"]


async def test_the_events_of_a_program_are_those_of_a_delegated_run():
    events = [event async for event in make_chat("stock('a')", stock).stream("go")]

    inner = [event.event for event in events if isinstance(event, Delegated) and event.path == ("run_code",)]
    assert any(isinstance(event, StepFinished) for event in inner)


async def test_context_and_deps_reach_the_tools():
    @tool
    def who(user: Annotated[str, Inject("user")]) -> str:
        """Tell the user."""
        return user

    reply = await make_chat("who()", who, context={"user": "ada"}).send("go")

    assert reply.results[0].text == "ada"


# --- journal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", range(4))
async def test_a_crash_repeats_no_finished_call_of_a_program(tmp_path, point):
    ran, reached = [], asyncio.Event()

    @tool(idempotent=True)
    async def step(n: int) -> int:
        """Take a step."""
        if n == point and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        ran.append(n)
        return n * 10

    code = "total = 0\nfor i in range(4):\n    total += step(i)\nprint(total)"
    runtime = SqliteRuntime(tmp_path / "runs.db")
    task = asyncio.ensure_future(make_chat(code, step, runtime=runtime).send("go", run="r"))
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    await asyncio.wait((task,))

    reply = await Chat(ScriptedModel(["done"]), [step], code=True, runtime=runtime).send("go", run="r")

    assert reply.results[0].text == "60"
    assert ran == [0, 1, 2, 3]
    assert reply.delegations[0].calls == 4
    runtime.close()


async def test_a_recorded_program_that_calls_something_else_is_refused():
    waiting = await make_chat(PROGRAM, box=make_box()).send("go")
    saved = waiting.save()
    text = str(saved).replace("count = stock('tea')", "count = stock('cup')")
    box = make_box()

    reply = await Chat(ScriptedModel(["done"]), box, code=True).resume(
        eval(text),  # noqa: S307 - data of this test
        [box.approvals.decide(waiting.pending[0], Allow())],
    )

    assert "The program was run again, and called stock in place of stock." in reply.results[0].text


def test_a_killed_process_repeats_no_finished_call(tmp_path, forks):
    script = Path(__file__).with_name("killed_run.py")

    ends = [forks.run([sys.executable, str(script), str(tmp_path)], cwd=tmp_path).returncode for _ in range(4)]

    assert ends == [9, 9, 9, 0]
    assert (tmp_path / "steps.txt").read_text().split() == ["0", "1", "2", "3"]
    assert (tmp_path / "reply.txt").read_text() == "60"


# --- limits --------------------------------------------------------------------------------------------


SMALL = Code(cpu_seconds=0.3, memory_bytes=10_000_000, output_chars=1000, calls=5, seconds=60)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("while True: pass", "time limit exceeded"),
        ("stock('a')\nwhile True: pass", "time limit exceeded"),
        ("x = 'a'\nwhile True: x += x", "memory limit exceeded"),
        ("stock('a')\nx = 'a'\nwhile True: x += x", "memory limit exceeded"),
        ("[0] * 10**9", "memory limit exceeded"),
        ("10 ** 10 ** 8", "memory limit exceeded"),
        ("def f(): return f()\nf()", "recursion"),
        ("for i in range(9): stock(str(i))", "limit of 5 calls"),
        ("#" * 70_000, "longer than 65536 bytes"),
        ("import time\ntime.sleep(100)", "not supported"),
        ("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", ""),
    ],
)
async def test_a_program_is_bounded(code, text):
    started = time.monotonic()

    reply = await make_chat(code, stock, code=SMALL).send("go")

    assert text in reply.results[0].text
    assert time.monotonic() - started < 30


async def test_output_is_truncated():
    text = await run("print('x' * 5000)\n'y' * 5000", code=SMALL, box=Toolbox(stock))

    assert len(text) < 1100
    assert text.endswith("[truncated: the limit is 1000 characters]")


async def test_the_time_of_all_parts_of_a_program_is_one_budget():
    code = "for i in range(100):\n    stock(str(i))\n    for j in range(300_000): pass"

    reply = await make_chat(code, stock, code=Code(cpu_seconds=0.3)).send("go")

    assert "time limit exceeded" in reply.results[0].text


async def test_to_cancel_the_chat_ends_a_program_that_waits():
    entered = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    chat = make_chat("wait()", wait)
    task = asyncio.ensure_future(chat.send("go"))
    await asyncio.wait_for(entered.wait(), 10)
    chat.cancel()

    assert (await asyncio.wait_for(task, 10)).finish == "cancelled"


# --- options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"code": 1}, "code=1: must be True, False or a `Code(...)`."),
        ({"code": True, "search": "auto"}, "code= and search= cannot be combined."),
        ({"code": True, "execute": False}, "Omit `execute=False`."),
    ],
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(ConfigError) as refused:
        Chat(ScriptedModel([]), [stock], **options)

    assert text in str(refused.value)


@pytest.mark.parametrize("name", ["calls", "seconds", "cpu_seconds", "memory_bytes", "output_chars"])
def test_a_limit_must_be_positive(name):
    with pytest.raises(ConfigError, match=name):
        Code(**{name: 0})


async def test_a_tool_of_the_same_name_is_refused():
    @tool
    def run_code() -> None:
        """Run."""

    with pytest.raises(ConfigError, match="A tool is named 'run_code'"):
        await make_chat("1", run_code).send("go")


async def test_tools_that_end_a_turn_stay_tools():
    @tool(return_direct=True)
    def answer(text: str) -> str:
        """Answer."""
        return text

    chat = make_chat("1", stock, answer)
    await chat.send("go")

    assert [definition.name for definition in chat.model.requests[0].tools] == ["answer", "run_code"]
