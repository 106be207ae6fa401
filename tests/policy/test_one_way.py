"""One way for every call: everything that runs, under every policy, in every way of calling.

A cell of the table is run, or has a reason why it does not apply.
"""

import asyncio
import itertools
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_server.sample_server import Running, running
from policy import one_way
from policy.one_way import BOUND, ENTERED, LEFT, POLICIES, ROWS, Policy, Work
from policy.ways import CHECKS, WAYS, Outcome, Request, ask, is_recorded, is_refused_at_last, make_request
from toolmason import McpServer, Toolbox

ALL_WAYS = (*WAYS, "served stdio", "served HTTP")
ALL_ROWS = (*ROWS, "remote stdio", "remote HTTP")

NOT_A_CALL = "the application asks for it; it is not a call of a model"
AROUND = "it runs around the attempts and the slots of its tool: a person who decides must not hold one"
CHANGES_NOTHING = "it gets no arguments and gives no answer of its own"
ON_THE_LOOP = "a sync function on the loop blocks it, as the developer chose"
ONE_PROCESS = "one command makes one call"
OWN_ERRORS = "the server writes the message for the model, and redacts it by its own policy"
STAYS_HERE = "a context stays on this side; `send_context=` names what is sent"
NOT_LISTED = "a client sees the tools that are listed, and a resolver lists none"
ELSEWHERE = "the log is that of another process"
NO_LISTENER = "the caller cannot listen to progress in this way"
SAME_CODE = "the wire is the point, and one way shows it"
WORKER = "it kills a worker process, whose start takes half a second; one way shows it"
BEHIND = "the row `in-memory server` shows a server behind this way, without another process"
IN_TURN = "decided calls run one after the other"
USED_UP = "the server counts the calls of every client, so one way uses the limit up"
WHOLE = "the server's structured data, cut off, would not match its schema; a gateway sends it whole"
NOT_REACHED = "a server that cannot be reached is not asked again by the same call"

ANY = "*"
REMOTE = ("in-memory server", "remote stdio", "remote HTTP")
DOES_NOT_APPLY: dict[tuple[str, str, str], str] = {
    **{
        (row, ANY, way): NOT_A_CALL
        for row in ("prompt", "resource")
        for way in ALL_WAYS
        if way not in ("call", "gateway")
    },
    **{
        (row, policy, ANY): NOT_A_CALL
        for row in ("prompt", "resource")
        for policy in ("retry", "approval", "max_calls", "lock", "rate", "hook", "progress", "result_cap", "record")
    },
    **{(row, "redaction", "call"): "the application gets the exception itself" for row in ("prompt", "resource")},
    **{
        (row, policy, ANY): AROUND
        for row in ("approver", "hook")
        for policy in ("retry", "max_concurrency", "lock", "context", "progress")
    },
    ("approver", "approval", ANY): "it is the approver",
    **{
        ("auth", policy, ANY): CHANGES_NOTHING
        for policy in (
            "approval",
            "max_calls",
            "max_concurrency",
            "lock",
            "rate",
            "hook",
            "progress",
            "result_cap",
            "record",
        )
    },
    ("auth", "retry", ANY): NOT_REACHED,
    **{("loop", policy, ANY): ON_THE_LOOP for policy in ("timeout", "cancel")},
    **{(row, "redaction", ANY): OWN_ERRORS for row in REMOTE},
    **{(row, "context", ANY): STAYS_HERE for row in REMOTE},
    **{("resolver-made", ANY, way): NOT_LISTED for way in ("gateway", "command line")},
    **{(ANY, "progress", way): NO_LISTENER for way in ("Chat.send", "Chat.resume", "command line")},
    **{(ANY, policy, "command line"): ONE_PROCESS for policy in ("max_concurrency", "lock")},
    (ANY, "cancel", "command line"): "Ctrl-C ends the command: tests/cli/test_ends.py",
    **{(ANY, policy, "Chat.resume"): IN_TURN for policy in ("max_concurrency", "lock")},
    **{("process", policy, way): WORKER for policy in ("timeout", "cancel") for way in ALL_WAYS if way != "call"},
    **{(row, ANY, way): BEHIND for row in ("remote stdio", "remote HTTP") for way in ("gateway", "command line")},
    **{(row, ANY, way): SAME_CODE for row in ALL_ROWS if row != "async" for way in ("served stdio", "served HTTP")},
    **{
        (row, policy, way): USED_UP
        for row in ("remote stdio", "remote HTTP")
        for policy in ("max_calls", "rate")
        for way in ALL_WAYS
        if way != "call"
    },
    (ANY, "record", "served stdio"): ELSEWHERE,
    ("in-memory server", "result_cap", "gateway"): WHOLE,
}
"""(row, column, way), each of them a name or `ANY`, and why the cell is empty."""


