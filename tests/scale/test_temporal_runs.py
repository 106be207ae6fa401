"""Runs on a Temporal server that are long, large, delegated, cancelled or decided about by a signal."""

import asyncio
import contextlib

import pytest
from temporalio.client import Interceptor, OutboundInterceptor, WorkflowExecutionStatus

from toolmason import Allow, Chat, Limits, Toolbox, tool
from toolmason.chat import SqliteStore
from toolmason.errors import ConfigError
from toolmason.extend import ApprovalRequest
from toolmason.models.scripted import ScriptedModel
from toolmason.scale import TemporalRuntime, TemporalWorker
from toolmason.scale.temporal_execution import TemporalExecution
from toolmason.scale.temporal_messages import get_workflow_id

pytestmark = [pytest.mark.scale, pytest.mark.xdist_group("temporal")]


def describe(runtime, workflow_id):
    client = runtime.connection.get_session().client
    return runtime.connection.run(client.get_workflow_handle(workflow_id).describe)


class Walker:
    """Chat that takes a number of steps, one in each turn."""

    def __init__(self, runtime, steps):
        self.made = []

        @tool
        def step(n: int) -> int:
            """Take a step."""
            self.made.append(n)
            return n

        def answer(request):
            turn = sum(message.role == "assistant" for message in request.messages)
            return "done" if turn == steps else [("step", {"n": turn})]

        self.chat = Chat(ScriptedModel([answer] * 99), [step], runtime=runtime, limits=Limits(steps=99))


# --- long runs ---------------------------------------------------------------------------------------


async def test_a_run_with_a_long_history_goes_on_in_another_workflow(runtime, run, monkeypatch):
    monkeypatch.setattr("toolmason.scale.temporal_workflow._MAX_EVENTS", 150)
    walker = Walker(runtime, 20)

    first = await walker.chat.send("go", run=run)
    again = await walker.chat.send("go", run=run)

    assert (first.text, again.text, walker.made) == ("done", "done", list(range(20)))
    record = await runtime.run(run)
    assert (record.state, record.effects) == ("stop", 41)
    for generation in (1, 2):
        found = await describe(runtime, get_workflow_id(run, generation))
        assert found.status is WorkflowExecutionStatus.COMPLETED
        assert found.history_length < 400


async def test_a_run_that_is_interrupted_between_two_workflows_repeats_nothing(runtime, run, monkeypatch):
    monkeypatch.setattr("toolmason.scale.temporal_workflow._MAX_EVENTS", 150)
    walker = Walker(runtime, 20)

    async def fail(self):
        raise ConfigError("stopped here")

    with monkeypatch.context() as patch:
        patch.setattr(TemporalExecution, "_reopen", fail)
        with pytest.raises(ConfigError, match="stopped here"):
            await walker.chat.send("go", run=run)
    before = len(walker.made)
    reply = await walker.chat.send("go", run=run)

    assert 0 < before < 20
    assert (reply.text, walker.made) == ("done", list(range(20)))


async def test_a_long_run_that_a_worker_drives_goes_on_in_another_workflow(server, run, monkeypatch):
    monkeypatch.setattr("toolmason.scale.temporal_workflow._MAX_EVENTS", 150)
    runtime = TemporalRuntime(server.address, lease=3, queue=f"queue of {run}")
    walker = Walker(runtime, 20)

    async with working(TemporalWorker(walker.chat, runtime)):
        await runtime.start(run, "go")
        await until_state(runtime, run, "stop")

    assert walker.made == list(range(20))
    runtime.close()


# --- lost queries ------------------------------------------------------------------------------------


class Loser(Interceptor):
    """Loses the first answers to queries, as the SDK may if it removes a workflow from its cache."""

    def __init__(self, losses):
        self.losses = losses

    def intercept_client(self, following):
        loser = self

        class Outbound(OutboundInterceptor):
            async def query_workflow(self, request):
                if loser.losses:
                    loser.losses -= 1
                    await asyncio.Event().wait()
                return await super().query_workflow(request)

        return Outbound(following)


async def test_a_query_whose_answer_is_lost_is_sent_again(server, runtime, run, monkeypatch):
    monkeypatch.setattr("toolmason.scale.temporal_execution.QUERY_SECONDS", 0.2)
    await Chat(ScriptedModel(["yes"]), runtime=runtime).send("go", run=run)
    reader = TemporalRuntime(server.address, lease=30, connect={"interceptors": [Loser(3)]})

    record = await reader.run(run)

    assert (record.state, record.effects) == ("stop", 1)
    reader.close()


