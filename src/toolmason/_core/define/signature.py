"""Read a function's parameters from its signature, and decide whether the model or the application fills each."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from toolmason._core.define.context import Depends, Inject, ProjectDir, ToolContext, make_injector
from toolmason._core.define.decorators import MISSING, Param, ParamSpec
from toolmason._core.define.docstrings import parse_docstring
from toolmason._core.define.schema_nodes import JSON_TYPES
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError, DefinitionError

Injector: TypeAlias = Callable[[ToolContext[Any]], Any]
"""Function that returns the value of an injected parameter."""

_DEFAULT_PARAM: Final = Param()
_factories: ContextVar[tuple[Any, ...]] = ContextVar("toolmason_factories", default=())
"""Factories whose signatures are being read, outermost first."""
_IMMUTABLE_TYPES: Final = (type(None), bool, int, float, complex, str, bytes, Path, types.FunctionType, type)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parameter:
    """One parameter of a function, filled by the model or the application."""

    name: str
    """Name in Python."""
    hint: Any
    """Type, with the metadata that pydantic reads."""
    param: Param = _DEFAULT_PARAM
    description: str | None = None
    default: Any = MISSING
    factory: Callable[[], Any] | None = None
    injector: Injector | None = None
    """Set if the application fills the parameter; the model never sees it."""
    positional: bool = False

    @property
    def label(self) -> str:
        """Name in the schema."""
        return self.param.name or self.name

    @property
    def reads_call(self) -> bool:
        """True if the parameter shows the call, and not only a value of the application."""
        marks = getattr(self.hint, "__metadata__", ())
        return self.injector is not None and not any(mark is Inject or isinstance(mark, Inject) for mark in marks)

    @property
    def has_default(self) -> bool:
        """True if the parameter has a value when the model omits it."""
        return self.default is not MISSING or self.factory is not None

    @property
    def required(self) -> bool:
        """True if the model must send the parameter."""
        if self.param.required is not None:
            return self.param.required
        return not self.has_default and not admits_none(self.hint)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signature:
    """Parameters and return type of a function."""

    parameters: tuple[Parameter, ...]
    returns: Any
    """Return type, or `MISSING` if it is not annotated."""
    extra_hint: Any = MISSING
    """Type of `**keywords`, or `MISSING` if the function does not accept them."""
    text: str = ""
    """Docstring text about the function, including entries for names that are not parameters, so nothing is lost."""


def describe_location(fn: Any) -> str:
    """Return the location of a function for error messages: `function 'f' (app.py:12)`."""
    code = getattr(unwrap_function(fn), "__code__", None)
    name = get_function_name(fn)
    return f"function {name!r} ({code.co_filename}:{code.co_firstlineno})" if code is not None else f"callable {name!r}"


def get_function_name(fn: Any) -> str:
    """Return the name of a function, method, partial or callable object."""
    if name := getattr(fn, "__name__", None):
        return str(name)
    inner_name = unwrap_function(fn).__name__
    return type(fn).__name__ if inner_name == "__call__" else str(inner_name)


def unwrap_function(fn: Any) -> Any:
    """Return the function behind a partial, a method or a callable object."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, staticmethod | classmethod) or inspect.ismethod(fn):
            fn = fn.__func__
        else:
            call = getattr(type(fn), "__call__", None)  # noqa: B004 - needs the method itself, not `callable()`
            return call if inspect.isfunction(call) and not inspect.isfunction(fn) else fn


def read_signature(
    fn: Any, local_names: Mapping[str, Any] | None = None, params: Sequence[ParamSpec] = ()
) -> Signature:
    """Read a function's signature.

    Raises:
        DefinitionError: a type is missing, an annotation cannot be resolved, or declarations conflict; names the
            function, file, line, parameter and the fix.
    """
    hints = _get_type_hints(fn, local_names)
    specs = {spec.name: spec for spec in params}
    doc = parse_docstring(unwrap_function(fn).__doc__)
    documented = doc.parameters
    bound_names = _get_partial_keywords(fn)
    parameters: list[Parameter] = []
    extra_hint: Any = MISSING
    for raw in _get_raw_parameters(fn):
        if raw.name in bound_names:
            continue
        if raw.kind is raw.VAR_POSITIONAL:
            raise DefinitionError(
                f"{describe_location(fn)}: `*{raw.name}` cannot be passed by name. Use `{raw.name}: list[...]` instead."
            )
        spec = specs.pop(raw.name, None)
        hint = hints.get(raw.name, MISSING) if spec is None or spec.type is MISSING else _get_spec_type(fn, spec)
        if raw.kind is raw.VAR_KEYWORD:
            extra_hint = Any if hint is MISSING else hint
        else:
            parameters.append(make_parameter(fn, raw, hint, spec, documented))
    if specs and extra_hint is not MISSING:
        # The described keywords are all that the function accepts.
        keywords = [(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY), spec) for name, spec in specs.items()]
        parameters.extend(make_parameter(fn, raw, _get_spec_type(fn, spec), spec, documented) for raw, spec in keywords)
        extra_hint = MISSING
    elif specs:
        raise DefinitionError(
            f"{describe_location(fn)}: `params=` describes {next(iter(specs))!r}, which is not a parameter. "
            "Correct the name, or remove it."
        )
    names = {parameter.name for parameter in parameters}
    unmatched = [f"{name}: {text}" for name, text in documented.items() if name not in names]
    text = "\n".join([doc.text, *unmatched]).strip() if unmatched else doc.text
    return Signature(tuple(parameters), hints.get("return", MISSING), extra_hint, text)


