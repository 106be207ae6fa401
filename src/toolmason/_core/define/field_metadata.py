"""Apply `Param(...)`, strings and docstrings to the fields of dataclasses, TypedDicts and models, as for parameters."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, NotRequired, Required, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreConfig, CoreSchema, PydanticSerializationError, SchemaValidator, to_json
from typing_extensions import ReadOnly

from toolmason._core.define.decorators import MISSING, Param
from toolmason._core.define.docstrings import Docstring, parse_docstring
from toolmason._core.define.signature import admits_none, find_mark, is_marker, lacks_value
from toolmason.errors import DefinitionError

Node: typing.TypeAlias = dict[str, Any]
"""A node of a core schema."""

_CLASS_NODES: Final = ("model", "dataclass", "typed-dict")
SCHEMA_KEYS: Final = (
    "schema",
    "items_schema",
    "keys_schema",
    "values_schema",
    "choices",
    "steps",
    "definitions",
    "json_schema",
    "python_schema",
    "lax_schema",
    "strict_schema",
    "extras_schema",
    "arguments_schema",
)
"""Keys of a core schema whose values are core schemas, or lists or mappings of them."""
_QUALIFIERS: Final = (Annotated, Required, NotRequired, ReadOnly)
_NO_PARAM: Final = Param()


class FieldMetadata(NamedTuple):
    """Metadata of one field: what `Param(...)`, a string, the docstring and the type say about it."""

    param: Param
    description: str | None
    is_inline: bool
    """True if the description stands at the field, so that it replaces that of `Field(...)`."""
    is_optional: bool
    """True if the field may be omitted because its type admits `None`."""
    lacks_value: bool
    """True if the field may be omitted, but its type does not admit `None`."""


def apply_field_metadata(core: CoreSchema, *, sets_values: bool) -> CoreSchema:
    """Return a core schema with the metadata of the fields of its classes; the same object if there is none.

    With `sets_values`, names and defaults apply as well, not only descriptions and examples.
    """
    return cast("CoreSchema", _apply(core, None, sets_values=sets_values))


def make_validator(core: CoreSchema, config: CoreConfig | None = None) -> SchemaValidator:
    """Return the validator of a changed core schema."""
    try:
        # A model has a validator of its own, which does not know the changes.
        return SchemaValidator(core, config, _use_prebuilt=False)
    except TypeError:  # pydantic before 2.13
        return SchemaValidator(core, config)


def get_class_text(kind: type) -> str:
    """Return the docstring of a class without the entries of its fields."""
    doc = _parse_class_docstring(kind)
    names = read_fields(kind)
    unmatched = [f"{name}: {text}" for name, text in doc.parameters.items() if name not in names]
    return "\n".join([doc.text, *unmatched]).strip()


def _parse_class_docstring(kind: type) -> Docstring:
    # Not `inspect.getdoc`: a class does not inherit the description of its base.
    return parse_docstring(kind.__doc__)


@lru_cache(maxsize=1024)
def read_fields(kind: type) -> Mapping[str, FieldMetadata]:
    """Return the metadata of the fields of a class, by name.

    Raises:
        DefinitionError: the declarations of a field conflict.
    """
    documented = _parse_class_docstring(kind).parameters
    return {name: _read_field(kind, name, hint, documented) for name, hint in _get_field_hints(kind).items()}


def _get_field_hints(kind: Any) -> Mapping[str, Any]:
    model_fields = getattr(kind, "__pydantic_fields__", None)
    if isinstance(model_fields, dict):
        return {
            name: Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
            for name, info in model_fields.items()
        }
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # pydantic found the names in another way
        return {}


def _read_field(kind: type, name: str, hint: Any, documented: Mapping[str, str]) -> FieldMetadata:
    metadata: list[Any] = []
    is_explicit = False
    while (origin := get_origin(hint)) in _QUALIFIERS:
        if origin is Annotated:
            metadata.extend(hint.__metadata__)
        elif origin is not ReadOnly:
            is_explicit = True
        hint = get_args(hint)[0]
    param = next((mark for mark in metadata if isinstance(mark, Param)), _NO_PARAM)
    place = f"Field {name!r} of {kind.__qualname__!r}"
    if param.template:
        raise DefinitionError(f"{place} is a template. Only a parameter of the function can be one.")
    if find_mark(Annotated[(hint, *metadata, "")]) is not None:
        raise DefinitionError(f"{place} is marked as injected. Only a parameter of the function can be.")
    if param.schema is not None:
        from toolmason._core.define.bounded_checks import check_schema  # noqa: PLC0415 - most programs write no schema

        check_schema(param.schema, f"{place}: `Param(schema=...)`")
    if param.default is not MISSING and param.default is not None:
        _check_default(param.default, Annotated[(hint, *metadata)], place)
    texts = (param.description or "", *(mark for mark in metadata if isinstance(mark, str)))
    inline = next((text for text in texts if text.strip()), None)
    optional = param.required is False or (param.required is None and not is_explicit and admits_none(hint))
    description = inline or documented.get(name) or None
    return FieldMetadata(param, description, bool(inline), optional, lacks_value(param, hint))


def _check_default(default: Any, hint: Any, place: str) -> None:
    """Raise a `DefinitionError` if a default does not match the type of its field, as for a parameter."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except Exception:  # noqa: BLE001 - a type that only its class can resolve is checked with the first value
        return
    try:
        adapter.validate_python(default, strict=True)
    except ValidationError:
        try:
            # As JSON, because a default may use a simpler form: "." for a Path.
            adapter.validate_json(to_json(default), strict=True)
        except (ValidationError, PydanticSerializationError) as error:
            raise DefinitionError(
                f"{place}: the default {default!r} does not match its type. Change the default or the type."
            ) from error


