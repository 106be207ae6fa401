"""Context that the application passes to its tools and hides from the model: values, dependencies, injection."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeAlias, cast, get_origin

from pydantic_core import to_json
from typing_extensions import TypeVar

from toolmason._core.values.call_state import CallRun, CallState
from toolmason._core.values.definition import SCALAR_TYPES
from toolmason._core.values.policy import Record, TraceOptions
from toolmason._core.values.results import ToolCall
from toolmason._secrets import make_record_safe, scrub
from toolmason.errors import ConfigError, DefinitionError, clip

if TYPE_CHECKING:  # 15 ms at start-up, needed only with settings or when served
    from toolmason._core.config.config import Config
    from toolmason._core.values.mcp_client import Client


DepsT = TypeVar("DepsT", default=Any)
CLIENT_KEY: Final = "toolmason.client"
"""Context key of the MCP client that made a served call."""
SESSION_KEY: Final = "toolmason.session"
"""Context key of the MCP session or the conversation that a call belongs to."""
CLIENT_CALL_KEYS: Final = {"idempotency_key": "toolmason.idempotency_key", "run_id": "toolmason.run_id"}
"""Facts about a call that an MCP client may send in `_meta`, each with its context key in the served call."""


async def _decline(question: Any) -> None:
    """Decline a question, because no call is in progress."""
    del question


FORWARD_TO_CALLER: Final = _decline
"""Handler placeholder: a server's question goes to the client of the current call, or is declined without one."""

ProgressCallback = Callable[[float, float | None, str | None], None]


class Inject:
    """Marker of an injected parameter: `Annotated[Db, Inject]` or `Annotated[str, Inject("tenant")]`."""

    __slots__ = ("key",)

    def __init__(self, key: str | None = None) -> None:
        given: Any = key
        if given is not None and not (isinstance(given, str) and given.strip()):
            raise DefinitionError(f"Inject(key={key!r}): must name a value of the context, or be omitted.")
        self.key = key

    def __repr__(self) -> str:
        return f"Inject({self.key!r})"


class Depends:
    """Marker of a parameter that a factory of the application makes: `Annotated[Session, Depends(open_session)]`.

    The factory is a function or a generator, sync or async. What follows its `yield` runs after the call, or with
    `scope="run"` after the run. It may take a `ToolContext`, injected values and other dependencies.
    """

    __slots__ = ("factory", "scope")

    factory: Callable[..., Any]
    scope: Literal["call", "run"]

    def __init__(self, factory: Callable[..., Any], *, scope: Literal["call", "run"] = "call") -> None:
        if not callable(factory):
            raise DefinitionError(f"Depends({clip(repr(factory))}): must be a function or a generator function.")
        if scope not in ("call", "run"):
            raise DefinitionError(f"Depends(scope={clip(repr(scope))}): must be 'call' or 'run'.")
        self.factory, self.scope = factory, scope

    def __repr__(self) -> str:
        return f"Depends({getattr(self.factory, '__name__', self.factory)!s}, scope={self.scope!r})"


@dataclass(frozen=True)
class _ProjectDir:
    """Marker of a parameter that receives the project directory: `Annotated[Path, ProjectDir]`."""


ProjectDir: Final = _ProjectDir()


_NO_CALL: Final = CallState()


class _CompletedAwaitable:
    """An awaitable that completes immediately, so that sync tools need no await."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_COMPLETED: Final = _CompletedAwaitable()


@dataclass(frozen=True, slots=True, eq=False)
class _SameObject:
    """Equal to another one of the same object, whatever that compares."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _to_key(value: Any) -> Hashable:
    return value if type(value) in SCALAR_TYPES else _SameObject(value)


class _OpenContext:
    """A context before its class is set: setting the fields of a frozen one takes three times as long."""

    __slots__ = ("_config", "_project_dir", "_state", "_values", "deps")


