"""Expand a part of a JSON Schema into its alternatives, each with one type and no references."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from pydantic_core import to_json

from toolmason._core.define.schema_nodes import resolve_pointer
from toolmason.errors import DefinitionError

Node: TypeAlias = dict[str, Any]
"""One alternative, without references and without a choice of types."""

_ANNOTATION_KEYWORDS: Final = frozenset(
    {"description", "title", "examples", "default", "deprecated", "$defs", "$schema", "$id"}
)
"""Keywords that do not constrain a value."""
_MAX_MERGES: Final = 20_000
"""Maximum number of alternatives of a schema that are merged with the keywords next to them."""
_NEVER: Final[Node] = {"not": {}}


class SchemaTree:
    """A schema whose references are resolved."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.branch_cache: dict[int, tuple[Any, list[Node]]] = {}
        self.definition_names: dict[int, str] = {}
        self.resolving: set[int] = set()
        self.spare_merges = _MAX_MERGES

    def get_branches(self, part: Any) -> list[Node]:
        """Return the alternatives of a part; repeated calls return the same objects."""
        if id(part) not in self.branch_cache:
            # Hold a reference to the part: its id is a valid key only while it is alive.
            self.branch_cache[id(part)] = (part, self._expand(part))
        return self.branch_cache[id(part)][1]

    def get_single(self, part: Any) -> Node:
        """Return a part as one node, for use in a message."""
        nodes = self.get_branches(part)
        return nodes[0] if len(nodes) == 1 else {"anyOf": nodes}

    def get_name(self, node: Node) -> str | None:
        """Return the name of the definition that an alternative comes from, or None if it is inline."""
        return self.definition_names.get(id(node))

    def _expand(self, part: Any) -> list[Node]:
        if part is False:
            return [_NEVER]
        if not isinstance(part, dict):
            return [{}]
        if isinstance(part.get("$ref"), str):
            return self._expand_reference(part)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(part.get(keyword), list) and part[keyword]:
                siblings = {key: value for key, value in part.items() if key not in (keyword, "discriminator")}
                found = (node for branch in part[keyword] for node in self._combine(branch, siblings))
                return list({id(node): node for node in found}.values())
        if isinstance(part.get("allOf"), list) and len(part["allOf"]) == 1:
            return self._combine(part["allOf"][0], {key: value for key, value in part.items() if key != "allOf"})
        if "const" in part:
            part = {"enum": [part["const"]], **{key: value for key, value in part.items() if key != "const"}}
        if isinstance(part.get("type"), list):
            return [{**part, "type": kind} for kind in part["type"]]
        return [part]

    def _combine(self, branch: Any, siblings: Node) -> list[Node]:
        """Return the alternatives of a branch, each merged with the keywords next to `anyOf`, `oneOf` or `$ref`."""
        nodes = self.get_branches(branch)
        constraints = {key: value for key, value in siblings.items() if key not in _ANNOTATION_KEYWORDS}
        if not siblings:
            return nodes
        self.spare_merges -= len(nodes)
        if self.spare_merges < 0:
            raise DefinitionError("A schema has too many alternatives to compare. Flatten it.")
        return [self._merge(node, siblings, constraints) for node in nodes]

    def _merge(self, node: Node, siblings: Node, constraints: Node) -> Node:
        conflicts = any(key in node and node[key] != value for key, value in constraints.items())
        merged = {**node, "allOf": [constraints]} if conflicts else {**node, **siblings}
        if (name := self.definition_names.get(id(node))) is not None:
            self.definition_names[id(merged)] = name
        return merged

    def _expand_reference(self, part: Node) -> list[Node]:
        target = resolve_pointer(self.root, part["$ref"])
        if target is None or id(target) in self.resolving:
            return [part]  # an unresolvable or circular reference
        self.resolving.add(id(target))
        nodes = self.get_branches(target)
        self.resolving.discard(id(target))
        name = part["$ref"].rpartition("/")[2]
        for node in nodes:
            self.definition_names.setdefault(id(node), name)
        return self._combine(target, {key: value for key, value in part.items() if key not in ("$ref", "$defs")})


def describe(node: Node) -> str:
    """Return a short description of a node."""
    if isinstance(node.get("enum"), list):
        values = [to_json(value).decode() for value in node["enum"][:5]]
        return " or ".join([*values, *(["others"] if len(node["enum"]) > len(values) else [])]) or "nothing"
    if isinstance(node.get("anyOf"), list):
        return " or ".join(dict.fromkeys(describe(branch) for branch in node["anyOf"][:5]))
    if node == _NEVER:
        return "nothing"
    type_name = node.get("type")
    if not isinstance(type_name, str):
        return "anything" if not node.keys() - _ANNOTATION_KEYWORDS else "something else"
    if type_name == "array" and isinstance(node.get("items"), dict) and isinstance(node["items"].get("type"), str):
        return f"array of {node['items']['type']}"
    return f"{type_name} ({node['title']})" if isinstance(node.get("title"), str) else type_name
