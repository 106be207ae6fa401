"""`Value` compares and shows frozen data as a dataclass with generated methods does."""

import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from toolmason._value import Value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shared(Value):
    kind: ClassVar[str] = "data"
    name: str
    items: Any = ()
    secret: str = field(default="", repr=False)
    note: str = field(default="", compare=False)


class Generated:
    @dataclass(frozen=True, slots=True)
    class Shared:
        kind: ClassVar[str] = "data"
        name: str
        items: Any = ()
        secret: str = field(default="", repr=False)
        note: str = field(default="", compare=False)


SETS = [("a",), ("b",), ("a", (1, 2)), ("a", (), "x"), ("a", (), "", "n")]
if sys.version_info < (3, 13):  # dataclasses compared tuples, in which the same object is equal to itself
    SETS.append(("a", float("nan")))


@pytest.mark.parametrize("first", SETS, ids=repr)
@pytest.mark.parametrize("second", SETS, ids=repr)
def test_two_values_compare_as_generated_ones(first: tuple[Any, ...], second: tuple[Any, ...]):
    assert (Shared(*first) == Shared(*second)) is (Generated.Shared(*first) == Generated.Shared(*second))
    assert (hash(Shared(*first)) == hash(Shared(*second))) is (
        hash(Generated.Shared(*first)) == hash(Generated.Shared(*second))
    )


@pytest.mark.parametrize("given", SETS, ids=repr)
def test_a_value_is_shown_as_a_generated_one(given: tuple[Any, ...]):
    assert f"Generated.{Shared(*given)!r}" == repr(Generated.Shared(*given))


def test_a_value_that_holds_itself_can_be_shown():
    items: list[Any] = []
    items.append(Shared("a", items))

    assert "..." in repr(items[0])


def test_a_value_is_not_equal_to_one_of_another_class():
    assert Shared("a") != Generated.Shared("a")
