"""Random signatures for property tests: types with strategies for their values, and functions made of them."""

import dataclasses
import json
import typing
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union
from uuid import UUID

from hypothesis import strategies as st
from pydantic import BaseModel, Field, PlainSerializer, TypeAdapter, create_model
from pydantic_core import PydanticSerializationUnexpectedValue
from typing_extensions import TypedDict

from toolmason import Tool, Toolbox, ToolReturn


class Colour(Enum):
    RED = "red"
    BLUE = "Blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    WORD = "word"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    weight: int
    name: str | None = None


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    weight: str
    sizes: list[str] = []


class Node(BaseModel):
    value: int
    children: list["Node"] = []


@dataclass
class Link:
    name: str
    following: typing.Optional["Link"] = None


@dataclass(frozen=True)
class Shape:
    """A type, its values, and the kinds of JSON that they are written as."""

    hint: Any
    values: st.SearchStrategy
    kinds: frozenset[str]
    hashable: bool = True

    def written(self, value) -> str:
        """Return a value as pydantic itself writes it."""
        return TypeAdapter(self.hint).dump_json(value).decode()

    def conforms(self, value) -> bool:
        """Tell whether a value is of this very type, with nothing read leniently."""
        TypeAdapter(self.hint).validate_python(value, strict=True)
        return True


def leaf(hint, values, *kinds):
    return Shape(hint, values, frozenset(kinds))


def as_number(value):
    if not isinstance(value, Decimal):
        raise PydanticSerializationUnexpectedValue("not a Decimal")  # a union tries its other types
    return float(value)


# Pydantic writes a Decimal as text; the schema says number, and so must what the property sends.
Amount = Annotated[Decimal, PlainSerializer(as_number, return_type=float, when_used="json")]
OFFSETS = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=10)
# Pydantic finds a member by equality, so in a union 1, 1.0 and true are the same to it.
LIKE_ONE = ("integer", "number", "boolean")

LEAVES = [
    leaf(str, st.text(max_size=12), "string"),
    leaf(str, st.sampled_from(["5", "5.0", "true", "null", "[1]", '{"a": 1}', "red", "LOW", "2024-01-01"]), "string"),
    leaf(int, st.integers(), "integer"),
    leaf(float, st.floats(allow_nan=False, allow_infinity=False), "number"),
    leaf(bool, st.booleans(), "boolean"),
    leaf(Amount, st.decimals(-(10**9), 10**9, places=4), "number", "integer"),
    leaf(date, st.dates(), "string"),
    leaf(datetime, st.datetimes(timezones=st.none() | OFFSETS), "string"),
    leaf(time, st.times(), "string"),
    leaf(timedelta, st.timedeltas(timedelta(days=-9999), timedelta(days=9999)), "string"),
    leaf(UUID, st.uuids(), "string"),
    leaf(Path, PATHS.map(Path), "string"),
    leaf(Colour, st.sampled_from(Colour), "string"),
    leaf(Level, st.sampled_from(Level), *LIKE_ONE),
    leaf(Mixed, st.sampled_from(Mixed), *LIKE_ONE, "string"),
    leaf(Literal["a", "B", "5"], st.sampled_from(["a", "B", "5"]), "string"),
    leaf(Literal[1, 2], st.sampled_from([1, 2]), *LIKE_ONE),
    leaf(Annotated[int, Field(ge=0, le=9)], st.integers(0, 9), "integer"),
    leaf(Annotated[str, Field(min_length=1, max_length=3)], st.text(min_size=1, max_size=3), "string"),
]