class ToolContext(_OpenContext, Mapping[str, Any], Generic[DepsT]):
    """The application's data for its tools: a frozen mapping of values, `deps`, and facts about the call.

    None of it reaches a model.
    """

    __slots__ = ()

    deps: DepsT
    _config: Config | None
    _project_dir: Path | None
    _state: CallState
    _values: Mapping[str, Any]

    def __init__(self, /, deps: DepsT | None = None, **values: Any) -> None:
        set_field = object.__setattr__
        set_field(self, "deps", deps)
        set_field(self, "_values", MappingProxyType(values))
        set_field(self, "_state", _NO_CALL)
        set_field(self, "_config", None)
        set_field(self, "_project_dir", _to_folder(values["project_dir"]) if "project_dir" in values else None)

    def merge(self, other: ToolContext[Any] | Mapping[str, Any] | None) -> ToolContext[Any]:
        """Return this context with another's values merged over its own, key by key."""
        if other is None:
            return self
        other_context: Any = other if isinstance(other, ToolContext) else make_context(other)
        changes: dict[str, Any] = {"_values": MappingProxyType({**self._values, **other_context})}
        for name in ("deps", "_config", "_project_dir"):
            if (value := getattr(other_context, name)) is not None:
                changes[name] = value
        return self._copy_with(**changes)

    def make_key(self) -> Hashable:
        """Return a key that is equal for contexts with the same values: of scalars, or the same objects."""
        if not self._values and self.deps is None and self._project_dir is None:
            return None
        values = [(name, type(value), _to_key(value)) for name, value in self._values.items()]
        return frozenset(values), _to_key(self.deps), self._project_dir

    def for_call(self, state: CallState) -> ToolContext[DepsT]:
        """Return a copy of this context for one call."""
        if type(self) is not ToolContext:
            return self._copy_with(_state=state)
        # Spelled out instead of looping: every call of a tool with a context makes a copy.
        copy: Any = _OpenContext()
        copy.deps = self.deps
        copy._values = self._values  # noqa: SLF001 - a field of this class
        copy._state = state  # noqa: SLF001 - a field of this class
        copy._config = self._config  # noqa: SLF001 - a field of this class
        copy._project_dir = self._project_dir  # noqa: SLF001 - a field of this class
        copy.__class__ = ToolContext
        return cast("ToolContext[DepsT]", copy)

    def with_config(self, config: Config | None, project_dir: str | Path | None) -> ToolContext[DepsT]:
        """Return this context with a configuration, and the project directory given, else its own, else configured."""
        folder = _to_folder(project_dir) if project_dir else self._project_dir
        if folder is None and config is not None:
            folder = config.project_dir
        return self._copy_with(_config=config, _project_dir=folder)

    def _copy_with(self, **changes: Any) -> ToolContext[Any]:
        copy = object.__new__(type(self))
        for name in _OpenContext.__slots__:
            object.__setattr__(copy, name, changes[name] if name in changes else getattr(self, name))
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # Values, deps and call state cross to another process.
        if self._state.call is not None:
            self.idempotency_key  # noqa: B018 - the worker process must not make another one
        return _restore_context, (self.deps, dict(self._values), self._state.detach(), self._config, self._project_dir)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot set {name!r}: a ToolContext is frozen. Pass values to the constructor.")

    def __repr__(self) -> str:
        # Values may be secrets, so only their names are shown.
        return f"ToolContext({', '.join(self._values)})"

    @property
    def call_id(self) -> str:
        """The id of the current call."""
        return self.call.id

    @property
    def tool_name(self) -> str:
        """The name of the current tool."""
        return self.call.name

    @property
    def call(self) -> ToolCall:
        """The current call: id, name and the arguments as received."""
        if self._state.call is None:
            raise ConfigError(
                "This ToolContext does not belong to a call. Use the one that a tool receives as a parameter."
            )
        return self._state.call

    @property
    def session_id(self) -> str | None:
        """The session of the call: the context's `session_id`, else that of the MCP client, else the conversation."""
        return cast("str | None", self._values.get("session_id", self._values.get(SESSION_KEY)))

    @property
    def run_id(self) -> str | None:
        """The ID of the run that the call belongs to, or None if it belongs to none."""
        if self._state.run is not None:
            return self._state.run.id
        return cast("str | None", self._values.get(CLIENT_CALL_KEYS["run_id"]))

    @property
    def idempotency_key(self) -> str:
        """A UUID for the API that the tool calls: the same for each attempt of this call, and for no other call.

        In a run of a chat, it is also the same if the run is executed again after a crash.
        """
        call_id, source = self.call.id, ""
        given = self._values.get(CLIENT_CALL_KEYS["idempotency_key"])
        if given is not None and self._state.run is None:
            # Two clients that send the same text must not get the results of each other.
            parts = [given, self.tool_name, *map(self._values.get, ("tenant", "user"))]
            source = to_json(parts, fallback=str).decode()
        return self._state.get_key(call_id, source)

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the results in the conversation so far, such as `web`; outside of a run, none."""
        return frozenset() if self._state.run is None else self._state.run.find_origins()

    @property
    def attempt(self) -> int:
        """The number of this attempt, counting from 1."""
        return self._state.attempt

    @property
    def deadline(self) -> float | None:
        """The deadline of the call on the `time.monotonic()` clock, or None if there is no limit."""
        return self._state.deadline

    @property
    def cancelled(self) -> bool:
        """True if the caller no longer waits for this call. A long-running sync tool should poll it."""
        return self._state.cancelled

    @property
    def config(self) -> Config:
        """The toolbox's configuration."""
        from toolmason._core.config.config import Config  # noqa: PLC0415 - see above

        return self._config if self._config is not None else Config()

    @property
    def project_dir(self) -> Path:
        """The directory that the tools work in."""
        if self._project_dir is None:
            raise ConfigError(
                "No project directory is set. Set it with `Toolbox(..., project_dir=...)` or the key `project_dir`."
            )
        return self._project_dir

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the call's id and the tool's name."""
        logger = logging.getLogger(f"toolmason.tools.{self.call.name}")
        logger.addFilter(make_record_safe)
        call_fields = {"call_id": self.call.id, "tool": self.call.name}
        client = self._values.get(CLIENT_KEY)
        if client is None:
            return logging.LoggerAdapter(logger, call_fields)
        return _ForwardingLogger(logger, call_fields, client.on_log)

    @property
    def client(self) -> Client:
        """The MCP client that made the call, to ask its user or its model.

        Raises:
            ConfigError: the call did not come over MCP.
        """
        client = self._values.get(CLIENT_KEY)
        if client is None:
            raise ConfigError(
                "This call did not come from an MCP client. `ctx.client` is available only in a served toolbox."
            )
        return cast("Client", client)

    @property
    def __followed__(self) -> bool:
        """True if progress reports have a receiver."""
        return self._state.report is not None

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> _CompletedAwaitable:
        """Report progress without blocking: `await` it in async tools, just call it in sync ones."""
        if self._state.report is not None:
            self._state.report(done, total, message)
        return _COMPLETED


def _to_folder(value: Any) -> Path:
    """Return a project directory as an absolute path.

    Raises:
        DefinitionError: it is not a path.
    """
    if not isinstance(value, str | os.PathLike) or not str(value).strip():
        raise DefinitionError(f"project_dir={clip(repr(value))}: must be a path.")
    return Path(value).absolute()


class _ForwardingLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that also sends its records to the client, whatever the local logging level."""

    def __init__(self, logger: logging.Logger, call_fields: dict[str, Any], on_log: Callable[[int, str], None]) -> None:
        super().__init__(logger, call_fields)
        self._on_log = on_log

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        self._on_log(level, scrub(str(msg) % args if args else str(msg)))
        super().log(level, msg, *args, **kwargs)


