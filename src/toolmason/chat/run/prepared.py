"""Execute a run that was prepared: the loop, its journal, and what happens if it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolmason._core.toolbox.exchange import ModelRequest, ToolChoice
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.messages import Message
from toolmason.chat.events import Done, Event
from toolmason.chat.loop import Advisor, ModelTurn, RunOver, chain
from toolmason.chat.memory import Memory, load_conversation, split_new_messages
from toolmason.chat.reply import Reply
from toolmason.chat.run.plan import CURRENT_RUN
from toolmason.chat.run.resume import ResumedRun
from toolmason.chat.run.run import Run
from toolmason.chat.run.tickets import find_tickets
from toolmason.chat.tools import RequestTools
from toolmason.providers.conversation import repair


@dataclass(slots=True, eq=False, repr=False)
class RunTask:
    """Task of a run in progress, which is the caller's. `Chat.cancel` cancels it, but nothing after the run."""

    task: asyncio.Task[Any]
    earlier_count: int
    """Number of cancellations of the task before the run."""
    count: int = 0
    """Number of cancellations by `cancel`."""
    is_over: bool = False
    _is_due: bool = False

    def cancel(self) -> None:
        """Cancel the run, from any thread, unless it ends first."""
        self.task.get_loop().call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Two cancellations at once would raise CancelledError twice: the second time perhaps after the run.
        if self.is_over or self._is_due:
            return
        self._is_due = True
        self.count += 1
        self.task.cancel()
        self.task.get_loop().call_soon(self._mark_seen)

    def _mark_seen(self) -> None:
        self._is_due = False

    def take_back(self) -> bool:
        """Take back the cancellations by `cancel`. Return True if there were any, and no other ones."""
        count, self.count = self.count, 0
        for _ in range(count):
            self.task.uncancel()
        return count > 0 and self.task.cancelling() <= self.earlier_count


@dataclass(slots=True, eq=False, repr=False)
class PreparedRun:
    """A run that is about to start, or to continue."""

    run: Run
    new_messages: list[Message]
    tool_choice: ToolChoice | str | None
    advisors: Sequence[Advisor]
    options: Mapping[str, Any]
    """Options of the model."""
    resumed: ResumedRun | None = None

    async def execute(self, run_task: RunTask) -> None:
        """Run the turns and calls, until the run ends."""
        run = self.run
        token = CURRENT_RUN.set(run.plan)
        try:
            runtime = run.plan.runtime
            async with nullcontext() if runtime is None else runtime.execute(run.plan.run_id) as execution:
                run.plan.execution = execution
                try:
                    await self._run_loop()
                except asyncio.CancelledError:
                    run.mark_cancelled()
                    if not run_task.take_back():
                        raise
                except TimeoutError:
                    if not run.is_over_limit():
                        raise
                    run.finish = "limit"
                except RunOver as over:
                    await run.finish_with(over.args[0])
                if execution is not None:
                    await execution.end(run.finish, run.summarize)
        except asyncio.CancelledError:
            run.mark_cancelled()
            raise
        finally:
            if run.plan.tickets is not None:
                await run.plan.tickets.close(run.finish)
            if (resources := run.turn_calls.run_state.resources) is not None:
                await resources.aclose(get_state(run.plan.box).policy.settings.call_timeout)
            CURRENT_RUN.reset(token)

    async def _run_loop(self) -> None:
        run, resumed = self.run, self.resumed
        if run.plan.ticket_store.tickets or run.plan.runtime is not None:
            await find_tickets(run.plan)
        step = chain(self.advisors, run.ask_model)
        if resumed is None:
            if run.plan.execution is not None:
                await run.begin(self.new_messages, run.plan.execution)
            if run.plan.tickets is not None:
                await run.deliver_tickets(1)
            await run.record(self.new_messages)
            if run.compactor is not None and not await run.must_stop():
                run.messages[:] = repair(run.messages)
                await run.compact(0)
        # Close interrupted calls first: providers reject a call without a result.
        repaired = repair(run.messages)
        request = ModelRequest(await run.get_visible_messages(repaired), run.plan.box, self.tool_choice, self.options)
        if run.plan.tickets is not None:
            request = request.with_messages(request.messages, tools=run.plan.tickets.add_tools(request.tools))
        turn = ModelTurn(request, 1, run.plan.conversation, run)
        if resumed is None:
            run.messages[:] = repaired
        elif (next_turn := await resumed.resume(run, turn)) is None:
            return
        else:
            turn = next_turn
        if await run.must_stop():
            run.finish = "limit"
            return
        await run.finish_with(await step(turn))


async def restore_history(
    run: Run, memory: Memory | None, new_messages: list[Message], saved: Sequence[Message] | None, *, whole: bool
) -> list[Message]:
    """Give a run its conversation so far, and return the messages that are new."""
    if saved is not None:
        run.load_history([message for message in saved if message.role != "system"])
    elif memory is not None:
        loaded = await load_conversation(memory, run.plan.conversation or "", whole=whole)
        history, new_messages = split_new_messages(loaded, new_messages)
        run.load_history(history)
    return new_messages


PrepareRun: TypeAlias = Callable[[RequestTools], Coroutine[Any, Any, PreparedRun]]
"""Function that prepares a run with its tools."""
Prepare: TypeAlias = Callable[[Callable[[Event], None] | None, RequestTools], Coroutine[Any, Any, PreparedRun]]
"""Function that prepares a run: of the function that emits its events, and its tools."""


async def stream_events(
    execute: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Reply[Any]]],
) -> AsyncGenerator[Event]:
    """Execute a run in a task of its own, and yield its events, the last one `Done` with the reply."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    async def produce() -> None:
        try:
            queue.put_nowait(Done(await execute(queue.put_nowait)))
        finally:
            queue.put_nowait(None)

    task = asyncio.get_running_loop().create_task(produce())
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
