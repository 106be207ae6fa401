"""Execute one run whose record is in a Temporal workflow.

The methods of `RunExecution` are called in the loop of the caller, which also performs the effects. Requests to the
server run in the thread of the connection.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

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
from toolmason.scale.temporal_connection import Arrival, NotFound, TemporalConnection

try:
    from temporalio.client import AsyncActivityHandle, Client, WorkflowExecutionStatus
    from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.exceptions import WorkflowAlreadyStartedError
except ImportError as missing:
    raise ImportError("Temporal's SDK is not installed: pip install 'toolmason[temporal]'") from missing

from toolmason.scale.temporal_workflow import (
    NOT_STARTED,
    Acquired,
    Acquisition,
    DriveRequest,
    EffectDecision,
    EffectState,
    Performance,
    RunFacts,
    RunPage,
    RunView,
    RunWorkflow,
    Settlement,
    decide,
)

MAX_BYTES: Final = 2_000_000
"""Maximum size of the data of one effect or of the facts of a run. Temporal rejects a payload of 2 MiB."""
_MAX_UPDATES: Final = 8
"""Updates of one workflow at a time. Temporal rejects more than 10."""
_OPEN_DAYS: Final = 365
"""Time after which Temporal closes a run that was interrupted, or that waits for approval. Its record stays."""


def get_workflow_id(run: str, generation: int) -> str:
    """Return the ID of a workflow of a run. A run that goes on after its workflow has ended gets another one."""
    return f"toolmason/{run}" if generation == 1 else f"toolmason#{generation}/{run}"


class TemporalExecution:
    """One execution of a run."""

    def __init__(self, connection: TemporalConnection, run: str) -> None:
        self.connection, self.run = connection, run
        self.holder = uuid.uuid4().hex
        self.workflow_id = get_workflow_id(run, 1)
        self.generation = 1
        self.facts: dict[str, Any] = {}
        self.finish: str | None = None
        self.hold: AsyncActivityHandle | None = None
        self.ended: dict[str, EffectState] | None = None
        """Effects of a run whose workflow has ended. It is opened again only if there is something to record."""
        self._updates = asyncio.Semaphore(_MAX_UPDATES)
        self._reopening = asyncio.Lock()

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

    async def perform(
        self, effect: RunEffect, work: Work, serializer: OutcomeSerializer, reconciler: Reconciler | None = None
    ) -> Any:
        """Return the outcome of an effect, from the workflow or by performing it.

        Raises:
            UnknownOutcome: the effect was started before, its outcome is unknown, and it must not be repeated.
        """
        arguments = _to_json(dict(effect.arguments))
        state = EffectState(effect.key, effect.kind, effect.name, arguments, effect.repeatable)
        size = self._check_size(f"The arguments of {effect.name!r}", arguments)
        names = {"toolmason.run.id": self.run, "toolmason.effect.key": effect.key}
        with open_span(f"effect {effect.name}", names) as span:
            decision, activity = await self._start(state)
            if decision.state == "unknown":
                decision, activity = await self._reconcile(state, serializer, reconciler)
            if span is not None:
                span.set({"toolmason.effect.replayed": activity is None})
            if activity is not None:
                return await self._work(effect, activity, work, serializer, size)
            measure("toolmason.cache.hits", 1, {"toolmason.cache": "temporal"})
            return self._read_outcome(decision, state, serializer)

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
        self, effect: RunEffect, activity: AsyncActivityHandle, work: Work, serializer: OutcomeSerializer, size: int
    ) -> Any:
        """Perform an effect, and complete its activity with the outcome. `size` is that of its arguments."""
        try:
            outcome = await work()
            dumped = _to_json(serializer.dump(outcome))
            self._check_size(f"The outcome of {effect.name!r}", dumped, size)
        except BaseException:
            # It may have had an effect: the workflow keeps it as interrupted.
            self.connection.fail_later(activity, "Interrupted")
            raise
        if not await self.connection.run(lambda: self._complete(effect.key, activity, dumped)):
            raise RunTaken(self.run, 0.0)
        return outcome

    def _read_outcome(self, decision: EffectDecision, effect: EffectState, serializer: OutcomeSerializer) -> Any:
        known = decision.known
        if decision.state == "done" and known is not None:
            return serializer.load(known.outcome)
        if decision.state == "changed" and known is not None:
            raise ConfigError(
                f"Run {self.run!r} made another call at {effect.key!r} before: {known.name} "
                f"{json.dumps(known.arguments)}. Its code, tools or messages have changed. Start another run."
            )
        raise RunTaken(self.run, 0.0)

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
        facts = _to_json(facts)
        self._check_size("The messages and facts", {**self.facts, **facts})
        if not await self.connection.run(
            lambda: self._update(RunWorkflow.record, RunFacts(self.holder, facts, finish))
        ):
            raise RunTaken(self.run, 0.0)
        self.facts, self.finish = {**self.facts, **facts}, finish

    async def _settle(self, settlement: Settlement) -> None:
        if await self.connection.run(lambda: self._update(RunWorkflow.settle, settlement)) is None:
            raise RunTaken(self.run, 0.0)

    def _check_size(self, what: str, data: Any, used: int = 0) -> int:
        size = used + len(json.dumps(data))
        if size > MAX_BYTES:
            raise ConfigError(
                f"{what} in run {self.run!r}: {size:,} bytes are more than the {MAX_BYTES:,} that Temporal keeps for "
                "one effect. Pass or return a reference to the data, such as a file name or a URL."
            )
        return size

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
        request = self.connection.request
        view = await request(lambda client: client.get_workflow_handle(workflow_id).query(RunWorkflow.view))
        if view.previous:
            return await self.load(view.previous)
        pages: list[RunPage] = []
        start: int | None = 0
        while start is not None:
            get_page = partial(_query_page, workflow_id, start)
            pages.append(await request(get_page))
            start = pages[-1].next
        return view, pages

    async def acquire(self) -> None:
        """Acquire the run, or read its record if it has ended."""
        try:
            await self._hold("")
        except WorkflowAlreadyStartedError:
            await self.find()
            if await self._describe(self.workflow_id) is WorkflowExecutionStatus.RUNNING:
                await self._hold("")
                return
            view, pages = await self.load(self.workflow_id)
            self.facts, self.finish = view.facts, view.finish
            self.ended = {effect.key: effect for page in pages for effect in page.effects}

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

    async def request_drive(self, request: DriveRequest) -> None:
        """Let a worker drive the run, unless it has ended."""
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
                execution_timeout=timedelta(days=_OPEN_DAYS),
                task_timeout=timedelta(seconds=min(max(self.connection.lease, 1), 10)),
            )

        await self.connection.request(start)

    async def _send_acquisition(self, wanted: Acquisition, previous: str) -> Acquired:
        await self._start_workflow(previous)
        answer: Acquired | None = await self._send_update(RunWorkflow.acquire, wanted)
        if answer is None:
            raise WorkflowAlreadyStartedError(self.workflow_id, "toolmason.run")  # it has ended in between
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
