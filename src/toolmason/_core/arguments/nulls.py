"""Drop nulls that mean "omitted", which a strict definition forces on a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice, repeat
from operator import is_not
from typing import Any, Final

from toolmason._core.arguments.repair import MAX_DEPTH, EnumIndex
from toolmason._core.define.schema_nodes import UNION_KEYWORDS, iter_alternatives, resolve

_MAX_STEPS: Final = 100_000
"""Alternatives that one search for nulls may examine."""
_CONTENT_KEYWORDS: Final = frozenset({"properties", "items", "prefixItems"})


class NullSearch:
    """Search for nulls that mean "omitted". Its steps are bounded."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root, self.steps_left, self.enums = root, _MAX_STEPS, EnumIndex()
        self.known: dict[int, Any] = {}
        """Required keys, and True for a schema that admits null, by the ids of the parts of the root."""

    def drop(self, data: Any, schema: Any, depth: int = 0) -> Any:
        """Return data without the nulls that its schema does not admit; the same object if there are none."""
        if not isinstance(data, (dict, list)) or not isinstance(schema, dict) or depth > MAX_DEPTH:
            return data
        if not (options := self._find_alternatives(data, schema)):
            return data
        if isinstance(data, list):
            rows = [chain(option.get("prefixItems", ()), repeat(option.get("items"))) for option in options]
            pairs = zip(data, zip(*rows, strict=False), strict=False)
            items = [self._drop_inside(item, [*parts], depth) for item, parts in pairs]
            return items if any(map(is_not, items, data)) else data
        # An alternative that declares no keys accepts any, with null as well.
        declares_keys = all("properties" in option for option in options)
        dropped = {}
        for key, value in data.items():
            parts = [(option, option["properties"][key]) for option in options if key in option.get("properties", ())]
            if isinstance(value, (dict, list)):
                others = [option.get("additionalProperties") for option in options]
                dropped[key] = self._drop_inside(value, [part for _, part in parts] or others, depth)
            elif (
                value is not None
                or not (parts and declares_keys)
                or any(key in self._get_required(option) or self.admits_null(part) for option, part in parts)
            ):
                dropped[key] = value
        return dropped if len(dropped) < len(data) or any(map(is_not, dropped.values(), data.values())) else data

    def _drop_inside(self, value: Any, parts: list[Any], depth: int) -> Any:
        part = parts[0] if len(parts) == 1 else {"anyOf": [part for part in parts if isinstance(part, dict)]}
        return self.drop(value, part, depth + 1)

    def _get_required(self, schema: Mapping[str, Any]) -> Any:
        if id(required := schema.get("required", ())) not in self.known:
            self.known[id(required)] = frozenset(required)
        return self.known[id(required)]

    def admits_null(self, schema: Any) -> bool:
        """Return True if a part of the root admits null."""
        if id(schema) not in self.known:
            nodes = iter_alternatives(schema, self.root, ("anyOf", "oneOf")) if isinstance(schema, dict) else ({},)
            self.known[id(schema)] = any(map(self._takes_null, nodes))
        return bool(self.known[id(schema)])

    def _takes_null(self, node: Mapping[str, Any]) -> bool:
        self.steps_left -= 1
        return self.steps_left < 0 or (not (node.get("anyOf") or node.get("oneOf")) and self.enums.matches(None, node))

    def _find_alternatives(self, data: Any, schema: Any) -> Sequence[Mapping[str, Any]]:
        """Return the alternatives of a schema that data can match: by its type, by its fixed values, and by its keys.

        Return none if the search has no steps left.
        """
        schema = resolve(schema, self.root)
        if schema.keys().isdisjoint(UNION_KEYWORDS):
            return (schema,)
        nodes = [*islice(iter_alternatives(schema, self.root, UNION_KEYWORDS), max(self.steps_left, 1))]
        found = [
            node
            for node in nodes
            if self.enums.matches(data, node)
            and (node.keys() & _CONTENT_KEYWORDS or ("type" in node and node.keys().isdisjoint(UNION_KEYWORDS)))
        ]
        self.steps_left -= len(nodes) - 1 + max(len(found) - 1, 0) * len(data)
        if self.steps_left < 0:
            return ()
        if isinstance(data, dict) and len(found) > 1:
            found = [node for node in found if self.enums.matches_fixed_values(data, node)] or found
            found = [node for node in found if self._has_exact_keys(data, node)] or found
        return found

    def _has_exact_keys(self, data: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Return True if an object has all required keys of an alternative, and only keys that it declares."""
        is_declared = "properties" not in schema or data.keys() <= schema["properties"].keys()
        return is_declared and bool(self._get_required(schema) <= data.keys())
