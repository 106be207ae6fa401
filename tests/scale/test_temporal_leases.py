"""The workflow makes the same commands again if a driver's lease, or an activity, ends just before an update.

A worker that has the workflow in its cache processes the end first. For others, Temporal's core joins a task without
commands with the next one, and the SDK processes the updates of a task first.
"""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from toolmason.scale.temporal_messages import Acquisition, EffectState, Performance, RunFacts, Settlement
from toolmason.scale.temporal_workflow import RunWorkflow

pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]
UNPOLLED = "a queue without a worker"
PAY = EffectState("1/0/pay", "tool", "pay", {"n": 1}, repeatable=False)


class Record:
    """The workflow of a run, without the code that drives it."""

    def __init__(self, handle):
        self.handle = handle

    async def update(self, update, request):
        return await self.handle.execute_update(update, request)

    async def acquire(self, holder, lease):
        """Let a driver that is never there hold the run, until its lease has ended."""
        return (await self.update(RunWorkflow.acquire, Acquisition(holder, "", UNPOLLED, lease))).state

    async def perform(self, holder, activity):
        return (await self.update(RunWorkflow.perform, Performance(holder, PAY, activity))).state

    async def until_processed(self, kind, count=1):
        """Wait until the worker has completed a task after some events of a kind."""
        while True:
            kinds = [event.event_type for event in (await self.handle.fetch_history()).events]
            places = [index for index, each in enumerate(kinds) if each == kind]
            if len(places) >= count and EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED in kinds[places[count - 1] :]:
                return
            await asyncio.sleep(0.02)

    async def replay(self):
        replayer = Replayer(workflows=[RunWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
        history = await self.handle.fetch_history()
        return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure


@pytest.fixture(params=[0, 100], ids=["lost", "cached"])
async def record(server, run, request):
    client = await Client.connect(server.address)
    worker = Worker(
        client,
        task_queue=run,
        workflows=[RunWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=request.param,
    )
    async with worker:
        yield Record(await client.start_workflow(RunWorkflow.run, "", id=f"toolmason/{run}", task_queue=run))


async def lose_lease(record, lease=1):
    assert await record.acquire("first", lease) == "held"
    # A task without commands: the next one is joined with the task after it.
    await record.handle.signal(RunWorkflow.decide, [])
    await record.until_processed(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
    await record.until_processed(EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT)


async def test_an_effect_is_performed_although_the_lease_has_ended(record):
    await lose_lease(record)

    state = await record.perform("first", "a")

    assert await record.replay() is None
    assert state == "start"


@pytest.mark.parametrize("finish", [None, "pending", "stop"])
async def test_facts_are_recorded_although_the_lease_has_ended(record, finish):
    await lose_lease(record)

    is_recorded = await record.update(RunWorkflow.record, RunFacts("first", {"a": 1}, finish))

    assert await record.replay() is None
    assert is_recorded


async def test_a_run_goes_on_in_another_workflow_although_the_lease_has_ended(record):
    await lose_lease(record)

    is_retired = await record.update(RunWorkflow.retire, "first")

    assert await record.replay() is None
    assert is_retired


async def test_an_operator_settles_a_call_after_the_lease_has_ended(record):
    await lose_lease(record, 2)
    await record.perform("first", "a")

    state = await record.update(RunWorkflow.settle, Settlement("", PAY.key, "again"))

    assert await record.replay() is None
    assert state == "started"


async def test_another_driver_fences_the_one_whose_lease_has_ended(record):
    await lose_lease(record)

    assert await record.acquire("second", 60) == "held"
    assert await record.perform("first", "a") == "taken"
    assert not await record.update(RunWorkflow.record, RunFacts("first", {}, "stop"))
    assert not await record.update(RunWorkflow.retire, "first")
    assert await record.update(RunWorkflow.settle, Settlement("first", PAY.key, "done")) is None
    assert await record.perform("second", "b") == "start"
    assert await record.replay() is None


async def test_an_effect_that_was_not_started_is_performed_again(record):
    """Its activity ends at the same moment as the second update."""
    await record.acquire("first", 1)
    await record.perform("first", "a")
    await record.until_processed(EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT, 2)

    state = await record.perform("first", "b")

    assert await record.replay() is None
    assert state == "start"
