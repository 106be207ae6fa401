"""Execute one run whose record is in a Temporal workflow.

The methods of `RunExecution` are called in the loop of the caller, which also performs the effects. Requests to the
server run in the thread of the connection.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from temporalio.client import AsyncActivityHandle, Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import open_span
from toolmason.chat.durable.effects import (
    FactsProvider,
    NotExecuted,
    OutcomeSerializer,
    Reconciler,
    RunEffect,
    Work,
)
from toolmason.chat.durable.process_identity import get_process_identity, is_dead
from toolmason.errors import ConfigError, RunTaken, UnknownOutcome
from toolmason.scale.temporal_connection import QUERY_SECONDS, Arrival, NotFound, TemporalConnection
from toolmason.scale.temporal_messages import (
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
    get_workflow_id,
)
from toolmason.scale.temporal_values import LargeValues
from toolmason.scale.temporal_workflow import NOT_STARTED, OPEN_TIME, RunWorkflow, decide

_MAX_UPDATES: Final = 8
"""Updates of one workflow at a time. Temporal rejects more than 10."""
_CURRENT: Final[ContextVar[TemporalExecution | None]] = ContextVar("toolmason_temporal_run", default=None)
"""Run whose code runs here. The runs that it executes are its children."""
_CLOSED: Final = (
    WorkflowExecutionStatus.CANCELED,
    WorkflowExecutionStatus.TERMINATED,
    WorkflowExecutionStatus.TIMED_OUT,
)


class TemporalExecution:
    """One execution of a run."""

    def __init__(self, connection: TemporalConnection, run: str, values: LargeValues) -> None:
        self.connection, self.run, self.values = connection, run, values
        self.holder = uuid.uuid4().hex
        self.workflow_id = get_workflow_id(run, 1)
        self.generation = 1
        self.facts: dict[str, Any] = {}
        self.finish: str | None = None
        self.hold: AsyncActivityHandle | None = None
        self.ended: dict[str, EffectState] | None = None
        """Effects of a run whose workflow has ended. It is opened again only if there is something to record."""
        parent = _CURRENT.get()
        self.parent = parent if parent is not None and parent.connection is connection else None
        self._updates = asyncio.Semaphore(_MAX_UPDATES)
        self._reopening = asyncio.Lock()
        self._active = 0
        """Number of effects in progress, which this workflow has to record."""
        self._is_full = False
        """True if the run has to go on in another workflow."""

    # --- the run, called in the caller's loop --------------------------------------------------------

    async def begin(self, facts: FactsProvider) -> Mapping[str, Any] | None:
        """Record the facts of a new run. Return the recorded facts if the run was started before."""
        if "asked" in self.facts:
            known = dict(self.facts)
            if self.ended is None:
                await self._record({}, None)
            return known
        await self._record(dict(facts()), None)
        return None

    async def end(self, finish: str, facts: FactsProvider) -> None:
        """Record the end of a run. A run that has ended is not opened again to record the same end."""
        new = _to_json(dict(facts()))
        if self.ended is None or self.finish != finish or {**self.facts, **new} != self.facts:
            await self._record(new, finish)

    @contextmanager
    def as_parent(self) -> Generator[None]:
        """Make this run the parent of the runs that its code executes."""
        before = _CURRENT.get()
        _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.set(before)  # not `reset`: a generator may be closed in another context

    async def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Any:
        """Return the outcome of an effect, from the workflow or by performing it.

        Raises:
            UnknownOutcome: the effect was started before, its outcome is unknown, and it must not be repeated.
        """
        arguments = await self._pack(f"The arguments of {effect.name!r}", _to_json(dict(effect.arguments)))
        state = EffectState(effect.key, effect.kind, effect.name, arguments, effect.repeatable)
        names = {"toolmason.run.id": self.run, "toolmason.effect.key": effect.key}
        if self._is_full and not self._active:
            await self.connection.run(self._move)
        with open_span(f"effect {effect.name}", names) as span, self._count():
            decision, activity = await self._start(state)
            if decision.state == "unknown":
                decision, activity = await self._reconcile(state, serializer, reconciler)
            if span is not None:
                span.set({"toolmason.effect.replayed": activity is None})
            if activity is not None:
                self._is_full = self._is_full or decision.is_full
                return await self._work(state, activity, work, serializer)
            measure("toolmason.cache.hits", 1, {"toolmason.cache": "temporal"})
            return await self._read_outcome(decision, state, serializer)

    async def _reconcile(
        self, effect: EffectState, serializer: OutcomeSerializer, reconciler: Reconciler | None
    ) -> tuple[EffectDecision, AsyncActivityHandle | None]:
        """Determine the outcome of an interrupted effect that must not be repeated."""
        answer = None if reconciler is None else await reconciler()
        if isinstance(answer, NotExecuted):
            return await self._start(effect, again=True)
        if answer is None:
            await self._settle(Settlement(self.holder, effect.key, "unknown"))
            raise UnknownOutcome(effect.name, effect.key)
        outcome = _to_json(serializer.dump(answer.value))
        await self._settle(Settlement(self.holder, effect.key, "done", outcome))
        return EffectDecision("done", replace(effect, outcome=outcome)), None

    async def _work(
        self, effect: EffectState, activity: AsyncActivityHandle, work: Work, serializer: OutcomeSerializer
    ) -> Any:
        """Perform an effect, and complete its activity with the outcome."""
        try:
            outcome = await work()
            data = {"arguments": effect.arguments, "outcome": _to_json(serializer.dump(outcome))}
            dumped = (await self._pack(f"The outcome of {effect.name!r}", data))["outcome"]
        except BaseException:
            # It may have had an effect: the workflow keeps it as interrupted.
            self.connection.fail_later(activity, "Interrupted")
            raise
        if not await self.connection.run(lambda: self._complete(effect.key, activity, dumped)):
            raise await self.connection.run(self._make_loss)
        return outcome

    @contextmanager
    def _count(self) -> Generator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    async def _pack(self, what: str, data: dict[str, Any]) -> dict[str, Any]:
        return await self.values.pack(what, self.run, data)

    async def _read_outcome(self, decision: EffectDecision, effect: EffectState, serializer: OutcomeSerializer) -> Any:
        known = decision.known
        if decision.state == "done" and known is not None:
            return serializer.load(await self.values.unpack(known.outcome))
        if decision.state == "changed" and known is not None:
            raise ConfigError(
                f"Run {self.run!r} made another call at {effect.key!r} before: {known.name} "
                f"{json.dumps(known.arguments)}. Its code, tools or messages have changed. Start another run."
            )
        raise await self.connection.run(self._make_loss)

    async def _start(
        self, effect: EffectState, *, again: bool = False
    ) -> tuple[EffectDecision, AsyncActivityHandle | None]:
        if self.ended is not None:
            decision = decide(self.ended.get(effect.key), effect, again=again)
            if decision.state in ("done", "changed"):
                return decision, None
        fail = self.connection.fail_later
        return await self.connection.run(
            lambda: self._request(effect, again=again), lambda done: done[1] and fail(done[1], NOT_STARTED)
        )

    async def _record(self, facts: dict[str, Any], finish: str | None) -> None:
        new = {**self.facts, **_to_json(facts)}
        packed = await self._pack("The messages and facts", new)
        changed = {key: value for key, value in packed.items() if key in facts or value is not self.facts.get(key)}
        request = RunFacts(self.holder, changed, finish)
        if not await self.connection.run(lambda: self._update(RunWorkflow.record, request)):
            raise await self.connection.run(self._make_loss)
        self.facts, self.finish = new, finish

    async def _settle(self, settlement: Settlement) -> None:
        if await self.connection.run(lambda: self._update(RunWorkflow.settle, settlement)) is None:
            raise RunTaken(self.run, 0.0)

    # --- requests, in the thread of the connection ---------------------------------------------------

    async def find(self) -> bool:
        """Find the latest workflow of the run. Return False if it has none."""
        generation = 0
        while await self._describe(get_workflow_id(self.run, generation + 1)) is not None:
            generation += 1
        self._set_generation(max(generation, 1))
        return generation > 0

    async def _describe(self, workflow_id: str) -> WorkflowExecutionStatus | None:
        try:
            found = await self.connection.request(lambda client: client.get_workflow_handle(workflow_id).describe())
        except NotFound:
            return None
        return found.status

    def _set_generation(self, generation: int) -> None:
        self.generation, self.workflow_id = generation, get_workflow_id(self.run, generation)

    async def load(self, workflow_id: str) -> tuple[RunView, list[RunPage]]:
        """Return the record that a workflow has, also after its end."""
        query = partial(self.connection.request, patience=QUERY_SECONDS)
        view = await query(lambda client: client.get_workflow_handle(workflow_id).query(RunWorkflow.view))
        if view.previous:
            return await self.load(view.previous)
        pages: list[RunPage] = []
        start: int | None = 0
        while start is not None:
            get_page = partial(_query_page, workflow_id, start)
            pages.append(await query(get_page))
            start = pages[-1].next
        return view, pages

    async def acquire(self) -> None:
        """Acquire the run, or read its record if it has ended."""
        with suppress(WorkflowAlreadyStartedError):
            await self._hold("")
            return
        await self.find()
        if await self._describe(self.workflow_id) is WorkflowExecutionStatus.RUNNING:
            with suppress(WorkflowAlreadyStartedError):
                await self._hold("")
                return
        view, pages = await self.load(self.workflow_id)
        self.facts, self.finish = view.facts, view.finish
        self.ended = {effect.key: effect for page in pages for effect in page.effects}

    async def _move(self) -> None:
        """Go on in another workflow, because the history of this one is long."""
        async with self._reopening:
            if not self._is_full or self.ended is not None:
                return
            if not await self._send_update(RunWorkflow.retire, self.holder):
                raise await self._make_loss()
            hold, self.hold = self.hold, None
            if hold is not None:
                self.connection.fail_later(hold, "Retired")
            self.ended, self._is_full = {}, False
        await self._reopen()

    async def _make_loss(self) -> Exception:
        """Return the error for a run that this process does not hold any more."""
        status = await self._describe(self.workflow_id)
        if status is None or status not in _CLOSED:
            return RunTaken(self.run, 0.0)
        return ConfigError(
            f"Run {self.run!r} was ended on the Temporal server {self.connection.address!r}: {status.name.lower()}. "
            "Send its message again to go on with it."
        )

    async def _reopen(self) -> None:
        """Go on with a run whose workflow has ended, in another workflow."""
        async with self._reopening:
            if self.ended is None:
                return
            previous = self.workflow_id
            self._set_generation(self.generation + 1)
            try:
                await self._hold(previous)
            except WorkflowAlreadyStartedError:
                raise RunTaken(self.run, 0.0) from None  # another process went on with it, and has ended it again
            self.ended = None

    async def _hold(self, previous: str, dead_holder: str = "") -> None:
        connection = self.connection
        process = get_process_identity()
        wanted = Acquisition(self.holder, process, connection.driver_queue, connection.lease, dead_holder)
        if self.parent is not None and not previous:
            survives = not self.run.startswith(f"{self.parent.run}/")
            await self.parent.open_child(ChildRun(self.workflow_id, survives))
        async with connection.expect(self.holder) as arrival:
            answer = await self._send_acquisition(wanted, previous)
            if answer.state == "empty":
                await self._restore(answer.previous)
                answer = await self._send_acquisition(wanted, previous)
            if answer.state == "held":
                self.hold, self.facts = await self._receive(arrival), answer.facts
                return
        if dead_holder or not is_dead(answer.process):
            raise RunTaken(self.run, connection.lease)
        await self._hold(previous, answer.holder)

    async def open_child(self, child: ChildRun) -> None:
        """Start the workflow of another run as a child of this one, unless this one has ended."""
        await self._send_update(RunWorkflow.open_child, child)

    async def request_drive(self, request: DriveRequest) -> None:
        """Let a worker drive the run, unless it has ended."""
        await self.find()
        with suppress(WorkflowAlreadyStartedError):
            await self._start_workflow("")
            await self._send_update(RunWorkflow.drive, request)

    async def _start_workflow(self, previous: str) -> None:
        def start(client: Client) -> Awaitable[Any]:
            return client.start_workflow(
                RunWorkflow.run,
                previous,
                id=self.workflow_id,
                task_queue=self.connection.queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                execution_timeout=OPEN_TIME,
                task_timeout=timedelta(seconds=min(max(self.connection.lease, 1), 10)),
            )

        await self.connection.request(start)

    async def _send_acquisition(self, wanted: Acquisition, previous: str) -> Acquired:
        await self._start_workflow(previous)
        answer: Acquired | None = await self._send_update(RunWorkflow.acquire, wanted)
        if answer is None or answer.state == "retired":
            raise WorkflowAlreadyStartedError(self.workflow_id, "toolmason.run")
        return answer

    async def _restore(self, previous: str) -> None:
        view, pages = await self.load(previous)
        await self._send_update(RunWorkflow.restore, RunPage([], 0, view))
        for page in pages:
            await self._send_update(RunWorkflow.restore, page)

    async def _request(self, effect: EffectState, *, again: bool) -> tuple[EffectDecision, AsyncActivityHandle | None]:
        """Ask the workflow about an effect. If it has to be performed, wait for its activity."""
        activity_id = f"{effect.key} {uuid.uuid4().hex[:12]}"
        async with self.connection.expect(activity_id) as arrival:
            performance = Performance(self.holder, effect, activity_id, again)
            decision: EffectDecision = await self._update(RunWorkflow.perform, performance) or EffectDecision("taken")
            if decision.state != "start":
                return decision, None
            return decision, await self._receive(arrival)

    async def _complete(self, key: str, activity: AsyncActivityHandle, outcome: Any) -> bool:
        """Record the outcome of an effect. Return False if this process has lost the run."""
        if await self.connection.complete(activity, outcome):
            return True
        # The server may have recorded it, if only its answer was lost with the connection.
        _, pages = await self.load(self.workflow_id)
        known = next(effect for page in pages for effect in page.effects if effect.key == key)
        return known.state in ("done", "waits") and known.outcome == outcome

    async def _receive(self, arrival: Arrival) -> AsyncActivityHandle:
        try:
            async with asyncio.timeout(self.connection.lease):
                return await arrival
        except TimeoutError:
            raise RunTaken(self.run, 0.0) from None

    async def _update(self, update: Any, request: Any) -> Any:
        """Send an update. Return None if the workflow is closed."""
        if self.ended is not None:
            await self._reopen()
        return await self._send_update(update, request)

    async def _send_update(self, update: Any, request: Any) -> Any:
        update_id = uuid.uuid4().hex

        def send(client: Client) -> Awaitable[Any]:
            return client.get_workflow_handle(self.workflow_id).execute_update(update, request, id=update_id)

        async with self._updates:
            try:
                return await self.connection.request(send)
            except NotFound:
                return None

    async def settle_from_outside(self, settlement: Settlement) -> str | None:
        """Set the outcome of an interrupted effect, if no process holds the run."""
        await self.find()
        state: str | None = await self._update(RunWorkflow.settle, settlement)
        return state

    def release(self) -> Any:
        """Release the run, in the background. Return the future of it."""

        async def release() -> None:
            if self.hold is not None:
                with suppress(ConfigError):  # the record of the run is complete, and the lease expires
                    await self._send_update(RunWorkflow.release, self.holder)
                    await self.connection.complete(self.hold, None)

        return self.connection.submit(release)


def _query_page(workflow_id: str, start: int, client: Client) -> Awaitable[RunPage]:
    return client.get_workflow_handle(workflow_id).query(RunWorkflow.page, start)


def _to_json(data: Any) -> Any:
    return json.loads(json.dumps(data, default=str))
