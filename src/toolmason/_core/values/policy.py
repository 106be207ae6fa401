"""How calls are treated, as data: time, retries, batches, limits.

Lives here: frozen settings and the arithmetic on them. Not here: anything that waits, runs or decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeVar

from toolmason.errors import DefinitionError, ToolCallError


class Inherit(Enum):
    """The type of `INHERIT`."""

    INHERIT = "inherit"

    def __repr__(self) -> str:
        return "INHERIT"


INHERIT: Final = Inherit.INHERIT
"""An option left out: the next level decides (call > tool > toolbox > setting). `None` says "none"."""

Timeout: TypeAlias = float | Literal[Inherit.INHERIT] | None
_T = TypeVar("_T")


def check_timeout(timeout: _T) -> _T:
    """Return a time-out that makes sense.

    Raises:
        DefinitionError: it is no number above zero.
    """
    value: Any = timeout
    if value is not None and value is not INHERIT and not (isinstance(value, (int, float)) and value > 0):
        raise DefinitionError(f"timeout={timeout!r}: give seconds above 0, or None for no time-out.")
    return timeout


RunsOn: TypeAlias = Literal["loop", "thread", "process"]
OnError: TypeAlias = Literal["message", "redact", "raise"] | Callable[[ToolCallError], Any]
"""What the model is shown of a failure; a function returns a text or a `ToolResult`, or raises."""


def check_on_error(on_error: Any) -> None:
    """Refuse an `on_error=` that is none.

    Raises:
        DefinitionError: it is neither a word that we know nor a function.
    """
    if on_error not in ("message", "redact", "raise") and not callable(on_error):
        raise DefinitionError(f'on_error={on_error!r}: give "message", "redact", "raise" or a function of the error.')


@dataclass(frozen=True, slots=True)
class Retry:
    """Run a failed call again: `attempts` in all, waiting `delay * factor ** n` seconds in between."""

    attempts: int = 3
    delay: float = 0.2
    factor: float = 2.0
    jitter: bool = True
    """Wait a random part (half to whole) of each delay, so that many callers do not come back at once."""
    on: tuple[type[BaseException], ...] = (TimeoutError, ConnectionError, OSError)
    """Which failures are worth another attempt; `TimeoutError` stands for our own time-outs too."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise DefinitionError(f"Retry(attempts={self.attempts!r}): there is always one attempt; give 1 or more.")
        if self.delay < 0 or self.factor < 1:
            raise DefinitionError(
                f"Retry(delay={self.delay!r}, factor={self.factor!r}): "
                "give a delay of 0 or more and a factor of 1 or more."
            )

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after the `failed`-th failure (1 is the first)."""
        from random import uniform  # noqa: PLC0415 - 4 ms at start-up, for the rare failure

        seconds = self.delay * self.factor ** (failures - 1)
        return seconds * uniform(0.5, 1.0) if self.jitter else seconds  # noqa: S311 - spreads load, hides nothing


def check_retry(retry: _T) -> _T:
    """Refuse a `retry=` that is none.

    Raises:
        DefinitionError: it is something else.
    """
    value: Any = retry
    if value is not None and value is not INHERIT and not isinstance(value, Retry):
        raise DefinitionError(f"retry={retry!r}: give Retry(attempts=...), or None.")
    return retry


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `calls` in any `per` seconds."""

    calls: int
    per: float = 1.0

    def __post_init__(self) -> None:
        if self.calls < 1 or not self.per > 0:
            raise DefinitionError(f"Rate({self.calls!r}, per={self.per!r}): give 1 call or more, in seconds above 0.")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. `None` is no limit."""

    steps: int | None = 25
    """Turns of the model."""
    calls: int | None = 150
    """Calls of tools."""
    seconds: float | None = None
    """Time for the whole run."""
    per_tool: int | None = 40
    """Calls of one tool that does not say `max_calls` itself."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and value >= 0):
                raise DefinitionError(f"Limits({name}={value!r}): give 0 or more, or None for no limit.")


@dataclass(frozen=True, slots=True)
class Parallel:
    """Run the calls of a batch side by side, at most `limit` at once."""

    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise DefinitionError(f"Parallel(limit={self.limit!r}): give 1 or more, or None for the toolbox's own cap.")


@dataclass(frozen=True, slots=True)
class Sequential:
    """Run the calls of a batch one after the other, in order."""


Strategy: TypeAlias = Parallel | Sequential


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Every limit by name. Errors that come from one of them say its name and number."""

    call_timeout: float | None = 60.0
    """Seconds for one attempt of a call."""
    max_timeout: float = 600.0
    """No call runs longer than this unless it says `timeout=None`."""
    cancel_grace: float = 0.2
    """Seconds that a cancelled tool may take to clean up before its result is given anyway."""
    max_concurrency: int = 64
    """Calls of one batch that run at once."""
    result_bytes: int = 256 * 1024
    """Size of a text result; what is longer is cut and kept under a handle."""
    kept_bytes: int = 64 * 1024 * 1024
    """Size of all the results that a toolbox keeps under handles; the oldest go first."""
    approval_seconds: float | None = None
    """How long a request for approval stays open; `None` is for ever."""
    progress_queue: int = 1000
    """Progress reports that wait to be read; when there are more, the oldest are dropped and counted."""
    processes: int = 2
    """Worker processes for tools that run in one."""
    threads: int = 64
    """Worker threads for sync tools; transports never share them."""
    json_depth: int = 128
    """Nesting of arguments."""
    argument_bytes: int = 4 * 1024 * 1024
    """Size of one argument text."""
    duplicate_key_bytes: int = 32 * 1024
    """Argument texts up to this size are searched for duplicate keys; above it the last one wins."""
