"""Make training examples from the boxes: other values, other selections and orders of tools, other spellings."""

from __future__ import annotations

import copy
import datetime
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from bfcl import HeldOut
from boxes import Box, BoxTool, Case, read_boxes
from clock import spell_date, spell_time
from generate import Example

from toolmason import ToolDefinition
from toolmason_local.prompts import SAY, Turn, format_call

HELD_OUT = 12
"""Every box with a number that this divides is left out, to measure with."""
MAX_TOOLS = 8
NUMBER = re.compile(r"(?<![\w.,:/-])\d+(?:\.\d+)?(?![\w:/-]|[.,]\d)")
"""A number on its own: not a part of a date, a time or a code."""
_WORD = re.compile(r"[a-zà-ž]{4,}")


def split_boxes() -> tuple[list[Box], list[Box]]:
    """Return the boxes for training, and those that are held out."""
    boxes = read_boxes()
    held_out = boxes[HELD_OUT - 1 :: HELD_OUT]
    return [box for box in boxes if box not in held_out], held_out


class BoxMaker:
    """Maker of varied examples from the boxes."""

    def __init__(self, seed: int, vary: Callable[[str], str]) -> None:
        self.rng = random.Random(seed)
        self.vary = vary
        self.boxes, _ = split_boxes()
        self.held_out = HeldOut()
        self.words = {id(box): _find_words(box.tools) for box in self.boxes}
        self.shared: dict[str, list[str]] = {}
        """Values of the parameters of one name in all boxes."""
        for box in self.boxes:
            for name, found in _collect_values(box).items():
                self.shared.setdefault(name.rpartition(".")[2], []).extend(found)

    def make_all(self, copies: int) -> Iterator[Example]:
        """Yield some varied copies of every case."""
        for box in self.boxes:
            values = _collect_values(box)
            for case in box.cases:
                if self.held_out.repeats(case.text):
                    continue
                for number in range(copies):
                    yield from self._make(box, case, values, is_first=number == 0)
                for _ in range(max(1, copies // 12)):
                    if case.calls:
                        yield self._make_unanswerable(box, case)

    def _make(self, box: Box, case: Case, values: dict[str, list[str]], *, is_first: bool) -> Iterator[Example]:
        rng = self.rng
        if not is_first:
            case = self._change(case, box, values)
        names = {name for one in (case, case.before) if one for name, _ in one.calls}
        tools, renamed = self._choose_tools(box, names)
        # Another spelling of the first word would differ from the argument that repeats it.
        values_said = " ".join(one for _, arguments in case.calls for one in _find_strings(arguments))
        is_kept = is_first or re.split(r"\W", case.text, maxsplit=1)[0] in values_said
        user = Turn("user", case.text if is_kept else self.vary(case.text))
        calls = "\n".join(self._format(name, arguments, tools, renamed) for name, arguments in case.calls)
        before: list[Turn] = []
        if case.before is not None:
            first = "\n".join(self._format(name, arguments, tools, renamed) for name, arguments in case.before.calls)
            before = [
                Turn("user", case.before.text),
                Turn("assistant", first),
                Turn("tool", case.before.result or rng.choice(("ok", "done", '{"ok": true}'))),
                Turn("assistant", case.before.answer or "Done."),
            ]
        if case.result and rng.random() < 0.5:
            turns = [*before, user, Turn("assistant", calls), Turn("tool", case.result)]
            yield Example(tools, turns, f"{SAY}{case.answer}")
        else:
            yield Example(tools, [*before, user], calls or case.intent)

    def _choose_tools(self, box: Box, names: set[str]) -> tuple[list[ToolDefinition], dict[str, str]]:
        rng = self.rng
        others = [tool for tool in box.tools if tool.name not in names]
        if rng.random() < 0.4:
            others = rng.sample(others, rng.randint(0, len(others)))
        chosen = [tool for tool in box.tools if tool.name in names or tool in others] or [rng.choice(box.tools)]
        if names and rng.random() < 0.2:
            guest = rng.choice(self.boxes)
            known = {tool.name for tool in chosen}
            if guest is not box and not self.words[id(guest)] & self.words[id(box)]:
                chosen += [tool for tool in rng.sample(guest.tools, rng.randint(1, 2)) if tool.name not in known]
        spare = [tool for tool in chosen if tool.name not in names][MAX_TOOLS - len(names) :]
        chosen = [tool for tool in chosen if tool not in spare]
        if rng.random() < 0.5:
            rng.shuffle(chosen)
        renamed = {}
        draw = rng.random()
        if draw < 0.06:
            prefix = rng.choice(("app_", "api.", "my_", "svc__", f"{box.name.split('_')[0]}_", f"{box.name}."))
            renamed = {tool.name: prefix + tool.name for tool in chosen}
        elif draw < 0.12:
            renamed = {tool.name: _to_camel(tool.name) for tool in chosen}
        if len(set(renamed.values())) < len(renamed):
            renamed = {}
        return [self._define(tool, renamed.get(tool.name, tool.name)) for tool in chosen], renamed

    def _define(self, tool: BoxTool, name: str) -> ToolDefinition:
        schema = copy.deepcopy(tool.schema)
        if self.rng.random() < 0.1:
            keys = list(schema["properties"])
            self.rng.shuffle(keys)
            schema["properties"] = {key: schema["properties"][key] for key in keys}
        if self.rng.random() < 0.1:
            for part in schema["properties"].values():
                if "enum" in part or "format" in part:
                    part.pop("description", None)
        return ToolDefinition(name, tool.description, schema)

    def _format(
        self, name: str, arguments: dict[str, Any], tools: list[ToolDefinition], renamed: dict[str, str]
    ) -> str:
        shown = renamed.get(name, name)
        order = next(tool.input_schema["properties"] for tool in tools if tool.name == shown)
        return format_call(shown, {key: arguments[key] for key in order if key in arguments})

    def _make_unanswerable(self, box: Box, case: Case) -> Example:
        """Return a request with the tools of an application that has no words in common with the right one."""
        while True:
            other = self.rng.choice(self.boxes)
            if other is not box and not self.words[id(other)] & (
                self.words[id(box)] | set(_WORD.findall(case.text.lower()))
            ):
                break
        text = case.before.text if case.before is not None else case.text
        tools, _ = self._choose_tools(other, set())
        return Example(tools, [Turn("user", self.vary(text))], "none")

    def _change(self, case: Case, box: Box, values: dict[str, list[str]]) -> Case:
        """Return a case with other strings and numbers, in all its texts and arguments at once."""
        rng = self.rng
        parts = [case] if case.before is None else [case.before, case]
        replaced: dict[str, str] = {}
        texts = [text for part in parts for text in (part.text, part.result, part.answer)]
        said = " ".join(part.text for part in parts)
        taken = {one for part in parts for _, arguments in part.calls for one in _find_strings(arguments)}
        for part in parts:
            for name, arguments in part.calls:
                for key, value in arguments.items():
                    pool = values.get(f"{name}.{key}", [])
                    for one in value if isinstance(value, list) else [value]:
                        if isinstance(one, str) and one not in replaced and rng.random() < 0.6:
                            replaced |= self._change_moment(one, said)
                        if isinstance(one, str) and one in pool and one not in replaced and rng.random() < 0.55:
                            # Values of other applications teach to copy: longer titles, other names.
                            shared = self.shared.get(key, [])
                            new = rng.choice(shared if len(shared) > 20 and rng.random() < 0.4 else pool)
                            # A value inside another one, or one that the text has already, would be replaced wrongly.
                            is_clear = all(one == other or (one not in other and other not in one) for other in taken)
                            if is_clear and new not in said and _count(one, said) >= 1:
                                replaced[one] = new
                                taken.add(new)
        numbers = {
            one
            for part in parts
            for _, arguments in part.calls
            for value in arguments.values()
            for one in (value if isinstance(value, list) else [value])
            if isinstance(one, int | float) and not isinstance(one, bool)
        }
        for number in numbers:
            written = repr(number)
            if NUMBER.findall(said).count(written) == 1 and rng.random() < 0.6:
                new = self._similar(number)
                if new not in NUMBER.findall(" ".join(texts)):
                    replaced[written] = new
        if not replaced:
            return case
        result: Case | None = None
        for part in parts:
            calls = tuple((name, _replace_values(arguments, replaced)) for name, arguments in part.calls)
            result = Case(
                _replace(part.text, replaced), calls, part.intent, _replace(part.result, replaced),
                _replace(part.answer, replaced), result,
            )  # fmt: skip
        assert result is not None
        return result

    def _change_moment(self, value: str, said: str) -> dict[str, str]:
        """Return another date or time, as it stands in the text and in the arguments."""
        rng = self.rng
        if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            with suppress(ValueError):
                day = datetime.date.fromisoformat(value)
                new_day = day + datetime.timedelta(rng.randint(-400, 400))
                return _pair(value, spell_date(day), new_day.isoformat(), spell_date(new_day), said)
        if match := re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", value):
            hour, minute, new_hour = int(match[1]), int(match[2]), rng.randint(6, 22)
            new_minute = minute if value not in said else rng.randrange(0, 60, 5)
            new = f"{new_hour:02}:{new_minute:02}"
            return _pair(value, spell_time(hour, minute), new, spell_time(new_hour, new_minute), said)
        return {}

    def _similar(self, number: float) -> str:
        rng = self.rng
        if isinstance(number, float):
            digits = len(repr(number).partition(".")[2])
            return repr(round(number * rng.uniform(0.4, 2.5), digits))
        if 1900 < number < 2100:
            return str(rng.randint(1950, 2030))
        if number <= 10:
            return str(rng.randint(2, 10))
        if number <= 100:
            return str(rng.randint(11, 100))
        if number % 50 == 0 and rng.random() < 0.5:
            return str(50 * rng.randint(max(1, number // 150), number // 50 * 3))
        return str(rng.randint(number // 3, number * 3))


def _find_words(tools: list[BoxTool]) -> set[str]:
    """Return the words of names and descriptions that say what the tools are about."""
    text = " ".join(f"{tool.name.replace('_', ' ')} {tool.description}" for tool in tools).lower()
    return {word[:5] for word in _WORD.findall(text)} - _COMMON


_COMMON = {
    word[:5]
    for word in "with from list show find search create change given about this that into their which when current update remove delete cancel number name optionally optional data text date time times type value values state status more than each every other between what where back make take give send have been".split()
}


def _pair(old: str, old_forms: dict[str, str], new: str, new_forms: dict[str, str], said: str) -> dict[str, str]:
    """Return what to replace: the value, and the form in which the text has it."""
    if _count(old, said) == 1:
        return {old: new}
    found = [key for key, form in old_forms.items() if key in new_forms and _count(form, said) == 1]
    if not found or new in said:
        return {}
    longest = max(found, key=lambda key: len(old_forms[key]))
    return {old: new, old_forms[longest]: new_forms[longest]}


def _find_strings(arguments: dict[str, Any]) -> list[str]:
    return [
        one
        for value in arguments.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str)
    ]


def _collect_values(box: Box) -> dict[str, list[str]]:
    """Return the free strings of each parameter that stand in their requests as they are."""
    schemas = {tool.name: tool.schema["properties"] for tool in box.tools}
    found: dict[str, list[str]] = {}
    for case in box.cases:
        for name, arguments in case.calls:
            for key, value in arguments.items():
                part = schemas[name][key]
                part = part.get("items", part)
                if part.get("type") != "string" or "enum" in part or "format" in part:
                    continue
                for one in value if isinstance(value, list) else [value]:
                    if _count(one, case.text) == 1 and len(one) > 1:
                        # The same parameter of sibling tools takes the same values.
                        for other, properties in schemas.items():
                            if key in properties:
                                found.setdefault(f"{other}.{key}", []).append(one)
    return found


def _count(part: str, text: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(part)}(?!\w)", text))


def _replace(text: str, replaced: dict[str, str]) -> str:
    if not text:
        return text
    longest = sorted(replaced, key=len, reverse=True)
    pattern = "|".join(
        rf"(?<![\w.,:/-]){re.escape(one)}(?![\w:/-]|[.,]\d)"
        if NUMBER.fullmatch(one)
        else rf"(?<!\w){re.escape(one)}(?!\w)"
        for one in longest
    )
    return re.sub(pattern, lambda match: replaced[match.group()], text)


def _replace_values(value: Any, replaced: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replace_values(one, replaced) for key, one in value.items()}
    if isinstance(value, list):
        return [_replace_values(one, replaced) for one in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return json.loads(replaced.get(repr(value), repr(value)))
    return replaced.get(value, value)


def _to_camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


if __name__ == "__main__":
    from generate import Generator

    maker = BoxMaker(3, Generator(1).vary)
    examples = list(maker.make_all(3))
    for example in maker.rng.sample(examples, 60):
        print([tool.name for tool in example.tools])
        for turn in example.turns:
            print("  ", turn.role, ":", turn.text)
        print("   =>", example.reply)
    print(len(examples))
