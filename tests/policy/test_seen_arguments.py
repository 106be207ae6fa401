"""What a human decides about is what runs: inside of models too."""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from toolmason import Allow, Edit, Toolbox, tool


class Transfer(BaseModel):
    """Money on its way."""

    to: str
    amount: int = Field(1000, alias="amt")


async def test_what_a_model_adds_inside_and_nobody_reads_is_not_shown():
    seen = []

    def look(request):
        seen.append(request.arguments)
        return Allow()

    @tool(approval=True)
    def send(transfer: Transfer, note: str = "none") -> str:
        """Send money."""
        return f"{transfer.amount} to {transfer.to}"

    box = Toolbox(send, approver=look)

    result = await box.call("send", '{"transfer": {"to": "mallory", "amount": 1, "dry_run": true}}')
    plan = await box.approvals.dry_run("send", {"transfer": {"to": "mallory"}})

    assert result.text == "1000 to mallory"
    assert seen == [{"note": "none", "transfer": {"to": "mallory", "amt": 1000}}]
    assert plan.arguments["transfer"] == {"to": "mallory", "amt": 1000}


def endless() -> Iterator[int]:
    while True:
        yield 1


async def test_an_iterator_without_an_end_is_a_result_that_cannot_be_sent():
    @tool
    def ever() -> Any:
        """Never end."""
        return endless()

    result = await Toolbox(ever).call("ever", {})

    assert result.error.code == "result_error"


@pytest.mark.parametrize("limits", [{}, {"max_calls": 9}, {"approval": False, "lock": None}])
async def test_an_iterator_is_read_as_part_of_the_call(limits):
    @tool(**limits)
    async def some() -> Any:
        """Give some."""
        return map(str, [1, 2])

    assert (await Toolbox(some).call("some", {})).text == '["1","2"]'


async def test_a_pattern_with_look_around_works_and_one_that_is_none_is_named():
    @tool
    def takes(text: Annotated[str, Field(pattern=r"^(?=a)a+$")]) -> str:
        """Take."""
        return text

    box = Toolbox(takes)

    assert (await box.call("takes", {"text": "aa"})).ok
    assert (await box.call("takes", {"text": "b"})).error.code == "invalid_arguments"


@pytest.mark.parametrize(
    "edit", [{"path": "b"}, {"path": "b", "times": "1"}, {"path": "b", "times": 1}], ids=["default", "repair", "exact"]
)
async def test_an_approver_may_ask_for_the_same_arguments_each_time(edit):
    asked = []

    def change(request):
        asked.append(request.arguments)
        return Edit(edit)

    @tool(approval=True)
    def delete(path: str, times: int = 1) -> str:
        return f"{path} {times}"

    result = await Toolbox(delete, approver=change).call("delete", {"path": "a"})

    assert result.text == "b 1"
    assert [repair.path for repair in result.repairs] == (["$.times"] if edit.get("times") == "1" else [])
    assert asked == [{"path": "a", "times": 1}, {"path": "b", "times": 1}]
