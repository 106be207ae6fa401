"""Rewrite a JSON Schema into the subset that a provider accepts, and record what is lost.

Toolmason always validates arguments against the original schema, so a constraint that the provider cannot enforce is
only described to the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.define.schema_nodes import BRANCH_KEYWORDS, get_own_types, resolve_pointer
from toolmason.providers.aliases import make_key_alias
from toolmason.providers.schema.dialects import Dialect
from toolmason.providers.schema.losses import Loss
from toolmason.providers.schema.merge import (
    SchemaConflict,
    SchemaTooComplex,
    get_definition_name,
    get_definitions,
    identify_part,
    infer_type,
    make_definition_name,
    make_key,
    make_nullable,
    measure_size,
    merge_schemas,
    modernize,
    select_possible,
    unite_branches,
)
from toolmason.providers.schema.sentences import ANNOTATION_KEYWORDS, UNENFORCED_KEYWORDS, add_sentences, make_sentence

_ANY_SCALAR: Final = ["string", "number", "boolean", "null"]
_STRUCTURE_KEYWORDS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems", "enum"}
    | {"const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "description"}
)
USUAL_ROOT: Final = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "description"})
"""Keywords of the root that need no step of their own."""
_SKIPPED_KEYWORDS: Final = _STRUCTURE_KEYWORDS | ANNOTATION_KEYWORDS
_SCALAR_KINDS: Final = ("string", "integer", "number", "boolean", "null")
_SIZED_TYPES: Final = frozenset({str, list, dict})
_ATOMIC_TYPES: Final = frozenset({int, float, bool, type(None)})
_MAX_DEPTH: Final = 200
"""Deeper than any real schema; guarantees that the recursion ends."""
_MAX_STEPS: Final = 10_000
_MAX_PATH_LENGTH: Final = 500


class SharedParts:
    """Parts that the schemas of one export have in common, by their JSON text without the description."""

    def __init__(self) -> None:
        self.narrowed: dict[tuple[bytes, bool], tuple[SchemaNarrower, dict[str, Any]]] = {}
        """Narrower and form of a part, by whether it is nullable."""
        self.unchanged: dict[bytes, bool] = {}
        """True for a part that the API accepts as it is."""


class SchemaNarrower:
    """Conversion of one schema to one dialect."""

    property_count = 0
    enum_value_count = 0
    max_depth = 0
    """Depth of the deepest schema so far."""
    is_counted = True
    """True if a schema with this part has more to count than one level."""
    _steps_left = _MAX_STEPS
    _is_measured = False

    def __init__(self, root: Mapping[str, Any], dialect: Dialect, shared: SharedParts | None = None) -> None:
        self.dialect = dialect
        self._shared = SharedParts() if shared is None else shared
        self._root_schema = root
        self.definitions = get_definitions(root)
        self._pointer_names: dict[str, str] = {}
        self.losses: list[Loss] = []
        self.used_definitions: dict[str, dict[str, Any]] = {}
        self.key_aliases: dict[str, str] = {}
        """Aliases of property names, mapped to those names."""
        self.sentences: list[str] = []
        """Sentences that the last schema has got in its description."""
        self._unfinished: list[tuple[str, str, int]] = []
        """Definitions that are used but not narrowed yet: the name, and the path and depth of the first use."""

    def _spend(self, schema: Mapping[str, Any]) -> None:
        """Count the steps for one schema without the schemas inside it.

        Raises:
            SchemaTooComplex: none are left. `allOf` repeats what it refers to: a small schema can stand for a huge one.
        """
        steps = 1 + len(schema)
        for value in schema.values():
            kind = type(value)
            if kind in _SIZED_TYPES or (kind not in _ATOMIC_TYPES and isinstance(value, Mapping)):
                steps += len(value) // 16
        self._steps_left -= steps
        if self._steps_left < 0 and not self._is_measured:
            # Measured only now, because writing a schema as JSON takes as long as narrowing a third of it.
            self._is_measured = True
            self._steps_left += measure_size(self._root_schema)
        if self._steps_left < 0:
            raise SchemaTooComplex

    def add_loss(self, path: str, what: str, *, changes_meaning: bool = False) -> None:
        """Record a loss."""
        self.losses.append(Loss(path, what, changes_meaning))

    def _add_unenforced(self, path: str, constraint: str) -> None:
        what = f"{constraint} is described but not enforced"
        self.losses.append(Loss(path, what, kind="unenforced", subject=constraint))

    def _add_unrestricted(self, path: str, subject: str) -> None:
        what = f"{subject} is allowed here"
        self.losses.append(Loss(path, what, changes_meaning=True, kind="unrestricted", subject=subject))

    def narrow_root(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole schema in the dialect."""
        if schema.keys() <= USUAL_ROOT and schema.get("type") == "object" and type(schema.get("properties")) is dict:
            narrowed: dict[str, Any] = {"type": "object"}
            self.max_depth = 1 if schema["properties"] else 0
            self._narrow_object(schema, narrowed, "$", 0)
            self._apply_keywords(schema, narrowed, [], "$")
        else:
            narrowed = self._narrow_unusual_root(schema)
        # Not at the first use: a chain of definitions would exhaust the stack.
        while self._unfinished:
            name, path, depth = self._unfinished.pop()
            self.used_definitions[name].update(self._narrow_shared(self.definitions[name], path, depth))
        if self.used_definitions:
            narrowed["$defs"] = self.used_definitions
        self._check_size()
        return narrowed

    def _narrow_unusual_root(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        top = self.flatten_root(schema)
        if top.get("type", "object") != "object":
            self.add_loss("$", f"the schema has type {top['type']!r}, not 'object'", changes_meaning=True)
        own_keywords = {key: value for key, value in top.items() if key not in ("$defs", "definitions")}
        if self.dialect.requires_type and "properties" not in own_keywords:
            self._add_unrestricted("$", "any key")
        own_keywords |= {"type": "object", "properties": own_keywords.get("properties", {})}
        return self.narrow_node(own_keywords, "$", 0)

    def flatten_root(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the root with its reference resolved, and without alternatives if the dialect forbids them there."""
        top = self._resolve(schema)
        if not self.dialect.requires_flat_root:
            return top
        if "allOf" in top:
            top = self._merge_all_of(top, "$")
        for key in ("anyOf", "oneOf"):
            branches = [self.flatten_root(branch) for branch in top.get(key, ())]
            if branches:
                self.add_loss("$", f"`{key}` at the root is merged into one object")
                required_sets = [branch.get("required", []) for branch in branches]
                top = unite_branches({k: v for k, v in top.items() if k != key}, branches)
                if any(required_sets):
                    choices = "; ".join(", ".join(map(str, names)) for names in required_sets)
                    sentence = f"One of these sets of keys is required: {choices}."
                    top["description"] = add_sentences(top.get("description"), [sentence])
        for key in ("not", "enum", "const"):
            if key in top:
                self._add_unenforced("$", f"`{key}`")
                top["description"] = add_sentences(top.get("description"), [make_sentence(key, top.pop(key))])
        return top

    def find_definition_name(self, ref: Any) -> str | None:
        """Return the definition name of a reference; a part of the schema without a name gets one."""
        name = get_definition_name(ref)
        if name is not None and name in self.definitions:
            return name
        if ref in self._pointer_names:
            return self._pointer_names[ref]
        if (found := resolve_pointer(self._root_schema, ref)) is None:
            return None
        new_name = self._pointer_names[ref] = make_definition_name(ref, self.definitions)
        self.definitions[new_name] = found
        return new_name

    def _resolve(self, branch: Any) -> dict[str, Any]:
        resolved = dict(branch) if isinstance(branch, Mapping) else {}
        for _ in range(_MAX_DEPTH):
            if "$ref" not in resolved or (name := self.find_definition_name(resolved["$ref"])) is None:
                break
            target = self.definitions[name]
            self._spend(resolved)
            siblings = {key: value for key, value in resolved.items() if key != "$ref"}
            resolved = {**(target if isinstance(target, Mapping) else {}), **siblings}
        return resolved

    def _narrow_shared(self, schema: Any, path: str, depth: int, *, is_nullable: bool = False) -> dict[str, Any]:
        """Narrow a property of the root, or a definition. Tools have many in common, but for the description."""
        shape, text, key = schema, None, b"$ref"
        if type(schema) is dict and "description" in schema and "allOf" not in schema:
            shape = schema.copy()
            text = shape.pop("description")
        if type(schema) is not dict or "$ref" not in schema:
            try:
                key = to_json(shape)
            except ValueError:  # too deep for the serializer, or not JSON data
                key = b"$ref"
        found = self._shared.narrowed.get((key, is_nullable))
        if found is None and b"$ref" not in key:  # a reference belongs to one schema
            part = SchemaNarrower(self._root_schema, self.dialect)
            narrowed = part.narrow_node(shape, "", 1)
            part.is_counted = bool(part.losses or part.property_count or part.enum_value_count or part.max_depth > 1)
            found = (part, make_nullable(narrowed) if is_nullable else narrowed)
            self._shared.narrowed[key, is_nullable] = found
        if found is None or depth + found[0].max_depth > _MAX_DEPTH:
            narrowed = self.narrow_node(schema, path, depth)
            return make_nullable(narrowed) if is_nullable else narrowed
        part, narrowed = found
        if depth > 1 or part.is_counted:
            self._count_part(part, path, depth)
        text = add_sentences(text, part.sentences) if text else ""
        return {**narrowed, "description": text} if text else narrowed

    def _count_part(self, part: SchemaNarrower, path: str, depth: int) -> None:
        if part.losses or part.key_aliases:
            self.losses += [replace(loss, path=path + loss.path) for loss in part.losses]
            self.key_aliases.update(part.key_aliases)
        self.property_count += part.property_count
        self.enum_value_count += part.enum_value_count
        self.max_depth = max(self.max_depth, depth + part.max_depth - 1)

    def narrow_node(self, schema: Any, path: str, depth: int) -> dict[str, Any]:
        """Return one schema and everything in it in the dialect."""
        self.max_depth = max(self.max_depth, depth)
        if type(schema) is dict and schema.get("type") in _SCALAR_KINDS and BRANCH_KEYWORDS.isdisjoint(schema):
            return self._narrow_scalar(schema, path)
        if type(schema) is not dict and not isinstance(schema, Mapping):
            if schema is False:
                self.add_loss(path, "no value is allowed, which has no equivalent", changes_meaning=True)
            return self._make_untyped({}, path)
        if depth > _MAX_DEPTH:
            self.add_loss("$", f"the schema is more than {_MAX_DEPTH} levels deep", changes_meaning=True)
            return self._make_untyped({}, path)
        self._spend(schema)
        if "$ref" in schema:
            return self._narrow_reference(schema, path, depth)
        if "allOf" in schema and not self._allows_keyword("allOf"):
            schema = self._merge_all_of(schema, path)
        return self._narrow_plain(modernize(schema), path, depth)

    def _narrow_scalar(self, schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return a scalar without alternatives, as most properties are."""
        narrowed, sentences = {"type": schema["type"]}, list[str]()
        self._spend(schema)
        if len(schema) == 1:
            return narrowed
        schema = modernize(schema)
        self._narrow_values(schema, narrowed, sentences, path)
        self._apply_keywords(schema, narrowed, sentences, path)
        return narrowed

    def _allows_keyword(self, keyword: str) -> bool:
        return self.dialect.keywords is None or keyword in self.dialect.keywords

    def _narrow_reference(self, schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        name = self.find_definition_name(schema["$ref"])
        if name is None:
            self.add_loss(path, f"the reference {schema['$ref']!r} cannot be resolved", changes_meaning=True)
            return self._make_untyped({}, path)
        if name not in self.used_definitions:
            self.used_definitions[name] = {}
            self._unfinished.append((name, f"{path[:_MAX_PATH_LENGTH]}<{name}>", depth))
        pointer = {"$ref": f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}"}
        siblings = {key: value for key, value in schema.items() if key != "$ref" and key not in ANNOTATION_KEYWORDS}
        if not siblings:
            return pointer
        sentences: list[str] = []
        for key, value in siblings.items():
            if key != "description" and (key, value) != ("default", None):
                sentences.append(make_sentence(key, value))
            if key != "description" and key not in UNENFORCED_KEYWORDS:
                self._add_unenforced(path, f"`{key}` beside a reference")
        text = add_sentences(siblings.get("description"), sentences)
        wrapped = {"anyOf": [pointer]} if self.dialect.requires_lone_refs else pointer
        return {**wrapped, "description": text} if text else pointer

    def _merge_all_of(self, schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        parts = list(self._iter_all_of(schema, path))
        if any("$ref" in part for part in parts):
            self.add_loss(path, "a reference within `allOf` cannot be resolved", changes_meaning=True)
        try:
            return merge_schemas(parts)
        except (SchemaConflict, TypeError, AttributeError) as conflict:
            self.add_loss(path, f"`allOf` cannot be merged into one schema: {conflict} differs", changes_meaning=True)
            return dict(parts[0])

    def _iter_all_of(self, schema: Mapping[str, Any], path: str) -> Iterator[dict[str, Any]]:
        """Yield a schema and the parts of its `allOf`, at any depth. A part that is named twice is yielded once."""
        queue: list[tuple[Any, Mapping[str, Any] | None]] = [(None, schema)]
        seen: dict[Any, bool] = {}
        """Parts so far by their keys: True while the parts inside one are yielded."""
        while queue:
            key, part = queue.pop()
            seen[key] = part is not None
            if part is None:
                continue
            self._spend(part)
            yield {key: value for key, value in part.items() if key != "allOf"}
            branches = {identify_part(branch): branch for branch in part.get("allOf", ())}
            if any(seen.get(inner) for inner in branches):
                self.add_loss(path, "nested `allOf` does not end", changes_meaning=True)
            new = [(inner, self._resolve(branch)) for inner, branch in branches.items() if inner not in seen]
            queue += [(key, None), *reversed(new)]

    def _narrow_plain(self, schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        narrowed: dict[str, Any] = {}
        sentences: list[str] = []
        kind = schema["type"] if "type" in schema else infer_type(schema)
        if kind is not None:
            narrowed["type"] = kind
        if not BRANCH_KEYWORDS.isdisjoint(schema):
            self._narrow_branches(schema, narrowed, sentences, path, depth)
        self._narrow_values(schema, narrowed, sentences, path)
        kinds = get_own_types(narrowed)
        if "object" in kinds:
            self._narrow_object(schema, narrowed, path, depth)
        if "array" in kinds:
            self._narrow_array(schema, narrowed, sentences, path, depth)
        self._apply_keywords(schema, narrowed, sentences, path)
        if "type" not in narrowed and not narrowed.keys() & {"anyOf", "allOf", "enum", "const", "$ref"}:
            return self._make_untyped(narrowed, path)
        return narrowed

    def _narrow_branches(
        self, schema: Mapping[str, Any], narrowed: dict[str, Any], sentences: list[str], path: str, depth: int
    ) -> None:
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches and all(isinstance(b, Mapping) and b.keys() <= {"required"} for b in branches):
            self._add_unenforced(path, "the choice of required keys")
            sentences.append(make_sentence("Required, one of", [b.get("required", []) for b in branches]))
        elif branches:
            narrowed["anyOf"] = [self.narrow_node(branch, path, depth) for branch in branches]
        if schema.get("anyOf") and schema.get("oneOf"):
            self._apply_keyword("oneOf", schema["oneOf"], narrowed, sentences, path)
        if "allOf" in schema:
            narrowed["allOf"] = [self.narrow_node(branch, path, depth) for branch in schema["allOf"]]

    def _make_untyped(self, narrowed: dict[str, Any], path: str) -> dict[str, Any]:
        if not self.dialect.requires_type:
            return narrowed
        self._add_unrestricted(path, "any value")
        return {"type": list(_ANY_SCALAR), **narrowed}

    def _narrow_values(
        self, schema: Mapping[str, Any], narrowed: dict[str, Any], sentences: list[str], path: str
    ) -> None:
        has_const = "const" in schema
        if has_const and self._allows_keyword("const"):
            narrowed["const"] = schema["const"]
            return
        values = [schema["const"]] if has_const else schema.get("enum")
        if not isinstance(values, list):
            return
        possible = select_possible(values, narrowed.get("type"))
        self.enum_value_count += len(possible)
        kinds = self.dialect.enum_types
        if possible and (kinds is None or all(type(value) in kinds for value in possible)):
            narrowed["enum"] = possible
            return
        allowed_values = [value for value in possible if kinds is not None and type(value) in kinds]
        if allowed_values and len(allowed_values) + possible.count(None) == len(possible):
            narrowed["type"] = [*dict.fromkeys([*get_own_types(narrowed), "null"])]
            narrowed["enum"] = allowed_values
        elif not possible or not all(type(value) is bool for value in values) or len(set(values)) == 1:
            sentences.append(make_sentence("enum", values))
            self._add_unenforced(path, "`const`" if has_const else "`enum`")

    def _narrow_object(self, schema: Mapping[str, Any], narrowed: dict[str, Any], path: str, depth: int) -> None:
        dialect = self.dialect
        properties = schema.get("properties") or {}
        required = [name for name in schema.get("required", ()) if name in properties]
        omittable = properties.keys() - required if dialect.requires_all_properties else ()
        self.property_count += len(properties)
        narrowed_properties: dict[str, Any] = {}
        for name, part in properties.items():
            is_nullable = name in omittable
            if depth == 0:
                inner = self._narrow_shared(part, f"$.{name}", 1, is_nullable=is_nullable)
            else:
                inner = self.narrow_node(part, f"{path}.{name}", depth + 1)
                inner = make_nullable(inner) if is_nullable else inner
            narrowed_properties[name] = inner
        if dialect.property_name_pattern is not None:
            narrowed_properties = self.alias_properties(narrowed_properties)
            required = [self.alias_key(name) for name in required]
        if "properties" in schema or dialect.requires_items:
            narrowed["properties"] = narrowed_properties
        if dialect.requires_all_properties:
            narrowed["required"] = list(narrowed_properties)
        elif required:
            narrowed["required"] = required
        self._narrow_other_keys(schema, narrowed, path, depth)

    def _narrow_other_keys(self, schema: Mapping[str, Any], narrowed: dict[str, Any], path: str, depth: int) -> None:
        """Set the keyword for keys that are not in `properties`."""
        additional = schema.get("additionalProperties")
        if not self.dialect.requires_closed_objects:
            if additional is not None:
                narrowed["additionalProperties"] = (
                    additional if isinstance(additional, bool) else self.narrow_node(additional, f"{path}.*", depth)
                )
            if "patternProperties" in schema:
                self.add_loss(path, "`patternProperties` is not enforced")
            return
        narrowed["additionalProperties"] = False
        open_ended = additional is not False and (
            bool(additional) or additional == {} or (not schema.get("properties") and path != "$")
        )
        if open_ended or schema.get("patternProperties"):
            self._add_unrestricted(path, "any key")

    def alias_key(self, name: Any) -> Any:
        """Return the property name to send."""
        pattern = self.dialect.property_name_pattern
        if pattern is None or not isinstance(name, str) or pattern.fullmatch(name):
            return name
        alias = make_key_alias(name)
        self.key_aliases[alias] = name
        return alias

    def alias_properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return properties under names that the provider accepts; a renamed one mentions its original name."""
        aliased: dict[str, Any] = {}
        if self.dialect.property_name_pattern is None:
            return dict(properties)
        for name, part in properties.items():
            key = self.alias_key(name)
            if key != name and isinstance(part, Mapping):
                description = add_sentences(part.get("description"), [f"Original name: {name!r}."])
                aliased[key] = {**part, "description": description}
            else:
                aliased[key] = part
        return aliased

    def _narrow_array(
        self, schema: Mapping[str, Any], narrowed: dict[str, Any], sentences: list[str], path: str, depth: int
    ) -> None:
        items, prefix_items = schema.get("items"), schema.get("prefixItems")
        parts = [self.narrow_node(part, f"{path}[{n}]", depth + 1) for n, part in enumerate(prefix_items or ())]
        if parts and self._allows_keyword("prefixItems"):
            narrowed["prefixItems"] = parts
        elif parts:
            kinds = list({make_key(part): part for part in parts}.values())
            narrowed["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            sentences.append(f"Exactly {len(parts)} items, in order.")
            self._add_unenforced(path, "the order of the items")
            return
        if isinstance(items, Mapping) and (items or not self.dialect.requires_type):
            narrowed["items"] = self.narrow_node(items, f"{path}[*]", depth + 1)
        elif not prefix_items and self.dialect.requires_type:
            narrowed["items"] = {"type": list(_ANY_SCALAR)}
            self._add_unrestricted(path, "any item")
        elif not prefix_items and self.dialect.requires_items:
            narrowed["items"] = {}

    def _apply_keywords(
        self, schema: Mapping[str, Any], narrowed: dict[str, Any], sentences: list[str], path: str
    ) -> None:
        """Add the keywords that do not concern the structure, and the description."""
        for keyword, value in schema.items():
            if keyword not in _SKIPPED_KEYWORDS:
                self._apply_keyword(keyword, value, narrowed, sentences, path)
        self.sentences = sentences
        if text := add_sentences(schema.get("description"), sentences):
            narrowed["description"] = text

    def _apply_keyword(
        self, keyword: str, value: Any, narrowed: dict[str, Any], sentences: list[str], path: str
    ) -> None:
        if self._allows_keyword(keyword) and self.dialect.accepts_value(keyword, value):
            narrowed[keyword] = value
            return
        if (keyword, value) == ("default", None) or (keyword == "uniqueItems" and not value):
            return
        sentences.append(make_sentence(keyword, value))
        if keyword not in UNENFORCED_KEYWORDS:
            self._add_unenforced(path, f"`{keyword}`")

    def _check_size(self) -> None:
        limits = self.dialect
        self._check_limit("is more than {:,} levels deep", self.max_depth, limits.max_depth)
        self._check_limit("has more than {:,} properties", self.property_count, limits.max_properties)
        self._check_limit("has more than {:,} enum values", self.enum_value_count, limits.max_enum_values)

    def _check_limit(self, message: str, size: int, maximum: int | None) -> None:
        if maximum is not None and size > maximum:
            self.losses.insert(0, Loss("$", f"the schema {message.format(maximum)}", changes_meaning=True))
