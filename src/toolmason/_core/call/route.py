"""Combine a tool and the policies of the toolboxes that it came through into one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Hashable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypeAlias

from toolmason._core.arguments.bind import Bound, make_binder
from toolmason._core.arguments.key_counts import make_key_counts
from toolmason._core.call.approval import Approver, Decision, rule_requires_approval
from toolmason._core.call.call_policy import (
    Middleware,
    PolicyChain,
    SharedState,
    choose_on_error,
    choose_result_bytes,
    choose_retry,
    combine_timeouts,
    find_approval_rules,
    find_limits,
    get_box_semaphores,
    get_options_by_box,
    merge_context,
    merge_settings,
)
from toolmason._core.call.deadlines import Deadline, TimeoutRule
from toolmason._core.call.limits import RunState
from toolmason._core.call.long_results import ResultStore
from toolmason._core.call.render import Renderer, Writer, make_renderer, make_writer
from toolmason._core.define.context import ContextLike, ToolContext, get_trace_options, make_context
from toolmason._core.define.schema_nodes import find_secret_names
from toolmason._core.define.tool import CompiledTool, Tool, compile_tool, get_limit_key, get_root
from toolmason._core.run.dependencies import add_dependencies, has_dependencies
from toolmason._core.run.metrics import is_metering, measure
from toolmason._core.run.progress import OnProgress
from toolmason._core.run.slots import Semaphore
from toolmason._core.values.definition import ApprovalOption
from toolmason._core.values.policy import (
    INHERIT,
    EngineSettings,
    Inherit,
    OnError,
    Rate,
    Retry,
    RunsOn,
    Timeout,
    TraceOptions,
    check_retry,
    check_timeout,
)
from toolmason._core.values.results import OWN, WEB, Arguments, ToolResult


@dataclass(slots=True, eq=False, repr=False)
class CallOptions:
    """Options of one call besides its arguments."""

    context: ToolContext[Any] | None = None
    timeout: Timeout = INHERIT
    retry: Retry | Inherit | None = INHERIT
    deadline: Deadline | None = None
    """End of the batch that the call belongs to."""
    on_progress: OnProgress | None = None
    run: RunState | None = None
    """Run that the call belongs to."""
    decision: Decision | None = None
    """Decision that resumes the call."""
    is_repeated: bool = False
    """True if middleware makes the call once more, so that it is not the model that repeats it."""

    @classmethod
    def parse(
        cls,
        context: ContextLike,
        timeout: Timeout,
        retry: Retry | Inherit | None,
        on_progress: OnProgress | None,
        run: RunState | None,
    ) -> CallOptions:
        """Return the options that an application gives, after validating them.

        Raises:
            DefinitionError: a value has the wrong type or range.
        """
        if timeout is not INHERIT:
            check_timeout(timeout)
        if retry is not INHERIT:
            check_retry(retry)
        return cls(make_context(context), timeout, retry, None, on_progress, run)

    def with_deadline(self, deadline: Deadline | None) -> CallOptions:
        """Return the options of one call in a batch."""
        return CallOptions(self.context, self.timeout, self.retry, deadline, self.on_progress, self.run)


CallRunner: TypeAlias = Callable[[str | None, Arguments, CallOptions], Coroutine[Any, Any, ToolResult]]
"""Runs a call, given its ID, arguments and options. Without an ID, the call gets one when it is needed."""


class HookLists(tuple[list[Middleware], ...]):
    """Middleware of several toolboxes; the lists may grow."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return any(self)