def refuse_missing_value(metadata: FieldMetadata, place: str) -> None:
    """Raise a `DefinitionError` for a field that may be omitted, but has neither a default nor a type with `None`."""
    if metadata.lacks_value and metadata.param.default is MISSING:
        raise DefinitionError(
            f"{place} is optional but has no default, and its type does not admit None. "
            "Add a default, or write `... | None`."
        )


def _apply(node: Any, kind: type | None, *, sets_values: bool) -> Any:
    """Return a node, or a list or mapping of nodes, with the metadata of `kind`, the class whose node it is in."""
    if isinstance(node, list | tuple):
        items = [_apply(item, None, sets_values=sets_values) for item in node]
        return node if all(new is old for new, old in zip(items, node, strict=True)) else type(node)(items)
    if not isinstance(node, dict):
        return node
    if not isinstance(node.get("type"), str):
        values = {key: _apply(item, None, sets_values=sets_values) for key, item in node.items()}
        return node if all(values[key] is node[key] for key in node) else values
    if node["type"] in _CLASS_NODES:
        kind = node.get("cls")
    if node.get("custom_init"):
        # Its `__init__` validates with the validator of the class, which does not know other names and defaults.
        sets_values = False
    changes: Node = {}
    if node["type"] == "named-tuple" or hasattr(node.get("function"), "_fields"):
        return _apply_to_tuple(node, sets_values=sets_values)
    if "fields" in node and node["type"] != "dataclass":
        changes["fields"] = _apply_to_fields(node["fields"], kind, sets_values=sets_values)
    for key in SCHEMA_KEYS:
        if key in node:
            changes[key] = _apply(node[key], kind if key == "schema" else None, sets_values=sets_values)
    return node if all(new is node[key] for key, new in changes.items()) else {**node, **changes}


def iter_nodes(core: Any, references: Mapping[str, Node]) -> Iterator[Node]:
    """Yield the nodes of a core schema, and each of those that it refers to once."""
    found, seen = [core], set[str]()
    while found:
        node = found.pop()
        if isinstance(node, list | tuple):
            found += node
        elif isinstance(node, dict) and isinstance(node.get("type"), str):
            if not node["type"].endswith("-field"):
                yield node
            found += [node[key] for key in (*SCHEMA_KEYS, "fields") if key in node]
            reference = str(node.get("schema_ref"))
            if reference in references and reference not in seen:
                seen.add(reference)
                found.append(references[reference])
        elif isinstance(node, dict):  # fields or choices by name
            found += node.values()


def change_nodes(node: Any, change: Callable[[Node], None]) -> Any:
    """Return a copy of a core schema after a change of each node, inner ones first."""
    if isinstance(node, list | tuple):
        return type(node)([change_nodes(item, change) for item in node])
    if not isinstance(node, dict):
        return node
    if not isinstance(node.get("type"), str):  # fields or choices by name
        return {key: change_nodes(item, change) for key, item in node.items()}
    inner = {key: change_nodes(node[key], change) for key in (*SCHEMA_KEYS, "fields") if key in node}
    changed = {**node, **inner}
    change(changed)
    return changed


