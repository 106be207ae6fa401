"""Record runs in Temporal: each run is a workflow, and each model turn and tool call an activity in its history.

The chat runs in this process, the driver, and so does each effect. The workflow decides if an effect has to be
performed, and schedules its activity on a task queue of the driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from toolmason._core.call.approval import Decision
from toolmason._core.run.tracing import inject_context
from toolmason._core.values.messages import Message, dump_result
from toolmason._explain import explain_arguments
from toolmason._store.store import Store
from toolmason.chat.durable.effects import Completed, ReconciledOutcome, RunExecution, make_result
from toolmason.chat.durable.journal import LEASE_SECONDS, EffectRecord, RunRecord
from toolmason.errors import ConfigError, RunTaken, UnknownName
from toolmason.scale.temporal_messages import RUNS_QUEUE, DriveRequest, EffectState, Settlement, get_workflow_id
from toolmason.scale.temporal_values import LargeValues

if TYPE_CHECKING:
    from temporalio.client import Client

    from toolmason.scale.temporal_connection import TemporalConnection
    from toolmason.scale.temporal_execution import TemporalExecution


class TemporalRuntime:
    """Runtime with a workflow on a Temporal server for each run. Only one process at a time executes a run."""

    @explain_arguments
    def __init__(
        self,
        address: str = "localhost:7233",
        *,
        namespace: str = "default",
        queue: str = "toolmason",
        lease: float = LEASE_SECONDS,
        store: Store | None = None,
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare to use the server at `address`; the first run connects.

        `queue` is the task queue of the workflows. A process that is silent for `lease` seconds loses its runs.
        `store` keeps values that are too large for Temporal, and must be the same in all processes of a run.
        `connect` has more options of `temporalio.client.Client.connect`, such as `tls` and `api_key`.
        """
        from toolmason.scale.temporal_connection import TemporalConnection  # noqa: PLC0415 - needs the SDK

        if lease <= 0:
            raise ConfigError(f"TemporalRuntime(lease={lease!r}): lease must be positive.")
        self.lease = lease
        self.values = LargeValues(store)
        self.connection = TemporalConnection(address, namespace, queue, lease, connect or {})

    @asynccontextmanager
    async def execute(self, run: str) -> AsyncGenerator[RunExecution]:
        """Acquire a run and execute it.

        Raises:
            ConfigError: the server does not answer.
            RunTaken: another process holds the run.
        """
        execution = self._make_execution(run)
        await self.connection.run(execution.acquire, lambda _: execution.release())
        try:
            execution.facts = await self.values.unpack_all(execution.facts)
            with execution.as_parent():
                yield execution
        finally:
            released = asyncio.wrap_future(execution.release())
            await asyncio.shield(released)

    def _make_execution(self, run: str) -> TemporalExecution:
        from toolmason.scale.temporal_execution import TemporalExecution  # noqa: PLC0415 - needs the SDK

        return TemporalExecution(self.connection, run, self.values)

    # --- runs that a worker drives -------------------------------------------------------------------

    async def start(self, run: str, message: str, *, conversation: str | None = None) -> None:
        """Start a run that a `TemporalWorker` of the same queue drives. Does nothing if the run was started before.

        Raises:
            ConfigError: the server does not answer.
        """
        await self._drive(run, Message("user", message).to_dict(), conversation)

    async def decide(self, run: str, decisions: Iterable[Decision]) -> None:
        """Let a worker resume a run that waits for approval, with signed decisions.

        Raises:
            KeyError: the run is unknown.
            ConfigError: the run does not wait for approval.
        """
        facts = (await self.run(run)).facts
        if not facts.get("saved"):
            raise ConfigError(f"Run {run!r} does not wait for approval. See `await runtime.run({run!r})`.")
        given = [decision.to_dict() for decision in decisions]
        await self._drive(run, facts["asked"][0], facts["conversation"], given)

    async def _drive(self, run: str, message: dict[str, Any], conversation: str | None, decisions: Any = ()) -> None:
        execution = self._make_execution(run)
        queue = get_runs_queue(self.connection)
        carrier = inject_context({})
        request = DriveRequest(run, queue, self.lease, message, conversation, list(decisions), carrier)
        await self.connection.run(lambda: execution.request_drive(request))

    # --- queries -------------------------------------------------------------------------------------

    async def run(self, run: str) -> RunRecord:
        """Return the record of a run.

        Raises:
            KeyError: the run is unknown.
        """
        return (await self._read(run))[0]

    async def effects(self, run: str) -> list[EffectRecord]:
        """Return the effects of a run, in order.

        Raises:
            KeyError: the run is unknown.
        """
        return (await self._read(run))[1]

    async def find_runs(self, prefix: str) -> list[RunRecord]:
        """Return the runs whose IDs start with `prefix`, oldest first. The server lists a new run with a delay."""
        quoted = get_workflow_id(prefix, 1).replace("\\", "\\\\").replace('"', '\\"')

        async def find() -> set[str]:
            async def collect(client: Client) -> set[str]:
                return {found.id async for found in client.list_workflows(f'WorkflowId STARTS_WITH "{quoted}"')}

            return await self.connection.request(collect)

        names = [name.partition("/")[2] for name in await self.connection.run(find)]
        return sorted([await self.run(name) for name in names], key=lambda record: (record.begun, record.run))

    async def reconcile(self, run: str, key: str, outcome: ReconciledOutcome) -> None:
        """Set the outcome of an interrupted call: `Completed(value)`, or `NotExecuted()` to repeat it.

        Raises:
            KeyError: the run or the call is unknown.
            ConfigError: the call was not interrupted, or was already reported to the model as unknown.
            RunTaken: a process is executing the run.
        """
        found = next((effect for effect in await self.effects(run) if effect.key == key), None)
        if found is None:
            raise UnknownName(f"Unknown call {key!r} in run {run!r}. List them with `await runtime.effects({run!r})`.")
        state: str | None = found.state
        if state == "started":
            is_done = isinstance(outcome, Completed)
            value = dump_result(make_result(found.name, outcome.value)) if isinstance(outcome, Completed) else None
            settlement = Settlement("", key, "done" if is_done else "again", value)
            execution = self._make_execution(run)
            state = await self.connection.run(lambda: execution.settle_from_outside(settlement))
        if state is None:
            raise RunTaken(run, self.lease)
        if state != "started":
            raise ConfigError(f"Call {key!r} of run {run!r} is {state!r}, not interrupted, so it cannot be reconciled.")

    async def _read(self, run: str) -> tuple[RunRecord, list[EffectRecord]]:
        execution = self._make_execution(run)
        if not await self.connection.run(execution.find):
            raise UnknownName(f"Unknown run {run!r} on the Temporal server {self.connection.address!r}.")
        view, pages = await self.connection.run(lambda: execution.load(execution.workflow_id))
        facts = await self.values.unpack_all(view.facts)
        record = RunRecord(run, view.begun, view.finish, view.effects, view.held, facts)
        return record, [await self._unpack(effect) for page in pages for effect in page.effects]

    async def _unpack(self, effect: EffectState) -> EffectRecord:
        arguments = await self.values.unpack_all(effect.arguments)
        outcome = await self.values.unpack(effect.outcome)
        return EffectRecord(**asdict(replace(effect, arguments=arguments, outcome=outcome)))

    def close(self) -> None:
        """Disconnect from the server."""
        self.connection.close()


def get_runs_queue(connection: TemporalConnection) -> str:
    """Return the task queue of the workers that drive runs."""
    return f"{connection.queue}{RUNS_QUEUE}"
