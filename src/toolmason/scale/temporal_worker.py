"""Drive runs that other processes start on a Temporal server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from toolmason._core.run.tracing import use_context
from toolmason._core.values.messages import Message
from toolmason._explain import explain_arguments
from toolmason.chat.chat import Chat
from toolmason.errors import ConfigError, RunTaken, ToolmasonError
from toolmason.scale.temporal_messages import DRIVE, DriveRequest
from toolmason.scale.temporal_runtime import TemporalRuntime, get_runs_queue


class TemporalWorker:
    """Worker that drives runs with a chat. If its process is lost, another worker goes on with its runs."""

    @explain_arguments
    def __init__(self, chat: Chat, runtime: TemporalRuntime, *, max_runs: int = 10, grace: float = 10.0) -> None:
        """Prepare to drive up to `max_runs` runs at a time. The chat must have this runtime.

        When the worker stops, its runs get `grace` seconds to end. Other workers go on with those that do not.
        """
        if max_runs < 1:
            raise ConfigError(f"TemporalWorker(max_runs={max_runs!r}): must be at least 1.")
        if not grace >= 0:
            raise ConfigError(f"TemporalWorker(grace={grace!r}): must be at least 0.")
        self.chat, self.runtime, self.max_runs, self.grace = chat, runtime, max_runs, grace
        self._is_stopping = False
        self._wake: Callable[[], object] | None = None
        """Lets the code in the loop of the connection see that the worker is stopping."""
        self._runs: set[asyncio.Task[Any]] = set()

    async def run(self, on_started: Callable[[], object] | None = None) -> None:
        """Drive runs until `stop` is called, or this call is cancelled. `on_started` is called once it is connected.

        Raises:
            ConfigError: the server does not answer.
        """
        from temporalio.worker import Worker  # noqa: PLC0415 - the class can be imported without the SDK

        loop, connection = asyncio.get_running_loop(), self.runtime.connection

        async def poll() -> None:
            stopped = asyncio.Event()
            self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, stopped.set)
            worker = Worker(
                connection.get_session().client,
                task_queue=get_runs_queue(connection),
                activities=[self._make_activity(loop)],
                max_concurrent_activities=self.max_runs,
                graceful_shutdown_timeout=timedelta(seconds=self.grace),
            )
            async with worker:
                if on_started is not None:
                    loop.call_soon_threadsafe(on_started)
                if not self._is_stopping:
                    await stopped.wait()

        self._is_stopping = False
        await asyncio.to_thread(connection.connect)
        polling = asyncio.wrap_future(connection.submit(poll))
        try:
            await asyncio.shield(polling)
        except asyncio.CancelledError:
            self.stop()
            await polling
            raise
        finally:
            if self._runs:
                await asyncio.wait(self._runs)  # a run that was cancelled releases its record

    def stop(self) -> None:
        """Take no further runs, and end after those that run, or after the grace."""
        self._is_stopping = True
        if self._wake is not None:
            self._wake()

    def _make_activity(self, loop: asyncio.AbstractEventLoop) -> Callable[[DriveRequest], Coroutine[Any, Any, str]]:
        from temporalio import activity  # noqa: PLC0415 - as above

        lease = self.runtime.lease

        @activity.defn(name=DRIVE)
        async def drive(request: DriveRequest) -> str:
            # The chat runs in the loop of the caller, and the heartbeat in the thread of the connection.
            sending = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._send(request), loop))
            try:
                while not sending.done():
                    activity.heartbeat()
                    await asyncio.wait((sending,), timeout=lease / 4)
            finally:
                sending.cancel()
            return await sending

        return drive

    async def _send(self, request: DriveRequest) -> str:
        """Execute a run to its end, in the trace of the program that started it. Return the reason it ended."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        try:
            with use_context(request.carrier):
                return await self._execute(request)
        except RunTaken:
            raise  # Temporal tries again later
        except ToolmasonError as error:
            from temporalio.exceptions import ApplicationError  # noqa: PLC0415 - as above

            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error

    async def _execute(self, request: DriveRequest) -> str:
        facts: Any = (await self.runtime.run(request.run)).facts
        if request.decisions and facts.get("saved"):
            reply = await self.chat.resume(facts["saved"], request.decisions)
        else:
            message = Message.from_dict(request.message)
            reply = await self.chat.send(message, run=request.run, conversation=request.conversation)
        return reply.finish