def check_lock(place: str, lock: str | None, parameters: Sequence[Parameter], *schemas: Mapping[str, Any]) -> None:
    """Raise if the option `lock` names no parameter of a tool, neither as in the function nor as in a schema.

    Raises:
        DefinitionError: no parameter has this name; lists those that there are.
    """
    if lock is None:
        return
    names = [name for parameter in parameters for name in (parameter.name, parameter.label)]
    names += [name for schema in schemas for name in schema.get("properties", ())]
    if lock not in names:
        known = ", ".join(dict.fromkeys(names)) or "none"
        raise DefinitionError(f"{place}: lock={lock!r} names no parameter of the tool. Parameters: {known}.")


def _get_spec_type(fn: Any, spec: ParamSpec) -> Any:
    """Return the type of a described parameter, which may be the name of a JSON type."""
    if not isinstance(spec.type, str):
        return spec.type
    if spec.type not in JSON_TYPES:
        raise DefinitionError(
            f"{describe_location(fn)}: parameter {spec.name!r} has the type {spec.type!r}. Pass a Python type, or one "
            f"of these names: {', '.join(JSON_TYPES)}."
        )
    return JSON_TYPES[spec.type]


def _get_type_hints(fn: Any, local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    inner = unwrap_function(fn)
    try:
        return typing.get_type_hints(inner, localns=dict(local_names) if local_names else None, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{describe_location(fn)}: an annotation refers to {error.name!r}, which is not defined there. "
            "Import it at run time (not only under `if TYPE_CHECKING`), or define it before the tool."
        ) from error
    except (TypeError, SyntaxError) as error:
        raise DefinitionError(f"{describe_location(fn)}: invalid annotation: {error}. Fix the annotation.") from error


def _get_raw_parameters(fn: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError) as error:
        raise DefinitionError(
            f"{fn!r} has no readable signature. Wrap it in a `def` with typed parameters, "
            "or use `Tool.from_schema(...)`."
        ) from error


def _get_partial_keywords(fn: Any) -> set[str]:
    # Keywords bound by functools.partial are fixed: a model must not be able to override them.
    keywords: set[str] = set()
    while isinstance(fn, functools.partial):
        keywords.update(fn.keywords)
        fn = fn.func
    return keywords


def make_parameter(
    fn: Any, raw: inspect.Parameter, hint: Any, spec: ParamSpec | None, documented: Mapping[str, str]
) -> Parameter:
    """Return one parameter of a function.

    Raises:
        DefinitionError: it has no type, or its declarations conflict.
    """
    if hint is MISSING and raw.name == "self" and "." in getattr(fn, "__qualname__", ""):
        raise DefinitionError(
            f"{describe_location(fn)}: a method without its object. Pass the method of an instance, such as "
            f"`{fn.__qualname__.rsplit('.', 2)[-2]}(...).{fn.__name__}`."
        )
    if hint is MISSING and raw.name != "project_dir":
        raise DefinitionError(
            f"{describe_location(fn)}: parameter {raw.name!r} has no type. Add one, such as `{raw.name}: str` "
            "(`Any` accepts anything)."
        )
    injector = _find_injector(raw.name, hint, raw.default)
    _refuse_misplaced_marker(fn, raw, hint, is_injected=injector is not None)
    positional = raw.kind is raw.POSITIONAL_ONLY
    if injector is not None:
        return Parameter(raw.name, hint, injector=injector, positional=positional)
    base_type, metadata = _split_annotated(hint)
    if _is_field(raw.default):
        metadata = (*metadata, raw.default)
    param = spec.as_param() if spec is not None else next((m for m in metadata if isinstance(m, Param)), _DEFAULT_PARAM)
    inline_descriptions = [m for m in metadata if isinstance(m, str)]
    field_infos = [m for m in metadata if _is_field(m)]
    descriptions = [
        param.description,
        *inline_descriptions,
        *(info.description for info in field_infos),
        documented.get(raw.name),
    ]
    pydantic_metadata = tuple(m for m in metadata if not isinstance(m, Param | str))
    default, factory = _find_default(fn, raw, param, field_infos)
    is_keyword = spec is not None and spec.type is not MISSING  # of a handler that takes any keywords
    if default is MISSING and factory is None and lacks_value(param, base_type) and not is_keyword:
        raise DefinitionError(
            f"{describe_location(fn)}: parameter {raw.name!r} is optional but has no default, and its type does not "
            "admit None. Add a default, or write `... | None`."
        )
    return Parameter(
        raw.name,
        Annotated[(base_type, *pydantic_metadata)] if pydantic_metadata else base_type,
        param,
        next((text for text in descriptions if text and str(text).strip()), None),
        default,
        factory,
        positional=positional,
    )


def _refuse_misplaced_marker(fn: Any, raw: inspect.Parameter, hint: Any, *, is_injected: bool) -> None:
    """Raise a `DefinitionError` for a marker that has no effect, so that a model would fill the parameter."""
    marker, place, kind = raw.default, "as its default", inspect.formatannotation(_split_annotated(hint)[0])
    if not is_marker(marker):
        marker, place, kind = None if is_injected else find_mark(hint), "inside of its type", "<the whole type>"
    if marker is not None:
        text = "ProjectDir" if marker is ProjectDir else getattr(marker, "__name__", type(marker).__name__) + "(...)"
        raise DefinitionError(
            f"{describe_location(fn)}: parameter {raw.name!r} has {text} {place}, which has no effect. Write "
            f"`{raw.name}: Annotated[{kind}, {text}]`."
        )


def is_marker(value: Any) -> bool:
    """Return True if a value means something only inside `Annotated[...]`: `Inject`, `Depends(...)`, `Param(...)`."""
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, (Inject, Depends, Param, type(ProjectDir)))