@dataclass(slots=True, eq=False, repr=False)
class Route:
    """One tool of a toolbox, with everything that does not depend on the call."""

    tool: Tool
    compiled: CompiledTool
    root: Tool
    """The original tool, behind any renaming."""
    limit_key: Hashable
    """Key of the tool in limits and locks."""
    repeat_key: Hashable
    """Key of the tool in its run's record of repeated calls. Views that change the name or arguments have others."""
    name: str
    chain: PolicyChain
    settings: EngineSettings
    context: ToolContext[Any]
    timeouts: TimeoutRule
    timeout: float | None
    """Seconds of one attempt, if the call sets none."""
    retry: Retry | None
    on_error: OnError
    rethrow: tuple[type[BaseException], ...]
    runs_on: RunsOn
    bind: Callable[[Arguments], Bound]
    """Converts raw arguments to values."""
    write: Writer
    """Returns the text of the usual return values, or None."""
    render: Renderer
    """Converts any other return value to a result."""
    max_result_bytes: int
    store: ResultStore
    """Store of long results, outside of a run."""
    semaphores: tuple[Semaphore, ...]
    """Slots that a call holds while it runs: of the tool, then of each toolbox, innermost first."""
    middleware: tuple[list[Middleware], ...]
    """Middleware of each toolbox, outermost first. The lists may grow."""
    hooks: Collection[Any]
    """Truthy if there is any middleware, or a meter provider. Of one toolbox, the list itself."""
    has_ordered_values: bool
    """True if the bound values are always in the order of the parameters."""
    shows_keys: bool
    """True if the bound values show the keys of all arguments."""
    trace: TraceOptions
    """Options of the spans. The log shows arguments and results if the spans do."""
    opens_tickets: bool
    """True if the work of a call may go on in the background."""
    max_calls: tuple[tuple[SharedState, int], ...]
    """Limits of the calls outside of a run, of the tool and of its overrides, each with the state that counts."""
    rates: tuple[tuple[SharedState, Rate], ...]
    """The same for rates."""
    approval_steps: tuple[ApprovalStep, ...]
    """Rules that may require approval of a direct call by the application, innermost first."""
    run_approval_steps: tuple[ApprovalStep, ...]
    """The same of a call within a run."""
    runner: CallRunner = field(init=False)
    """Runs a call through every step inside the middleware."""
    run_runner: CallRunner = field(init=False)
    """The same within a run."""
    full_runner: CallRunner = field(init=False)
    """The same with every step, for a call with a decision."""

    def get_approval_steps(self, *, in_run: bool) -> tuple[ApprovalStep, ...]:
        """Return the rules that may require approval of a call, innermost first."""
        return self.run_approval_steps if in_run else self.approval_steps

    @property
    def is_direct(self) -> bool:
        """True if a call needs no more than to bind the arguments, run the tool once and render its value."""
        if self.runs_on not in ("loop", "thread") or self.retry is not None:
            return False
        return self.compiled.on_arguments is None and self.compiled.renderer is None

    @property
    def plain_function(self) -> Callable[..., Any] | None:
        """Function of the tool, if it can be called directly with the values: no injected values, no retry."""
        return self.compiled.plain_function if self.is_direct else None


def make_route(tool: Tool, chain: PolicyChain, store: ResultStore) -> Route:
    """Return the route of a tool, without its runners."""
    options, compiled, root, limit_key = tool.options, compile_tool(tool), get_root(tool), get_limit_key(tool)
    is_original = tool.name == root.name and compiled.inputs.view is None
    settings, context = merge_settings(chain), merge_context(chain)
    options_by_box = get_options_by_box(tool, chain)
    timeouts = combine_timeouts(chain, settings, options_by_box)
    counts = make_key_counts(compiled.inputs)
    runs_on = _choose_place(options.runs_on, compiled, chain)
    if has_dependencies(compiled):
        compiled, runs_on = add_dependencies(compiled, runs_on, settings)
    return Route(
        tool=tool,
        compiled=compiled,
        root=root,
        limit_key=limit_key,
        repeat_key=limit_key if is_original else (limit_key, tool.name, compiled.inputs.view),
        name=tool.name,
        chain=chain,
        settings=settings,
        context=context,
        timeouts=timeouts,
        timeout=timeouts.get_seconds(INHERIT),
        retry=choose_retry(tool, chain),
        on_error=choose_on_error(options_by_box, chain),
        rethrow=tuple(kind for policy in chain for kind in policy.rethrow),
        runs_on=runs_on,
        bind=make_binder(compiled.inputs, tool.name, settings, counts),
        write=make_writer(tool),
        render=make_renderer(tool),
        max_result_bytes=choose_result_bytes(options_by_box, chain),
        store=store,
        semaphores=_get_semaphores(tool, chain),
        middleware=tuple(policy.state.middleware for policy in reversed(chain)),
        hooks=_find_hooks(chain),
        has_ordered_values=compiled.function is not None
        and not compiled.accepts_extra
        and compiled.on_arguments is None,
        shows_keys=counts is not None,
        trace=_make_trace_options(tool, context),
        opens_tickets=options.may_open_ticket,
        max_calls=tuple(find_limits(tool, chain, "max_calls")),
        rates=tuple(find_limits(tool, chain, "rate")),
        approval_steps=_find_approval_steps(tool, chain, in_run=False),
        run_approval_steps=_find_approval_steps(tool, chain, in_run=True),
    )


