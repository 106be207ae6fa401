"""Two JSON Schemas → how the second differs from the first, and for whom that breaks something.

A schema for input breaks callers when it takes less than before; one for output breaks readers when it gives more
than before. Lives here: the rules, by keyword. Not here: tools (`diff`), or wording for a terminal (`cli`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import to_json

from toolmason._core.values.definition import canonical
from toolmason.build.compare.branches import Node, Tree, said
from toolmason.errors import DefinitionError

Side: TypeAlias = Literal["input", "output"]
Effect: TypeAlias = Literal["wider", "narrower", "other", "dropped", "grown", "default", "words"]

BREAKING: Final[dict[Side, frozenset[Effect]]] = {
    "input": frozenset({"narrower", "other", "dropped", "default"}),
    "output": frozenset({"wider", "other"}),
}
"""What breaks whom. `dropped` and `grown` are properties that may be left out; nobody could count on them."""

MOST: Final = 200
"""Differences that are told of one schema."""

_PAIRS: Final = 10_000
"""Pairs of alternatives that are compared: a hundred against a hundred."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that changed in a schema."""

    path: str
    """Where, as a JSON path: `$.items[].count`."""
    words: str
    effect: Effect

    def breaks(self, side: Side) -> bool:
        """Tell whether it breaks callers (input) or readers (output)."""
        return self.effect in BREAKING[side]


def differences(old: Any, new: Any) -> list[Difference]:
    """Return how a schema differs from an older one; references are followed, so that their names do not matter.

    Raises:
        DefinitionError: a schema is nested too deeply to be compared.
    """
    comparison = _Comparison(Tree(old), Tree(new))
    try:
        found = comparison.of(old, new)
    except RecursionError:
        raise DefinitionError("A schema is nested too deeply to be compared. Make it flatter.") from None
    if len(found) > MOST:
        return [*found[:MOST], Difference("$", f"and {len(found) - MOST} more changes", "words")]
    return found


def _below(step: str, found: list[Difference]) -> Iterator[Difference]:
    return (replace(one, path=f"${step}{one.path[1:]}") for one in found)


