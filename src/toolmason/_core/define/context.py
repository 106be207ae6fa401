"""What the application knows and the model must not: context values, dependencies, injection markers.

Lives here: `ToolContext`, the markers of injected parameters, and how each finds its value.
Not here: which parameters are injected (`signature`), or who makes a context for a call (`dispatch`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, cast

from typing_extensions import TypeVar

from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError, DefinitionError, clip

if TYPE_CHECKING:  # 15 ms at start-up, for programs that have settings or are served
    from toolmason._core.config.config import Config
    from toolmason._core.define.mcp_client import Client


DepsT = TypeVar("DepsT", default=Any)
CLIENT_KEY: Final = "toolmason.client"
"""The context value under which a served call finds its caller."""


async def _decline(question: Any) -> None:
    """Decline: nobody waits for a call."""
    del question


FORWARD_TO_CALLER: Final = _decline
"""Stands for a handler: what a server asks goes to whoever called, and to nobody where no call is under way."""

ProgressCallback = Callable[[float, float | None, str | None], None]


class Inject:
    """Mark a parameter as filled by the application: `Annotated[Db, Inject]` or `Annotated[str, Inject("tenant")]`."""

    __slots__ = ("key",)

    def __init__(self, key: str | None = None) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Inject({self.key!r})"


@dataclass(frozen=True)
class _ProjectDir:
    """Mark a parameter as filled with the project directory: `Annotated[Path, ProjectDir]`."""


ProjectDir: Final = _ProjectDir()


@dataclass(slots=True, eq=False, repr=False)
class CallState:
    """What one call shares with its context: who it is, how long it has, whether it was called off."""

    call: ToolCall | None = None
    attempt: int = 1
    deadline: float | None = None
    cancelled: bool = False
    report: Any = None
    """Takes progress: a callable of (done, total, message)."""

    def with_deadline(self, deadline: float | None) -> CallState:
        """Return the state of an attempt: a tool that overstays keeps the one it was given."""
        return CallState(self.call, self.attempt, deadline, self.cancelled, self.report)


_NO_CALL: Final = CallState()


class _CompletedAwaitable:
    """Something to await where the work is done already, so that sync tools need no await."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_COMPLETED: Final = _CompletedAwaitable()