def _choose_place(wanted: RunsOn | None, compiled: CompiledTool, chain: PolicyChain) -> RunsOn:
    """Return the place of a tool: its own option, or else the innermost executor of its toolboxes, or this process."""
    if wanted is not None and wanted != "ray":
        return wanted
    found = [policy.executor for policy in chain if policy.executor is not None]
    if wanted == "ray":
        matching = [executor for executor in found if executor.kind == wanted]
        # By name: the core must not know the packages that stand on it.
        return matching[0] if matching else import_module("toolmason.scale.ray_executor").get_ray_executor()
    if found and compiled.function is not None:
        return found[0]
    return "thread" if compiled.kind == "sync" else "loop"


def _find_hooks(chain: PolicyChain) -> Collection[Any]:
    if is_metering():
        return (measure,)  # without a tracer provider, a call that has no hooks is not looked at
    if len(chain) == 1:
        return chain[0].state.middleware
    return HookLists(policy.state.middleware for policy in chain)


def _make_trace_options(tool: Tool, context: ToolContext[Any]) -> TraceOptions:
    found = get_trace_options(context, tool.options.record)
    if not found.has_content:
        return found
    return replace(found, secret_names=find_secret_names(tool.definition.input_schema))


def get_result_origin(tool: Tool) -> str:
    """Return the origin of a tool's results."""
    if tool.options.open_world:
        return WEB
    root: Any = get_root(tool)
    return f"server:{root.server}" if hasattr(root, "remote_name") else OWN


def _get_semaphores(tool: Tool, chain: PolicyChain) -> tuple[Semaphore, ...]:
    found = reversed(find_limits(tool, chain, "max_concurrency"))
    of_tool = [state.get_semaphore(get_limit_key(tool), limit) for state, limit in found]
    return (*of_tool, *get_box_semaphores(chain))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ApprovalStep:
    """A rule that requires approval, and the approver that answers it; None if the application decides later."""

    approver: Approver | None
    is_outermost: bool
    """True if the rule is answered by the called toolbox, so that a decision replaces its approver."""
    position: int
    """Place of the toolbox of the approver, counted from the innermost one."""
    predicate: ApprovalOption | None = None
    """The `approval=` of the tool or of an override, if it decides whether the rule applies."""
    get_distrust: Callable[[], str] | None = None
    """Returns why the tool is not trusted, if that is the rule; an empty string if it is trusted meanwhile."""

    @property
    def is_void(self) -> bool:
        """True if the tool has become trusted, so that the rule does not apply."""
        return self.get_distrust is not None and not self.get_distrust()


def _find_approval_steps(tool: Tool, chain: PolicyChain, *, in_run: bool) -> tuple[ApprovalStep, ...]:
    """Return the rules that may require approval of a tool's calls, innermost first.

    If no toolbox sets a rule, destructive calls of a model need approval within a run. Direct calls by the application
    need none. Calls of a tool that is not trusted need it as well, unless the toolbox of its server says
    `approve=None`.
    """
    steps: list[ApprovalStep] = []
    options = get_options_by_box(tool, chain)
    if in_run and (get_distrust := find_distrust(tool, chain)) is not None:
        steps.append(replace(_make_step(chain, 0), get_distrust=get_distrust))
    steps += [_make_step(chain, index, rule) for index, rule in find_approval_rules(tool, chain)]
    is_any_set = any(not isinstance(policy.approval_rule, Inherit) for policy in chain)
    for index, policy in enumerate(chain):
        rule = policy.approval_rule
        if isinstance(rule, Inherit):
            rule = "destructive" if in_run and not is_any_set and index == len(chain) - 1 else None
        # What a toolbox asks about, the override of an outer one does not waive.
        if any(rule_requires_approval(rule, each) for each in options[index:]):
            steps.append(_make_step(chain, index))
    return tuple(steps)


def find_distrust(tool: Tool, chain: PolicyChain) -> Callable[[], str] | None:
    """Return the function that tells why a run must ask before it calls a tool. None if the tool is trusted.

    Only the toolbox that has the server may waive the rule: one around it adds rules, and removes none.
    """
    is_waived = get_options_by_box(tool, chain)[0].skip_permission or chain[0].approval_rule is None
    return None if is_waived else compile_tool(tool).get_distrust


def _make_step(chain: PolicyChain, index: int, predicate: ApprovalOption | None = None) -> ApprovalStep:
    approvers = [policy.approver for policy in chain[index:]]
    position = next((number for number, item in enumerate(approvers) if item is not None), len(approvers) - 1)
    return ApprovalStep(approvers[position], position == len(approvers) - 1, index + position, predicate)