def find_reason(row: str, policy: str, way: str) -> str | None:
    keys = itertools.product((row, ANY), (policy, ANY), (way, ANY))
    return next((DOES_NOT_APPLY[key] for key in keys if key in DOES_NOT_APPLY), None)


TABLE = [*itertools.product(ALL_ROWS, POLICIES, ALL_WAYS)]
CELLS = [cell for cell in TABLE if find_reason(*cell) is None]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def http_server() -> Iterator[Running]:
    with running(one_way.make_served_box()) as found:
        yield found


@pytest.fixture(scope="module")
async def over_http(http_server: Running, anyio_backend: str) -> AsyncIterator[Toolbox]:
    async with Toolbox(McpServer.http("served", http_server.url)) as box:
        yield box


@pytest.fixture(scope="module")
async def over_stdio(anyio_backend: str) -> AsyncIterator[Toolbox]:
    tests = Path(__file__).parents[1]
    script = str(tests / "policy" / "one_way.py")
    server = McpServer.stdio("served", sys.executable, [script], env={"PYTHONPATH": str(tests)}, connect_timeout=60)
    async with Toolbox(server) as box:
        yield box


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    one_way.start_afresh()
    yield
    one_way.RELEASE.set()


Wires = tuple[Toolbox, Toolbox]
"""Toolboxes that are connected to the same tools over stdio and over HTTP."""


def prepare(row: str, policy: Policy, way: str, wires: Wires | None = None) -> tuple[Request, Awaitable[list[Outcome]]]:
    """Return the calls of a cell, and the work of making them."""
    options: dict[str, Any] = {"approve": "all"} if "resume" in way and policy.name != "approval" else {}
    if wires is None:
        request = make_request(policy, ROWS[row](policy, **options))
        is_asked = request.work.kind != "tool" and way == "call"
        return request, ask(request.box, request) if is_asked else WAYS[way](request)
    wire = wires["HTTP" in row + way]
    if way in WAYS:
        request = make_request(policy, one_way.make_remote(wire)(policy, **options))
        return request, WAYS[way](request)
    request = make_request(policy, Work(wire, f"{policy.name}_work"))
    return request, ask(wire, request)


def is_on_a_wire(cell: tuple[str, str, str]) -> bool:
    return cell[0] not in ROWS or cell[2] not in WAYS


def name_cells(cells: list[tuple[str, str, str]]) -> list[Any]:
    """Return the cells as parameters, each with its name."""
    return [pytest.param(*cell, id="-".join(cell)) for cell in cells]


def make_cells(*, on_a_wire: bool) -> list[Any]:
    """Return the cells to run, without those that are cancelled."""
    cells = [cell for cell in CELLS if cell[1] != "cancel" and is_on_a_wire(cell) is on_a_wire]
    return name_cells(cells)