# --- large values ------------------------------------------------------------------------------------


async def test_large_values_are_kept_in_a_store(server, run, tmp_path):
    store = SqliteStore(tmp_path / "values.db")
    runtime = TemporalRuntime(server.address, lease=5, store=store)
    made = []

    @tool(max_result_bytes=10_000_000)
    def read(text: str) -> str:
        """Read."""
        made.append(len(text))
        return "y" * 3_000_000

    def answer(request):
        last = request.messages[-1]
        return f"{last.results[0].text[:3]}" if last.results else [("read", {"text": "x" * 2_500_000})]

    def make_chat(runtime):
        return Chat(ScriptedModel([answer] * 9), Toolbox(read), runtime=runtime)

    first = await make_chat(runtime).send("z" * 2_500_000, run=run)
    again = await make_chat(runtime).send("z" * 2_500_000, run=run)

    assert (first.text, again.text, made) == ("yyy", "yyy", [2_500_000])
    [_, call, _] = await runtime.effects(run)
    assert len(call.arguments["text"]) == 2_500_000
    assert len((await runtime.run(run)).facts["asked"][0]["content"][0]["text"]) == 2_500_000
    without = TemporalRuntime(server.address, lease=5)
    with pytest.raises(ConfigError, match=r"Pass TemporalRuntime\(store=...\) with that store"):
        await without.effects(run)
    for opened in (runtime, without, store):
        opened.close()


# --- delegated chats and work in the background ------------------------------------------------------


async def test_delegated_chats_are_child_workflows(runtime, run):
    clerk = Chat(ScriptedModel(["the clerk digs"] * 2)).as_tool("clerk", "Ask the clerk.")
    model = ScriptedModel([[("clerk", {"prompt": "dig"})], "done"])
    reply = await Chat(model, [clerk], runtime=runtime).send("go", run=run)

    found = await describe(runtime, get_workflow_id(f"{run}/{reply.results[0].call_id}", 1))

    assert (found.parent_id, found.status) == (get_workflow_id(run, 1), WorkflowExecutionStatus.COMPLETED)


async def test_work_in_the_background_is_a_child_workflow_that_outlives_its_parent(runtime, run):
    begun, proceed = asyncio.Event(), asyncio.Event()

    @tool(background=True)
    async def dig() -> str:
        """Dig."""
        begun.set()
        await proceed.wait()
        return "gold"

    chat = Chat(ScriptedModel([[("dig", {})], "started", "yes"]), [dig], runtime=runtime)
    reply = await chat.send("go", run=run, conversation=run)
    await begun.wait()
    [ticket] = reply.tickets
    workflow_id = await find_child(runtime, get_workflow_id(run, 1))
    before = await describe(runtime, workflow_id)
    parent = await describe(runtime, get_workflow_id(run, 1))
    proceed.set()
    await chat.wait_for_tickets(run)

    assert ticket in workflow_id
    assert (parent.status, before.status) == (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.RUNNING)
    await until_closed(runtime, workflow_id)


async def until_closed(runtime, workflow_id):
    while (await describe(runtime, workflow_id)).status is WorkflowExecutionStatus.RUNNING:  # noqa: ASYNC110 - the server decides
        await asyncio.sleep(0.05)


async def find_child(runtime, parent):
    client = runtime.connection.get_session().client
    history = await runtime.connection.run(client.get_workflow_handle(parent).fetch_history)
    started = [event.child_workflow_execution_started_event_attributes for event in history.events]
    [child] = [event.workflow_execution.workflow_id for event in started if event.workflow_execution.workflow_id]
    return child


async def test_a_run_that_is_cancelled_on_the_server_ends_with_its_delegated_chats(runtime, run):
    begun, proceed, made = asyncio.Event(), asyncio.Event(), []

    @tool
    async def dig(n: int) -> str:
        """Dig."""
        made.append(n)
        begun.set()
        await proceed.wait()
        return "gold"

    def answer(request):
        return [("dig", {"n": sum(message.role == "assistant" for message in request.messages)})]

    clerk = Chat(ScriptedModel([answer] * 9), [dig]).as_tool("clerk", "Ask the clerk.")
    chat = Chat(ScriptedModel([[("clerk", {"prompt": "dig"})], "done"]), [clerk], runtime=runtime)
    sending = asyncio.ensure_future(chat.send("go", run=run))
    await begun.wait()
    client = runtime.connection.get_session().client
    child = await find_child(runtime, get_workflow_id(run, 1))

    await runtime.connection.run(client.get_workflow_handle(get_workflow_id(run, 1)).cancel)
    await until_closed(runtime, child)
    proceed.set()

    with pytest.raises(ConfigError, match=r"was ended on the Temporal server .*: canceled"):
        await sending
    assert made == [0]
    assert (await runtime.run(run)).state == "cancelled"


