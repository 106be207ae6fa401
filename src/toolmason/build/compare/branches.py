"""A part of a JSON Schema → the alternatives that it stands for, each of one kind.

Lives here: following references, taking `anyOf`, `oneOf`, `allOf` and lists of types apart, naming a part in words.
Not here: comparing (`changes`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pydantic_core import to_json

Node: TypeAlias = dict[str, Any]
"""One alternative: no references, no choice of types."""

_WORDS: Final = frozenset({"description", "title", "examples", "default", "deprecated", "$defs", "$schema", "$id"})
"""Keywords that limit nothing."""
_NOTHING: Final[Node] = {"not": {}}


class Tree:
    """A schema and what its references mean."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.known: dict[int, tuple[Any, list[Node]]] = {}
        self.names: dict[int, str] = {}
        self.following: set[int] = set()

    def branches(self, part: Any) -> list[Node]:
        """Return the alternatives of a part; the same objects each time."""
        if id(part) not in self.known:
            # The part is kept with them: its identity is the key only for as long as it lives.
            self.known[id(part)] = (part, self._branches(part))
        return self.known[id(part)][1]

    def only(self, part: Any) -> Node:
        """Return a part as one alternative, for words about it."""
        found = self.branches(part)
        return found[0] if len(found) == 1 else {"anyOf": found}

    def name_of(self, node: Node) -> str | None:
        """Return the name of the definition that an alternative comes from."""
        return self.names.get(id(node))

    def _branches(self, part: Any) -> list[Node]:
        if part is False:
            return [_NOTHING]
        if not isinstance(part, dict):
            return [{}]
        if isinstance(part.get("$ref"), str):
            return self._referred(part)
        for choice in ("anyOf", "oneOf"):
            if isinstance(part.get(choice), list) and part[choice]:
                rest = {key: value for key, value in part.items() if key not in (choice, "discriminator")}
                return [node for branch in part[choice] for node in self._with(branch, rest)]
        if isinstance(part.get("allOf"), list) and len(part["allOf"]) == 1:
            return self._with(part["allOf"][0], {key: value for key, value in part.items() if key != "allOf"})
        if "const" in part:
            part = {"enum": [part["const"]], **{key: value for key, value in part.items() if key != "const"}}
        if isinstance(part.get("type"), list):
            return [{**part, "type": kind} for kind in part["type"]]
        return [part]

    def _with(self, branch: Any, rest: Node) -> list[Node]:
        """Return the alternatives of a branch, each with the keywords that stand beside the choice."""
        found = self.branches(branch)
        limits = {key: value for key, value in rest.items() if key not in _WORDS}
        if not rest:
            return found
        return [self._joined(node, rest, limits) for node in found]

    def _joined(self, node: Node, rest: Node, limits: Node) -> Node:
        clash = any(key in node and node[key] != value for key, value in limits.items())
        joined = {**node, "allOf": [limits]} if clash else {**node, **rest}
        if (name := self.names.get(id(node))) is not None:
            self.names[id(joined)] = name
        return joined

    def _referred(self, part: Node) -> list[Node]:
        target = self._target(part["$ref"])
        if target is None or id(target) in self.following:
            return [part]  # leads nowhere, or round in a ring without ever saying anything
        self.following.add(id(target))
        found = self.branches(target)
        self.following.discard(id(target))
        name = part["$ref"].rpartition("/")[2]
        for node in found:
            self.names.setdefault(id(node), name)
        return self._with(target, {key: value for key, value in part.items() if key not in ("$ref", "$defs")})

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        found = self.root
        for step in reference[1:].split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                return None
            found = found[key]
        return found


def said(node: Node) -> str:
    """Name a part in a few words."""
    if isinstance(node.get("enum"), list):
        values = [to_json(value).decode() for value in node["enum"][:5]]
        return " or ".join([*values, *(["others"] if len(node["enum"]) > len(values) else [])]) or "nothing"
    if isinstance(node.get("anyOf"), list):
        return " or ".join(dict.fromkeys(said(branch) for branch in node["anyOf"][:5]))
    if node == _NOTHING:
        return "nothing"
    kind = node.get("type")
    if not isinstance(kind, str):
        return "anything" if not node.keys() - _WORDS else "something else"
    if kind == "array" and isinstance(node.get("items"), dict) and isinstance(node["items"].get("type"), str):
        return f"array of {node['items']['type']}"
    return f"{kind} ({node['title']})" if isinstance(node.get("title"), str) else kind
