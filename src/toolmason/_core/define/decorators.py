"""The decorators `@tool`, `@prompt` and `@resource`, which attach a declaration and return the same function."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final, Literal, TypeVar, overload

from typing_extensions import TypedDict, Unpack

from toolmason._core.values.definition import Converter, Extra, ToolOptions
from toolmason._core.values.messages import Role
from toolmason._core.values.policy import Inherit, OnError, Rate, Record, Retry, RunsOn, Timeout
from toolmason._explain import explain_arguments
from toolmason._text import suggest
from toolmason._value import Value
from toolmason.errors import DefinitionError, clip

DECLARATION_ATTRIBUTE: Final = "__tool__"
"""Attribute that holds a function's declaration."""

_F = TypeVar("_F")


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING
"""Sentinel for no default, as opposed to a default of `None`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Param(Value):
    """Metadata of a parameter: `Annotated[int, Param(description="...", name="n")]`."""

    description: str | None = None
    name: str | None = None
    """Name of the parameter in the schema."""
    required: bool | None = None
    """Overrides the requirement derived from the type and the default."""
    default: Any = MISSING
    examples: Sequence[Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON Schema that replaces the one derived from the type."""
    template: bool = False
    """True to expand `${earlier}` and `${project_dir}` in the default."""

    def __post_init__(self) -> None:
        name: Any = self.name
        if name is not None and not (isinstance(name, str) and name):
            raise DefinitionError(f"Param(name={name!r}): must be a string that is not empty, or omitted.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ParamSpec(Value):
    """A parameter by name, for functions with untyped signatures: `Tool.from_function(fn, params=[...])`."""

    name: str
    type: Any = MISSING
    """A type, or the name of one in JSON Schema, such as `"integer"`."""
    description: str | None = None
    required: bool | None = None
    default: Any = MISSING
    examples: Sequence[Any] | None = None
    schema: Mapping[str, Any] | None = None
    template: bool = False

    def as_param(self) -> Param:
        """Return the same metadata as a `Param`."""
        names = [field.name for field in fields(Param) if field.name != "name"]
        return Param(**{name: getattr(self, name) for name in names})


class ToolOptionKeywords(TypedDict, total=False):
    """Options of a tool as keyword arguments. See `ToolOptions` for their meaning."""

    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    return_direct: bool
    converter: Converter | None
    timeout: Timeout
    retry: Retry | Inherit | None
    approval: bool | Callable[[dict[str, Any], Any], Any]
    preview: Callable[..., Any] | None
    reconcile: Callable[..., Any] | None
    enabled: bool | Callable[[Any], Any]
    scopes: Iterable[str]
    skip_permission: bool
    overrides_builtin: bool
    sequential: bool | None
    max_concurrency: int | None
    lock: str | None
    max_calls: int | None
    rate: Rate | None
    max_result_bytes: int | None
    repeats: Literal["detect", "allow"]
    background: bool
    ticket_after: float | None
    strict_types: bool
    extra: Extra
    runs_on: RunsOn | None
    cpus: float | None
    gpus: float | None
    memory: int | None
    on_error: OnError | Inherit
    tags: Iterable[str]
    meta: Mapping[str, Any] | None
    substitute_result: bool
    record: Record | None
    external: bool


class SchemaToolKeywords(ToolOptionKeywords, total=False):
    """Keyword arguments of `Tool.from_schema`."""

    title: str | None
    output_schema: bool | Mapping[str, Any]


class ToolKeywords(SchemaToolKeywords, total=False):
    """Keyword arguments of `@tool(...)`."""

    name: str | None
    description: str | None
    flatten: bool | None


class OverrideKeywords(ToolOptionKeywords, total=False):
    """Keyword arguments of `Toolbox.override`."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Declaration:
    """Metadata that `@tool`, `@prompt` or `@resource` attaches to a function."""

    kind: Literal["tool", "prompt", "resource", "excluded"]
    name: str | None = None
    description: str | None = None
    title: str | None = None
    options: ToolOptions = ToolOptions()  # noqa: RUF009 - frozen, so the default can be shared
    flatten: bool | None = None
    output_schema: bool | Mapping[str, Any] = True
    role: Role = "user"
    local_names: Mapping[str, Any] | None = None
    """Enclosing local names of a nested function, to resolve its string annotations."""
    uri: str = ""
    """URI or URI template of a resource."""
    mime_type: str | None = None
    others: tuple[Declaration, ...] = ()
    """Declarations of other kinds on the same function."""

    @explain_arguments
    def __post_init__(self) -> None:
        # A blank description says nothing, so it counts as missing.
        if self.description is not None and not self.description.strip():
            object.__setattr__(self, "description", None)

    def find(self, kind: str) -> Declaration | None:
        """Return the declaration of this kind on the function, or None."""
        return next((item for item in (self, *self.others) if item.kind == kind), None)


def show_keywords(keywords: type, *sources: Callable[..., Any]) -> Callable[[_F], _F]:
    """Show the keys of a TypedDict as parameters of a function that takes them as `**keywords`.

    Several functions share them; `help()` lists them for each. Types and defaults are those of `sources`: dataclasses,
    or functions that the keywords are passed to.
    """

    def decorate(function: _F) -> _F:
        shown: Any = function
        known = {parameter.name: parameter for source in sources for parameter in _iter_keywords(source)}
        signature = inspect.signature(shown)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = [known[name] for name in keywords.__annotations__]
        shown.__signature__ = signature.replace(parameters=[*own, *shared])
        return function

    return decorate


def _iter_keywords(source: Any) -> Iterator[inspect.Parameter]:
    """Yield the fields of a dataclass, or the keywords of a function, as parameters."""
    if not dataclasses.is_dataclass(source):
        yield from inspect.signature(source).parameters.values()
        return
    for field in fields(source):
        default = None if field.default is dataclasses.MISSING else field.default
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


_NON_OPTION_KEYS: Final = ("name", "description", "title", "flatten", "output_schema")
"""Keywords of `@tool(...)` that are not in `ToolOptions`."""


@explain_arguments
def make_options(keywords: Mapping[str, Any]) -> ToolOptions:
    """Return options from keyword arguments.

    Raises:
        DefinitionError: an option is unknown, or its value is invalid.
    """
    known = {field.name for field in fields(ToolOptions)}
    if unknown := keywords.keys() - known:
        close = suggest(min(unknown), known)
        raise DefinitionError(f"Unknown tool option {min(unknown)!r}.{close} Available: {', '.join(sorted(known))}.")
    values = dict(keywords)
    for name in ("tags", "scopes"):
        if name in values:
            texts = values[name]
            values[name] = frozenset([texts] if isinstance(texts, str) else texts)
    if values.get("meta", ...) is None:
        del values["meta"]
    return ToolOptions(**values)


def make_declaration(keywords: Mapping[str, Any]) -> Declaration:
    """Return the declaration that `@tool(**keywords)` attaches."""
    declaration_fields = {key: keywords[key] for key in _NON_OPTION_KEYS if key in keywords}
    _check_name(declaration_fields.get("name"))
    options = make_options({key: value for key, value in keywords.items() if key not in declaration_fields})
    return Declaration("tool", options=options, **declaration_fields)


def declare_external(
    name: str | Mapping[str, Any], description: str, schema: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> tuple[Declaration, Mapping[str, Any]]:
    """Return the declaration and the schema of a tool that the application runs.

    Raises:
        DefinitionError: the definition is given as a dict, and lacks its name.
    """
    if isinstance(name, Mapping):
        inner = name.get("function")
        given = inner if isinstance(inner, Mapping) else name
        schema = next((given[key] for key in ("parameters", "input_schema", "inputSchema") if key in given), schema)
        description = given.get("description") or description
        name = given.get("name", "")
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"Tool.external({clip(repr(name))}): the definition has no `name`. Add it.")
    declaration = make_declaration(
        {**keywords, "name": name, "description": description or None, "external": True, "runs_on": None}
    )
    return declaration, {} if schema is None else schema


def _check_name(name: Any) -> None:
    if name is not None and not str(name).strip():
        raise DefinitionError(f"name={name!r}: must not be empty. Omit it to use the function's name.")


def update_declaration(declaration: Declaration, keywords: Mapping[str, Any]) -> Declaration:
    """Return a declaration with some of its keywords replaced."""
    _check_name(keywords.get("name"))
    declaration_fields = {key: keywords[key] for key in _NON_OPTION_KEYS if keywords.get(key) is not None}
    new_options = make_options({key: value for key, value in keywords.items() if key not in _NON_OPTION_KEYS})
    option_changes = {key: getattr(new_options, key) for key in keywords if key not in _NON_OPTION_KEYS}
    return replace(declaration, options=replace(declaration.options, **option_changes), **declaration_fields)


def get_declaration(item: Any) -> Declaration | None:
    """Return the declaration of a function, method, static or class method, or callable; None if it has none."""
    try:
        declaration = getattr(item, DECLARATION_ATTRIBUTE, None)
    except Exception:  # noqa: BLE001 - some objects raise on any attribute access before they are initialized
        return None
    if declaration is None and isinstance(item, staticmethod | classmethod):
        declaration = getattr(item.__func__, DECLARATION_ATTRIBUTE, None)
    return declaration if isinstance(declaration, Declaration) else None


def _attach(item: _F, declaration: Declaration, frame: types.FrameType) -> _F:
    declaration = replace(
        declaration, local_names=_find_local_names(item, frame), others=_find_others(item, declaration)
    )
    if isinstance(item, type) or not (callable(item) or isinstance(item, staticmethod | classmethod)):
        raise DefinitionError(
            f"@{declaration.kind} requires a function, method or callable, not {item!r}. "
            "For a class, decorate its methods and pass the class or an instance to the toolbox."
        )
    try:
        setattr(item, DECLARATION_ATTRIBUTE, declaration)
    except AttributeError as error:
        raise DefinitionError(
            f"@{declaration.kind} cannot mark {item!r}: it accepts no attributes. "
            "Use `Tool.from_function(...)` instead."
        ) from error
    return item


def _find_others(item: Any, declaration: Declaration) -> tuple[Declaration, ...]:
    """Return the declarations that a function has from other decorators, as of `@tool` over `@prompt`."""
    known = get_declaration(item)
    if known is None or "excluded" in (known.kind, declaration.kind):
        return ()
    known_kinds = (replace(known, others=()), *known.others)
    return tuple(other for other in known_kinds if other.kind != declaration.kind)


def _find_local_names(item: Any, frame: types.FrameType) -> Mapping[str, Any] | None:
    """Return the enclosing locals that the string annotations of a nested function refer to."""
    annotations = getattr(inspect.unwrap(getattr(item, "__func__", item)), "__annotations__", {}).values()
    names = {name for text in annotations if isinstance(text, str) for name in re.findall(r"\w+", text)}
    if frame.f_code.co_name == "<module>" or not names:
        return None
    return {name: frame.f_locals[name] for name in names.intersection(frame.f_locals)} or None


def _decorate(fn: Any, declaration: Declaration) -> Any:
    """Attach the declaration of a decorator to a function; without one, return the function that attaches it."""
    frame = inspect.currentframe()
    for _ in range(2):  # from here to the decorator, and from there to the code that applies it
        frame = frame.f_back if frame is not None else None
    if frame is None:
        raise DefinitionError(
            "This Python does not support stack frames. Use `Tool.from_function(...)` instead of a decorator."
        )
    attach = functools.partial(_attach, declaration=declaration, frame=frame)
    return attach if fn is None else attach(fn)


class _ToolDecorator:
    """Make a typed function a tool: `@tool` or `@tool(read_only=True)`.

    Returns the same object. The keywords are those of `ToolOptions`, plus `name`, `description`, `title`,
    `flatten` (use the fields of the single model parameter as the arguments) and `output_schema`.
    """

    @overload
    def __call__(self, fn: _F, /, **keywords: Unpack[ToolKeywords]) -> _F: ...
    @overload
    def __call__(self, fn: None = None, /, **keywords: Unpack[ToolKeywords]) -> Callable[[_F], _F]: ...
    def __call__(self, fn: Any = None, /, **keywords: Any) -> Any:
        return _decorate(fn, make_declaration(keywords))

    @property
    def __signature__(self) -> inspect.Signature:
        decorate = functools.partial(self.__call__)
        return inspect.signature(show_keywords(ToolKeywords, Declaration, ToolOptions)(decorate))

    def exclude(self, fn: _F) -> _F:
        """Remove an inherited tool: `@tool.exclude` on the override."""
        excluded: _F = _decorate(fn, Declaration("excluded"))
        return excluded


tool: Final = _ToolDecorator()


@overload
def prompt(fn: _F, /) -> _F: ...
@overload
def prompt(
    fn: None = None, /, *, name: str | None = None, description: str | None = None, role: Role = "user"
) -> Callable[[_F], _F]: ...
def prompt(fn: Any = None, /, *, name: str | None = None, description: str | None = None, role: Role = "user") -> Any:
    """Make a typed function a prompt: it returns a string, a `Message`, or a list of them.

    `role` is the role of a returned string.
    """
    if role not in ("user", "assistant", "system"):
        raise DefinitionError(f'@prompt(role={role!r}): role must be "user", "assistant" or "system".')
    return _decorate(fn, Declaration("prompt", name=name, description=description, role=role))


def resource(
    uri: str,
    *,
    name: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    title: str | None = None,
) -> Callable[[_F], _F]:
    """Make a typed function a resource: `@resource("config://app")`.

    It returns a string, bytes, a content part, or any JSON-serializable value. With placeholders in the URI, such as
    `@resource("user://{id}/profile")`, it is a template; each placeholder is a parameter of the function.
    """
    if ":" not in str(uri):
        raise DefinitionError(f"@resource({uri!r}): the URI needs a scheme, such as 'config://app'.")
    declaration = Declaration("resource", name=name, description=description, title=title, uri=uri, mime_type=mime_type)
    decorate: Callable[[_F], _F] = _decorate(None, declaration)
    return decorate