_progress_callbacks: list[ProgressCallback] = []
"""Progress callbacks in a worker process, innermost call last."""


@contextmanager
def report_progress_to(report: ProgressCallback) -> Generator[None]:
    """Send the progress of contexts that are restored in this block to `report`."""
    _progress_callbacks.append(report)
    try:
        yield
    finally:
        _progress_callbacks.pop()


def _restore_context(
    deps: Any, values: dict[str, Any], state: CallState, config: Config | None, project_dir: Path | None
) -> ToolContext[Any]:
    state.report = _progress_callbacks[-1] if _progress_callbacks else None
    return ToolContext(deps, **values).with_config(config, project_dir).for_call(state)


ContextLike: TypeAlias = ToolContext[Any] | Mapping[str, Any] | None
"""A `context=` value as callers pass it."""


def make_context(value: ContextLike) -> ToolContext[Any] | None:
    """Return a context made from a `context=` value.

    Raises:
        DefinitionError: it is neither a context nor a mapping.
    """
    if value is None or isinstance(value, ToolContext):
        return value
    values: Any = value
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise DefinitionError(f"context={clip(repr(values))}: must be a ToolContext or a mapping of its values.")
    return ToolContext(**values)


def get_run(context: ToolContext[Any]) -> CallRun | None:
    """Return the run that the call of a context belongs to, or None."""
    return context._state.run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - same module


