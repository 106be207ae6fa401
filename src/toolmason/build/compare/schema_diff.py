"""Compare two JSON Schemas and classify each difference.

An input schema that accepts less breaks callers; an output schema that allows more breaks readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import to_json

from toolmason._core.define.schema_nodes import JSON_TYPES, get_json_type
from toolmason._core.values.definition import canonicalize
from toolmason.build.compare.branches import Node, SchemaTree, describe
from toolmason.errors import DefinitionError

Side: TypeAlias = Literal["input", "output"]
Effect: TypeAlias = Literal["wider", "narrower", "other", "dropped", "grown", "default", "words"]
"""Effect of a change: more values are valid (`wider`), fewer (`narrower`), or both or unknown (`other`); an optional
property was removed (`dropped`) or added (`grown`); the default changed (`default`); only text changed (`words`).
"""

BREAKING: Final[dict[Side, frozenset[Effect]]] = {
    "input": frozenset({"narrower", "other", "dropped", "default"}),
    "output": frozenset({"wider", "other"}),
}
"""Effects that break callers (input) or readers (output). No reader can rely on an optional property."""

MAX_DIFFERENCES: Final = 200
"""Maximum number of differences reported for one schema."""

_MAX_PAIRS: Final = 10_000
"""Maximum number of pairs of alternatives to compare (100 by 100)."""
_MAX_COMPARISONS: Final = 20_000
"""Maximum number of pairs of nodes to compare in all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One change in a schema."""

    path: str
    """JSON path, such as `$.items[].count`."""
    message: str
    effect: Effect

    def breaks(self, side: Side) -> bool:
        """Return True if the change breaks callers (input) or readers (output)."""
        return self.effect in BREAKING[side]


def compare_schemas(old: Any, new: Any) -> list[Difference]:
    """Return the differences between two schemas; references are resolved, so renamed definitions do not matter.

    Raises:
        DefinitionError: a schema is nested too deeply, or has too many alternatives, to compare.
    """
    comparison = _Comparison(SchemaTree(old), SchemaTree(new))
    try:
        found_differences = comparison.compare(old, new)
    except RecursionError:
        raise DefinitionError("A schema is nested too deeply to compare. Flatten it.") from None
    if len(found_differences) > MAX_DIFFERENCES:
        return [
            *found_differences[:MAX_DIFFERENCES],
            Difference("$", f"and {len(found_differences) - MAX_DIFFERENCES} more changes", "words"),
        ]
    return found_differences


def _prefix_paths(step: str, inner: list[Difference]) -> Iterator[Difference]:
    return (replace(difference, path=f"${step}{difference.path[1:]}") for difference in inner)


class _Comparison:
    """Comparison of two schemas; each pair of nodes is compared once."""

    def __init__(self, old: SchemaTree, new: SchemaTree) -> None:
        self.old, self.new = old, new
        self.cache: dict[tuple[int, int], list[Difference]] = {}

    def compare(self, old: Any, new: Any) -> list[Difference]:
        """Compare two parts by their alternatives; most parts have only one."""
        before, after = self.old.get_branches(old), self.new.get_branches(new)
        if len(before) == len(after) == 1:
            return self.compare_pair(before[0], after[0])
        return list(self._compare_unions(before, after))

    def compare_pair(self, old: Node, new: Node) -> list[Difference]:
        key = (id(old), id(new))
        if key not in self.cache:
            # A recursive schema reaches the same pair again; treat that inner occurrence as equal.
            if len(self.cache) >= _MAX_COMPARISONS:
                return [Difference("$", "is too large to compare", "other")]
            self.cache[key] = []
            self.cache[key] = list(self._compare_nodes(old, new))[: MAX_DIFFERENCES + 1]
        return self.cache[key]

    def _compare_unions(self, before: list[Node], after: list[Node]) -> Iterator[Difference]:
        if len(before) * len(after) > _MAX_PAIRS:
            yield Difference("$", f"has {len(after)} alternatives, too many to compare", "other")
            return
        unmatched_old, unmatched_new = list(before), list(after)
        matched: list[tuple[Node, Node]] = []
        for is_match in (self._is_equal, self._has_same_name, self._has_same_type):
            for old in list(unmatched_old):
                candidates = [new for new in unmatched_new if is_match(old, new)]
                if candidates:
                    matched.append((old, candidates[0]))
                    unmatched_old.remove(old)
                    unmatched_new.remove(candidates[0])
        for old, new in matched:
            yield from self.compare_pair(old, new)
        for old in unmatched_old:
            if all(self._has_effect(old, new, "narrower", "other", "dropped") for new in after):
                yield Difference("$", f"no longer allows {describe(old)}", "narrower")
        for new in unmatched_new:
            if all(self._has_effect(old, new, "wider", "other", "grown") for old in before):
                yield Difference("$", f"also allows {describe(new)}", "wider")

    def _is_equal(self, old: Node, new: Node) -> bool:
        return all(difference.effect == "words" for difference in self.compare_pair(old, new))

    def _has_same_name(self, old: Node, new: Node) -> bool:
        name = self.old.get_name(old)
        return name is not None and name == self.new.get_name(new)

    def _has_same_type(self, old: Node, new: Node) -> bool:
        # Objects from `$defs` are matched only by the name of their definition.
        type_name = old.get("type")
        named = self.old.get_name(old) is not None or self.new.get_name(new) is not None
        return type_name is not None and type_name == new.get("type") and not (type_name == "object" and named)

    def _has_effect(self, old: Node, new: Node, *effects: Effect) -> bool:
        return any(difference.effect in effects for difference in self.compare_pair(old, new))

    # --- one node with one node ------------------------------------------------------------

    def _compare_nodes(self, old: Node, new: Node) -> Iterator[Difference]:
        type_differences = list(_compare_types(old, new))
        yield from type_differences
        if any(difference.effect == "other" for difference in type_differences):
            return
        yield from _compare_values(old, new)
        for keywords, compare_keyword in _KEYWORD_RULES:
            if any(old.get(keyword) != new.get(keyword) for keyword in keywords):
                yield from compare_keyword(old, new)
        yield from self._compare_objects(old, new)
        yield from self._compare_arrays(old, new)
        for keyword in sorted(_OPAQUE_KEYWORDS & (old.keys() | new.keys())):
            if canonicalize(old.get(keyword)) != canonicalize(new.get(keyword)):
                yield Difference("$", f"{keyword!r} changed; its effect is unknown", "other")
        yield from _compare_annotations(old, new)

    def _compare_objects(self, old: Node, new: Node) -> Iterator[Difference]:
        before, after = _get_map(old, "properties"), _get_map(new, "properties")
        required_before, required_after = _get_required(old), _get_required(new)
        was_closed = old.get("additionalProperties") is False
        for name in [*before, *(name for name in after if name not in before)]:
            step = _format_step(name)
            if name not in after:
                was = " (was required)" if name in required_before else ""
                yield Difference(f"${step}", f"removed{was}", "other" if name in required_before else "dropped")
            elif name not in before and name in required_after:
                yield Difference(f"${step}", "new and required", "other" if was_closed else "narrower")
            elif name not in before:
                yield Difference(f"${step}", "new and optional", "wider" if was_closed else "grown")
            else:
                yield from _prefix_paths(step, self.compare(before[name], after[name]))
        both = before.keys() & after.keys()
        for name in sorted(required_after - required_before):
            if name in both or name not in after:
                yield Difference(f"${_format_step(name)}", "now required", "narrower")
        for name in sorted(required_before - required_after):
            if name in both or name not in before:
                yield Difference(f"${_format_step(name)}", "now optional", "wider")
        yield from self._compare_rest(
            old.get("additionalProperties", True), new.get("additionalProperties", True), ".*"
        )
        patterns_before, patterns_after = _get_map(old, "patternProperties"), _get_map(new, "patternProperties")
        for pattern in sorted(patterns_before.keys() | patterns_after.keys()):
            yield from self._compare_rest(
                patterns_before.get(pattern, True), patterns_after.get(pattern, True), f"[/{pattern}/]"
            )

    def _compare_arrays(self, old: Node, new: Node) -> Iterator[Difference]:
        prefix_before, prefix_after = _get_list(old, "prefixItems"), _get_list(new, "prefixItems")
        for index, (item_before, item_after) in enumerate(zip(prefix_before, prefix_after, strict=False)):
            yield from _prefix_paths(f"[{index}]", self.compare(item_before, item_after))
        if len(prefix_before) != len(prefix_after):
            yield Difference(
                "$", f"number of fixed items changed from {len(prefix_before)} to {len(prefix_after)}", "other"
            )
        yield from self._compare_rest(old.get("items", True), new.get("items", True), "[]")

    def _compare_rest(self, old: Any, new: Any, step: str) -> Iterator[Difference]:
        """Compare the schemas for unnamed properties or items: anything, nothing, or a schema."""
        old, new = (True if side == {} else side for side in (old, new))
        subject = {".*": "additional properties", "[]": "items"}.get(step, f"properties matching {step}")
        if old is new:
            return
        if new is False or old is True:
            limit = "are no longer allowed" if new is False else f"must now be {describe(self.new.get_single(new))}"
            yield Difference(f"${step}", f"{subject} {limit}", "narrower")
        elif old is False or new is True:
            yield Difference(f"${step}", f"{subject} may now be {describe(self.new.get_single(new))}", "wider")
        else:
            yield from _prefix_paths(step, self.compare(old, new))


# --- rules for one keyword ---------------------------------------------------------------------


_ALL_TYPES: Final = frozenset(JSON_TYPES)


def _compare_types(old: Node, new: Node) -> Iterator[Difference]:
    before, after = _get_types(old), _get_types(new)
    effect: Effect = "other"
    if before == after:
        return
    if before <= after:
        effect = "wider"
    elif after <= before:
        effect = "narrower"
    # A list of values that explains the change is compared by `_compare_values`.
    is_explained = "enum" in (old if effect == "wider" else new) and _ALL_TYPES not in (before, after)
    if effect == "other" or not is_explained:
        names = ("anything" if types == _ALL_TYPES else describe(node) for types, node in ((before, old), (after, new)))
        yield Difference("$", f"type changed from {' to '.join(names)}", effect)


def _get_types(node: Node) -> frozenset[str]:
    """Return the JSON types of a node; an integer is also a number."""
    kind, values = node.get("type"), node.get("enum")
    if isinstance(kind, str):
        return frozenset({kind, "integer"} if kind == "number" else {kind})
    if isinstance(values, list):
        return frozenset(get_json_type(value) for value in values)
    return _ALL_TYPES


def _compare_values(old: Node, new: Node) -> Iterator[Difference]:
    before, after = _index_enum(old), _index_enum(new)
    if before is None and after is None:
        return
    if after is None:
        yield Difference("$", f"is no longer limited to {describe(old)}", "wider")
    elif before is None:
        yield Difference("$", f"now limited to {describe(new)}", "narrower")
    else:
        if removed := [before[key] for key in before if key not in after]:
            yield Difference("$", f"no longer allows {_format_values(removed)}", "narrower")
        if added := [after[key] for key in after if key not in before]:
            yield Difference("$", f"also allows {_format_values(added)}", "wider")


def _index_enum(node: Node) -> dict[bytes, Any] | None:
    values = node.get("enum")
    return {to_json(canonicalize(value)): value for value in values} if isinstance(values, list) else None


def _format_values(values: list[Any], max_shown: int = 5) -> str:
    more = f" or {len(values) - max_shown} others" if len(values) > max_shown else ""
    return " or ".join(to_json(value).decode() for value in values[:max_shown]) + more


def _make_bound_rule(keyword: str, strict_keyword: str = "") -> Callable[[Node, Node], Iterator[Difference]]:
    """Return the rule for a bound; `strict_keyword` is its exclusive form."""
    is_minimum = keyword.startswith("min")
    sign = 1 if is_minimum else -1
    phrases = ("at least", "above") if is_minimum else ("at most", "below")

    def get_bound(node: Node) -> tuple[float, bool] | None:
        """Return the bound, larger if it is tighter, and whether it is exclusive."""
        given = [key for key in (keyword, strict_keyword) if _is_number(node.get(key))]
        return max(((sign * node[key], key == strict_keyword) for key in given), default=None)

    def compare(old: Node, new: Node) -> Iterator[Difference]:
        before, after = get_bound(old), get_bound(new)
        if before == after:
            return
        names = [f"{phrases[bound[1]]} {sign * bound[0]}" if bound else "no limit" for bound in (before, after)]
        is_tighter = before is None or (after is not None and after > before)
        message = f"{keyword} changed from {' to '.join(names)}"
        yield Difference("$", message, "narrower" if is_tighter else "wider")

    return compare


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _make_presence_rule(keyword: str) -> Callable[[Node, Node], Iterator[Difference]]:
    """Return the rule for a keyword whose values cannot be compared."""

    def compare(old: Node, new: Node) -> Iterator[Difference]:
        before, after = old.get(keyword), new.get(keyword)
        if not before and not after:
            return
        if before is None or before is False:
            yield Difference("$", f"now requires {keyword} {_format_value(after)}", "narrower")
        elif after is None or after is False:
            yield Difference("$", f"no longer requires {keyword} {_format_value(before)}", "wider")
        else:
            yield Difference("$", f"{keyword} changed from {_format_value(before)} to {_format_value(after)}", "other")

    return compare


def _compare_multiple_of(old: Node, new: Node) -> Iterator[Difference]:
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if not (_is_number(before) and _is_number(after) and before and after):
        yield from _make_presence_rule("multipleOf")(old, new)
        return
    effect: Effect = "other"
    if after % before == 0:
        effect = "narrower"
    elif before % after == 0:
        effect = "wider"
    yield Difference("$", f"multipleOf changed from {before:g} to {after:g}", effect)


_KEYWORD_RULES: Final[tuple[tuple[tuple[str, ...], Callable[[Node, Node], Iterator[Difference]]], ...]] = (
    (("minimum", "exclusiveMinimum"), _make_bound_rule("minimum", "exclusiveMinimum")),
    (("maximum", "exclusiveMaximum"), _make_bound_rule("maximum", "exclusiveMaximum")),
    *(
        ((keyword,), _make_bound_rule(keyword))
        for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    ),
    *(
        ((keyword,), _make_presence_rule(keyword))
        for keyword in ("pattern", "format", "uniqueItems", "contentEncoding", "contentMediaType")
    ),
    (("multipleOf",), _compare_multiple_of),
)

_OPAQUE_KEYWORDS: Final = frozenset(
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
"""Keywords that are not interpreted; any change counts."""


def _compare_annotations(old: Node, new: Node) -> Iterator[Difference]:
    for keyword in ("description", "title", "examples", "deprecated"):
        if old.get(keyword) != new.get(keyword):
            yield Difference("$", f"{keyword} changed", "words")
    before, after = ("default" in node for node in (old, new))
    if before and after and canonicalize(old["default"]) != canonicalize(new["default"]):
        message = f"default changed from {_format_value(old['default'])} to {_format_value(new['default'])}"
        yield Difference("$", message, "default")
    elif before != after:
        yield Difference("$", f"default {'added' if after else 'removed'}", "words")


def _format_value(value: Any) -> str:
    return to_json(value).decode()[:60]


# --- parts that may be malformed ---------------------------------------------------------------


def _get_map(node: Node, key: str) -> dict[str, Any]:
    found = node.get(key)
    return found if isinstance(found, dict) else {}


def _get_list(node: Node, key: str) -> list[Any]:
    found = node.get(key)
    return found if isinstance(found, list) else []


def _get_required(node: Node) -> set[str]:
    return {name for name in _get_list(node, "required") if isinstance(name, str)}


def _format_step(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{_format_value(name)}]"
