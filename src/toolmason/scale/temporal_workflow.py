"""Keep the record of a run in a Temporal workflow, which lets its driver perform each effect as an activity.

The workflow has no logic of a chat. It decides as the SQLite journal does, so its own code seldom changes; a change
that alters its commands is versioned with `workflow.patched`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as ActivityTimeout

from toolmason.scale.temporal_messages import (
    DRIVE,
    RUNS_QUEUE,
    Acquired,
    Acquisition,
    ChildRun,
    DriveRequest,
    EffectDecision,
    EffectState,
    Performance,
    RunFacts,
    RunPage,
    RunView,
    Settlement,
)

HOLD: Final = "hold"
"""Name of the activity that lasts as long as a driver holds the run."""
NOT_STARTED: Final = "NotStarted"
"""Type of the failure of an activity whose work did not start."""
PENDING: Final = "pending"
_ORDERED: Final = "ordered"
"""Name of the change after which a driver is acquired at a timer, and activities are scheduled by the updates."""
_FENCED: Final = "fenced"
"""Name of the change after which an update reads no state that an activity may change in the same task.

The SDK processes an update before the outcomes of activities that it gets together with it. A worker that has the
workflow in its cache gets them one after the other, and a replay gets them together if no command is between them.
"""
PAGE_BYTES: Final = 500_000
_ONE_ATTEMPT: Final = RetryPolicy(maximum_attempts=1)
_MAX_EVENTS: Final = 8000
_MAX_HISTORY_BYTES: Final = 20_000_000
"""Length and size of a history at which a run goes on in another workflow.

