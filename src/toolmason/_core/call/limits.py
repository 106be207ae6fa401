"""Count calls, enforce rates, and detect repeated calls within a run."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Generator, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import to_json, to_jsonable_python

from toolmason._core.values.definition import canonicalize
from toolmason._core.values.policy import Limits, Rate
from toolmason._core.values.results import ToolResult
from toolmason.errors import LimitExceeded

REPEATS_BEFORE_CACHED: Final = 2
"""Number of identical calls with the same result after which the next one is answered from the cache."""
REPEATS_BEFORE_REFUSED: Final = 3
"""Number of identical calls after which the next one is refused."""


class RateLimiter:
    """Rate limit with a sliding window."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._times: deque[float] = deque()
        self._lock = threading.Lock()

    def count(self, tool: str) -> None:
        """Count one call.

        Raises:
            LimitExceeded: the rate is exceeded; the message says when to retry.
        """
        now = time.monotonic()
        with self._lock:
            while self._times and self._times[0] <= now - self.rate.per:
                self._times.popleft()
            if len(self._times) >= self.rate.calls:
                retry_after = self._times[0] + self.rate.per - now
                limit = f"rate of {self.rate.calls} calls per {self.rate.per:g} s"
                raise LimitExceeded(tool, limit, f"Try again in {max(retry_after, 0.001):.3g} s.", retryable=True)
            self._times.append(now)


def fingerprint(name: str, arguments: Any) -> str:
    """Return a hash of a call that does not depend on the order of its keys."""
    from hashlib import sha256  # noqa: PLC0415 - 4 ms at start-up, needed only with runs and locks

    return sha256(to_json(canonicalize([name, to_json_like(arguments)]))).hexdigest()


def to_json_like(value: Any) -> Any:
    """Convert any value to JSON data to show, sign and compare. Values without a JSON form become text."""
    try:
        data = to_jsonable_python(value, fallback=repr, bytes_mode="base64", inf_nan_mode="strings")
        to_json(data)
    except (ValueError, TypeError, RecursionError):
        if isinstance(value, dict):
            return {_to_text(key): to_json_like(item) for key, item in value.items()}
        return [to_json_like(item) for item in value] if isinstance(value, list) else _to_text(value)
    return data


def _to_text(value: Any) -> str:
    return (value if isinstance(value, str) else repr(value)).encode("utf-8", "backslashreplace").decode()


def fingerprint_result(result: ToolResult) -> str:
    """Return a hash of a result that covers truncated text in full, and image and audio data."""
    data = [getattr(part, "data", None) for part in result.content]
    return fingerprint(result.full_text_digest or result.text, [item for item in data if item is not None])


def make_max_calls_error(tool: str, max_calls: int) -> LimitExceeded:
    """Return the error for a tool that has used up its calls."""
    return LimitExceeded(tool, f"max_calls of {max_calls} for this tool", "Continue without it.")


@dataclass(slots=True, eq=False, repr=False)
class RepeatedCall:
    """Last result of a call, and the number of times it was repeated."""

    digest: str
    """Fingerprint of the result."""
    times: int
    result: ToolResult


@dataclass(slots=True, eq=False, repr=False)
class RunState:
    """Counters and results of one run, shared by every view of the run's toolbox."""

    limits: Limits
    call_counter: Iterator[int] = field(default_factory=itertools.count)
    tool_counters: dict[Hashable, Iterator[int]] = field(default_factory=dict)
    repeats: dict[str, RepeatedCall] = field(default_factory=dict)
    tasks: dict[asyncio.Future[Any], asyncio.AbstractEventLoop] = field(default_factory=dict)
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, tool: str, max_calls: int | None, key: Hashable = None) -> None:
        """Count one call of a tool. `key` identifies the tool, which may have several names.

        Raises:
            LimitExceeded: the tool or the run has used up its calls.
        """
        tool_limit = self.limits.per_tool if max_calls is None else max_calls
        run_limit = self.limits.calls
        # next() is atomic across threads. A refused call also uses up its number.
        if tool_limit is not None and next(self.get_counter(tool if key is None else key)) >= tool_limit:
            raise make_max_calls_error(tool, tool_limit)
        if run_limit is not None and next(self.call_counter) >= run_limit:
            raise LimitExceeded(tool, f"max_calls of {run_limit} for this run", "Answer with what you have.")

    def get_counter(self, key: Hashable) -> Iterator[int]:
        """Return the call counter of a tool."""
        found = self.tool_counters.get(key)
        return self.tool_counters.setdefault(key, itertools.count()) if found is None else found

    def get_remaining_seconds(self) -> float | None:
        """Return the remaining seconds of the run, or None if it has no limit."""
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (time.monotonic() - self.started)

    @contextmanager
    def track_task(self, loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> Generator[None]:
        """Register a task, so that `cancel` can stop it."""
        self.tasks[task] = loop
        try:
            yield
        finally:
            self.tasks.pop(task, None)

    def cancel(self) -> None:
        """Cancel running calls and refuse new ones. Thread-safe."""
        self.cancelled = True
        for task, loop in list(self.tasks.items()):
            loop.call_soon_threadsafe(task.cancel)

    def find_repeat(self, key: str, tool: str) -> ToolResult | None:
        """Return the cached result of a call that was made twice with the same result, or None.

        Raises:
            LimitExceeded: the call was already answered from the cache.
        """
        with self.lock:
            repeat = self.repeats.get(key)
            if repeat is None or repeat.times < REPEATS_BEFORE_CACHED:
                return None
            repeat.times += 1
            if repeat.times > REPEATS_BEFORE_REFUSED:
                raise LimitExceeded(
                    tool, f"limit of {REPEATS_BEFORE_REFUSED} identical calls", "Use the result you already have."
                )
            return repeat.result

    def record_result(self, key: str, result: ToolResult) -> int:
        """Record the result of a call. Return the number of consecutive identical results."""
        digest = fingerprint_result(result)
        with self.lock:
            repeat = self.repeats.get(key)
            if repeat is None or repeat.digest != digest:
                self.repeats[key] = RepeatedCall(digest, 1, result)
                return 1
            repeat.times += 1
            return repeat.times
