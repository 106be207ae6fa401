"""One yes of the client's user is one call, and a no stays a no, however often and wherever a state is sent again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolmason import Toolbox, ToolContext, tool
from toolmason._http.caller import ANONYMOUS
from toolmason.mcp_client.specification import RpcError
from toolmason.mcp_server.call_tool import CallHandler, Request
from toolmason.mcp_server.handlers import Handlers

KEY = b"a key of a decent size"
YES: Any = {"action": "accept", "content": {"approve": True}}
NAME = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
NOES: list[Any] = [
    {"action": "accept", "content": {"approve": False}},
    {"action": "decline"},
    {"action": "cancel"},
]
UNCLEAR: list[Any] = [
    {"action": "accept", "content": {}},
    {"action": "accept", "content": {"approve": "yes"}},
    {"action": "perhaps"},
    {},
    None,
]


def served(paid: list[int], **words: Any) -> CallHandler:
    """A server whose tools pay, the second one after a question of its own."""

    @tool(approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    @tool(approval=True)
    async def pay_with_note(amount: int, ctx: ToolContext) -> str:
        note = await ctx.client.elicit("Note?", NAME, key="note")
        paid.append(amount)
        return f"paid: {note.content}"

    key = words.pop("key", None)
    return Handlers(Toolbox(pay, pay_with_note, **words), key=key).call_handler


async def send(handler: CallHandler, state: str | None = None, name: str = "pay", **answers: Any) -> Any:
    """Send a round; return the result, or the error."""
    params: dict[str, Any] = {"name": name, "arguments": {"amount": 5}}
    if state is not None:
        params |= {"requestState": state, "inputResponses": answers}
    try:
        return await handler.call(Request("tools/call", params, 1, True, ANONYMOUS, {"elicitation": {}}))
    except RpcError as error:
        return error


async def replay(answers: Sequence[Any]) -> tuple[int, list[Any]]:
    """Answer one question again and again; return how often it was paid, and what came back."""
    handler = served(paid := [])
    state = (await send(handler))["requestState"]
    found = [await send(handler, state, approval=answer) for answer in answers]
    return len(paid), found


@given(st.lists(st.sampled_from([YES, *NOES, *UNCLEAR]), min_size=1, max_size=6))
def test_d7_a_state_is_good_for_the_first_answer(answers: list[Any]):
    count, found = asyncio.run(replay(answers))

    first = next((answer for answer in answers if isinstance(answer, dict)), None)
    assert count == (first == YES)
    answered = [result for result in found if not isinstance(result, RpcError)]
    assert sum(result.get("resultType") != "input_required" for result in answered) <= 1


@pytest.mark.parametrize("no", NOES, ids=str)
async def test_d7_a_no_stays_a_no(no: Any):
    count, [refused, again] = await replay([no, YES])

    assert count == 0
    assert "declined" in refused["content"][0]["text"]
    assert str(again) == "Invalid requestState: it was already used."


async def test_d7_of_many_at_once_one_is_run():
    handler = served(paid := [])
    state = (await send(handler))["requestState"]

    await asyncio.gather(*(send(handler, state, approval=YES) for _ in range(20)))

    assert paid == [5]


async def test_d7_a_yes_that_a_later_round_carries_is_good_once():
    handler = served(paid := [])
    asked = await send(handler, name="pay_with_note")
    noted = await send(handler, asked["requestState"], "pay_with_note", approval=YES)
    note = {"action": "accept", "content": {"n": "rent"}}

    assert list(noted["inputRequests"]) == ["note"]
    results = [await send(handler, noted["requestState"], "pay_with_note", note=note) for _ in range(3)]

    assert paid == [5]
    assert [isinstance(result, RpcError) for result in results] == [False, True, True]


async def test_d7_two_calls_are_two_questions():
    handler = served(paid := [])
    states = [(await send(handler))["requestState"] for _ in range(3)]

    for state in states:
        await send(handler, state, approval=YES)

    assert len(set(states)) == len(paid) == 3


@pytest.mark.parametrize("own", [False, True], ids=["file of the user", "file of the application"])
async def test_d7_processes_with_one_key_take_a_state_once(own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paid: list[int] = []
    words: Any = {"approvals_file": tmp_path / "own.db"} if own else {}
    handlers = [served(paid, key=KEY, **words) for _ in range(3)]
    state = (await send(handlers[0]))["requestState"]

    found = [await send(handler, state, approval=YES) for handler in handlers]

    assert paid == [5]
    assert [isinstance(result, RpcError) for result in found] == [False, True, True]


async def test_d7_a_use_that_cannot_be_recorded_is_refused(tmp_path: Path):
    (tmp_path / "own.db").write_text("This is no SQLite file, and it is longer than a header. " * 20)
    handler = served(paid := [], key=KEY, approvals_file=tmp_path / "own.db")
    state = (await send(handler))["requestState"]

    found = await send(handler, state, approval=YES)

    assert paid == []
    assert str(found) == "Invalid requestState: its use cannot be recorded."