class _Comparison:
    """Two schemas side by side; each pair of their parts is compared once."""

    def __init__(self, old: Tree, new: Tree) -> None:
        self.old, self.new = old, new
        self.known: dict[tuple[int, int], list[Difference]] = {}

    def of(self, old: Any, new: Any) -> list[Difference]:
        """Compare two parts: as alternatives, of which most have one."""
        before, after = self.old.branches(old), self.new.branches(new)
        if len(before) == len(after) == 1:
            return self.pair(before[0], after[0])
        return list(self._unions(before, after))

    def pair(self, old: Node, new: Node) -> list[Difference]:
        key = (id(old), id(new))
        if key not in self.known:
            # A part that contains itself is met again while it is compared; there it counts as equal.
            self.known[key] = []
            self.known[key] = list(self._pair(old, new))[: MOST + 1]
        return self.known[key]

    def _unions(self, before: list[Node], after: list[Node]) -> Iterator[Difference]:
        if len(before) * len(after) > _PAIRS:
            yield Difference("$", f"has {len(after)} alternatives, too many to be compared", "other")
            return
        left, right = list(before), list(after)
        matched: list[tuple[Node, Node]] = []
        for alike in (self._equal, self._same_name, self._same_kind):
            for old in list(left):
                candidates = [new for new in right if alike(old, new)]
                if candidates:
                    matched.append((old, candidates[0]))
                    left.remove(old)
                    right.remove(candidates[0])
        for old, new in matched:
            yield from self.pair(old, new)
        for old in left:
            if not any(self._takes_all(old, new) for new in after):
                yield Difference("$", f"no longer {said(old)}", "narrower")
        for new in right:
            if not any(self._gives_nothing_else(old, new) for old in before):
                yield Difference("$", f"may be {said(new)} too", "wider")

    def _equal(self, old: Node, new: Node) -> bool:
        return not [one for one in self.pair(old, new) if one.effect != "words"]

    def _same_name(self, old: Node, new: Node) -> bool:
        name = self.old.name_of(old)
        return name is not None and name == self.new.name_of(new)

    def _same_kind(self, old: Node, new: Node) -> bool:
        # Of two objects it cannot be told whether one became the other, unless their names say so.
        kind = old.get("type")
        named = self.old.name_of(old) is not None or self.new.name_of(new) is not None
        return kind is not None and kind == new.get("type") and not (kind == "object" and named)

    def _takes_all(self, old: Node, new: Node) -> bool:
        return not any(one.effect in ("narrower", "other", "dropped") for one in self.pair(old, new))

    def _gives_nothing_else(self, old: Node, new: Node) -> bool:
        return not any(one.effect in ("wider", "other", "grown") for one in self.pair(old, new))

    # --- one kind against one kind ---------------------------------------------------------

    def _pair(self, old: Node, new: Node) -> Iterator[Difference]:
        kinds = list(_kinds(old, new))
        yield from kinds
        if any(one.effect == "other" for one in kinds):
            return
        yield from _values(old, new)
        for keywords, compare in _RULES:
            if any(old.get(word) != new.get(word) for word in keywords):
                yield from compare(old, new)
        yield from self._object(old, new)
        yield from self._array(old, new)
        for word in sorted(_OPAQUE & (old.keys() | new.keys())):
            if canonical(old.get(word)) != canonical(new.get(word)):
                yield Difference("$", f"{word!r} changed, which cannot be judged", "other")
        yield from _words(old, new)

    def _object(self, old: Node, new: Node) -> Iterator[Difference]:
        before, after = _map(old, "properties"), _map(new, "properties")
        needed, needed_now = _names(old), _names(new)
        closed = old.get("additionalProperties") is False
        for name in [*before, *(name for name in after if name not in before)]:
            step = _step(name)
            if name not in after:
                was = " (it was always there)" if name in needed else ""
                yield Difference(f"${step}", f"removed{was}", "other" if name in needed else "dropped")
            elif name not in before and name in needed_now:
                yield Difference(f"${step}", "new, and required", "other" if closed else "narrower")
            elif name not in before:
                yield Difference(f"${step}", "new, and may be left out", "wider" if closed else "grown")
            else:
                yield from _below(step, self.of(before[name], after[name]))
        both = before.keys() & after.keys()
        for name in sorted(needed_now - needed):
            if name in both or name not in after:
                yield Difference(f"${_step(name)}", "is required now", "narrower")
        for name in sorted(needed - needed_now):
            if name in both or name not in before:
                yield Difference(f"${_step(name)}", "may be left out now", "wider")
        yield from self._rest(old.get("additionalProperties", True), new.get("additionalProperties", True), ".*")
        patterns, patterns_now = _map(old, "patternProperties"), _map(new, "patternProperties")
        for pattern in sorted(patterns.keys() | patterns_now.keys()):
            yield from self._rest(patterns.get(pattern, True), patterns_now.get(pattern, True), f"[/{pattern}/]")

    def _array(self, old: Node, new: Node) -> Iterator[Difference]:
        first, first_now = _list(old, "prefixItems"), _list(new, "prefixItems")
        for place, (item, item_now) in enumerate(zip(first, first_now, strict=False)):
            yield from _below(f"[{place}]", self.of(item, item_now))
        if len(first) != len(first_now):
            yield Difference("$", f"has {len(first_now)} fixed items instead of {len(first)}", "other")
        yield from self._rest(old.get("items", True), new.get("items", True), "[]")

    def _rest(self, old: Any, new: Any, step: str) -> Iterator[Difference]:
        """Compare what holds for everything that is not named: anything, nothing, or a schema."""
        old, new = (True if side == {} else side for side in (old, new))
        what = {".*": "properties that are not named", "[]": "items"}.get(step, f"what matches {step}")
        if old is new:
            return
        if new is False or old is True:
            limit = "are refused" if new is False else f"must be {said(self.new.only(new))}"
            yield Difference(f"${step}", f"{what} {limit} now", "narrower")
        elif old is False or new is True:
            yield Difference(f"${step}", f"{what} may be {said(self.new.only(new))} now", "wider")
        else:
            yield from _below(step, self.of(old, new))


# --- the rules for one keyword -----------------------------------------------------------------


def _kinds(old: Node, new: Node) -> Iterator[Difference]:
    before, after = _kinds_of(old), _kinds_of(new)
    if before == after or (before is not None and after is not None and before == {"integer"} and after == {"number"}):
        if before != after:
            yield Difference("$", "may be any number instead of an integer", "wider")
    elif before == {"number"} and after == {"integer"}:
        yield Difference("$", "must be an integer instead of any number", "narrower")
    elif after is None:
        yield Difference("$", f"may be anything instead of {said(old)}", "wider")
    elif before is None:
        yield Difference("$", f"must be {said(new)} instead of anything", "narrower")
    elif before <= after:
        if "enum" not in old:
            yield Difference("$", f"may be {said(new)} instead of {said(old)}", "wider")
    elif after <= before:
        if "enum" not in new:
            yield Difference("$", f"must be {said(new)} instead of {said(old)}", "narrower")
    else:
        yield Difference("$", f"is {said(new)} instead of {said(old)}", "other")


_JSON_KINDS: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _kinds_of(node: Node) -> set[str] | None:
    """Return the JSON types of a part; `None` for anything."""
    if isinstance(kind := node.get("type"), str):
        return {kind}
    if isinstance(values := node.get("enum"), list):
        return {_JSON_KINDS.get(type(value), "null") for value in values}
    return None


