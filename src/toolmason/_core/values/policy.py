"""Settings for time-outs, retries, batches and limits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from math import inf
from pathlib import PurePath
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from toolmason._core.values.remote_executor import RemoteExecutor
from toolmason._explain import explain_arguments
from toolmason._value import Value
from toolmason.errors import ConfigError, DefinitionError, ToolCallError


class Inherit(Enum):
    """The type of `INHERIT`."""

    INHERIT = "inherit"

    def __repr__(self) -> str:
        return "INHERIT"


INHERIT: Final = Inherit.INHERIT
"""Default of an option: the next level decides (call > tool > toolbox > setting). `None` means no value."""

_T = TypeVar("_T")


class CarriedPolicy:
    """Base of the policies that a tool carries from the toolboxes that it came through."""

    __slots__ = ()

    async def bound(self, name: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Run other work of the toolbox, such as reading a resource, within its time-out and its slots."""
        raise NotImplementedError


Timeout: TypeAlias = float | Literal[Inherit.INHERIT] | None


_KIND_NAMES: Final[Mapping[Any, str]] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    NoneType: "None",
    Callable: "a function",
    Mapping: "a mapping",
    Sequence: "a list",
    Iterable: "a list",
    PurePath: "a path",
    AbstractSet: "a set",
}


_NUMBER: Final = (float, int)


def check_kinds(subject: str, options: Mapping[str, Any], kinds: Mapping[str, tuple[Any, ...]]) -> None:
    """Validate the types of options.

    Raises:
        DefinitionError: one has a wrong type. The message does not show it: it may be a secret.
    """
    for name, allowed in kinds.items():
        value = options[name]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            shown = [kind for kind in allowed if kind is not Inherit and not (kind is int and float in allowed)]
            expected = " or ".join(_KIND_NAMES.get(kind, kind.__name__) for kind in shown)
            raise DefinitionError(f"{subject}{name}= is of type {type(value).__name__!r}: it must be {expected}.")


def check_object(option: str, given: Any, class_name: str, methods: tuple[str, ...]) -> None:
    """Raise ConfigError if an option lacks a method, or is a class or the path that its class takes."""
    if isinstance(given, str | PurePath):
        from toolmason._secrets import scrub  # noqa: PLC0415 - 1 ms at start-up, needed only for an error

        shown = scrub(repr(str(given)))
        raise ConfigError(f"{option}={shown} is a path. Pass an object, such as {class_name}({shown}).")
    if isinstance(given, type):
        raise ConfigError(f"{option}={given.__name__} is a class. Pass an object, such as {class_name}(...).")
    if given is not None and not all(callable(getattr(given, method, None)) for method in methods):
        names = " and ".join(f"`{method}`" for method in methods)
        raise ConfigError(f"{option}= is of type {type(given).__name__!r}: it must have {names}.")


def check_store(store: Any) -> None:
    """Raise ConfigError if a value is not a store."""
    if store is None:
        raise ConfigError("store=None: pass a store, such as PostgresStore(url) or SqliteStore(path).")
    check_object("store", store, "PostgresStore", ("transact", "read"))


def are_exceptions(kinds: tuple[Any, ...]) -> bool:
    """Return True if all items are exception classes."""
    return all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds)


def check_timeout(timeout: _T) -> _T:
    """Return a time-out after validating it.

    Raises:
        DefinitionError: it is not a positive number.
    """
    value: Any = timeout
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and value is not INHERIT and not (is_number and value > 0):
        raise DefinitionError(f"timeout={timeout!r}: must be a positive number of seconds, or None.")
    return timeout


RunsOn: TypeAlias = Literal["loop", "thread", "process", "ray"] | Executor | RemoteExecutor
OnError: TypeAlias = Literal["message", "redact", "raise"] | Callable[[ToolCallError], Any]
"""Error text shown to the model. A function returns a string or a `ToolResult`, or raises."""


def check_on_error(on_error: Any) -> None:
    """Validate an `on_error=` value.

    Raises:
        DefinitionError: it is neither a known keyword nor callable.
    """
    if on_error not in ("message", "redact", "raise") and not callable(on_error):
        raise DefinitionError(
            f'on_error={on_error!r}: must be "message", "redact", "raise" or a function of the error.'
        )