def get_model_options(context: ToolContext[Any]) -> dict[str, float]:
    """Return the options of each request of a chat that the configuration sets."""
    config = context._config  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - same module
    return {} if config is None else config.model_options


def get_trace_options(context: ToolContext[Any], record: Record | None = None) -> TraceOptions:
    """Return what the log and the spans of calls show: as the tool says in `record=`, else as the configuration."""
    config = context._config  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - same module
    if config is None:
        return _TRACE_OPTIONS[record or "size"]
    return TraceOptions(record or ("full" if config.include_content else "size"), config.spring_names)


_TRACE_OPTIONS: Final = {content: TraceOptions(content) for content in ("none", "size", "shape", "full")}
"""Options without a configuration. Shared, because a large toolbox has thousands of routes."""


_ACCEPTED_TYPES: Final[Mapping[Any, tuple[type, ...]]] = {
    dict: (Mapping,),
    list: (Sequence,),
    tuple: (Sequence,),
    set: (AbstractSet,),
    frozenset: (AbstractSet,),
    str: (str,),
    bytes: (bytes, bytearray),
    int: (int,),
    float: (int, float),
    bool: (bool,),
}
"""Types of values for parameters of plain data. Other types are not checked, so that a test may inject a substitute."""


def make_injector(
    marker: Inject, name: str, expected_type: Any, default: Any = Parameter.empty, *, admits_none: bool = False
) -> Callable[[ToolContext[Any]], Any]:
    """Return a function that finds the value for an `Inject` parameter in a context, or else returns its default.

    It raises ConfigError if no value was found, or it is not the plain data that the parameter needs.
    """
    key: Any = marker.key
    origin = get_origin(expected_type) or expected_type
    accepted = _ACCEPTED_TYPES.get(origin) if isinstance(origin, type) else None
    if accepted is not None and admits_none:
        accepted = (*accepted, type(None))

    def inject(context: ToolContext[Any]) -> Any:
        values = context._values  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the mapping adds two calls
        value = values[key] if key in values else _find_value(context, marker, name, expected_type, default)
        if accepted is None or isinstance(value, accepted) or value is default:
            return value
        raise ConfigError(
            f"Parameter {name!r} is injected as {origin.__name__}, but its value is {type(value).__name__}. "
            f"Pass a value of this type under {key or name!r}."
        )

    return inject


def _find_value(context: ToolContext[Any], marker: Inject, name: str, expected_type: Any, default: Any) -> Any:
    """Return the value for an `Inject` parameter.

    With a key: the context value of that name, else that key or attribute of `deps`. Without one: `deps` itself if
    it has the expected type, else the value in the context or `deps` under the parameter's name. Else the default.

    Raises:
        ConfigError: no value was found; names the parameter and the fix.
    """
    key = marker.key or name
    if marker.key is None and isinstance(expected_type, type) and isinstance(context.deps, expected_type):
        return context.deps
    if key in context:
        return context[key]
    deps = context.deps
    if isinstance(deps, Mapping):
        if key in deps:
            return deps[key]
        if marker.key is None and expected_type in deps:
            return deps[expected_type]
    elif deps is not None and hasattr(deps, key):
        return getattr(deps, key)
    if default is not Parameter.empty:
        return default
    raise ConfigError(
        f"Parameter {name!r} is injected but has no value. "
        f"Pass `context={{{key!r}: ...}}`, or `ToolContext(deps=...)` with {key!r}."
    )
