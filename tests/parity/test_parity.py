"""One set of tools, in every way in which a toolbox may have them: each field of a result is that of a local tool."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parity.cases import ABSENT, CASES, Case, Fields
from parity.differences import DIFFERENCES, HTTP, WIRE, find_difference, make_table
from parity.ways import install_shelf, open_ways

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "parity.md"
WAYS = (*WIRE, "nested toolbox", "manifest")
Outcomes = dict[str, list[list[Fields]]]
"""What each way gave for each case, in the order of the cases."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def outcomes(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Outcomes]:
    folder = tmp_path_factory.mktemp("parity")
    with install_shelf(folder) as shelf:
        async with open_ways(shelf, folder) as boxes:
            yield {way: [await case.run(box) for case in CASES] for way, box in boxes.items()}


def find_fields(near: list[Fields], far: list[Fields]) -> list[tuple[Fields, Fields, str]]:
    """Return the fields that differ, each with the results that it is a field of."""
    found = []
    for one, other in zip(near, far, strict=True):
        for name in sorted(one.keys() | other.keys()):
            values = one.get(name, ABSENT), other.get(name, ABSENT)
            if values[0] != values[1] or type(values[0]) is not type(values[1]):
                found.append((one, other, name))
    return found


def explain(way: str, case: Case, near: list[Fields], far: list[Fields]) -> list[str]:
    """Return a line for each difference that no row of the table is for."""
    return [
        f"{way}, {case.id}: {name} is {other.get(name, ABSENT)!r}, not {one.get(name, ABSENT)!r}"
        for one, other, name in find_fields(near, far)
        if not any(row.holds(one, other) for row in find_difference(way, case.id, name))
    ]


@pytest.mark.row("AJ-10")
@pytest.mark.parametrize("way", WAYS)
async def test_a_result_is_the_same_in_every_way(way: str, outcomes: Outcomes):
    defects = [
        line
        for case, near, far in zip(CASES, outcomes["local"], outcomes[way], strict=True)
        for line in explain(way, case, near, far)
    ]

    assert not defects, "\n".join(defects)


async def test_every_row_of_the_table_is_needed(outcomes: Outcomes):
    needed: set[Any] = set()
    for way in WAYS:
        for case, near, far in zip(CASES, outcomes["local"], outcomes[way], strict=True):
            for _, _, name in find_fields(near, far):
                needed.update((row, way) for row in find_difference(way, case.id, name))

    assert [(row.what, way) for row in DIFFERENCES for way in row.ways if (row, way) not in needed] == []


@pytest.mark.parametrize("name", ["value", "text", "attempts", "error.code", "error.retryable", "meta", "repairs"])
async def test_a_field_that_differs_is_told(name: str, outcomes: Outcomes):
    """A seeded defect: the suite fails if one field of one result is another."""
    index = next(number for number, case in enumerate(CASES) if case.id == "complain")
    near, far = outcomes["local"][index], outcomes["gateway"][index]
    wrong = [{**far[0], name: "wrong"}, *far[1:]]

    assert explain("gateway", CASES[index], near, far) == []
    assert [line.split(" is ")[0] for line in explain("gateway", CASES[index], near, wrong)] == [
        f"gateway, complain: {name}"
    ]


def test_the_page_lists_the_differences():
    assert make_table() in PAGE.read_text("utf-8")
    assert set(HTTP) < set(WIRE)


def test_the_set_has_forty_tools():
    assert len({case.tool for case in CASES}) >= 40