# --- workers -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def working(worker):
    task = asyncio.ensure_future(worker.run())
    yield
    worker.stop()
    await task


async def until_state(runtime, run, state):
    while (await runtime.run(run)).state != state:  # noqa: ASYNC110 - the worker decides
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(("forged", "erased"), [({}, ["a"]), ({"signature": "0" * 64}, [])], ids=["signed", "forged"])
async def test_a_signal_with_a_decision_lets_a_call_run_if_it_is_signed(server, run, forged, erased, caplog):
    runtime = TemporalRuntime(server.address, lease=3, queue=f"queue of {run}")
    found = []

    @tool(destructive=True)
    def erase(name: str) -> str:
        """Erase."""
        found.append(name)
        return "erased"

    box = Toolbox(erase, approval_key="a key of a decent size")
    chat = Chat(ScriptedModel([[("erase", {"name": "a"})], *["done"] * 3]), box, runtime=runtime)
    async with working(TemporalWorker(chat, runtime)):
        await runtime.start(run, "go")
        await until_state(runtime, run, "pending")
        [pending] = (await runtime.run(run)).facts["saved"]["pending"]
        decision = box.approvals.decide(ApprovalRequest.from_dict(pending), Allow()).to_dict() | forged
        handle = runtime.connection.get_session().client.get_workflow_handle(get_workflow_id(run, 1))
        await runtime.connection.run(lambda: handle.signal("decide", [decision]))
        while not found and "ignored a decision" not in caplog.text:  # noqa: ASYNC110 - the worker decides
            await asyncio.sleep(0.02)
        await until_state(runtime, run, "stop" if erased else "pending")

    assert found == erased
    runtime.close()


async def test_the_spans_of_a_run_belong_to_the_trace_of_the_program_that_started_it(server, run, spans):
    from opentelemetry import trace

    runtime = TemporalRuntime(server.address, lease=3, queue=f"queue of {run}")
    chat = Chat(ScriptedModel(["yes"]), runtime=runtime)
    with trace.get_tracer("test").start_as_current_span("program") as program:
        await runtime.start(run, "go")
    async with working(TemporalWorker(chat, runtime)):
        await until_state(runtime, run, "stop")

    assert spans.one("effect scripted").context.trace_id == program.get_span_context().trace_id
    runtime.close()


async def test_a_worker_that_stops_lets_its_runs_end(server, run):
    runtime = TemporalRuntime(server.address, lease=3, queue=f"queue of {run}")
    begun, proceed = asyncio.Event(), asyncio.Event()

    @tool
    async def dig() -> str:
        """Dig."""
        begun.set()
        await proceed.wait()
        return "gold"

    worker = TemporalWorker(Chat(ScriptedModel([[("dig", {})], "done"]), [dig], runtime=runtime), runtime, grace=30)
    task = asyncio.ensure_future(worker.run())
    await runtime.start(run, "go")
    await begun.wait()

    worker.stop()
    proceed.set()
    await task

    assert (await runtime.run(run)).state == "stop"
    runtime.close()


async def test_a_run_that_does_not_end_within_the_grace_goes_on_in_another_worker(server, run):
    runtime = TemporalRuntime(server.address, lease=3, queue=f"queue of {run}")
    begun, made = asyncio.Event(), []

    @tool(idempotent=True)
    async def dig() -> str:
        """Dig."""
        made.append("dig")
        begun.set()
        if len(made) == 1:
            await asyncio.Event().wait()
        return "gold"

    def make_worker():
        chat = Chat(ScriptedModel([[("dig", {})], "done"]), [dig], runtime=runtime)
        return TemporalWorker(chat, runtime, grace=0)

    first = make_worker()
    task = asyncio.ensure_future(first.run())
    await runtime.start(run, "go")
    await begun.wait()
    first.stop()
    await task
    later = make_worker()
    later.chat.model.script.pop(0)
    async with working(later):
        await until_state(runtime, run, "stop")

    assert made == ["dig", "dig"]
    runtime.close()


def test_a_grace_that_is_negative_is_refused(runtime):
    with pytest.raises(ConfigError, match="grace=-1"):
        TemporalWorker(Chat(ScriptedModel([])), runtime, grace=-1)