def _apply_to_fields(fields: Any, kind: type | None, *, sets_values: bool) -> Any:
    known = read_fields(kind) if kind is not None else {}

    def change(name: str, field: Node) -> Node:
        inner = _apply(field["schema"], None, sets_values=sets_values)
        field = field if inner is field["schema"] else {**field, "schema": inner}
        metadata = known.get(name)
        if metadata is None or kind is None or field.get("init") is False:
            return field
        described = _describe(field, metadata)
        place = f"Field {name!r} of {kind.__qualname__!r}"
        if is_marker(inner.get("default")):
            raise DefinitionError(f"{place} has a marker as its default. Write `Annotated[..., Param(...)]`.")
        return _set_values(described, metadata, place) if sets_values else described

    if isinstance(fields, list):
        items = [change(field["name"], field) for field in fields]
        return fields if all(new is old for new, old in zip(items, fields, strict=True)) else items
    changed = {name: change(name, field) for name, field in fields.items()}
    return fields if all(changed[name] is fields[name] for name in fields) else changed


def _apply_to_tuple(node: Node, *, sets_values: bool) -> Node:
    """Return the node of a NamedTuple with its description and the metadata of its fields."""
    kind: Any = node.get("cls") or node.get("function")
    if kind.__doc__ and kind.__doc__ != f"{kind.__name__}({', '.join(kind._fields)})":  # which Python writes
        node = _update_shown(node, {"description": get_class_text(kind)})
    if node["type"] == "named-tuple":
        return {**node, "fields": _apply_to_items(node["fields"], kind, sets_values=sets_values)}
    arguments: Node = node["arguments_schema"]  # pydantic before 2.14
    items = _apply_to_items(arguments["arguments_schema"], kind, sets_values=sets_values)
    return {**node, "arguments_schema": {**arguments, "arguments_schema": items}}


def _apply_to_items(fields: list[Node], kind: type, *, sets_values: bool) -> list[Node]:
    known = read_fields(kind)
    changed: list[Node] = []
    may_omit = True
    for field in reversed(fields):
        name, inner = field["name"], _apply(field["schema"], None, sets_values=sets_values)
        if (metadata := known.get(name)) is not None:
            inner = _describe(inner, metadata)
            place = f"Field {name!r} of {kind.__qualname__!r}"
            # A model sends an array, in which only the last items can be omitted.
            if sets_values and (may_omit or not metadata.is_optional or metadata.param.default is not MISSING):
                inner = _set_values({"schema": inner}, metadata, place)["schema"]
        may_omit = may_omit and inner["type"] == "default"
        changed.insert(0, {**field, "schema": inner})
    return changed


def _describe(field: Node, metadata: FieldMetadata) -> Node:
    old_metadata: Node = field.get("metadata") or {}
    updates: Node = dict(old_metadata.get("pydantic_js_updates") or {})
    if metadata.description and (metadata.is_inline or not updates.get("description")):
        updates["description"] = metadata.description
    if metadata.param.examples:
        updates["examples"] = list(metadata.param.examples)
    if updates != (old_metadata.get("pydantic_js_updates") or {}):
        field = _update_shown(field, updates)
    return field


def _update_shown(node: Node, updates: Node) -> Node:
    """Return a node with other keywords in its JSON Schema."""
    return {**node, "metadata": {**(node.get("metadata") or {}), "pydantic_js_updates": updates}}


def _set_values(field: Node, metadata: FieldMetadata, place: str) -> Node:
    param = metadata.param
    inner: Node = field["schema"]
    has_default = inner["type"] == "default"
    if param.required and (has_default or param.default is not MISSING):
        raise DefinitionError(f"{place} is required but has a default. Remove one of the two.")
    changes: Node = {}
    if param.schema is not None:
        bare = inner["schema"] if has_default else inner
        shown = {**bare, "metadata": {**(bare.get("metadata") or {}), "pydantic_js_functions": [_show(param.schema)]}}
        changes["schema"] = inner = {**inner, "schema": shown} if has_default else shown
    if param.default is not MISSING:
        bare = inner["schema"] if has_default else inner
        changes["schema"] = {"type": "default", "schema": bare, "default": param.default, "copy_default": True}
    elif metadata.lacks_value and "required" in field:
        changes["required"] = False  # a key of a TypedDict may be absent
    elif metadata.is_optional and not has_default and field.get("required", True):
        refuse_missing_value(metadata, place)
        # A factory, because a plain default of None would be shown in the schema.
        changes["schema"] = {"type": "default", "schema": inner, "default_factory": type(None)}
    if "required" in field and changes.get("schema", {}).get("type") == "default":
        changes["required"] = False
    if param.name is not None:
        changes["validation_alias"] = param.name
    return {**field, **changes} if changes else field


def _show(schema: Mapping[str, Any]) -> Callable[[Any, Any], dict[str, Any]]:
    return lambda core, handler: dict(schema)  # noqa: ARG005 - called by pydantic with both