Record: TypeAlias = Literal["none", "shape", "full"]
"""Content of the spans and the log of a tool's calls."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TraceOptions(Value):
    """Contents of the log and the spans of calls."""

    content: Literal["none", "size", "shape", "full"] = "size"
    """Part of arguments and results that a span shows."""
    has_spring_names: bool = False
    """True to add the attributes of Spring AI to spans."""
    secret_names: frozenset[str] = frozenset()
    """Fields of the arguments that the schema declares as secret. Found only if the content is shown."""

    @property
    def has_content(self) -> bool:
        """True if the log and the spans show arguments and results."""
        return self.content == "full"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Retry(Value):
    """Retry policy: up to `attempts` attempts, with `delay * factor ** n` seconds in between."""

    attempts: int = 3
    delay: float = 0.2
    factor: float = 2.0
    jitter: bool = True
    """True to randomize each delay between half and its full length, so that callers do not retry in lockstep."""
    on: tuple[type[BaseException], ...] = (TimeoutError, ConnectionError, OSError)
    """Exceptions to retry. `TimeoutError` also covers Toolmason's own time-outs."""

    @explain_arguments
    def __post_init__(self) -> None:
        kinds = {"attempts": (int,), "delay": _NUMBER, "factor": _NUMBER, "jitter": (bool,), "on": (tuple,)}
        check_kinds("Retry: ", {name: getattr(self, name) for name in kinds}, kinds)
        if not are_exceptions(self.on):
            raise DefinitionError(f"Retry(on={self.on!r}): must be a tuple of exception classes.")
        if self.attempts < 1:
            raise DefinitionError(f"Retry(attempts={self.attempts!r}): attempts must be at least 1.")
        if not (self.delay >= 0 and self.factor >= 1):
            raise DefinitionError(
                f"Retry(delay={self.delay!r}, factor={self.factor!r}): delay must be at least 0 and factor at least 1."
            )

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after failure number `failures`, counting from 1."""
        from random import uniform  # noqa: PLC0415 - 4 ms at start-up, needed only on failure

        seconds = get_longest_pause(self, failures)
        return seconds * uniform(0.5, 1.0) if self.jitter else seconds  # noqa: S311 - spreads load, not security-relevant


def get_longest_pause(retry: Retry, failures: int) -> float:
    """Return the seconds to wait after failure number `failures`, without jitter."""
    try:
        return retry.delay and retry.delay * retry.factor ** (failures - 1)
    except OverflowError:  # factor 2 and 1,025 failures
        return inf


def check_retry(retry: _T) -> _T:
    """Return a `retry=` value after validating it.

    Raises:
        DefinitionError: it is neither a `Retry` nor None.
    """
    value: Any = retry
    if value is not None and value is not INHERIT and not isinstance(value, Retry):
        raise DefinitionError(f"retry={retry!r}: must be Retry(attempts=...) or None.")
    return retry


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rate(Value):
    """Rate limit of `calls` calls in any window of `per` seconds."""

    calls: int
    per: float = 1.0
    by: str | tuple[str, ...] = ()
    """Keys of the context, such as `"user"`: callers with other values have a rate of their own. Stored as a tuple."""

    @explain_arguments
    def __post_init__(self) -> None:
        given: Any = self.by
        keys = (given,) if isinstance(given, str) else given
        if not isinstance(keys, tuple) or not all(isinstance(key, str) and key for key in keys):
            raise DefinitionError(f"Rate(by={given!r}): must be a key of the context, or a tuple of keys.")
        object.__setattr__(self, "by", keys)
        if self.calls < 1 or not self.per > 0:
            raise DefinitionError(
                f"Rate({self.calls!r}, per={self.per!r}): calls must be at least 1, and per must be positive."
            )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Limits(Value):
    """Limits of one run. `None` means unlimited."""

    steps: int | None = 25
    """Maximum number of model turns."""
    calls: int | None = 150
    """Maximum number of tool calls."""
    seconds: float | None = None
    """Maximum duration of the run in seconds."""
    per_tool: int | None = 40
    """Maximum number of calls of one tool, unless the tool sets `max_calls`."""
    answers: int | None = 3
    """Maximum number of answers of a run with a typed answer; all but the last are wrong."""
    continuations: int | None = 3
    """Maximum number of requests for the rest of an answer that was cut off, with `on_length="continue"`."""
    tokens: int | None = None
    """Maximum number of input and output tokens. The last request may exceed it."""
    input_tokens: int | None = None
    """Maximum number of input tokens. The last request may exceed it."""
    output_tokens: int | None = None
    """Maximum number of output tokens. The last request may exceed it."""
    cost: float | None = None
    """Maximum cost, in the currency of the chat's `price=`. The last request may exceed it."""

    @explain_arguments
    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in self.__slots__}
        number = (*_NUMBER, NoneType)
        kinds = dict.fromkeys(values, (int, NoneType)) | {"seconds": number, "cost": number}
        check_kinds("Limits: ", values, kinds)
        for name, value in values.items():
            if value is not None and not value >= 0:
                raise DefinitionError(f"Limits({name}={value!r}): must be at least 0, or None for no limit.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parallel(Value):
    """Batch strategy: run calls concurrently, at most `limit` at a time."""

    limit: int | None = None

    @explain_arguments
    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise DefinitionError(
                f"Parallel(limit={self.limit!r}): limit must be at least 1, or None for the toolbox's limit."
            )


@dataclass(frozen=True, slots=True)
class Sequential:
    """Batch strategy: run calls one at a time, in order."""


Strategy: TypeAlias = Parallel | Sequential


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EngineSettings(Value):
    """Limits of the engine. An error caused by one of them names the setting and its value."""

    call_timeout: float | None = 60.0
    """Seconds for one attempt of a call."""
    max_timeout: float = 600.0
    """Upper bound in seconds for every call, except with `timeout=None`."""
    cancel_grace: float = 0.2
    """Seconds that a cancelled tool has to clean up before its result is returned anyway."""
    max_concurrency: int = 128
    """Maximum number of concurrent calls in one batch."""
    result_bytes: int = 100 * 1024
    """Maximum size of text results. Longer ones are truncated and stored under a handle."""
    kept_bytes: int = 64 * 1024 * 1024
    """Maximum total size of the results that a toolbox stores under handles. The oldest are dropped first.

    One user of a server can fill a quarter.
    """
    approval_seconds: float | None = None
    """Seconds that an approver has, and until a request for approval expires.

    `None` means 7 days for a request, and `max_timeout` for an approver; no limit if the call has no time-out.
    """
    progress_queue: int = 1000
    """Maximum number of unread progress reports. Beyond it, the oldest are dropped and counted."""
    processes: int = 2
    """Number of worker processes for tools with `runs_on="process"`."""
    threads: int = 128
    """Maximum number of worker threads for sync tools; they are started on demand. Transports use their own threads."""
    json_depth: int = 128
    """Maximum nesting depth of arguments."""
    argument_bytes: int = 4 * 1024 * 1024
    """Maximum size of a call's JSON arguments."""
    duplicate_key_bytes: int = 32 * 1024
    """Maximum size of JSON arguments that are checked for duplicate keys. In longer ones, the last value wins."""
