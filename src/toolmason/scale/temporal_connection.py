"""Connect this process to a Temporal server, as a worker that receives the activities of the runs it drives.

The connection has a thread with its own event loop: heartbeats go on while the program blocks its loop, and programs
with several loops share one connection.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import threading
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from toolmason._text import clip, safe_str
from toolmason.errors import ConfigError

try:
    from temporalio import activity
    from temporalio.client import AsyncActivityHandle, Client, RPCTimeoutOrCancelledError
    from temporalio.common import RawValue
    from temporalio.exceptions import ApplicationError, TemporalError, WorkflowAlreadyStartedError
    from temporalio.service import RPCError, RPCStatusCode
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker
except ImportError as missing:
    raise ImportError("Temporal's SDK is not installed: pip install 'toolmason[temporal]'") from missing

from toolmason.scale.temporal_workflow import NOT_STARTED, RunWorkflow

T = TypeVar("T")
Arrival: TypeAlias = "asyncio.Future[AsyncActivityHandle]"

_CONNECT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.2
QUERY_SECONDS: Final = 3.0
"""Time after which a query is sent again, the first time; twice as long each further time.

The server sends a query to one worker, once, and the SDK may lose it if it removes the workflow from its cache.
"""
_TEMPORARY: Final = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
    }
)


class NotFound(Exception):
    """The server does not know the workflow or the activity, or has closed it."""


@dataclass(slots=True, eq=False)
class _ServerSession:
    """State of an open connection."""

    client: Client
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event
    arrivals: dict[str, Arrival] = field(default_factory=dict)
    """Activities that the driver waits for, by their IDs."""
    beating: set[AsyncActivityHandle] = field(default_factory=set)


class TemporalConnection:
    """Connection to a Temporal server, made at the first use."""

    def __init__(self, address: str, namespace: str, queue: str, lease: float, options: Mapping[str, Any]) -> None:
        self.address, self.namespace, self.queue, self.lease = address, namespace, queue, lease
        self.options = dict(options)
        self.driver_queue = f"{queue}/driver/{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._session: _ServerSession | None = None

    # --- the thread ----------------------------------------------------------------------------------

    async def run(
        self, make: Callable[[], Coroutine[Any, Any, T]], on_abandoned: Callable[[T], object] | None = None
    ) -> T:
        """Run a coroutine in the thread of the connection.

        `on_abandoned` gets its result if this call is cancelled too late to cancel the coroutine.
        """
        if self._session is None:
            await asyncio.to_thread(self.connect)
        future = self.submit(make)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if on_abandoned is not None:
                future.add_done_callback(
                    lambda done: None if done.cancelled() or done.exception() else on_abandoned(done.result())
                )
            raise

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start a coroutine in the thread of the connection."""
        return asyncio.run_coroutine_threadsafe(make(), self.get_session().loop)

    def get_session(self) -> _ServerSession:
        """Return the open session."""
        if (session := self._session) is not None:
            return session
        raise ConfigError(f"The connection to Temporal at {self.address!r} is closed. Make another TemporalRuntime.")

    def connect(self) -> None:
        """Connect, and start the workers. Blocks.

        Raises:
            ConfigError: the server does not answer, or refuses the connection.
        """
        with self._lock:
            if self._session is not None:
                return
            ready: Future[_ServerSession] = Future()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._serve(ready)), name="toolmason-temporal", daemon=True
            )
            self._thread.start()
            self._session = ready.result()
            atexit.register(self.close)

    def close(self) -> None:
        """Stop the workers, and disconnect."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None and self._thread is not None:
                atexit.unregister(self.close)
                session.loop.call_soon_threadsafe(session.stop.set)
                self._thread.join()

    async def _serve(self, ready: Future[_ServerSession]) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                client = await Client.connect(self.address, namespace=self.namespace, **self.options)
        except Exception as error:  # noqa: BLE001 - the SDK raises RuntimeError, ValueError and others
            why = clip(safe_str(error), 300) or f"no answer within {_CONNECT_SECONDS:g} s"
            failure = ConfigError(
                f"TemporalRuntime(address={self.address!r}): cannot connect: {why}. Check the address, and that the "
                "server runs; `temporal server start-dev` starts one."
            )
            failure.__cause__ = error
            ready.set_exception(failure)
            return
        loop = asyncio.get_running_loop()
        session = _ServerSession(client, loop, asyncio.Event())
        receive = _make_activity(session)
        runs = Worker(
            client,
            task_queue=self.queue,
            workflows=[RunWorkflow],
            # The workflow is code of this package that imports nothing else; tests replay its histories.
            workflow_runner=UnsandboxedWorkflowRunner(),
            workflow_failure_exception_types=[Exception],
            # If this process is lost, another one gets the workflow after this time.
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=min(self.lease / 3, 5)),
        )
        driver = Worker(client, task_queue=self.driver_queue, activities=[receive])
        async with runs, driver:
            beating = loop.create_task(self._beat(session))
            ready.set_result(session)
            await session.stop.wait()
            beating.cancel()

    async def _beat(self, session: _ServerSession) -> None:
        """Show the server that this process lives. A failure means that the server has ended the activity."""
        while True:
            await asyncio.sleep(self.lease / 4)
            beats = [handle.heartbeat() for handle in session.beating]
            await asyncio.gather(*beats, return_exceptions=True)

    # --- activities and requests, in the thread ------------------------------------------------------

    @asynccontextmanager
    async def expect(self, activity_id: str) -> AsyncGenerator[Arrival]:
        """Wait for an activity that a request is about to schedule. On an error, its work does not start."""
        session = self.get_session()
        arrival: Arrival = session.loop.create_future()
        session.arrivals[activity_id] = arrival
        try:
            yield arrival
        except BaseException:
            if arrival.done() and not arrival.cancelled():
                self.fail_later(arrival.result(), NOT_STARTED)
            raise
        finally:
            session.arrivals.pop(activity_id, None)

    async def complete(self, handle: AsyncActivityHandle, outcome: Any) -> bool:
        """Complete an activity. Return False if the server has ended it."""
        try:
            await self.request(lambda _: handle.complete(outcome))
        except NotFound:
            return False
        finally:
            self.get_session().beating.discard(handle)
        return True

    def fail_later(self, handle: AsyncActivityHandle, kind: str) -> None:
        """End an activity without an outcome, in the background; the server ends it later if this fails."""

        async def fail() -> None:
            self.get_session().beating.discard(handle)
            with suppress(ConfigError, NotFound):
                await self.request(lambda _: handle.fail(ApplicationError(kind, type=kind, non_retryable=True)))

        if self._session is not None:
            self.submit(fail)

    async def request(self, send: Callable[[Client], Awaitable[T]], patience: float = math.inf) -> T:
        """Send a request. Repeat it for a while if the server does not answer; it must be idempotent.

        An attempt that takes longer than `patience` is repeated as well, and the next one may take twice as long.

        Raises:
            ConfigError: the server does not answer, or refuses the request.
        """
        session = self.get_session()
        deadline = session.loop.time() + 2 * self.lease + _CONNECT_SECONDS
        while True:
            attempt_end = session.loop.time() + patience
            patience *= 2
            try:
                async with asyncio.timeout_at(min(deadline, attempt_end)):
                    return await send(session.client)
            except WorkflowAlreadyStartedError:
                raise
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    raise NotFound from error
                if error.status not in _TEMPORARY or session.loop.time() > deadline:
                    raise self._make_error(error) from error
            except (RPCTimeoutOrCancelledError, TimeoutError) as error:
                if session.loop.time() > deadline:
                    raise self._make_error(error) from error
            except TemporalError as error:
                raise self._make_error(error) from error
            await asyncio.sleep(_RETRY_SECONDS)

    def _make_error(self, error: Exception) -> ConfigError:
        why = clip(safe_str(error.__cause__ or error), 300) or "no answer in time"
        return ConfigError(f"Temporal at {self.address!r} does not accept a request of a run: {why}. Check the server.")


def _make_activity(session: _ServerSession) -> Callable[..., Any]:
    """Return the activity that hands itself to the code that waits for it, and is completed by this code later."""

    @activity.defn(dynamic=True)
    async def receive(arguments: Sequence[RawValue]) -> None:
        del arguments
        info = activity.info()
        arrival = session.arrivals.pop(info.activity_id, None)
        if arrival is None or arrival.done():
            raise ApplicationError("The call was cancelled.", type=NOT_STARTED, non_retryable=True)
        handle = session.client.get_async_activity_handle(task_token=info.task_token)
        session.beating.add(handle)
        arrival.set_result(handle)
        activity.raise_complete_async()

    return receive
