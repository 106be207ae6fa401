"""Count calls, enforce rates, and detect repeated calls within a run."""

from __future__ import annotations

import copy
import itertools
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json import JSONEncoder
from typing import Any, Final, Protocol

from pydantic_core import to_json, to_jsonable_python

from toolmason._core.call.deadlines import Deadline
from toolmason._core.call.long_results import ResultStore
from toolmason._core.run.dependencies import RunResources
from toolmason._core.run.execute import Cancellation
from toolmason._core.values.call_state import RunOwner
from toolmason._core.values.definition import SCALAR_TYPES, canonicalize
from toolmason._core.values.policy import Limits, Rate
from toolmason._core.values.results import Arguments, ToolResult
from toolmason._text import MAX_NAMES_SHOWN
from toolmason._wire import parse_json
from toolmason.errors import InvalidArguments, LimitExceeded, ToolCallError, ToolCancelled, UnknownTool

REPEATS_BEFORE_CACHED: Final = 2
"""Number of identical calls with the same result after which the next one is answered from the cache."""
REPEATS_BEFORE_REFUSED: Final = 3
"""Number of identical calls after which the next one is refused."""
REJECTIONS_BEFORE_END: Final = 2
"""Number of times that a run rejects the same invalid call or unknown name. The next one ends the run."""
_MAX_REJECTED: Final = 1000
"""Maximum number of rejected calls that a run remembers; the oldest is forgotten first."""
_MAX_KEY_SIZE: Final = 256
"""Maximum length and number of parts of arguments that are kept to recognize a repeated call. Of others, a hash is."""
_MAX_PARSED_SIZE: Final = 256 * 1024
"""Maximum length of arguments that are parsed to recognize a repeated call whatever the order of their names."""
END_ADVICE: Final = "Answer with what you have."  # an error that is restored from JSON is known by it


class RateLimiter:
    """Rate limit with a sliding window for each caller that it distinguishes."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._callers: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, tool: str, caller: str = "") -> None:
        """Count one call.

        Raises:
            LimitExceeded: the rate is exceeded; the message says when to retry.
        """
        now = time.monotonic()
        with self._lock:
            times = self._callers.setdefault(caller, deque())
            while times and times[0] <= now - self.rate.per:
                times.popleft()
            if len(times) >= self.rate.calls:
                raise make_rate_error(tool, self.rate, times[0] + self.rate.per - now)
            times.append(now)
            self._callers.move_to_end(caller)
            # The first one has made no call for the longest time.
            while self._callers[oldest := next(iter(self._callers))][-1] <= now - self.rate.per or (
                len(self._callers) > MAX_RATED_CALLERS
            ):
                del self._callers[oldest]


MAX_RATED_CALLERS: Final = 100_000
"""Maximum number of callers that a rate distinguishes at a time; the one with the oldest call is forgotten first."""


def make_caller_key(rate: Rate, context: Mapping[str, Any]) -> str:
    """Return the key of the caller of a call in a rate; empty if all callers share it.

    A hash: the table of a store must not list users. Callers without any of the values share a rate.
    """
    return fingerprint("rate", [context.get(key) for key in rate.by]) if rate.by else ""


def make_rate_error(tool: str, rate: Rate, retry_after: float) -> LimitExceeded:
    """Return the error for a call beyond a rate."""
    limit = f"rate of {rate.calls} calls per {rate.per:g} s{name_callers(rate)}"
    wait = f"{max(retry_after, 0.001):.3g}" if retry_after < 100 else f"{retry_after:.0f}"  # noqa: PLR2004 - three digits
    error = LimitExceeded(tool, limit, f"Try again in {wait} s.", retryable=True)
    error.retry_after = retry_after
    return error


def name_callers(rate: Rate) -> str:
    """Return the end of a message about a rate: the callers that it distinguishes."""
    return f" for each {', '.join(rate.by)}" if rate.by else ""


class SharedRates(Protocol):
    """Rates that several processes share."""

    async def count(self, tool: str, rate: Rate, caller: str = "") -> None:
        """Count one call. `caller` is the key of `make_caller_key`.

        Raises:
            LimitExceeded: the rate is exceeded, or it cannot be counted.
        """
        ...


def fingerprint(name: str, arguments: Any) -> str:
    """Return a hash of a call that does not depend on the order of its keys."""
    from hashlib import sha256  # noqa: PLC0415 - 4 ms at start-up, needed only with runs and locks

    return sha256(to_json(canonicalize([name, to_json_like(arguments)]))).hexdigest()


def to_json_like(value: Any, levels: int = 128) -> Any:
    """Convert any value to JSON data to show, sign and compare. Values without a JSON form become text.

    So do lists and dicts below so many levels, if a value has no JSON form as a whole.
    """
    try:
        data = to_jsonable_python(value, fallback=_to_text, bytes_mode="base64", inf_nan_mode="strings")
        to_json(data)
    except (ValueError, TypeError, RecursionError):
        if isinstance(value, dict) and levels:
            return {_to_text(key): to_json_like(item, levels - 1) for key, item in value.items()}
        if isinstance(value, list) and levels:
            return [to_json_like(item, levels - 1) for item in value]
        return _to_text(value)
    return data


def _to_text(value: Any) -> str:
    """Return text, or the `repr` of another value, which may fail, such as that of an integer of many digits."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001 - a user-defined `__repr__` may raise anything
        text = hex(value) if isinstance(value, int) else object.__repr__(value)
    return text.encode("utf-8", "backslashreplace").decode()


def make_call_key(
    tool: Hashable, arguments: Arguments, bound: Mapping[str, Any] | None = None, *, shows_keys: bool = False
) -> Hashable:
    """Return a key that is equal for calls of one tool with equal arguments, whatever the order of their names.

    `bound` are the values of valid arguments in the order of the parameters. They need no parsing again, if they are
    scalars or show the keys of all arguments. Of a long text, the order of the names counts.
    """
    if bound is not None:
        parts = bound.values()
        part_types = [*map(type, parts)]
        if SCALAR_TYPES.issuperset(part_types):
            return (tool, *bound, *parts, *part_types)  # one tuple: its hash costs half of that of several
        key: list[Any] = [tool, *bound]
        if shows_keys and _add_to_key(key, parts):
            return tuple(key)
    values: Any = arguments
    parsed = None
    # Check for a string first: checking one against Mapping costs more than everything else here.
    if type(values) is str or not isinstance(values, Mapping | None):
        if not isinstance(values, str | bytes | bytearray | memoryview):
            return tool, fingerprint("", values)  # of a type that is refused
        text = values if isinstance(values, str) else bytes(values)
        if len(text) > _MAX_PARSED_SIZE:
            return tool, len(text), hash(text)
        try:
            values = parsed = parse_json(text) if text.strip() else {}
        except ValueError:
            return tool, _shorten(str(text.strip()))
    values = {} if values is None else values
    if type(values) is dict and SCALAR_TYPES.issuperset(types := [*map(type, values.values())]):
        # The usual case. The types tell 1 from True.
        return tool, frozenset(zip(values, types, values.values(), strict=True))
    # Parsed JSON has its own form already.
    data = values if parsed is not None else to_json_like(values)
    try:
        return tool, _shorten(_write_sorted(data))
    except ValueError:  # an integer of many digits
        return tool, fingerprint("", data)


def _add_to_key(key: list[Any], values: Iterable[Any]) -> bool:
    """Add typed values and the names of their parts. Return False if one is of another kind, or too large to keep."""
    for value in values:
        kind = type(value)
        key.append(kind)  # tells 1 from True
        parts = value
        if kind in SCALAR_TYPES:
            if kind is str and len(value) > _MAX_KEY_SIZE:
                return False
            key.append(value)
            continue
        if kind is dict:
            names = sorted(value)
            parts = [value[name] for name in names]
            key += names
        elif (given := getattr(value, "__pydantic_fields_set__", None)) is not None:
            fields = value.__dict__
            if len(given) < len(fields):  # without defaults
                fields = {name: fields[name] for name in fields if name in given}
            parts = fields.values()
            key += fields
        elif kind is not list:
            return False
        key.append(len(parts))
        if len(key) > _MAX_KEY_SIZE or not _add_to_key(key, parts):
            return False
    return True


_write_sorted: Final = JSONEncoder(sort_keys=True, check_circular=False, ensure_ascii=False).encode
"""Writes JSON with sorted keys in half the time that sorting and writing it take."""


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_KEY_SIZE else fingerprint("", text)


def is_same_result(first: ToolResult, second: ToolResult) -> bool:
    """Return True if the model reads the same in both: the same text, before truncation, images and audio data."""
    if (first.full_text_digest or first.text) != (second.full_text_digest or second.text):
        return False
    return [getattr(part, "data", None) for part in first.content] == [
        getattr(part, "data", None) for part in second.content
    ]


def make_max_calls_error(tool: str, max_calls: int) -> LimitExceeded:
    """Return the error for a tool that has used up its calls."""
    return LimitExceeded(tool, f"max_calls of {max_calls} for this tool", "Continue without it.")


@dataclass(slots=True, eq=False, repr=False)
class RepeatedCall:
    """Last result of a call, and the number of times it was repeated."""

    times: int
    result: ToolResult


@dataclass(slots=True, eq=False, repr=False)
class RejectedCalls:
    """Calls that a run rejected: invalid arguments, unknown names. Only hashes are kept, because both may be long."""

    turn: int | None = None
    """Turn of the model, if known. Its calls count once, because the model has not read the error of the first."""
    _times: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reject(self, key: Hashable, error: ToolCallError) -> ToolCallError:
        """Count a call that cannot run. Return its error: with a hint the second time, and then one that ends the run.

        A call that may succeed later, such as one of a server that does not answer, is refused and the run goes on.
        """
        hashed = hash(_spell_numbers(key))
        with self._lock:
            times, turn = self._times.pop(hashed, (0, None))
            times += turn is None or turn != self.turn
            self._times[hashed] = (times, self.turn)
            if len(self._times) > _MAX_REJECTED:
                del self._times[next(iter(self._times))]
        if times < REJECTIONS_BEFORE_END:
            return error
        is_final = isinstance(error, InvalidArguments) or (isinstance(error, UnknownTool) and not error.down)
        if times == REJECTIONS_BEFORE_END:
            return _add_hint(error, is_final=is_final)
        if is_final:
            limit = f"limit of {REJECTIONS_BEFORE_END} identical invalid calls for this run"
            return LimitExceeded(error.tool, limit, END_ADVICE, ends_run=True)
        limit = f"limit of {REJECTIONS_BEFORE_END} identical calls of a tool that is not available"
        return LimitExceeded(error.tool, limit, "Go on without it.")


def _spell_numbers(key: Any) -> Hashable:
    """Return a key with text for its numbers, because different ones have one hash, such as -1 and -2."""
    if isinstance(key, tuple | frozenset):
        return type(key)(map(_spell_numbers, key))
    if type(key) is float:
        return key.hex()
    return hex(key) if type(key) is int else key


def _add_hint(error: ToolCallError, *, is_final: bool) -> ToolCallError:
    """Return a copy of an error, as the calls of a batch share it, with what to change."""
    hinted = copy.copy(error)
    change = "Do not make it again."
    if isinstance(error, UnknownTool) and error.known:
        change = f"Call one of these instead: {', '.join(error.known[:MAX_NAMES_SHOWN])}."
    elif isinstance(error, InvalidArguments) and error.cut_off:
        change = "Send shorter arguments, as one complete JSON object."
    elif isinstance(error, InvalidArguments):
        paths = dict.fromkeys(problem.path for problem in error.problems[:MAX_NAMES_SHOWN])
        change = "Send one valid JSON object." if error.raw is not None else f"Change {', '.join(paths)}."
    end = " If it is made a third time, the run ends." if is_final else ""
    hinted.message = f"{error.message} This is the second time that this call cannot run. {change}{end}"
    hinted.args = (hinted.message,)
    return hinted


@dataclass(slots=True, eq=False, repr=False)
class RunState:
    """Counters and results of one run, shared by every view of the run's toolbox."""

    limits: Limits
    store: ResultStore | None = None
    """Store of the run's long results; None for that of the toolbox."""
    call_counter: Iterator[int] = field(default_factory=itertools.count)
    tool_counters: dict[Hashable, Iterator[int]] = field(default_factory=dict)
    repeats: dict[Hashable, RepeatedCall] = field(default_factory=dict)
    is_program: bool = False
    """True if a program makes the calls, and not a model. It repeats calls on purpose."""
    rejected: RejectedCalls = field(default_factory=RejectedCalls)
    cancellation: Cancellation = field(default_factory=Cancellation)
    deadline: Deadline | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    parent: RunState | None = None
    """Run whose call started this one. Its limit of calls counts for both."""
    path: tuple[str, ...] = ()
    """Names of the calls that started this run, outermost first."""
    signer: Any = None
    """Signer of the outermost run, which decides about the calls of all; None for that of the toolbox."""
    name: str = ""
    """ID of the run; empty until it is needed, except in a chat."""
    owner: RunOwner | None = None
    """Run of a chat that makes the calls, or None if the application makes them."""
    origins: set[str] = field(default_factory=set)
    """Origins of the results so far, except `own`."""
    open_ticket: Callable[..., Coroutine[Any, Any, ToolResult]] | None = None
    """Runs the call of a tool that may go on in the background, or None if such a call is awaited."""
    on_admitted: Callable[[], object] | None = None
    """Called when the call of such a tool is approved and begins."""
    resources: RunResources | None = None
    """Dependencies of the run; None until one is opened."""
    is_exhausted: bool = False
    """True if a call was refused because the run has used up its calls."""

    def __post_init__(self) -> None:
        if (seconds := self.limits.seconds) is not None:
            self.deadline = Deadline(time.monotonic() + seconds, seconds, "run timeout")

    @property
    def id(self) -> str:
        """ID of the run."""
        with self.lock:
            if not self.name:
                self.name = os.urandom(16).hex()
        return self.name

    def find_effect(self, call_id: str) -> str:
        """Return the key of a call in the run of a chat; empty if it has none."""
        return "" if self.owner is None else self.owner.find_effect(call_id)

    def find_origins(self) -> frozenset[str]:
        """Return the origins of the results so far, in this run and in those that lead to it."""
        found = self.origins if self.owner is None else self.origins | self.owner.find_origins()
        return frozenset(found if self.parent is None else found | self.parent.find_origins())

    def admit(self, tool: str, max_calls: int | None, key: Hashable) -> None:
        """Count one call, unless the run is cancelled.

        Raises:
            ToolCancelled: the run is cancelled.
            LimitExceeded: the tool or the run has used up its calls.
        """
        if self.cancellation.cancelled:
            raise ToolCancelled(tool)
        self.count(tool, max_calls, key)

    def count(self, tool: str, max_calls: int | None, key: Hashable) -> None:
        """Count one call of a tool. `key` identifies the tool, which may have several names.

        Raises:
            LimitExceeded: the tool or the run has used up its calls.
        """
        tool_limit = self.limits.per_tool if max_calls is None else max_calls
        # next() is atomic across threads. A refused call also uses up its number.
        if tool_limit is not None:
            counter = self.tool_counters.get(key)
            if counter is None:
                counter = self.tool_counters.setdefault(key, itertools.count())
            if next(counter) >= tool_limit:
                if max_calls is not None:
                    raise make_max_calls_error(tool, max_calls)
                raise LimitExceeded(tool, f"limit of {tool_limit} calls per tool", "Continue without it.")
        run: RunState | None = self
        while run is not None:
            if (limit := run.limits.calls) is not None and next(run.call_counter) >= limit:
                run.is_exhausted = True
                raise LimitExceeded(tool, f"limit of {limit} calls", END_ADVICE, ends_run=True)
            run = run.parent

    def add_delegated(self, calls: int) -> None:
        """Count the calls of a run that a call of this run started in an earlier process."""
        run: RunState | None = self
        while run is not None:
            for _ in range(min(calls, run.limits.calls or 0)):
                next(run.call_counter)
            run = run.parent

    def find_repeat(self, key: Hashable, tool: str) -> ToolResult | None:
        """Return the cached result of a call that was made twice with the same result, or None.

        Raises:
            LimitExceeded: the call was already answered from the cache.
        """
        repeat = self.repeats.get(key)
        if repeat is None or repeat.times < REPEATS_BEFORE_CACHED:
            return None
        with self.lock:
            repeat.times += 1
            if repeat.times > REPEATS_BEFORE_REFUSED:
                raise LimitExceeded(
                    tool, f"limit of {REPEATS_BEFORE_REFUSED} identical calls", "Use the result you already have."
                )
        return repeat.result

    def record_result(self, key: Hashable, result: ToolResult) -> int:
        """Record the result of a call. Return the number of consecutive identical results."""
        with self.lock:
            repeat = self.repeats.get(key)
            if repeat is None or not is_same_result(repeat.result, result):
                self.repeats[key] = RepeatedCall(1, result)
                return 1
            repeat.times += 1
            return repeat.times