def find_mark(hint: Any) -> Any:
    """Return a marker of an injected value at any depth of a hint, or None."""
    marks = (arg if is_marker(arg) and not isinstance(arg, Param) else find_mark(arg) for arg in get_args(hint))
    return next((mark for mark in marks if mark is not None), None)


def _is_field(value: Any) -> bool:
    # A `Field(...)` exists only if `pydantic.fields` is loaded; importing it for this check costs 20 ms at start-up.
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(value, fields.FieldInfo)


def _with_default(injector: Injector, default: Any) -> Injector:
    def inject(context: ToolContext[Any]) -> Any:
        try:
            return injector(context)
        except ConfigError:
            return default

    return inject


def _find_default(
    fn: Any, raw: inspect.Parameter, param: Param, field_infos: Sequence[Any]
) -> tuple[Any, Callable[[], Any] | None]:
    default: Any = MISSING
    factory: Callable[[], Any] | None = None
    for info in field_infos:
        if info.default is not PydanticUndefined and info.default is not ...:
            default = info.default
        factory = typing.cast("Callable[[], Any] | None", info.default_factory) or factory
    if raw.default is not raw.empty and not _is_field(raw.default):
        default = raw.default
    if param.default is not MISSING:
        default = param.default
    if param.required and (default is not MISSING or factory is not None):
        raise DefinitionError(
            f"{describe_location(fn)}: parameter {raw.name!r} is required but has the default {default!r}. "
            "Remove one of the two."
        )
    if param.template and not isinstance(default, str):
        raise DefinitionError(
            f"{describe_location(fn)}: parameter {raw.name!r} is a template; its default must be a string."
        )
    return default, factory


def _find_injector(name: str, hint: Any, default: Any) -> Injector | None:
    base_type, metadata = _split_annotated(hint)
    bare_type = _strip_none(base_type)
    is_folder = name == "project_dir" or ProjectDir in metadata
    for mark in () if is_folder else metadata:
        if mark is Inject or isinstance(mark, Inject):
            marker = mark if isinstance(mark, Inject) else Inject()
            return make_injector(marker, name, bare_type, default, admits_none=admits_none(base_type))
        if isinstance(mark, Depends):
            return read_dependency(mark)
    reader = _find_reader(name, bare_type, is_folder=is_folder)
    return reader if reader is None or default is inspect.Parameter.empty else _with_default(reader, default)


