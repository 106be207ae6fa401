"""A tool and a text → arguments that fit the tool's schema.

Lives here: parameter by parameter, what can be read off the text is read, the rest is asked of a model under a grammar
that allows nothing else, and what still does not fit is replaced. The result fits the schema, or there is none.
Not here: which tool (`choosing`), or the grammars themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from toolmason._core.values.definition import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models.lexical.extraction import Found, choices_in, codes_in, lists_in, numbers_in, quoted_in, whole_name
from toolmason.models.lexical.similarity import properties_of, stem, stems
from toolmason_local.grammars import any_of, bounded, piece_of, pieces_of
from toolmason_local.smallest_values import NOTHING, fits, resolved, smallest, with_definitions
from toolmason_local.writer import Bounds, Writer, harmless

_SHOTS: Final = """\
Copy the arguments of a function out of a request.

Function: book_table: Reserve a table in a restaurant.
Request: Please reserve a table for 4 at Luigi's on Friday evening.
restaurant (Name of the restaurant): "Luigi's"
guests (How many people): 4
day (Day of the week): "Friday"

Function: convert: Convert an amount of money.
Request: How many dollars are 250 euros?
amount (How much money): 250
source (Currency to convert from): "euros"
target (Currency to convert to): "dollars"

"""
_LONGEST_TEXT, _LONGEST_NOTE, _MOST_PARAMETERS, _DEEPEST = 1500, 160, 40, 3


def filled(writer: Writer, tool: ToolDefinition, text: str) -> dict[str, Any] | None:
    """Return arguments for a tool, out of a text; `None` where nothing that fits could be found.

    A value that the model fails to write is replaced like one that does not fit.
    """
    schema, text = tool.input_schema, text[-_LONGEST_TEXT:]
    about = f"Function: {harmless(tool.name)}: {_note(tool.description)}\nRequest: {harmless(text)}\n"
    sheet = _Sheet(writer, schema, text, _SHOTS + about, numbers_in(text), lists_in(text))
    values = sheet.fill(schema, 0)
    if fits(values, schema):
        return values
    required = schema.get("required", ())
    short = {name: value for name, value in values.items() if name in required}
    if fits(short, schema):
        return short
    least = smallest(schema, schema)
    return least if isinstance(least, dict) else None


def _note(text: str) -> str:
    return " ".join(harmless(text).split())[:_LONGEST_NOTE]


@dataclass(slots=True)
class _Sheet:
    """A form that is filled in line by line; the model sees the lines above."""

    writer: Writer
    root: Mapping[str, Any]
    text: str
    prompt: str
    numbers: list[Found]
    """Those that no parameter has taken."""
    lists: list[list[Any]]
    said: set[str] = field(default_factory=set)
    claims: dict[str, Found] = field(default_factory=dict)
    left: str = ""
    """The text without what other parameters have taken."""

    def __post_init__(self) -> None:
        self.said, self.left = set(stems(self.text)), self.text

    def fill(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return values for the properties of an object."""
        required = schema.get("required", ())
        parts = properties_of(schema)
        values: dict[str, Any] = {}
        # What must be there has the first pick of the numbers; a tool with hundreds of parameters is filled in part.
        order = [*(name for name in parts if name in required), *(name for name in parts if name not in required)]
        strings = sum(_kind(parts[name], self.root) == "string" for name in order if name in required)
        self.claims = self.claimed(order)
        for place, name in enumerate(order):
            part = resolved(parts[name], self.root)
            must = name in required
            if not must and (place >= _MOST_PARAMETERS or not self.is_meant(name, part)):
                continue
            value = self.value(name, part, alone=must and strings == 1, depth=depth)
            whole = with_definitions(parts[name], self.root)
            if value is NOTHING or not fits(value, whole):
                value = smallest(parts[name], self.root) if must else NOTHING
            if value is not NOTHING:
                values[name] = value
                self.prompt += f"{self.line(name, part)}{json.dumps(value, ensure_ascii=False)}\n"
        return values

    @staticmethod
    def line(name: str, part: Mapping[str, Any]) -> str:
        note = _note(str(part.get("description", "")))
        return f"{harmless(name)} ({note}): " if note else f"{harmless(name)}: "

    def is_meant(self, name: str, part: Mapping[str, Any]) -> bool:
        """Tell whether a text says anything about a parameter that may be left out."""
        kind, choices = part.get("type"), part.get("enum")
        if isinstance(choices, list):
            return bool(choices_in(self.text, choices))
        own = set(stems(name))
        named = bool(own) and own <= self.said
        if kind in ("integer", "number"):
            return any(kind == "number" or found.value.is_integer() for found in self.numbers)
        return named

    def value(self, name: str, part: Mapping[str, Any], *, alone: bool, depth: int) -> Any:
        """Return a value for a parameter, or `NOTHING`."""
        if "const" in part:
            return part["const"]
        if isinstance(choices := part.get("enum"), list) and choices:
            named = choices_in(self.text, choices)
            return named[0] if len(named) == 1 else self.asked(name, part, Bounds(grammar=any_of(named or choices)))
        kind = part.get("type")
        if kind in ("integer", "number"):
            return self.number(name, part, whole=kind == "integer")
        if kind == "boolean":
            return self.truth(name, part)
        if kind == "string":
            return self.string(name, part, alone=alone)
        if kind == "array":
            return self.array(name, part)
        if kind == "object" and properties_of(part) and depth < _DEEPEST:
            self.prompt += f"{self.line(name, part)}\n"
            return self.fill(part, depth + 1)
        return self.free(name, part)

    def number(self, name: str, part: Mapping[str, Any], *, whole: bool) -> Any:
        usable = [
            found for found in self.numbers if fits(_plain(found), part) and (found.value.is_integer() or not whole)
        ]
        if not usable:
            return part["default"] if "default" in part else self.free(name, part)
        mine = [found for found in usable if self.claims.get(name) is found]
        free = [found for found in usable if not any(found is other for other in self.claims.values())]
        taken = (mine or free or usable)[0]
        self.numbers.remove(taken)
        return _plain(taken)

    def claimed(self, names: Sequence[str]) -> dict[str, Found]:
        """Return the numbers that stand beside a parameter's own words: in "3 bedrooms for 500" the 3 is `bedrooms`."""
        claims: dict[str, Found] = {}
        # The word after a number says more than the others around it.
        for reach in (1, None):
            for name in names:
                own = set(stems(name))
                left = [found for found in self.numbers if not any(found is other for other in claims.values())]
                beside = [found for found in left if own & set(map(stem, found.near[:reach]))]
                if name not in claims and beside:
                    claims[name] = beside[0]
        return claims

    def truth(self, name: str, part: Mapping[str, Any]) -> Any:
        own = set(stems(name))
        if own and own <= self.said:
            return True
        return part["default"] if "default" in part else self.asked(name, part, Bounds(grammar=any_of([True, False])))

    def string(self, name: str, part: Mapping[str, Any], *, alone: bool) -> Any:
        marked = quoted_in(self.text) or codes_in(self.text)
        if alone and len(marked) == 1 and fits(marked[0], part):
            self.left = self.left.replace(marked[0], " ", 1)
            return marked[0]
        grammar = piece_of(harmless(self.left)) or piece_of(harmless(self.text))
        value = NOTHING if grammar is None else self.asked(name, part, Bounds(grammar=grammar))
        if not isinstance(value, str):
            return self.free(name, part)
        longer = whole_name(value, self.text)
        value = longer if fits(longer, part) else value
        self.left = self.left.replace(value, " ", 1)
        return value

    def array(self, name: str, part: Mapping[str, Any]) -> Any:
        for written in self.lists:
            if fits(written, with_definitions(part, self.root)):
                self.lists.remove(written)
                return written
        kind = _kind(part.get("items"), self.root)
        if kind in ("integer", "number"):
            values = [_plain(found) for found in self.numbers if kind == "number" or found.value.is_integer()]
            self.numbers.clear()
            return values
        if kind == "string" and (grammar := pieces_of(harmless(self.text))) is not None:
            values = self.asked(name, part, Bounds(grammar=grammar, most=96))
            # A model this small repeats itself until the grammar ends the list.
            return list(dict.fromkeys(map(str, values))) if isinstance(values, list) else NOTHING
        return self.free(name, part)

    def free(self, name: str, part: Mapping[str, Any]) -> Any:
        """Return whatever the model writes under the schema."""
        return self.asked(name, part, Bounds(schema=bounded(with_definitions(part, self.root)), most=128))

    def asked(self, name: str, part: Mapping[str, Any], bounds: Bounds) -> Any:
        try:
            written = self.writer.write(self.prompt + self.line(name, part), bounds)
            return from_json(written.text) if written.whole else NOTHING
        except (ModelError, ValueError):
            # A schema that llama.cpp cannot turn into a grammar costs this value, not the call.
            return NOTHING


def _plain(found: Found) -> float | int:
    return int(found.value) if found.value.is_integer() else found.value


def _kind(part: Any, root: Mapping[str, Any]) -> Any:
    return resolved(part, root).get("type")
