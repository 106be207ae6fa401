"""Define what the parts of a run share: its inputs, its budgets, and the call that started it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toolmason._core.call.approval import Decision
from toolmason._core.define.context import ToolContext
from toolmason._core.run.progress import OnProgress
from toolmason._core.toolbox.exchange import ModelReply, ModelRequest, Usage
from toolmason._core.toolbox.toolbox import RunToolbox, get_state
from toolmason._core.values.call_state import CallState
from toolmason._core.values.definition import ToolOptions
from toolmason._core.values.policy import Limits, Strategy
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.answers import AnswerRun
from toolmason.chat.budget import Budget
from toolmason.chat.durable.effects import Reconciler, RunExecution, Runtime, make_reconciler
from toolmason.chat.events import CallProgress, Delegated, Event
from toolmason.chat.memory import Memory
from toolmason.chat.reply import Reply
from toolmason.chat.run.spending import Prices, Spending
from toolmason.chat.run.ticket_store import TicketStore
from toolmason.chat.tools import RequestTools
from toolmason.errors import ToolError
from toolmason.models.protocol import Model

MAX_DELEGATION_DEPTH: Final = 8
"""Maximum number of chats that call each other as tools."""
ExecuteRule = bool | Callable[[ModelRequest, ModelReply], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """Budget of a run, for the user and the conversation of the run."""

    budget: Budget
    context: ToolContext[Any] | None
    conversation: str | None

    async def find_limit(self) -> str:
        """Return the limit that is used up, or an empty string."""
        return await self.budget.find_limit(self.context, self.conversation)

    async def add(self, usage: Usage, cost: float | None) -> None:
        """Count one request."""
        await self.budget.add(self.context, self.conversation, usage, cost)


def share_budget(
    budget: Budget | None, context: ToolContext[Any] | None, conversation: str | None, caller: RunPlan | None
) -> tuple[SharedBudget, ...]:
    """Return the budgets of a run: those of the run that called it, and that of its chat."""
    outer = () if caller is None else caller.budgets
    if budget is None or any(each.budget is budget for each in outer):
        return outer
    return (*outer, SharedBudget(budget, context, conversation))


@dataclass(frozen=True, slots=True, eq=False)
class ResumedChat:
    """Reply of a chat that was called as a tool and waited, with the decisions and results for it."""

    reply: Reply[Any]
    decisions: Sequence[Decision] = ()
    results: tuple[ToolResult, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class RunPlan:
    """Inputs of a run, and what its parts share."""

    model: Model
    box: RunToolbox
    context: ToolContext[Any] | None
    limits: Limits
    strategy: Strategy
    execute: ExecuteRule
    history: bool
    memory: Memory | None
    conversation: str | None
    emit: Callable[[Event], None] | None
    run_id: str
    request_tools: RequestTools
    """Source of the tools, which may change during the run."""
    chat: Any
    """Chat that the run belongs to."""
    spending: Spending
    runtime: Runtime | None = None
    budgets: tuple[SharedBudget, ...] = ()
    """Budgets that the run shares with others."""
    answer: AnswerRun | None = None
    """Typed answer of the run, or None if its answer is text."""
    delegated: DelegatedCall | None = None
    """Call of another run that started this one, or None."""
    execution: RunExecution | None = None
    """Record of the effects, or None if the runtime records nothing."""

    on_length: str = "stop"
    """`continue` to ask for the rest of an answer that the token limit cut off."""
    ticket_store: TicketStore = field(default_factory=TicketStore)
    """Tickets of the chat."""
    tickets: Any = None
    """Tickets of the run, or None while it has none."""

    started: float = field(default_factory=time.monotonic)
    call_ids: set[str] = field(default_factory=set)
    """IDs of the calls in the conversation."""
    answered: dict[str, Reply[Any]] = field(default_factory=dict)
    """Replies of the chats that were called as tools, by the ID of the call, until their results are complete."""
    waiting: dict[str, Reply[Any]] = field(default_factory=dict)
    """Replies of such chats that wait for approval."""
    resumed: dict[str, ResumedChat] = field(default_factory=dict)
    """Replies of such chats that waited, and what was decided on them."""

    @property
    def on_progress(self) -> OnProgress | None:
        """Function that takes the progress of calls, or None without a reader."""
        emit = self.emit
        return None if emit is None else (lambda report: emit(CallProgress(report)))

    def get_remaining_seconds(self) -> float | None:
        """Return the seconds that the run has left, or None if it has no limit."""
        seconds = self.limits.seconds
        return None if seconds is None else max(0.0, seconds - (time.monotonic() - self.started))

    def make_reconciler(self, call: ToolCall, options: ToolOptions | None) -> Reconciler | None:
        """Return the function that finds out what became of an interrupted call, or None if its tool has none."""
        if options is None or options.reconcile is None:
            return None
        state = CallState(call, run=get_state(self.box).run)
        return make_reconciler(call, options.reconcile, (self.context or ToolContext[Any]()).for_call(state))

    @property
    def has_cost_limit(self) -> bool:
        """True if the run, or a budget that it shares, has a limit of cost."""
        return self.limits.cost is not None or any(getattr(each.budget, "needs_price", False) for each in self.budgets)


@dataclass(frozen=True, slots=True, eq=False)
class DelegatedCall:
    """Call of a chat as a tool, from a run."""

    name: str
    call_id: str
    caller: RunPlan
    """Run that makes the call."""
    resumed: ResumedChat | None = None
    """Reply that waited, if the call is resumed."""
    is_counted: bool = False
    """True if the calling run has counted the calls that the reply has."""

    @property
    def run_id(self) -> str:
        """ID of the run of the chat. A call that is executed again has the same."""
        return f"{self.caller.run_id}/{self.call_id}"

    @property
    def conversation(self) -> str:
        """Conversation in the memory of the chat."""
        return f"{self.caller.conversation or self.caller.run_id}/{self.name}"

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the calls that lead to the run of the chat."""
        above = self.caller.delegated
        return (self.name,) if above is None else (*above.path, self.name)

    @property
    def emit(self) -> Callable[[Event], None] | None:
        """Function that takes the events of the run of the chat, or None without a reader."""
        if (emit := self.caller.emit) is None:
            return None
        name, run_id = self.name, self.run_id

        def emit_delegated(event: Event) -> None:
            if isinstance(event, Delegated):
                emit(replace(event, path=(name, *event.path)))
            else:
                emit(Delegated((name,), run_id, event))

        return emit_delegated

    def check(self, chat: Any, price: Prices | None) -> None:
        """Refuse a call that leads back to the same chat, or too deep.

        Raises:
            ToolError: the call must not run.
        """
        path = self.path
        if len(path) > MAX_DELEGATION_DEPTH:
            raise ToolError(
                f"{' / '.join(path)}: more than {MAX_DELEGATION_DEPTH} chats call each other. Answer without this tool."
            )
        plan: RunPlan | None = self.caller
        while plan is not None:
            if plan.chat is chat:
                raise ToolError(
                    f"{' / '.join(path)}: this chat is already running above this call. Answer without this tool."
                )
            if price is None and plan.has_cost_limit:
                raise ToolError(
                    f"{self.name}: the run has a limit of cost, but this chat has no price. Answer without this tool."
                )
            plan = None if plan.delegated is None else plan.delegated.caller

    def connect(self, box: RunToolbox) -> None:
        """Let the run of the chat count its calls in the calling run, and wait for the same decisions."""
        state, caller = get_state(box).run, get_state(self.caller.box)
        assert state is not None  # noqa: S101 - the toolbox of a run
        assert caller.run is not None  # noqa: S101 - as above
        state.parent, state.path = caller.run, self.path
        state.signer = caller.calls.signer if caller.run.signer is None else caller.run.signer

    def get_limits(self, limits: Limits) -> Limits:
        """Return the limits of the run of the chat: its own, and at most the time that the calling run has left."""
        remaining = self.caller.get_remaining_seconds()
        if remaining is None or (limits.seconds is not None and limits.seconds <= remaining):
            return limits
        return replace(limits, seconds=remaining)


CURRENT_RUN: Final[ContextVar[RunPlan | None]] = ContextVar("toolmason_current_run", default=None)
"""Run that the current task belongs to."""