def _find_reader(name: str, bare_type: Any, *, is_folder: bool) -> Injector | None:
    """Return the injector of a parameter that shows the call or its surroundings, or None."""
    if is_folder:
        return (lambda context: str(context.project_dir)) if bare_type is str else (lambda context: context.project_dir)
    kind = get_origin(bare_type) or bare_type
    if isinstance(kind, type) and issubclass(kind, ToolContext):
        [wanted] = get_args(bare_type) or (Any,)
        is_open = wanted is Any or wanted is object or isinstance(wanted, typing.TypeVar) or admits_none(wanted)
        return (lambda context: context) if is_open else ContextInjector(name, wanted)
    if _is_config(kind):
        return lambda context: context.config
    if kind is ToolCall:
        return lambda context: context.call
    return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ContextInjector:
    """Injector of a context that requires `deps`, such as `ToolContext[Db]`."""

    name: str
    deps_type: Any

    def __call__(self, context: ToolContext[Any]) -> ToolContext[Any]:
        """Return the context.

        Raises:
            ConfigError: it has no `deps`, and the parameter requires them.
        """
        if context.deps is None and (problem := self.find_problem(None)):
            raise ConfigError(f"Parameter {self.name!r} is a context with deps of type {self.type_name}, {problem}")
        return context

    @property
    def type_name(self) -> str:
        """Name of the type that `deps` must have."""
        return str(getattr(self.deps_type, "__name__", self.deps_type))

    def find_problem(self, deps: Any) -> str:
        """Return why a context with these `deps` does not fit the parameter; empty if it fits."""
        wanted = self.deps_type
        fix = "Pass `context=ToolContext(deps=...)`."
        if deps is None:
            return f"and there are none. {fix}"
        # A protocol or a generic type says nothing about the class.
        if isinstance(wanted, type) and not getattr(wanted, "_is_protocol", False) and get_origin(wanted) is None:
            return "" if isinstance(deps, wanted) else f"but they are of type {type(deps).__name__}. {fix}"
        return ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dependency:
    """A dependency with the parameters of its factory. In the values of a call, it stands for what it makes."""

    factory: Callable[..., Any]
    scope: Literal["call", "run"]
    parameters: tuple[Parameter, ...]
    """Parameters that are injected. The others have defaults."""

    def __call__(self, context: ToolContext[Any]) -> Dependency:
        """Return the dependency itself."""
        del context
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens it there: injectors and most values cannot be pickled.
        return _restore_dependency, (self.factory, self.scope)


def _restore_dependency(factory: Callable[..., Any], scope: Literal["call", "run"]) -> Dependency:
    return read_dependency(Depends(factory, scope=scope))


def read_dependency(marker: Depends) -> Dependency:
    """Return a dependency with the parameters of its factory.

    Raises:
        DefinitionError: a parameter has no source, the factory needs itself, or what it needs is closed before it.
    """
    factory, above = marker.factory, _factories.get()
    if factory in above:
        raise DefinitionError(f"{describe_location(factory)}: this factory depends on itself. Remove the cycle.")
    token = _factories.set((*above, factory))
    try:
        parameters = read_signature(factory).parameters
    finally:
        _factories.reset(token)
    for parameter in parameters:
        if parameter.injector is None and not parameter.has_default:
            raise DefinitionError(
                f"{describe_location(factory)}: parameter {parameter.name!r} of this factory has no source. Mark it "
                "with `Inject` or `Depends`, make it a `ToolContext`, or add a default."
            )
        if marker.scope == "run" and isinstance(parameter.injector, Dependency) and parameter.injector.scope == "call":
            raise DefinitionError(
                f"{describe_location(factory)}: it lives for a run, but its parameter {parameter.name!r} is closed "
                'after a call. Write `Depends(..., scope="run")` there as well.'
            )
    return Dependency(factory, marker.scope, tuple(p for p in parameters if p.injector is not None))


def _is_config(kind: Any) -> bool:
    """Return True if a type is `Config`, without importing its module (15 ms); a hint implies that it is loaded."""
    module = sys.modules.get("toolmason._core.config.config")
    return module is not None and kind is module.Config


def _split_annotated(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a hint without its `Annotated`, and the metadata."""
    return (get_args(hint)[0], hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def _strip_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    rest = [arg for arg in get_args(hint) if arg is not type(None)]
    return rest[0] if len(rest) == 1 else hint


def admits_none(hint: Any) -> bool:
    """Return True if a hint names `None`, directly or in a union or literal."""
    hint, _ = _split_annotated(hint)
    if hint is None or hint is type(None):
        return True
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return False  # such a hint does not make a parameter optional
    if get_origin(hint) is typing.Literal:
        return None in get_args(hint)
    return get_origin(hint) in (Union, types.UnionType) and any(map(admits_none, get_args(hint)))


def lacks_value(param: Param, hint: Any) -> bool:
    """Return True if a parameter or field without a default may be omitted, but its type does not admit `None`."""
    base_type, _ = _split_annotated(hint)
    admits_all = base_type in (Any, object) or isinstance(base_type, typing.TypeVar)
    return param.required is False and not admits_all and not admits_none(hint)


def is_safe_to_share(default: Any) -> bool:
    """Return True if one default object can serve every call because it is immutable."""
    if isinstance(default, tuple | frozenset):
        return all(map(is_safe_to_share, default))
    if isinstance(default, _IMMUTABLE_TYPES):
        return True
    return getattr(type(default), "__hash__", None) is not None and not isinstance(default, list | dict | set)
