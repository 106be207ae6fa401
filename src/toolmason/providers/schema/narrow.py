"""A JSON Schema → the same schema in the subset that a provider takes, and what got lost on the way.

Lives here: the walk. Our own schema stays the truth: arguments are always checked against it, so a rule that a provider
cannot hold is told in words. Not here: what each provider takes (`dialects`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolmason.providers.aliases import key_alias
from toolmason.providers.schema.dialects import Dialect
from toolmason.providers.schema.losses import Loss
from toolmason.providers.schema.merge import Conflict, definitions_of, merged, modern, name_of, pointed, united
from toolmason.providers.schema.sentences import SILENT, TOLD, described, sentence_of

_LOOK_AROUND: Final = re.compile(r"\(\?[=!<]")
_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (type(None), "null"),
    (dict, "object"),
    (list, "array"),
)
_ANYTHING: Final = ["string", "number", "boolean", "null"]
_STRUCTURE: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems", "enum"}
    | {"const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "description"}
)
_DEEPEST: Final = 200
"""More levels than any schema has that is meant; a walk must end."""


class Walk:
    """One schema on its way into one dialect."""

    def __init__(self, root: Mapping[str, Any], dialect: Dialect) -> None:
        self.dialect, self._whole = dialect, root
        self.definitions = definitions_of(root)
        self._pointers: dict[str, str] = {}
        self.losses: list[Loss] = []
        self.used: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        """What is sent instead of the name of a property → that name."""
        self.properties = self.enum_values = self.depth = 0

    def lose(self, path: str, what: str, *, meaning: bool = False) -> None:
        """Take note of a loss."""
        self.losses.append(Loss(path, what, meaning))

    def root(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole schema in the dialect."""
        top = self.flattened(schema)
        if top.get("type", "object") != "object":
            self.lose("$", f"its schema is of type {top['type']!r}, not an object", meaning=True)
        own = {key: value for key, value in top.items() if key not in ("$defs", "definitions")}
        if self.dialect.typed and "properties" not in own:
            self.lose("$", "any key goes here", meaning=True)
        whole = self.node({**own, "type": "object", "properties": own.get("properties", {})}, "$", 0)
        if self.used:
            whole["$defs"] = self.used
        self._measure()
        return whole

    def flattened(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the root with what it refers to in its place, and without alternatives where none may stand."""
        top = dict(schema)
        for _ in range(_DEEPEST):
            name = self.name_of(top.get("$ref"))
            if name is None:
                break
            top = {**self.definitions[name], **{key: value for key, value in top.items() if key != "$ref"}}
        if not self.dialect.flat_root:
            return top
        if "allOf" in top:
            top = self._all_of(top, "$")
        for key in ("anyOf", "oneOf"):
            branches = [self._resolved(branch) for branch in top.get(key, ())]
            if branches:
                self.lose("$", f"`{key}` at the top is offered as one object")
                needs = [branch.get("required", []) for branch in branches]
                top = united({k: v for k, v in top.items() if k != key}, branches)
                told = "One of these sets of keys is needed: " + "; ".join(", ".join(map(str, n)) for n in needs) + "."
                top["description"] = described(top.get("description"), [told] if any(needs) else [])
        for key in ("not", "enum", "const"):
            if key in top:
                self.lose("$", f"`{key}` at the top is told in words")
                top["description"] = described(top.get("description"), [sentence_of(key, top.pop(key))])
        return top

    def name_of(self, ref: Any) -> str | None:
        """Return the name of what a reference means; a part of the schema that has none is given one."""
        name = name_of(ref)
        if name is not None and name in self.definitions:
            return name
        if ref in self._pointers:
            return self._pointers[ref]
        if (found := pointed(self._whole, ref)) is None:
            return None
        made = re.sub(r"[^A-Za-z0-9_.-]", "_", ref[2:])
        while made in self.definitions:
            made += "_"
        self._pointers[ref], self.definitions[made] = made, found
        return made

    def _resolved(self, branch: Any) -> dict[str, Any]:
        found = dict(branch) if isinstance(branch, Mapping) else {}
        for _ in range(_DEEPEST):
            if (name := self.name_of(found.get("$ref"))) is None:
                break
            meant, beside = self.definitions[name], {key: value for key, value in found.items() if key != "$ref"}
            found = {**(meant if isinstance(meant, Mapping) else {}), **beside}
        return found

    def node(self, schema: Any, path: str, depth: int) -> dict[str, Any]:
        """Return one schema in the dialect, with everything in it."""
        self.depth = max(self.depth, depth)
        if not isinstance(schema, Mapping):
            if schema is False:
                self.lose(path, "nothing fits here, which cannot be said", meaning=True)
            return self._untyped({}, path)
        if depth > _DEEPEST:
            self.lose("$", f"it is more than {_DEEPEST} levels deep", meaning=True)
            return self._untyped({}, path)
        if "$ref" in schema:
            return self._reference(schema, path, depth)
        if "allOf" in schema and not self._keeps("allOf"):
            schema = self._all_of(schema, path)
        return self._plain(modern(schema), path, depth)

    def _keeps(self, keyword: str) -> bool:
        return self.dialect.keywords is None or keyword in self.dialect.keywords

    def _reference(self, schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        name = self.name_of(schema["$ref"])
        if schema["$ref"] != "#" and name is None:
            self.lose(path, f"the reference {schema['$ref']!r} leads nowhere", meaning=True)
            return self._untyped({}, path)
        if name is not None and name not in self.used:
            self.used[name] = {}
            self.used[name].update(self.node(self.definitions[name], f"{path}<{name}>", depth))
        pointer = {"$ref": "#" if name is None else f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}"}
        beside = {key: value for key, value in schema.items() if key != "$ref" and key not in SILENT}
        if not beside:
            return pointer
        told = [sentence_of(k, v) for k, v in beside.items() if k != "description" and (k, v) != ("default", None)]
        for key in beside.keys() - TOLD - {"description"}:
            self.lose(path, f"`{key}` beside a reference is told in words")
        text = described(beside.get("description"), told)
        around = {"anyOf": [pointer]} if self.dialect.lone_refs else pointer
        return {**around, "description": text} if text else pointer

    def _all_of(self, schema: Mapping[str, Any], path: str, depth: int = 0) -> dict[str, Any]:
        parts = [{key: value for key, value in schema.items() if key != "allOf"}]
        if depth > _DEEPEST // 4:
            self.lose(path, "`allOf` within `allOf` does not end", meaning=True)
            return parts[0]
        for branch in schema["allOf"]:
            part = self._resolved(branch)
            parts.append(self._all_of(part, path, depth + 1) if "allOf" in part else part)
        if any("$ref" in part for part in parts):
            self.lose(path, "a reference within `allOf` leads nowhere", meaning=True)
        try:
            return merged(parts)
        except (Conflict, TypeError, AttributeError) as conflict:
            self.lose(path, f"`allOf` cannot be written as one schema: {conflict} differs", meaning=True)
            return dict(parts[0])

    def _plain(self, schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        sentences: list[str] = []
        kind = schema.get("type", self._inferred(schema))
        if kind is not None:
            made["type"] = kind
        if "title" in schema and self.dialect.keywords is None:
            made["title"] = schema["title"]
        self._branches(schema, made, sentences, path, depth)
        self._values(schema, made, sentences, path)
        kinds = made.get("type")
        if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
            self._object(schema, made, path, depth)
        if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
            self._array(schema, made, sentences, path, depth)
        for keyword, value in schema.items():
            if keyword not in _STRUCTURE and keyword not in SILENT:
                self._rule(keyword, value, made, sentences, path)
        if text := described(schema.get("description"), sentences):
            made["description"] = text
        if "type" not in made and not made.keys() & {"anyOf", "allOf", "enum", "const", "$ref"}:
            return self._untyped(made, path)
        return made

    def _branches(
        self, schema: Mapping[str, Any], made: dict[str, Any], sentences: list[str], path: str, depth: int
    ) -> None:
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches and all(isinstance(b, Mapping) and b.keys() <= {"required"} for b in branches):
            self.lose(path, "the choice of required keys is told in words")
            sentences.append(sentence_of("Required, one of", [b.get("required", []) for b in branches]))
        elif branches:
            made["anyOf"] = [self.node(branch, path, depth) for branch in branches]
        if schema.get("anyOf") and schema.get("oneOf"):
            self._rule("oneOf", schema["oneOf"], made, sentences, path)
        if "allOf" in schema:
            made["allOf"] = [self.node(branch, path, depth) for branch in schema["allOf"]]

    def _untyped(self, made: dict[str, Any], path: str) -> dict[str, Any]:
        if not self.dialect.typed:
            return made
        self.lose(path, "anything goes here", meaning=True)
        return {"type": list(_ANYTHING), **made}

    @staticmethod
    def _inferred(schema: Mapping[str, Any]) -> Any:
        if "properties" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        kinds = list(dict.fromkeys(word for value in values for kind, word in _KINDS if type(value) is kind))
        return (kinds[0] if len(kinds) == 1 else kinds) if kinds else None

    def _values(self, schema: Mapping[str, Any], made: dict[str, Any], sentences: list[str], path: str) -> None:
        if "const" in schema and self._keeps("const"):
            made["const"] = schema["const"]
            return
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not isinstance(values, list):
            return
        self.enum_values += len(values)
        kinds = self.dialect.enums
        if kinds is None or all(type(value) in kinds for value in values):
            made["enum"] = list(values)
            return
        rest = [value for value in values if type(value) in kinds]
        if rest and all(type(value) in kinds or value is None for value in values):
            said = made.get("type")
            made["type"] = list(dict.fromkeys([*(said if isinstance(said, list) else [said]), "null"]))
            made["enum"] = rest
        elif not all(type(value) is bool for value in values) or len(set(values)) == 1:
            sentences.append(sentence_of("enum", values))
            self.lose(path, "the fixed values are told in words")

    def _object(self, schema: Mapping[str, Any], made: dict[str, Any], path: str, depth: int) -> None:
        properties = schema.get("properties") or {}
        required = [name for name in schema.get("required", ()) if name in properties]
        self.properties += len(properties)
        narrow: dict[str, Any] = {}
        for name, part in properties.items():
            inner = self.node(part, f"{path}.{name}", depth + 1)
            narrow[name] = inner if not self.dialect.all_required or name in required else nullable(inner)
        narrow, required = self.taken(narrow), [self.key(name) for name in required]
        more = schema.get("additionalProperties")
        if "properties" in schema or self.dialect.needs_items:
            made["properties"] = narrow
        if self.dialect.all_required:
            made["required"] = list(narrow)
        elif required:
            made["required"] = required
        if not self.dialect.closed:
            if more is not None:
                made["additionalProperties"] = more if isinstance(more, bool) else self.node(more, f"{path}.*", depth)
            if "patternProperties" in schema:
                self.lose(path, "`patternProperties` is not enforced")
            return
        made["additionalProperties"] = False
        open_ended = more is not False and (bool(more) or more == {} or (not properties and path != "$"))
        if open_ended or schema.get("patternProperties"):
            self.lose(path, "any key goes here", meaning=True)

    def key(self, name: Any) -> Any:
        """Return the name of a property as it is sent."""
        rule = self.dialect.property_names
        if rule is None or not isinstance(name, str) or re.fullmatch(rule, name):
            return name
        alias = key_alias(name)
        self.keys[alias] = name
        return alias

    def taken(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return properties under names that the provider takes; one that is renamed says what it was."""
        made: dict[str, Any] = {}
        for name, part in properties.items():
            key, told = self.key(name), {}
            if key != name and isinstance(part, Mapping):
                told = {"description": described(part.get("description"), [f"Stands for {name!r}."])}
            made[key] = {**part, **told} if told else part
        return made

    def _array(
        self, schema: Mapping[str, Any], made: dict[str, Any], sentences: list[str], path: str, depth: int
    ) -> None:
        inner, first = schema.get("items"), schema.get("prefixItems")
        if first and self._keeps("prefixItems"):
            made["prefixItems"] = [self.node(part, f"{path}[{n}]", depth + 1) for n, part in enumerate(first)]
        elif first:
            parts = [self.node(part, f"{path}[{n}]", depth + 1) for n, part in enumerate(first)]
            kinds = [part for n, part in enumerate(parts) if part not in parts[:n]]
            made["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            sentences.append(f"Exactly {len(first)} items, in order.")
            self.lose(path, "the order of its items is told in words")
            return
        if isinstance(inner, Mapping) and (inner or not self.dialect.typed):
            made["items"] = self.node(inner, f"{path}[*]", depth + 1)
        elif not first and self.dialect.typed:
            made["items"] = {"type": list(_ANYTHING)}
            self.lose(path, "any item goes here", meaning=True)
        elif not first and self.dialect.needs_items:
            made["items"] = {}

    def _rule(self, keyword: str, value: Any, made: dict[str, Any], sentences: list[str], path: str) -> None:
        if self._keeps(keyword) and self._takes(keyword, value):
            made[keyword] = value
            return
        if (keyword, value) == ("default", None) or (keyword == "uniqueItems" and not value):
            return
        sentences.append(sentence_of(keyword, value))
        if keyword not in TOLD:
            self.lose(path, f"`{keyword}` is told in words")

    def _takes(self, keyword: str, value: Any) -> bool:
        if keyword == "format":
            return self.dialect.formats is None or value in self.dialect.formats
        if keyword == "pattern":
            return self.dialect.look_around or not _LOOK_AROUND.search(str(value))
        return self.dialect.most_items or keyword != "minItems" or value in (0, 1)

    def _measure(self) -> None:
        limits = self.dialect
        for words, size, most in (
            ("it is more than {:,} levels deep", self.depth, limits.deepest),
            ("it has more than {:,} properties", self.properties, limits.most_properties),
            ("it has more than {:,} enum values", self.enum_values, limits.most_enum_values),
        ):
            if most is not None and size > most:
                self.losses.insert(0, Loss("$", words.format(most), changes_meaning=True))


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also takes null, which then stands for "left out"."""
    said = schema.get("type")
    if "const" in schema or "$ref" in schema or "allOf" in schema:
        text = {"description": schema["description"]} if "description" in schema else {}
        inner = {key: value for key, value in schema.items() if key != "description"}
        return {"anyOf": [inner, {"type": "null"}], **text}
    if "anyOf" in schema:
        has = any(branch.get("type") == "null" for branch in schema["anyOf"])
        return schema if has else {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    kinds = said if isinstance(said, list) else [] if said is None else [said]
    made = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
    if "enum" in schema and None not in schema["enum"]:
        made["enum"] = [*schema["enum"], None]
    return made