class ToolContext(Mapping[str, Any], Generic[DepsT]):
    """What the application gives to its tools. A mapping of values, `deps`, and facts about the call. Frozen.

    Nothing of it reaches a model.
    """

    __slots__ = ("_config", "_project_dir", "_state", "_values", "deps")

    deps: DepsT
    _config: Config | None
    _project_dir: Path | None
    _state: CallState
    _values: Mapping[str, Any]

    def __init__(self, deps: DepsT | None = None, **values: Any) -> None:
        set_field = object.__setattr__
        set_field(self, "deps", deps)
        set_field(self, "_values", MappingProxyType(values))
        set_field(self, "_state", _NO_CALL)
        set_field(self, "_config", None)
        set_field(self, "_project_dir", None)

    def merge(self, other: ToolContext[Any] | Mapping[str, Any] | None) -> ToolContext[Any]:
        """Return this context with the other's values over its own, key by key."""
        if other is None:
            return self
        other_context = other if isinstance(other, ToolContext) else ToolContext[Any](**other)
        deps = self.deps if other_context.deps is None else other_context.deps
        return self._copy_with(deps=deps, _values=MappingProxyType({**self._values, **other_context}))

    def for_call(self, state: CallState) -> ToolContext[DepsT]:
        """Return this context as one call sees it."""
        # Written out: every call on the long way makes one.
        copy, set_field = object.__new__(type(self)), object.__setattr__
        set_field(copy, "deps", self.deps)
        set_field(copy, "_values", self._values)
        set_field(copy, "_state", state)
        set_field(copy, "_config", self._config)
        set_field(copy, "_project_dir", self._project_dir)
        return copy

    def with_config(self, config: Config | None, project_dir: Path | None) -> ToolContext[DepsT]:
        """Return this context with the toolbox's configuration and project directory."""
        return self._copy_with(_config=config, _project_dir=project_dir)

    def _copy_with(self, **changes: Any) -> ToolContext[Any]:
        copy = object.__new__(type(self))
        for name in ToolContext.__slots__:
            object.__setattr__(copy, name, changes[name] if name in changes else getattr(self, name))
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # What crosses to another process: values, deps and the facts of the call; progress finds its own way back.
        state = replace(self._state, report=None)
        return _restore_context, (self.deps, dict(self._values), state, self._config, self._project_dir)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot set {name!r}: a ToolContext is frozen. Give values when you make it.")

    def __repr__(self) -> str:
        # Values may be secrets, so only their names are shown.
        return f"ToolContext({', '.join(self._values)})"

    @property
    def call_id(self) -> str:
        """The id of the call that is running."""
        return self._call.id

    @property
    def tool_name(self) -> str:
        """The name of the tool that is running."""
        return self._call.name

    @property
    def call(self) -> ToolCall:
        """The call that is running: id, name, arguments as they came."""
        return self._call

    @property
    def _call(self) -> ToolCall:
        if self._state.call is None:
            raise ConfigError("This ToolContext belongs to no call. Read it inside a tool, from its own parameter.")
        return self._state.call

    @property
    def session_id(self) -> str | None:
        """The session that the call belongs to, where the application gave one."""
        return cast("str | None", self._values.get("session_id"))

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self._state.attempt

    @property
    def deadline(self) -> float | None:
        """When the call must be done, on the clock of `time.monotonic()`; `None` where there is no limit."""
        return self._state.deadline

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this call any more. A long sync tool looks at it now and then."""
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
                "No project directory is set. Give one with `Toolbox(..., project_dir=...)` or the key `project_dir`."
            )
        return self._project_dir

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the call's id and the tool's name."""
        logger = logging.getLogger(f"toolmason.tools.{self._call.name}")
        call_fields = {"call_id": self._call.id, "tool": self._call.name}
        client = self._values.get(CLIENT_KEY)
        return (
            logging.LoggerAdapter(logger, call_fields)
            if client is None
            else _ForwardingLogger(logger, call_fields, client.on_log)
        )

    @property
    def client(self) -> Client:
        """Whoever called over MCP: ask its user, or its model.

        Raises:
            ConfigError: the call did not come over MCP.
        """
        client = self._values.get(CLIENT_KEY)
        if client is None:
            raise ConfigError(
                "This call did not come from an MCP client. `ctx.client` is there when a toolbox is served."
            )
        return cast("Client", client)

    @property
    def __followed__(self) -> bool:
        """Whether anybody is told of the progress."""
        return self._state.report is not None

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> _CompletedAwaitable:
        """Report progress. Never waits: `await` it in async tools, simply call it in sync ones."""
        if self._state.report is not None:
            self._state.report(done, total, message)
        return _COMPLETED


class _ForwardingLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records a client hears as well, whatever level our own logging is at."""

    def __init__(self, logger: logging.Logger, call_fields: dict[str, Any], on_log: Callable[[int, str], None]) -> None:
        super().__init__(logger, call_fields)
        self._on_log = on_log

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        self._on_log(level, str(msg) % args if args else str(msg))
        super().log(level, msg, *args, **kwargs)


_progress_callbacks: list[ProgressCallback] = []
"""Where progress goes in a worker process: the innermost call's."""


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
    return ToolContext[Any](deps, **values).with_config(config, project_dir).for_call(state)


def make_context(value: ToolContext[Any] | Mapping[str, Any] | None) -> ToolContext[Any] | None:
    """Return a context from what a caller gives for one.

    Raises:
        DefinitionError: it is neither a context nor a mapping.
    """
    if value is None or isinstance(value, ToolContext):
        return value
    values: Any = value
    if not isinstance(values, Mapping):
        raise DefinitionError(f"context={clip(repr(values))}: give a ToolContext or a mapping of its values.")
    return ToolContext(**values)


def find_dependency(context: ToolContext[Any], marker: Inject, name: str, expected_type: Any) -> Any:
    """Return the value for an `Inject` parameter.

    With a key: the context's value of that name, else that key or attribute of `deps`. Without one: `deps`
    itself where it is of the wanted type, else what the context or `deps` hold under the parameter's name.

    Raises:
        ConfigError: nothing fits; names the parameter and what to give.
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
    raise ConfigError(
        f"Parameter {name!r} is injected and nothing was given for it. "
        f"Pass `context={{{key!r}: ...}}`, or `ToolContext(deps=...)` that holds {key!r}."
    )