NODES = st.recursive(
    st.builds(Node, value=st.integers()),
    lambda inner: st.builds(Node, value=st.integers(), children=st.lists(inner, max_size=2)),
    max_leaves=4,
)
LINKS = st.recursive(
    st.builds(Link, name=st.text(max_size=3)), lambda inner: st.builds(Link, st.text(max_size=3), inner), max_leaves=4
)
PETS = st.builds(Cat, weight=st.integers(), name=st.none() | st.text(max_size=3)) | st.builds(
    Dog, weight=st.sampled_from(["5", "heavy"]), sizes=st.lists(st.sampled_from(["1", "xl"]), max_size=2)
)
NUMBERS, WORDS = st.lists(st.integers(), max_size=3), st.lists(st.sampled_from(["5", "x"]), max_size=3)
FIXED = [
    Shape(Node, NODES, frozenset({"object"}), hashable=False),
    Shape(Link, LINKS, frozenset({"object"}), hashable=False),
    Shape(Annotated[Cat | Dog, Field(discriminator="kind")], PETS, frozenset({"object"}), hashable=False),
    Shape(Cat | Dog, PETS, frozenset({"object"}), hashable=False),
    Shape(list[int] | list[str], NUMBERS | WORDS, frozenset({"array"}), hashable=False),
]

FIELD_NAMES = ["name", "count", "size", "tags", "from_", "value2"]


@st.composite
def records(draw, inner):
    """A BaseModel, dataclass, TypedDict or NamedTuple with random fields."""
    names = draw(st.lists(st.sampled_from(FIELD_NAMES), min_size=1, max_size=3, unique=True))
    fields = {name: draw(inner) for name in names}
    values = {name: shape.values for name, shape in fields.items()}
    kind = draw(st.sampled_from(["model", "dataclass", "typed dict", "named tuple"]))
    if kind == "model":
        model = create_model("Model", **{name: (shape.hint, ...) for name, shape in fields.items()})
        return Shape(model, st.builds(model, **values), frozenset({"object"}), hashable=False)
    if kind == "dataclass":
        data = dataclasses.make_dataclass("Data", [(name, shape.hint) for name, shape in fields.items()])
        return Shape(data, st.builds(data, **values), frozenset({"object"}), hashable=False)
    if kind == "named tuple":
        row = typing.NamedTuple("Row", [(name, shape.hint) for name, shape in fields.items()])
        # Pydantic reads a named tuple from an object too, so in a union it is both.
        return Shape(row, st.builds(row, **values), frozenset({"array", "object"}), hashable=False)
    optional = {name for name in names if draw(st.booleans())}
    hints = {name: NotRequired[shape.hint] if name in optional else shape.hint for name, shape in fields.items()}
    always = {name: strategy for name, strategy in values.items() if name not in optional}
    sometimes = {name: strategy for name, strategy in values.items() if name in optional}
    return Shape(
        TypedDict("Dict", hints),
        st.fixed_dictionaries(always, optional=sometimes),
        frozenset({"object"}),
        hashable=False,
    )


@st.composite
def containers(draw, inner):
    """A list, set, tuple or dict of something."""
    shape = draw(inner)
    few = {"max_size": 3}
    array = frozenset({"array"})
    made = [
        Shape(list[shape.hint], st.lists(shape.values, **few), array, hashable=False),
        Shape(tuple[shape.hint, ...], st.lists(shape.values, **few).map(tuple), array, hashable=False),
        Shape(tuple[shape.hint, int], st.tuples(shape.values, st.integers()), array, hashable=shape.hashable),
        Shape(
            dict[str, shape.hint],
            st.dictionaries(st.text(max_size=5), shape.values, **few),
            frozenset({"object"}),
            hashable=False,
        ),
        Shape(
            dict[int, shape.hint],
            st.dictionaries(st.integers(), shape.values, **few),
            frozenset({"object"}),
            hashable=False,
        ),
    ]
    if shape.hashable:
        made.append(Shape(set[shape.hint], st.sets(shape.values, **few), array, hashable=False))
        made.append(Shape(frozenset[shape.hint], st.frozensets(shape.values, **few), array, hashable=False))
    return draw(st.sampled_from(made))


