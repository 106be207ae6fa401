"""What a problem of an argument says: what is wrong, and what to send instead."""

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field, SecretStr, model_validator

from toolmason import Tool, Toolbox
from toolmason.errors import ArgumentProblem


def check_positive(number: int) -> int:
    if number <= 0:
        raise ValueError("must be positive")
    return number


Positive = Annotated[int, AfterValidator(check_positive)]
ACCEPTED = "a value that the tool accepts"


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def check(self) -> "Range":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog", "hound"]


class Key(BaseModel):
    kind: Literal["key"]
    secret: SecretStr


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Owner(BaseModel):
    pets: list[Pet] = []
    favourite: Pet | None = None
    names: dict[str, Pet] = {}


def find_problems(hint: Any, value: Any) -> list[ArgumentProblem]:
    def take(value): ...

    take.__annotations__ = {"value": hint}
    return list(Toolbox(Tool.from_function(take)).call_sync("take", json.dumps({"value": value})).error.problems)


@pytest.mark.parametrize(
    ("hint", "value", "message", "expected"),
    [
        (Positive, -1, "must be positive", ACCEPTED),
        (Positive | str, -1, "must be positive", ACCEPTED),
        (str | Positive, -1, "must be positive", ACCEPTED),
        (Range, {"low": 2, "high": 1}, "low is above high", ACCEPTED),
        (Decimal, None, "input should be a valid number, not null", "number"),
        (UUID, "x", "input should be a valid UUID, invalid character: found `x` at 0", "a valid UUID"),
    ],
    ids=["validator", "first of a union", "last of a union", "model", "decimal", "UUID"],
)
def test_a_problem_says_what_is_wrong_and_what_is_expected(hint, value, message, expected):
    [problem] = find_problems(hint, value)

    assert (problem.message, problem.expected) == (message, expected)


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (timedelta, "a valid duration, such as PT1H"),
        (time, "a valid time, such as 15:30:00"),
        (date, "a valid date, such as 2024-01-31"),
        (datetime, "a valid datetime, such as 2024-01-31T15:30:00Z"),
    ],
    ids=["duration", "time", "date", "datetime"],
)
def test_the_problem_of_a_date_shows_one(hint, shown):
    (text,), (number,) = find_problems(hint, "1h"), find_problems(hint, 5)

    assert text.expected == number.expected == shown
    assert text.message.startswith(f"input should be {shown} (")
    assert number.message == f"input should be {shown}"


@pytest.mark.parametrize(
    ("hint", "wrap", "path"),
    [
        (Pet, lambda pet: pet, "$.value"),
        (Owner, lambda pet: {"pets": [{"kind": "cat"}, pet]}, "$.value.pets[1]"),
        (Owner, lambda pet: {"favourite": pet}, "$.value.favourite"),
        (Owner, lambda pet: {"names": {"a": pet}}, "$.value.names.a"),
    ],
    ids=["argument", "list", "optional", "dict"],
)
def test_a_discriminator_is_named_with_its_values(hint, wrap, path):
    kinds = "'cat', 'dog' or 'hound'"

    missing, wrong = find_problems(hint, wrap({"lives": 1})), find_problems(hint, wrap({"kind": "cow"}))

    assert missing == [(f"{path}.kind", f"required but missing: {kinds}", kinds, "nothing")]
    assert wrong == [(f"{path}.kind", f"input should be {kinds}", kinds, "string 'cow'")]


def test_a_wrong_discriminator_shows_no_secret():
    hint = Annotated[Cat | Key, Field(discriminator="kind")]

    problems = find_problems(hint, {"kind": "cow", "secret": "SENTINEL"})

    assert problems == [("$.value.kind", "input should be 'cat' or 'key'", "'cat' or 'key'", "string 'cow'")]