The server ends a workflow with 51,200 events or 50 MB, and rejects its 2,001st update; an effect needs one, with at
least five events.
"""
_LEASE_SECONDS: Final = 30.0
"""Lease of a worker that a signal asks to go on with a run that no worker has driven."""
_NO_LIMIT: Final = timedelta(days=3650)
"""The server requires a limit. The framework has its own deadlines, and the heartbeat shows that a driver is lost."""
OPEN_TIME: Final = timedelta(days=365)
"""Time after which Temporal closes a run that was interrupted, or that waits for approval. Its record stays."""
Activity: TypeAlias = "workflow.ActivityHandle[Any]"


def decide(known: EffectState | None, effect: EffectState, *, again: bool) -> EffectDecision:
    """Return what to do about an effect, given its record."""
    if known is None:
        return EffectDecision("start")
    if effect.kind == "tool" and (known.name, known.arguments) != (effect.name, effect.arguments):
        return EffectDecision("changed", known)
    if known.state == "done":
        return EffectDecision("done", known)
    # The tool of the interrupted attempt may have been changed or removed since.
    may_repeat = again or (effect.repeatable and known.repeatable) or known.state in ("waits", "again")
    if not may_repeat:
        return EffectDecision("unknown")
    return EffectDecision("start", known)


@workflow.defn(name="toolmason.run")
class RunWorkflow:
    """Record of one run."""

    @workflow.init
    def __init__(self, previous: str) -> None:
        self.previous = previous
        """ID of the workflow that has the record so far, until it is restored."""
        self.begun = workflow.time()
        self.finish: str | None = None
        self.is_over = False
        """True after the driver has recorded the end, and the run does not wait for approval."""
        self.facts: dict[str, Any] = {}
        self.effects: dict[str, EffectState] = {}
        self.driver: Acquisition | None = None
        """The last driver. Only updates change it, so that another driver fences it, and not the end of its lease."""
        self.is_lost = False
        """True after the lease of the driver has ended: another one may acquire the run, or an operator settle it."""
        self.is_fenced = False
        """False for a run of an earlier version, whose driver the end of its lease removes."""
        self.performed: set[str] = set()
        """Keys of the effects that this driver has started."""
        self.is_retired = False
        """True after the driver has gone on with the run in another workflow."""
        self.is_driven = False
        """True while a worker drives the run, or has to."""
        self.lease = _LEASE_SECONDS
        self.children: list[str] = []
        """IDs of the workflows that are cancelled with this one."""
        self.running: set[str] = set()
        """IDs of the activities whose outcomes are awaited: of this driver, or of the last one."""
        self.tasks: set[asyncio.Task[None]] = set()

    @workflow.run
    async def run(self, previous: str) -> dict[str, Any]:
        """Wait until the run has ended. Return its facts."""
        del previous
        try:
            await workflow.wait_condition(lambda: self.is_over and not self._is_held and not self.is_driven)
        except asyncio.CancelledError:
            self.finish, self.driver = "cancelled", None
            for child in self.children:
                with suppress(ApplicationError):  # it has ended
                    await workflow.get_external_workflow_handle(child).cancel()
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)
        return {"finish": self.finish, **self.facts}

    # --- the driver ----------------------------------------------------------------------------------

    @workflow.update
    async def acquire(self, request: Acquisition) -> Acquired:
        """Let one driver hold the run, if no other one does."""
        self.is_fenced = workflow.patched(_FENCED)
        await _process_events()
        if self.previous:
            return Acquired("empty", previous=self.previous)
        if self.is_retired:
            return Acquired("retired")
        driver, was_held = self.driver, self._is_held
        if driver is not None and was_held and driver.holder != request.dead_holder:
            return Acquired("taken", holder=driver.holder, process=driver.process)
        self.driver, self.is_lost = request, False
        self.performed.clear()
        self._start(lambda: _schedule(HOLD, request.holder, request), partial(self._hold, request))
        if self.running and not was_held:
            # The server may have the outcome of an effect that the workflow has not processed yet.
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: not self.running, timeout=timedelta(seconds=request.lease))
        self.running.clear()  # the activities of a lost driver time out
        return Acquired("held", self.facts)

    async def _hold(self, driver: Acquisition, activity: Activity) -> None:
        with suppress(ActivityError):  # the driver was lost
            await activity
        if self.driver is driver and self.is_fenced:
            self.is_lost = True
        elif self.driver is driver:
            self.driver = None

    def _start(self, schedule: Callable[[], Activity], work: Callable[[Activity], Coroutine[Any, Any, None]]) -> None:
        """Schedule an activity, and process its outcome in a task.

        If the task scheduled it, a replay could fail: it may process two updates in two steps that came in one, so that
        the task of the first would run before the second.
        """
        is_new = workflow.patched(_ORDERED)
        task = asyncio.create_task(work(schedule()) if is_new else _start_later(schedule, work))
        self.tasks.add(task)  # the event loop keeps only weak references
        task.add_done_callback(self.tasks.discard)

    @property
    def _is_held(self) -> bool:
        return self.driver is not None and not self.is_lost

    def _is_held_by(self, holder: str) -> bool:
        return self.driver is not None and self.driver.holder == holder

    @workflow.update
    def release(self, holder: str) -> None:
        """Let other drivers acquire the run. Not the end of the activity, which the workflow may process later."""
        if self._is_held_by(holder):
            self.driver = None

    @workflow.update
    def retire(self, holder: str) -> bool:
        """End this workflow, because the run goes on in another one. Return False if another driver holds the run."""
        if not self._is_held_by(holder):
            return False
        self.driver, self.is_retired, self.is_over = None, True, True
        return True

    @workflow.update
    async def open_child(self, child: ChildRun) -> None:
        """Start the workflow of another run as a child, so that Temporal shows and cancels them together."""
        with suppress(WorkflowAlreadyStartedError):
            handle = await workflow.start_child_workflow(
                RunWorkflow.run,
                "",
                id=child.workflow,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                execution_timeout=OPEN_TIME,
                # This workflow also ends if the run goes on in another one, and while work in the background goes on.
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            )
            handle.add_done_callback(_ignore_outcome)
        if not child.survives:
            self.children.append(child.workflow)

    @workflow.signal
    async def decide(self, decisions: list[dict[str, Any]]) -> None:
        """Let a worker resume the run with signed decisions about the calls that wait for approval.

        For Temporal's own tools and for programs in other languages. It has no answer: a decision that is not valid
        leaves the run pending.
        """
        await workflow.wait_condition(lambda: not self._is_held and not self.is_driven)
        if self.finish == PENDING and self.facts.get("asked"):
            info, message = workflow.info(), self.facts["asked"][0]
            run = info.workflow_id.partition("/")[2]
            queue, conversation = f"{info.task_queue}{RUNS_QUEUE}", self.facts.get("conversation")
            self._let_drive(DriveRequest(run, queue, self.lease, message, conversation, decisions))

    @workflow.update
    async def drive(self, request: DriveRequest) -> bool:
        """Let a worker drive the run. Return False if one does already."""
        await _process_events()
        return self._let_drive(request)

    def _let_drive(self, request: DriveRequest) -> bool:
        if self.is_driven or self._is_held:
            return False
        self.is_driven, self.lease = True, request.lease
        self.facts.pop("error", None)
        self._start(lambda: _schedule_drive(request), self._drive)
        return True

    async def _drive(self, activity: Activity) -> None:
        try:
            await activity
        except ActivityError as error:
            self.facts = {**self.facts, "error": str(error.cause)}
        self.is_driven = False

    @workflow.update
    def restore(self, page: RunPage) -> None:
        """Restore a part of the record from the workflow that ended."""
        if not self.previous:
            return
        self.effects.update({effect.key: effect for effect in page.effects})
        if page.view is not None:
            self.begun, self.finish, self.facts = page.view.begun, page.view.finish, page.view.facts
        if page.next is None:
            self.previous = ""

    @workflow.update
    def record(self, request: RunFacts) -> bool:
        """Record facts and the end of the run. Return False if another driver holds it."""
        if not self._is_held_by(request.holder):
            return False
        self.facts, self.finish = {**self.facts, **request.facts}, request.finish
        self.is_over = request.finish not in (None, PENDING)
        return True

    # --- effects -------------------------------------------------------------------------------------

    @workflow.update
    async def perform(self, request: Performance) -> EffectDecision:
        """Decide about an effect and, if it has to be performed, let the driver do it in an activity."""
        if request.effect.key in self.performed:
            await _process_events()
        if self.driver is None or not self._is_held_by(request.holder):
            return EffectDecision("taken")
        effect = request.effect
        known = self.effects.get(effect.key)
        decision = decide(known, effect, again=request.again)
        if decision.state == "start":
            attempt = 1 if known is None else known.attempt + (known.state != "waits")
            self.effects[effect.key] = replace(effect, attempt=attempt, at=workflow.time())
            self.running.add(request.activity)
            if self.is_fenced:
                self.performed.add(effect.key)
            driver, name = self.driver, f"{effect.kind} {effect.name}"
            self._start(
                lambda: _schedule(name, request.activity, driver, effect.arguments),
                partial(self._perform, request, known),
            )
            decision = replace(decision, is_full=_is_full())
        return decision

    async def _perform(self, request: Performance, before: EffectState | None, activity: Activity) -> None:
        effect = request.effect
        try:
            outcome = await activity
        except ActivityError as error:
            if request.activity not in self.running:
                return
            if _is_not_started(error.cause) and before is not None:
                self.effects[effect.key] = before
            elif _is_not_started(error.cause):
                del self.effects[effect.key]
        else:
            if request.activity not in self.running:
                return
            self._settle(effect.key, "waits" if outcome is None else "done", outcome)
        self.running.remove(request.activity)

    def _settle(self, key: str, state: str, outcome: Any) -> None:
        self.effects[key] = replace(self.effects[key], state=state, outcome=outcome, ended=workflow.time())

    @workflow.update
    async def settle(self, request: Settlement) -> str | None:
        """Set the outcome of an interrupted effect. Return its state, or None if the run is held by another driver.

        The driver may set it, or an operator if no driver holds the run.
        """
        is_operator = not request.holder
        if request.key in self.performed or (is_operator and self.is_fenced):
            await _process_events()
        effect = self.effects.get(request.key)
        if self._is_held if is_operator else not self._is_held_by(request.holder):
            return None
        if effect is None:
            return ""
        if is_operator and effect.state != "started":
            return effect.state
        self._settle(request.key, request.state, request.outcome)
        return "started"

    # --- queries -------------------------------------------------------------------------------------

    @workflow.query
    def view(self) -> RunView:
        """Return the record of the run without its effects."""
        return RunView(self.begun, self.finish, len(self.effects), self._is_held, self.facts, self.previous)

    @workflow.query
    def page(self, start: int) -> RunPage:
        """Return the effects from an index on, as many as fit into one payload."""
        found: list[EffectState] = []
        size = 0
        for effect in list(self.effects.values())[start:]:
            size += len(json.dumps([effect.arguments, effect.outcome]))
            if found and size > PAGE_BYTES:
                return RunPage(found, start + len(found))
            found.append(effect)
        return RunPage(found)


async def _process_events() -> None:
    """Process the events before an update, such as the loss of the last driver.

    A worker that has not cached the workflow may process an update before them, and a replay after them. A timer has
    one place among the events.
    """
    if workflow.patched(_ORDERED):
        await workflow.sleep(0.001)


async def _start_later(schedule: Callable[[], Activity], work: Callable[[Activity], Coroutine[Any, Any, None]]) -> None:
    """Schedule an activity and process its outcome, as runs of an earlier version did."""
    await work(schedule())


def _schedule_drive(request: DriveRequest) -> Activity:
    """Let a worker drive the run. The next one executes it again, so that each effect is repeated only if it may be."""
    lease = timedelta(seconds=request.lease)
    return workflow.start_activity(
        DRIVE,
        request,
        task_queue=request.queue,
        start_to_close_timeout=_NO_LIMIT,
        heartbeat_timeout=lease,
        retry_policy=RetryPolicy(maximum_interval=lease),
    )


def _schedule(name: str, activity_id: str, driver: Acquisition, *arguments: dict[str, Any]) -> Activity:
    """Let a driver execute an activity, once."""
    lease = timedelta(seconds=driver.lease)
    return workflow.start_activity(
        name,
        args=arguments,
        activity_id=activity_id,
        task_queue=driver.queue,
        start_to_close_timeout=_NO_LIMIT,
        schedule_to_start_timeout=lease,
        heartbeat_timeout=lease,
        retry_policy=_ONE_ATTEMPT,
    )


def _ignore_outcome(child: asyncio.Task[Any]) -> None:
    """Read the error of a child, which asyncio would log otherwise. The driver of the child reports it."""
    if not child.cancelled():
        child.exception()


def _is_full() -> bool:
    info = workflow.info()
    return info.get_current_history_length() > _MAX_EVENTS or info.get_current_history_size() > _MAX_HISTORY_BYTES


def _is_not_started(cause: BaseException | None) -> bool:
    if isinstance(cause, ActivityTimeout):
        return cause.type == TimeoutType.SCHEDULE_TO_START
    return isinstance(cause, ApplicationError) and cause.type == NOT_STARTED