async def check_cell(cell: tuple[str, str, str], caplog: pytest.LogCaptureFixture, wires: Wires | None = None) -> None:
    row, column, way = cell
    caplog.set_level(logging.DEBUG if column == "record" else logging.CRITICAL, "toolmason")
    made, work = prepare(row, POLICIES[column], way, wires)
    if (row, column) == ("process", "timeout"):
        # The start of a worker is bounded as well; here the tool is to be.
        assert (await made.box.call(made.work.name, {"how": "answer"}, timeout=30)).ok

    outcomes = await asyncio.wait_for(work, BOUND)

    if column != "record":
        CHECKS[column](outcomes, made)
        return
    is_recorded(outcomes, made, caplog.text)
    if way in ("run", "Chat.send", "stream"):
        is_refused_at_last(outcomes)


@pytest.mark.parametrize(("row", "column", "way"), make_cells(on_a_wire=False))
async def test_a_policy_holds(row: str, column: str, way: str, caplog: pytest.LogCaptureFixture):
    await check_cell((row, column, way), caplog)


@pytest.mark.parametrize(("row", "column", "way"), make_cells(on_a_wire=True))
async def test_a_policy_holds_over_a_wire(
    row: str, column: str, way: str, caplog: pytest.LogCaptureFixture, over_stdio: Toolbox, over_http: Toolbox
):
    await check_cell((row, column, way), caplog, (over_stdio, over_http))


SEES_CANCELLATION = [row for row in ROWS if row not in ("process", "prompt", "resource", "auth")]
"""Rows whose code can notice that it was cancelled."""


async def check_cancellation(row: str, way: str, wires: Wires | None = None) -> None:
    made, work = prepare(row, POLICIES["cancel"], way, wires)
    task = asyncio.ensure_future(work)
    # What begins in another process does not show here.
    await asyncio.to_thread(ENTERED.wait, BOUND if wires is None and row != "process" else one_way.SHORT)

    if made.cancel is not None:
        made.cancel()
        outcomes = await asyncio.wait_for(task, BOUND)

        assert not any(item.ok for item in outcomes)
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, BOUND)
    if row in SEES_CANCELLATION and wires is None:
        assert await asyncio.to_thread(LEFT.wait, BOUND)


CANCELLED = [cell for cell in CELLS if cell[1] == "cancel"]


@pytest.mark.parametrize(("row", "column", "way"), name_cells([cell for cell in CANCELLED if not is_on_a_wire(cell)]))
async def test_a_cancelled_call_ends(row: str, column: str, way: str):
    await check_cancellation(row, way)


@pytest.mark.parametrize(("row", "column", "way"), name_cells([cell for cell in CANCELLED if is_on_a_wire(cell)]))
async def test_a_cancelled_call_over_a_wire_ends(
    row: str, column: str, way: str, over_stdio: Toolbox, over_http: Toolbox
):
    await check_cancellation(row, way, (over_stdio, over_http))


def test_every_cell_is_run_or_has_a_reason():
    assert {*CHECKS, "cancel", "record"} == POLICIES.keys()
    assert {cell for cell in TABLE if find_reason(*cell) is None} == {*CELLS}
    assert all(reason for reason in DOES_NOT_APPLY.values())


def test_every_reason_is_for_a_cell_of_the_table():
    def covers(key: tuple[str, str, str]) -> bool:
        return all(
            name == ANY or name in known for name, known in zip(key, (ALL_ROWS, POLICIES, ALL_WAYS), strict=True)
        )

    assert [key for key in DOES_NOT_APPLY if not covers(key)] == []


@pytest.mark.parametrize("row", ALL_ROWS)
def test_every_row_has_a_cell_that_is_run(row: str):
    assert any(cell[0] == row for cell in CELLS)


@pytest.mark.parametrize("way", ALL_WAYS)
@pytest.mark.parametrize("column", POLICIES)
def test_every_policy_is_run_in_every_way_that_can_show_it(column: str, way: str):
    assert any(cell[1:] == (column, way) for cell in CELLS) or (ANY, column, way) in DOES_NOT_APPLY