@st.composite
def unions(draw, inner):
    """A union whose members cannot be confused once they are JSON; `None` may be one of them."""
    first = draw(inner)
    members = [first]
    for shape in draw(st.lists(inner, max_size=2)):
        if not any(shape.kinds & member.kinds for member in members):
            members.append(shape)
    if "null" not in first.kinds and (len(members) == 1 or draw(st.booleans())):
        members.append(Shape(None, st.none(), frozenset({"null"})))
    return Shape(
        Union[tuple(member.hint for member in members)],  # noqa: UP007 - members known at run time
        st.one_of(*(member.values for member in members)),
        frozenset().union(*(member.kinds for member in members)),
        hashable=all(member.hashable for member in members),
    )


def _larger(inner):
    return containers(inner) | unions(inner) | records(inner)


SHAPES = st.recursive(st.sampled_from(LEAVES) | st.sampled_from(FIXED), _larger, max_leaves=4)
NAMES = ["a", "city", "class_", "context", "values", "self_", "type", "n_1", "model_config", "schema", "json"]


@dataclass
class Function:
    """A tool `take` with a random signature; `seen` is what arrived, call by call."""

    box: Toolbox
    shapes: dict[str, Shape]
    defaults: dict[str, Any]
    seen: list[dict[str, Any]] = field(repr=False)

    @property
    def schema(self):
        return self.box["take"].definition.input_schema

    @property
    def required(self):
        return [name for name, shape in self.shapes.items() if name not in self.defaults and "null" not in shape.kinds]

    @property
    def arguments(self):
        """Values by name: those that are required, and some of the others."""
        values = {name: shape.values for name, shape in self.shapes.items()}
        always = {name: values.pop(name) for name in self.required}
        return st.fixed_dictionaries(always, optional=values)

    def written(self, arguments):
        """Return arguments as the JSON text that a model would send."""
        items = (f"{json.dumps(name)}: {self.shapes[name].written(value)}" for name, value in arguments.items())
        return "{" + ", ".join(items) + "}"

    def expected(self, arguments):
        return {name: arguments.get(name, self.defaults.get(name)) for name in self.shapes}


@st.composite
def functions(draw, **options):
    """An async function with up to four parameters of each kind and with some defaults, as a tool."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    found = {name: draw(SHAPES) for name in names}
    defaults = {name: draw(found[name].values) for name in names if draw(st.booleans())}
    # Python wants parameters with a default after those without.
    ordered = sorted(names, key=lambda name: name in defaults)
    bare, plain = sorted(draw(st.tuples(*[st.integers(0, len(names))] * 2)))
    words = [f"{name}=defaults[{name!r}]" if name in defaults else name for name in ordered]
    parts = [*words[:bare], *(["/"] if bare else []), *words[bare:plain]]
    parts += ["*", *words[plain:]] if words[plain:] else []
    return function_of(found, defaults, parts, **options)


def function_of(found, defaults, parts, **options):
    """Return a function with these parameters, written as in `def take(a, *, b=defaults["b"])`."""
    seen: list[dict[str, Any]] = []
    namespace = {"seen": seen, "defaults": defaults, "ToolReturn": ToolReturn}
    body = f"seen.append({{{', '.join(f'{name!r}: {name}' for name in found)}}}); return ToolReturn(None, content='ok')"
    exec(f"async def take({', '.join(parts)}): {body}", namespace)  # noqa: S102 - parts become a signature only when Python reads them
    take = namespace["take"]
    take.__annotations__ = {name: shape.hint for name, shape in found.items()}
    return Function(Toolbox(Tool.from_function(take, **options)), found, defaults, seen)


def same(found, wanted):
    """Tell whether two values are equal and of the same types all the way down."""
    if type(found) is not type(wanted):
        return False
    if isinstance(found, BaseModel) or dataclasses.is_dataclass(found):
        return same(vars(found), vars(wanted))
    if isinstance(found, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted
