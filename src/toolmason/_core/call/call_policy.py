"""The policy of a toolbox as its tools carry it, and the state that all calls under that policy share."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar

from typing_extensions import override

from toolmason._core.call.approval import ApprovalRule, ApprovalSigner, Approver
from toolmason._core.call.deadlines import DEFAULT_SETTINGS, TimeoutRule
from toolmason._core.call.limits import RateLimiter, SharedRates
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import RenamedTool, Tool
from toolmason._core.run.execute import DeadlinePassed, await_with_timeout
from toolmason._core.run.slots import KeyedLocks, Semaphore
from toolmason._core.values.definition import ApprovalOption, ToolOptions
from toolmason._core.values.policy import (
    INHERIT,
    CarriedPolicy,
    EngineSettings,
    Inherit,
    OnError,
    Rate,
    Retry,
    Timeout,
)
from toolmason._core.values.remote_executor import RemoteExecutor
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ToolTimeout

_T = TypeVar("_T")
NextCall: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
Middleware: TypeAlias = Callable[[ToolCall, NextCall], Awaitable[ToolResult]]


@dataclass(slots=True, eq=False, repr=False)
class SharedState:
    """Counters, slots, locks and middleware that all calls under one policy share."""

    locks: KeyedLocks = field(default_factory=KeyedLocks)
    middleware: list[Middleware] = field(default_factory=list)
    background: set[Callable[[], object]] = field(default_factory=set)
    """Functions that cancel work in the background."""
    rates: SharedRates | None = None
    """Rates that other processes share; None if those of this process are its own."""
    _semaphores: dict[tuple[Hashable, int], Semaphore] = field(default_factory=dict)
    _rate_limiters: dict[tuple[Hashable, Rate], RateLimiter] = field(default_factory=dict)
    _counters: dict[Hashable, Iterator[int]] = field(default_factory=dict)

    def get_semaphore(self, key: Hashable, limit: int) -> Semaphore:
        """Return the semaphore of a tool, or of the whole toolbox for None. A tool has one for each limit."""
        return self._semaphores.setdefault((key, limit), Semaphore(limit))

    def get_rate_limiter(self, key: Hashable, rate: Rate) -> RateLimiter:
        """Return the rate limiter of a tool. It has one for each rate."""
        return self._rate_limiters.setdefault((key, rate), RateLimiter(rate))

    def get_counter(self, key: Hashable) -> Iterator[int]:
        """Return the counter of a tool's calls outside of a run."""
        return self._counters.setdefault(key, itertools.count())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallPolicy(CarriedPolicy):
    """Policy of a toolbox for its calls. `INHERIT` marks what the application did not set."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    context: ToolContext[Any] = field(default_factory=ToolContext)
    timeout: Timeout = INHERIT
    retry: Retry | None = None
    on_error: OnError | Inherit = INHERIT
    rethrow: tuple[type[BaseException], ...] = ()
    approval_rule: ApprovalRule | Inherit = INHERIT
    approver: Approver | None = None
    signer: ApprovalSigner = field(default_factory=ApprovalSigner)
    max_concurrency: int | None = None
    """Maximum number of concurrent calls in the whole toolbox, if set."""
    executor: RemoteExecutor | None = None
    """Runs the tools that do not say where they run."""
    state: SharedState = field(default_factory=SharedState)

    @override
    async def bound(self, name: str, work: Coroutine[Any, Any, _T]) -> _T:
        return await run_in_time(name, (self,), work)


LimitOption: TypeAlias = Literal["max_calls", "max_concurrency", "rate"]
PolicyChain: TypeAlias = tuple[CallPolicy, ...]
"""Policies of the toolboxes that a tool came through, innermost first. The last one belongs to the called toolbox."""

_LIMITS: Final = ("max_timeout", "approval_seconds", "result_bytes", "json_depth", "argument_bytes")


def get_chain(policies: tuple[CarriedPolicy, ...], own: CallPolicy) -> PolicyChain:
    """Return the policies that apply to an item of a toolbox, given those that it carries. Each applies once."""
    # A view of the toolbox has a copy of its policy, with the same state.
    carried = [policy for policy in policies if isinstance(policy, CallPolicy) and policy.state is not own.state]
    return (*carried, own)


def merge_settings(chain: PolicyChain) -> EngineSettings:
    """Return the settings of the called toolbox, with the strictest limits that any toolbox of the chain set."""
    own = chain[-1].settings
    if len(chain) == 1 or all(policy.settings is own for policy in chain):
        return own
    strictest: dict[str, Any] = {}
    for name in _LIMITS:
        default = getattr(DEFAULT_SETTINGS, name)
        values = [value for policy in chain if (value := getattr(policy.settings, name)) != default]
        strictest[name] = min(values) if values else default
    return replace(own, **strictest)


def merge_context(chain: PolicyChain) -> ToolContext[Any]:
    """Return the context of a tool: the values of the innermost toolbox first, then outward."""
    context = chain[-1].context
    for policy in reversed(chain[:-1]):
        context = context.merge(policy.context)
    return context


def _find_layers(tool: Tool, chain: PolicyChain) -> list[tuple[int, Tool]]:
    """Return the layers of a tool, innermost first, each with the index of the toolbox of the chain that made it."""
    layers: list[tuple[int, Tool]] = []
    while isinstance(tool, RenamedTool):
        layers.append((min(len(get_chain(tool.policies, chain[-1])), len(chain)) - 1, tool))
        tool = tool.tool
    return [(0, tool), *reversed(layers)]


def get_options_by_box(tool: Tool, chain: PolicyChain) -> list[ToolOptions]:
    """Return the options of a tool as each toolbox of its chain sees them: without the overrides of outer ones."""
    options: list[ToolOptions] = []
    for index, layer in _find_layers(tool, chain):
        options[index:] = [layer.options] * (len(chain) - index)
    return options


def find_limits(tool: Tool, chain: PolicyChain, option: LimitOption) -> list[tuple[SharedState, Any]]:
    """Return the limits of a tool and of the tools that it overrides, with the state that counts for each.

    The outermost is first: a call that it refuses does not count for the others.
    """
    limits: dict[Any, tuple[SharedState, Any]] = {}
    for index, limit in _find_changes(tool, chain, option):
        if limit is not None and option == "max_calls":  # a toolbox has one counter for the tool, so its lowest holds
            _, lowest = limits.get(index, (None, limit))
            limits[index] = (chain[index].state, min(limit, lowest))
        elif limit is not None:
            limits[index, limit] = (chain[index].state, limit)
    return [*reversed(limits.values())]


def find_approval_rules(tool: Tool, chain: PolicyChain) -> list[tuple[int, ApprovalOption]]:
    """Return the tool's own `approval=` and those of its overrides, innermost first, each with its toolbox."""
    rules: list[tuple[int, ApprovalOption]] = []
    for index, layer in _find_layers(tool, chain):
        rules = (
            layer.change_rules(rules, index) if isinstance(layer, RenamedTool) else [(index, layer.options.approval)]
        )
    return [(index, rule) for index, rule in rules if rule is not False]


def _find_changes(tool: Tool, chain: PolicyChain, option: LimitOption) -> Iterator[tuple[int, Any]]:
    """Yield the value of an option in the innermost layer of a tool, and in those that change it."""
    value = None
    for index, layer in _find_layers(tool, chain):
        if (changed := getattr(layer.options, option)) != value:
            value = changed
            yield index, value


def _get_set_values(options: Sequence[ToolOptions], name: str) -> list[Any]:
    """Return the value that each toolbox sets for one option of a tool. None and `INHERIT` mean that it sets none."""
    values = [getattr(each, name) for each in options]
    return [values[0], *(INHERIT if value == inner else value for inner, value in itertools.pairwise(values))]


def choose_on_error(options: Sequence[ToolOptions], chain: PolicyChain) -> OnError:
    """Return the error policy of a tool: the innermost that was set. `"redact"` anywhere wins over `"message"`."""
    own = _get_set_values(options, "on_error")
    given: list[OnError | Inherit] = [
        rule for pair in zip(own, chain, strict=True) for rule in (pair[0], pair[1].on_error)
    ]
    chosen: list[OnError] = [item for item in given if not isinstance(item, Inherit)]
    first: OnError = chosen[0] if chosen else "message"
    return "redact" if first == "message" and "redact" in chosen else first


def choose_result_bytes(options: Sequence[ToolOptions], chain: PolicyChain) -> int:
    """Return the maximum size of a tool's results: the strictest of its toolboxes, or of those that it has in them."""
    default = DEFAULT_SETTINGS.result_bytes
    sizes: list[int] = []
    for own, policy in zip(_get_set_values(options, "max_result_bytes"), chain, strict=True):
        if isinstance(own, int):
            sizes.append(own)
        elif policy.settings.result_bytes != default:
            sizes.append(policy.settings.result_bytes)
    return min(sizes, default=default)


def choose_retry(tool: Tool, chain: PolicyChain) -> Retry | None:
    """Return the retry policy of a tool: its own, else that of the innermost toolbox that set one.

    The retry policy of a toolbox does not apply to tools whose effects must not be repeated, such as sending an email.
    """
    own = tool.options.retry
    if not isinstance(own, Inherit):
        return own
    if not tool.options.repeatable:
        return None
    return next((policy.retry for policy in chain if policy.retry is not None), None)


def combine_timeouts(chain: PolicyChain, settings: EngineSettings, options: Sequence[ToolOptions] = ()) -> TimeoutRule:
    """Return the time-outs of an item, given its options in each toolbox."""
    per_box = [policy.timeout for policy in chain]
    if options:
        own = _get_set_values(options, "timeout")
        per_box = [outer if isinstance(inner, Inherit) else inner for inner, outer in zip(own, per_box, strict=True)]
    for index, policy in enumerate(chain):
        seconds = policy.settings.call_timeout
        if isinstance(per_box[index], Inherit) and seconds != DEFAULT_SETTINGS.call_timeout:
            per_box[index] = seconds
    return TimeoutRule.combine(per_box, settings.max_timeout)


def get_box_semaphores(chain: PolicyChain) -> list[Semaphore]:
    """Return the slots of the toolboxes that limit their concurrent calls, innermost first."""
    return [
        policy.state.get_semaphore(None, policy.max_concurrency)
        for policy in chain
        if policy.max_concurrency is not None
    ]


async def run_in_time(name: str, chain: PolicyChain, work: Coroutine[Any, Any, _T]) -> _T:
    """Run a prompt or resource in the slots of its toolboxes, until their time-out.

    Raises:
        ToolTimeout: it did not finish in time.
    """
    settings = merge_settings(chain)
    seconds = combine_timeouts(chain, settings).get_seconds(INHERIT)
    work = _hold(get_box_semaphores(chain), work)
    try:
        result: _T = await await_with_timeout(work, seconds, name, settings.cancel_grace)
    except DeadlinePassed:
        raise ToolTimeout(name, seconds or 0.0, retryable=True) from None
    return result


async def _hold(semaphores: list[Semaphore], work: Coroutine[Any, Any, _T]) -> _T:
    acquired: list[Semaphore] = []
    try:
        for semaphore in semaphores:
            await semaphore.acquire()
            acquired.append(semaphore)
        return await work
    finally:
        work.close()
        for semaphore in reversed(acquired):
            semaphore.release()
