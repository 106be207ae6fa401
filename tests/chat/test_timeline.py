"""The timeline of a reply: its turns and calls with their time, without OpenTelemetry."""

from toolmason import Allow, Chat, Message, Toolbox, tool
from toolmason.chat import Price, Usage
from toolmason.models import ModelReply
from toolmason.testing import ScriptedModel


@tool
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool(destructive=True)
async def erase(name: str) -> str:
    """Erase a file."""
    return f"erased {name}"


async def test_each_turn_and_each_call_has_a_line_and_the_total_comes_last():
    answer = ModelReply(Message("assistant", "x" * 100), usage=Usage(1000, 234))
    script = [[("double", {"number": 1}), ("double", {"number": "x"})], answer]

    reply = await Chat(ScriptedModel(script), [double], price=Price(input=1, output=1)).send("Go.")

    first, good, bad, second, total = reply.timeline().splitlines()
    assert first.startswith("1  scripted")
    assert first.endswith("double, double")
    assert good.startswith("   └─ double")
    assert good.endswith("ok")
    assert bad.endswith("✗ invalid_arguments")
    assert "…'" in second
    assert total == "2 turns, 2 calls, 1,234 tokens, cost 0.001234, stop"


async def test_the_longest_has_the_longest_bar():
    reply = await Chat(ScriptedModel([[("double", {"number": 1})], "2"]), [double]).send("Go.")

    bars = [line.count("█") for line in reply.timeline().splitlines()]
    assert max(bars) == 20
    assert "ms" in reply.timeline()


async def test_a_resumed_run_shows_its_own_turns_only():
    chat = Chat(
        ScriptedModel([[("double", {"number": 1})], [("erase", {"name": "a"})], "done"]), Toolbox(double, erase)
    )
    waiting = await chat.send("Erase a.")
    decisions = [chat.box.approvals.decide(request, Allow()) for request in waiting.pending]

    reply = await chat.resume(waiting.save(), decisions)

    assert [line[:2].strip() for line in waiting.timeline().splitlines()] == ["1", "", "2", "", "2"]
    assert "✗ approval_required" in waiting.timeline()
    assert reply.timeline().splitlines()[0].startswith("3  scripted")


def test_a_reply_without_turns_has_a_total():
    from toolmason.chat import Reply

    assert Reply(()).timeline() == "0 turns, 0 calls, stop"
