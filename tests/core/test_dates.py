"""Dates that a model sends: text that is only a number is not one."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import AwareDatetime, BaseModel, Field, PastDate
from typing_extensions import TypeAliasType, TypedDict

from toolmason import Tool, Toolbox, ToolResult
from toolmason.errors import InvalidArguments

Moment = TypeAliasType("Moment", datetime)


class Event(BaseModel):
    at: datetime
    days: list[date] = []
    parts: list["Event"] = []


@dataclass
class Slot:
    at: datetime


class Row(TypedDict):
    at: date


class Pair(NamedTuple):
    at: date


class Cat(BaseModel):
    kind: Literal["cat"]
    born: date


class Dog(BaseModel):
    kind: Literal["dog"]


def call(hint: Any, value: Any, *, as_text: bool = True) -> ToolResult:
    def take(value):
        return repr(value)

    take.__annotations__ = {"value": hint, "return": str}
    arguments = {"value": value}
    return Toolbox(Tool.from_function(take)).call_sync("take", json.dumps(arguments) if as_text else arguments)


DAY, MOMENT = "2024-01-02", "2024-01-02T03:04:05Z"
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "mapping"])
@pytest.mark.parametrize(
    ("hint", "valid", "wrong"),
    [
        pytest.param(datetime, MOMENT, "20240101", id="datetime"),
        pytest.param(datetime, MOMENT, "-1.5", id="negative"),
        pytest.param(date, DAY, "0", id="date"),
        pytest.param(time, "10:00", "36000", id="time"),
        pytest.param(timedelta, "PT1H", "3600", id="PT1H"),
        pytest.param(timedelta, "1:00:00", "3600", id="1:00:00"),
        pytest.param(date | None, DAY, "0", id="optional"),
        pytest.param(int | date, DAY, "0.0", id="union"),
        pytest.param(list[datetime], [MOMENT], ["2024"], id="list"),
        pytest.param(dict[date, int], {DAY: 1}, {"0": 1}, id="keys"),
        pytest.param(Event, {"at": MOMENT, "days": [DAY]}, {"at": "2024"}, id="model"),
        pytest.param(Event, {"at": MOMENT}, {"at": MOMENT, "parts": [{"at": "2024"}]}, id="recursive"),
        pytest.param(Slot, {"at": MOMENT}, {"at": "2024"}, id="dataclass"),
        pytest.param(Row, {"at": DAY}, {"at": "0"}, id="typed dict"),
        pytest.param(Pair, [DAY], ["0"], id="named tuple"),
        pytest.param(Pet, {"kind": "cat", "born": DAY}, {"kind": "cat", "born": "0"}, id="discriminator"),
        pytest.param(list[Moment] | Moment, MOMENT, "2024", id="alias"),
        pytest.param(AwareDatetime, MOMENT, "2024", id="aware"),
        pytest.param(Annotated[PastDate, Field(gt=date(2020, 1, 1))], DAY, "1600000000", id="bounds"),
    ],
)
def test_text_that_is_only_a_number_is_not_a_date(hint: Any, valid: Any, wrong: Any, *, as_text: bool):
    accepted = call(hint, valid, as_text=as_text)
    refused = call(hint, wrong, as_text=as_text)

    assert accepted.ok, accepted.text
    assert not accepted.repairs
    assert isinstance(refused.error, InvalidArguments)


def test_the_problem_shows_a_date_and_its_place():
    [problem] = call(list[date], [DAY, "0"]).error.problems

    assert problem.path == "$.value[1]"
    assert problem.expected == "a valid date, such as 2024-01-31, not a number"
    assert problem.got == "string '0'"


def test_a_number_in_text_stays_text_where_text_is_accepted():
    assert call(date | str, "2024").value == "'2024'"
    assert call(date | str, DAY).value == "datetime.date(2024, 1, 2)"


def test_a_datetime_object_passes_as_it_is():
    moment = datetime(2024, 1, 2, 3, 4, tzinfo=UTC)

    assert call(datetime, moment, as_text=False).value == repr(moment)
