"""Drive runs that other processes start on a Temporal server."""

from __future__ import annotations

import asyncio
from typing import Any

from toolmason._core.values.messages import Message
from toolmason._explain import explain_arguments
from toolmason.chat.chat import Chat
from toolmason.errors import ConfigError, RunTaken, ToolmasonError
from toolmason.scale.temporal_runtime import TemporalRuntime, get_runs_queue

try:
    from temporalio import activity
    from temporalio.exceptions import ApplicationError
    from temporalio.worker import Worker
except ImportError as missing:
    raise ImportError("Temporal's SDK is not installed: pip install 'toolmason[temporal]'") from missing

from toolmason.scale.temporal_workflow import DRIVE, DriveRequest


class TemporalWorker:
    """Worker that drives runs with a chat. If its process is lost, another worker goes on with its runs."""

    @explain_arguments
    def __init__(self, chat: Chat, runtime: TemporalRuntime, *, max_runs: int = 10) -> None:
        """Prepare to drive up to `max_runs` runs at a time. The chat must have this runtime."""
        if max_runs < 1:
            raise ConfigError(f"TemporalWorker(max_runs={max_runs!r}): must be at least 1.")
        self.chat, self.runtime, self.max_runs = chat, runtime, max_runs

    async def run(self) -> None:
        """Drive runs until this call is cancelled.

        Raises:
            ConfigError: the server does not answer.
        """
        loop = asyncio.get_running_loop()
        connection = self.runtime.connection

        @activity.defn(name=DRIVE)
        async def drive(request: DriveRequest) -> str:
            # The chat runs in the loop of the caller, and the heartbeat in the thread of the connection.
            sending = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._send(request), loop))
            try:
                while not sending.done():
                    activity.heartbeat()
                    await asyncio.wait((sending,), timeout=connection.lease / 4)
            finally:
                sending.cancel()
            return await sending

        async def poll() -> None:
            worker = Worker(
                connection.get_session().client,
                task_queue=get_runs_queue(connection),
                activities=[drive],
                max_concurrent_activities=self.max_runs,
            )
            await worker.run()

        await connection.run(poll)

    async def _send(self, request: DriveRequest) -> str:
        """Execute a run to its end. Return the reason it ended."""
        try:
            facts: Any = (await self.runtime.run(request.run)).facts
            if request.decisions and facts.get("saved"):
                reply = await self.chat.resume(facts["saved"], request.decisions)
            else:
                message = Message.from_dict(request.message)
                reply = await self.chat.send(message, run=request.run, conversation=request.conversation)
        except RunTaken:
            raise  # Temporal tries again later
        except ToolmasonError as error:
            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error
        return reply.finish
