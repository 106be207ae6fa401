"""Read the families of tools: names, parameters, requests in eight languages, results and answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "families"
SLOT = re.compile(r"\{(?:(\w+):)?(\w+)\}")
FIXED = re.compile(r" *\[(\w+)=([^\]]*)\]$")
"""Value of a parameter that a request implies, at the end of a template: `it is dark [on=true]`."""


@dataclass(frozen=True)
class Parameter:
    """Parameter of a family: its possible names, the kind of its values, and possible descriptions."""

    names: tuple[str, ...]
    kind: str
    notes: tuple[str, ...]
    is_optional: bool = False

    @property
    def slot(self) -> str:
        return self.names[0]


@dataclass
class Family:
    """Tools that do the same under different names."""

    names: tuple[str, ...]
    about: tuple[str, ...] = ()
    parameters: list[Parameter] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """Kinds of the values that occur in results."""
    requests: dict[str, list[str]] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    lists_items: bool = False


@dataclass(frozen=True)
class Formula:
    """Function that computes one quantity from named ones."""

    names: tuple[str, ...]
    thing: str
    parameters: tuple[tuple[str, str, str, bool], ...]
    """Name, how it is spoken, kind, and whether it is optional."""


@dataclass(frozen=True)
class Entity:
    """Kind of record that tools list, show, create, change and delete."""

    singular: str
    plural: str
    id_kind: str
    fields: tuple[tuple[str, str], ...]
    plurals: dict[str, str]
    samples: tuple[str, ...]


def read_families() -> list[Family]:
    """Return the families of all block files."""
    families = []
    for name in ("everyday.txt", "work.txt", "home.txt", "travel.txt", "operations.txt", "trade.txt", "services.txt"):
        for block in (FOLDER / name).read_text("utf-8").split("\n\n"):
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if lines:
                families.append(_read_block(lines))
    return families


def _read_block(lines: list[str]) -> Family:
    family = Family(())
    for line in lines:
        key, _, rest = line.partition(" ")
        if key == "tool":
            family.names = tuple(rest.split())
        elif key == "about":
            family.about = _split(rest)
        elif key in ("arg", "arg?"):
            names, kind, notes = (part.strip() for part in rest.split(" : "))
            family.parameters.append(Parameter(tuple(names.split()), kind, _split(notes), key == "arg?"))
        elif key == "let":
            name, _, kind = rest.partition(" ")
            family.variables[name] = kind
        elif key == "result":
            family.results = _split(rest)
        elif key == "say":
            family.answers = _split(rest)
        elif key == "list":
            family.lists_items = True
        else:
            family.requests.setdefault(key, []).extend(_split(rest))
    slots = {parameter.slot for parameter in family.parameters}
    required = {parameter.slot for parameter in family.parameters if not parameter.is_optional}
    for templates in family.requests.values():
        for template in templates:
            used = {slot for _, slot in SLOT.findall(template)}
            used.update(slot for slot, _ in FIXED.findall(template))
            if not used <= slots or not required <= used:
                raise ValueError(f"{family.names[0]}: {template!r} uses {used}, required {required}")
    return family


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip().replace("\\n", "\n") for part in text.split(" | "))


def read_formulas() -> list[Formula]:
    """Return the formulas."""
    return [_read_formula(line) for line in _lines("formulas.txt")]


def _read_formula(line: str) -> Formula:
    names, thing, parameters = (part.strip() for part in line.split(" : "))
    read = []
    for text in parameters.split(";"):
        name, _, rest = text.strip().partition("=")
        spoken, _, kind = rest.partition("/")
        read.append((name.rstrip("?"), spoken, kind, name.endswith("?")))
    return Formula(tuple(names.split()), thing, tuple(read))


def read_entities() -> list[Entity]:
    """Return the entities."""
    entities = []
    for line in _lines("entities.txt"):
        names, id_kind, fields, plurals, samples = (part.strip() for part in line.split(" : "))
        singular, plural = names.split()
        entities.append(
            Entity(
                singular,
                plural,
                id_kind,
                tuple((name.strip(), kind) for name, _, kind in (text.partition("=") for text in fields.split(";"))),
                dict(
                    zip(
                        ("de", "fr", "es", "it", "pt", "nl", "cs"),
                        (one.strip() for one in plurals.split(",")),
                        strict=True,
                    )
                ),
                tuple(one.strip() for one in samples.split(",")),
            )
        )
    return entities


def _lines(name: str) -> list[str]:
    return [line for line in (FOLDER / name).read_text("utf-8").splitlines() if line and not line.startswith("#")]
