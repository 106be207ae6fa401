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

from toolmason import ToolDefinition
from toolmason.errors import ModelError
from toolmason.models.lexical.extraction import (
    FoundNumber,
    expand_name,
    find_choices,
    find_codes,
    find_lists,
    find_numbers,
    find_quoted,
)
from toolmason.models.lexical.similarity import extract_stems, get_properties, stem
from toolmason_local.grammars import limit_lengths, make_choice_grammar, make_phrase_grammar, make_phrase_list_grammar
from toolmason_local.smallest_values import NO_VALUE, find_smallest, is_valid, resolve, with_definitions
from toolmason_local.writer import GenerationLimits, TextGenerator, escape_special_tokens

_EXAMPLES: Final = """\
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
_MAX_TEXT_CHARS, _MAX_NOTE_CHARS, _MAX_PARAMETERS, _MAX_DEPTH = 1500, 160, 40, 3


def fill_arguments(writer: TextGenerator, tool: ToolDefinition, text: str) -> dict[str, Any] | None:
    """Return arguments for a tool, out of a text; `None` where nothing that fits could be found.

    A value that the model fails to write is replaced like one that does not fit.
    """
    schema, text = tool.input_schema, text[-_MAX_TEXT_CHARS:]
    function = f"Function: {escape_special_tokens(tool.name)}: {_shorten_note(tool.description)}"
    header = f"{function}\nRequest: {escape_special_tokens(text)}\n"
    form = _ArgumentForm(writer, schema, text, _EXAMPLES + header, find_numbers(text), find_lists(text))
    values = form.fill_object(schema, 0)
    if is_valid(values, schema):
        return values
    required = schema.get("required", ())
    required_values = {name: value for name, value in values.items() if name in required}
    if is_valid(required_values, schema):
        return required_values
    smallest_values = find_smallest(schema, schema)
    return smallest_values if isinstance(smallest_values, dict) else None


def _shorten_note(text: str) -> str:
    return " ".join(escape_special_tokens(text).split())[:_MAX_NOTE_CHARS]


@dataclass(slots=True)
class _ArgumentForm:
    """A form that is filled in line by line; the model sees the lines above."""

    writer: TextGenerator
    root: Mapping[str, Any]
    text: str
    prompt: str
    numbers: list[FoundNumber]
    """Those that no parameter has taken."""
    lists: list[list[Any]]
    text_stems: set[str] = field(default_factory=set)
    number_claims: dict[str, FoundNumber] = field(default_factory=dict)
    remaining_text: str = ""
    """The text without what other parameters have taken."""

    def __post_init__(self) -> None:
        self.text_stems, self.remaining_text = set(extract_stems(self.text)), self.text

    def fill_object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return values for the properties of an object."""
        required = schema.get("required", ())
        parts = get_properties(schema)
        values: dict[str, Any] = {}
        # What must be there has the first pick of the numbers; a tool with hundreds of parameters is filled in part.
        order = [*(name for name in parts if name in required), *(name for name in parts if name not in required)]
        strings = sum(_get_kind(parts[name], self.root) == "string" for name in order if name in required)
        self.number_claims = self.match_numbers(order)
        for index, name in enumerate(order):
            part = resolve(parts[name], self.root)
            is_required = name in required
            if not is_required and (index >= _MAX_PARAMETERS or not self.is_mentioned(name, part)):
                continue
            value = self.find_value(name, part, is_only_string=is_required and strings == 1, depth=depth)
            standalone = with_definitions(parts[name], self.root)
            if value is NO_VALUE or not is_valid(value, standalone):
                value = find_smallest(parts[name], self.root) if is_required else NO_VALUE
            if value is not NO_VALUE:
                values[name] = value
                self.prompt += f"{self.format_line(name, part)}{json.dumps(value, ensure_ascii=False)}\n"
        return values

    @staticmethod
    def format_line(name: str, part: Mapping[str, Any]) -> str:
        note = _shorten_note(str(part.get("description", "")))
        return f"{escape_special_tokens(name)} ({note}): " if note else f"{escape_special_tokens(name)}: "

    def is_mentioned(self, name: str, part: Mapping[str, Any]) -> bool:
        """Tell whether a text says anything about a parameter that may be left out."""
        kind, choices = part.get("type"), part.get("enum")
        if isinstance(choices, list):
            return bool(find_choices(self.text, choices))
        name_stems = set(extract_stems(name))
        is_named = bool(name_stems) and name_stems <= self.text_stems
        if kind in ("integer", "number"):
            return any(kind == "number" or found.value.is_integer() for found in self.numbers)
        return is_named

    def find_value(self, name: str, part: Mapping[str, Any], *, is_only_string: bool, depth: int) -> Any:
        """Return a value for a parameter, or `NOTHING`."""
        if "const" in part:
            return part["const"]
        if isinstance(choices := part.get("enum"), list) and choices:
            named = find_choices(self.text, choices)
            return (
                named[0]
                if len(named) == 1
                else self.ask_model(name, part, GenerationLimits(grammar=make_choice_grammar(named or choices)))
            )
        kind = part.get("type")
        if kind in ("integer", "number"):
            return self.find_number(name, part, is_integer=kind == "integer")
        if kind == "boolean":
            return self.find_boolean(name, part)
        if kind == "string":
            return self.find_string(name, part, is_only_string=is_only_string)
        if kind == "array":
            return self.find_array(name, part)
        if kind == "object" and get_properties(part) and depth < _MAX_DEPTH:
            self.prompt += f"{self.format_line(name, part)}\n"
            return self.fill_object(part, depth + 1)
        return self.ask_with_schema(name, part)

    def find_number(self, name: str, part: Mapping[str, Any], *, is_integer: bool) -> Any:
        usable = [
            found
            for found in self.numbers
            if is_valid(_to_number(found), part) and (found.value.is_integer() or not is_integer)
        ]
        if not usable:
            return part["default"] if "default" in part else self.ask_with_schema(name, part)
        claimed = [found for found in usable if self.number_claims.get(name) is found]
        unclaimed = [found for found in usable if not any(found is other for other in self.number_claims.values())]
        taken = (claimed or unclaimed or usable)[0]
        self.numbers.remove(taken)
        return _to_number(taken)

    def match_numbers(self, names: Sequence[str]) -> dict[str, FoundNumber]:
        """Return the numbers that stand beside a parameter's own words: in "3 bedrooms for 500" the 3 is `bedrooms`."""
        claims: dict[str, FoundNumber] = {}
        # The word after a number says more than the others around it.
        for reach in (1, None):
            for name in names:
                name_stems = set(extract_stems(name))
                unclaimed = [found for found in self.numbers if not any(found is other for other in claims.values())]
                beside = [found for found in unclaimed if name_stems & set(map(stem, found.nearby_words[:reach]))]
                if name not in claims and beside:
                    claims[name] = beside[0]
        return claims

    def find_boolean(self, name: str, part: Mapping[str, Any]) -> Any:
        name_stems = set(extract_stems(name))
        if name_stems and name_stems <= self.text_stems:
            return True
        return (
            part["default"]
            if "default" in part
            else self.ask_model(name, part, GenerationLimits(grammar=make_choice_grammar([True, False])))
        )

    def find_string(self, name: str, part: Mapping[str, Any], *, is_only_string: bool) -> Any:
        marked = find_quoted(self.text) or find_codes(self.text)
        if is_only_string and len(marked) == 1 and is_valid(marked[0], part):
            self.remaining_text = self.remaining_text.replace(marked[0], " ", 1)
            return marked[0]
        grammar = make_phrase_grammar(escape_special_tokens(self.remaining_text)) or make_phrase_grammar(
            escape_special_tokens(self.text)
        )
        value = NO_VALUE if grammar is None else self.ask_model(name, part, GenerationLimits(grammar=grammar))
        if not isinstance(value, str):
            return self.ask_with_schema(name, part)
        longer = expand_name(value, self.text)
        value = longer if is_valid(longer, part) else value
        self.remaining_text = self.remaining_text.replace(value, " ", 1)
        return value

    def find_array(self, name: str, part: Mapping[str, Any]) -> Any:
        for written in self.lists:
            if is_valid(written, with_definitions(part, self.root)):
                self.lists.remove(written)
                return written
        kind = _get_kind(part.get("items"), self.root)
        if kind in ("integer", "number"):
            values = [_to_number(found) for found in self.numbers if kind == "number" or found.value.is_integer()]
            self.numbers.clear()
            return values
        if kind == "string" and (grammar := make_phrase_list_grammar(escape_special_tokens(self.text))) is not None:
            values = self.ask_model(name, part, GenerationLimits(grammar=grammar, max_tokens=96))
            # A model this small repeats itself until the grammar ends the list.
            return list(dict.fromkeys(map(str, values))) if isinstance(values, list) else NO_VALUE
        return self.ask_with_schema(name, part)

    def ask_with_schema(self, name: str, part: Mapping[str, Any]) -> Any:
        """Return whatever the model writes under the schema."""
        return self.ask_model(
            name, part, GenerationLimits(schema=limit_lengths(with_definitions(part, self.root)), max_tokens=128)
        )

    def ask_model(self, name: str, part: Mapping[str, Any], limits: GenerationLimits) -> Any:
        try:
            written = self.writer.generate(self.prompt + self.format_line(name, part), limits)
            return from_json(written.text) if written.is_complete else NO_VALUE
        except (ModelError, ValueError):
            # A schema that llama.cpp cannot turn into a grammar costs this value, not the call.
            return NO_VALUE


def _to_number(found: FoundNumber) -> float | int:
    return int(found.value) if found.value.is_integer() else found.value


def _get_kind(part: Any, root: Mapping[str, Any]) -> Any:
    return resolve(part, root).get("type")
