"""Defaults in a schema: each is valid in its own schema, because a model copies what it reads."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, create_model

from toolmason import Param, Tool
from toolmason._core.define.schema_nodes import iter_subschemas


class Color(Enum):
    RED = "red"


class Line(BaseModel):
    price: Decimal = Decimal("1.50")


def read_schema(hint: Any, *default: Any) -> dict[str, Any]:
    def act(value): ...

    act.__annotations__, act.__defaults__ = {"value": hint}, default or None
    return dict(Tool.from_function(act).definition.input_schema)


def read_defaults(schema: dict[str, Any]) -> list[Any]:
    """Return the defaults of a schema, each valid in its part."""
    parts = [dict(part) for part in iter_subschemas(schema) if "default" in part]
    for part in parts:
        jsonschema.validate(part["default"], {**part, "$defs": schema.get("$defs", {})})
    return [part["default"] for part in parts]


CASES = [
    pytest.param(Decimal, Decimal("1.00"), 1.0, id="Decimal"),
    pytest.param(Decimal | None, Decimal(2), 2.0, id="optional"),
    pytest.param(list[Decimal], [Decimal("1.5")], [1.5], id="list"),
    pytest.param(dict[str, Decimal], {"a": Decimal("1.5")}, {"a": 1.5}, id="dict"),
    pytest.param(Line, Line(), {"price": 1.5}, id="model"),
    pytest.param(timedelta, timedelta(hours=1), "PT1H", id="timedelta"),
    pytest.param(Color, Color.RED, "red", id="enum"),
    pytest.param(bytes, b"a", "a", id="bytes"),
    pytest.param(Path, Path("a"), "a", id="Path"),
    pytest.param(UUID, UUID(int=1), str(UUID(int=1)), id="UUID"),
    pytest.param(date, date(2024, 1, 2), "2024-01-02", id="date"),
    pytest.param(datetime, datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00Z", id="datetime"),
    pytest.param(set[Color], {Color.RED}, ["red"], id="set"),
    pytest.param(tuple[int, str], (1, "a"), [1, "a"], id="tuple"),
]


@pytest.mark.parametrize(("hint", "default", "shown"), CASES)
def test_a_default_is_valid_in_its_own_schema_at_every_depth(hint, default, shown):
    model = create_model("Model", value=(hint, default))
    marked = create_model("Marked", value=Annotated[hint, Param(default=default)])

    for schema in (read_schema(hint, default), read_schema(model), read_schema(list[marked])):
        assert shown in read_defaults(schema)


def test_the_same_holds_in_a_dataclass():
    @dataclass
    class Order:
        price: Decimal = Decimal("1.00")
        lines: list[Line] = field(default_factory=list)

    assert sorted(read_defaults(read_schema(Order))) == [1.0, 1.5]


@pytest.mark.parametrize(
    ("hint", "default"),
    [(Decimal, Decimal("12345678901234567.89")), (list[Decimal], [Decimal("NaN")]), (bytes, b"\xff")],
    ids=["digits", "NaN", "bytes"],
)
def test_a_default_without_a_json_form_is_left_out(hint, default):
    schema = read_schema(create_model("Model", value=(hint, default)))

    assert read_defaults(schema) == []
    assert "required" not in schema["$defs"]["Model"]