def _values(old: Node, new: Node) -> Iterator[Difference]:
    before, after = _choices(old), _choices(new)
    if before is None and after is None:
        return
    if after is None:
        yield Difference("$", f"is no longer limited to {said(old)}", "wider")
    elif before is None:
        yield Difference("$", f"must be {said(new)}", "narrower")
    else:
        if gone := [before[key] for key in before if key not in after]:
            yield Difference("$", f"no longer {_listed(gone)}", "narrower")
        if more := [after[key] for key in after if key not in before]:
            yield Difference("$", f"may be {_listed(more)} too", "wider")


def _choices(node: Node) -> dict[bytes, Any] | None:
    values = node.get("enum")
    return {to_json(canonical(value)): value for value in values} if isinstance(values, list) else None


def _listed(values: list[Any], most: int = 5) -> str:
    more = f" or {len(values) - most} others" if len(values) > most else ""
    return " or ".join(to_json(value).decode() for value in values[:most]) + more


def _bound(word: str, strict: str, *, least: bool) -> Callable[[Node, Node], Iterator[Difference]]:
    """Return the rule for a bound; `strict` is the keyword of the same bound without its end."""
    name = "at least" if least else "at most"

    def limit(node: Node) -> tuple[float, bool] | None:
        ends = [(node[key], key == strict) for key in (word, strict) if _is_number(node.get(key))]
        sign = 1 if least else -1
        return max(((sign * value, is_strict) for value, is_strict in ends), default=None)

    def shown(end: tuple[float, bool] | None) -> str:
        if end is None:
            return "no limit"
        beyond = ("above" if least else "below") if end[1] else name
        return f"{beyond} {end[0] if least else -end[0]}"

    def compare(old: Node, new: Node) -> Iterator[Difference]:
        before, after = limit(old), limit(new)
        if before == after:
            return
        tighter = before is None or (after is not None and after > before)
        what = f"{word}: {shown(after)} instead of {shown(before)}"
        yield Difference("$", what, "narrower" if tighter else "wider")

    return compare


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _once_given(word: str) -> Callable[[Node, Node], Iterator[Difference]]:
    """Return the rule for a keyword that limits, of which two values cannot be compared."""

    def compare(old: Node, new: Node) -> Iterator[Difference]:
        before, after = old.get(word), new.get(word)
        if not before and not after:
            return
        if before is None or before is False:
            yield Difference("$", f"{word} {_shown(after)} is asked for now", "narrower")
        elif after is None or after is False:
            yield Difference("$", f"{word} {_shown(before)} is no longer asked for", "wider")
        else:
            yield Difference("$", f"{word} is {_shown(after)} instead of {_shown(before)}", "other")

    return compare


def _multiple(old: Node, new: Node) -> Iterator[Difference]:
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if not (_is_number(before) and _is_number(after) and before and after):
        yield from _once_given("multipleOf")(old, new)
        return
    effect: Effect = "narrower" if after % before == 0 else "wider" if before % after == 0 else "other"
    yield Difference("$", f"multipleOf is {after:g} instead of {before:g}", effect)


_RULES: Final[tuple[tuple[tuple[str, ...], Callable[[Node, Node], Iterator[Difference]]], ...]] = (
    (("minimum", "exclusiveMinimum"), _bound("minimum", "exclusiveMinimum", least=True)),
    (("maximum", "exclusiveMaximum"), _bound("maximum", "exclusiveMaximum", least=False)),
    *(
        ((word,), _bound(word, "", least=word.startswith("min")))
        for word in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    ),
    *(
        ((word,), _once_given(word))
        for word in ("pattern", "format", "uniqueItems", "contentEncoding", "contentMediaType")
    ),
    (("multipleOf",), _multiple),
)

_OPAQUE: Final = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedProperties",
        "unevaluatedItems",
        "allOf",
        "$ref",
        "$dynamicRef",
    }
)
"""Keywords whose meaning we do not follow: any change counts."""


def _words(old: Node, new: Node) -> Iterator[Difference]:
    for word in ("description", "title", "examples", "deprecated"):
        if old.get(word) != new.get(word):
            yield Difference("$", f"other words: {word}", "words")
    before, after = ("default" in node for node in (old, new))
    if before and after and canonical(old["default"]) != canonical(new["default"]):
        what = f"left out, it is {_shown(new['default'])} instead of {_shown(old['default'])}"
        yield Difference("$", what, "default")
    elif before != after:
        yield Difference("$", f"{'has a' if after else 'shows no'} default now", "words")


def _shown(value: Any) -> str:
    return to_json(value).decode()[:60]


# --- parts that may be malformed ---------------------------------------------------------------


def _map(node: Node, key: str) -> dict[str, Any]:
    found = node.get(key)
    return found if isinstance(found, dict) else {}


def _list(node: Node, key: str) -> list[Any]:
    found = node.get(key)
    return found if isinstance(found, list) else []


def _names(node: Node) -> set[str]:
    return {name for name in _list(node, "required") if isinstance(name, str)}


def _step(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{_shown(name)}]"
