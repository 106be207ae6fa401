"""Open what `Depends` parameters need, and close it after the call or the run."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeAlias, cast

from typing_extensions import override

from toolmason._core.define.context import ToolContext, get_run
from toolmason._core.define.invocation import PicklableCall
from toolmason._core.define.signature import Dependency, get_function_name, unwrap_function
from toolmason._core.define.tool import CompiledTool
from toolmason._core.run.execute import call_user_function, run_in_thread
from toolmason._core.run.processes import collect_value
from toolmason._core.values.policy import EngineSettings, RunsOn
from toolmason._core.values.remote_executor import RemoteExecutor

_log = logging.getLogger("toolmason")

Close: TypeAlias = Callable[[BaseException | None], Awaitable[None]]
"""Function that closes a dependency, with the error of the call or None."""


class DependencyStack:
    """Dependencies of one call, or one of a run, in the order in which they were opened."""

    def __init__(self, context: ToolContext[Any], settings: EngineSettings) -> None:
        self.context, self.settings = context, settings
        self._values: dict[Any, Any] = {}
        self._closers: list[tuple[Callable[..., Any], Close]] = []

    async def get(self, dependency: Dependency) -> Any:
        """Return the value of a dependency. A factory that several parameters need makes one value."""
        if dependency.scope == "run" and (resources := _get_resources(self.context)) is not None:
            return await resources.get(dependency, self.context, self.settings)
        return await self.open(dependency)

    async def open(self, dependency: Dependency) -> Any:
        """Return the value of a dependency, which this stack closes."""
        factory = dependency.factory
        if factory in self._values:
            return self._values[factory]
        positional, named = [], {}
        for parameter in dependency.parameters:
            value = cast("Any", parameter.injector)(self.context)
            value = await self.get(value) if isinstance(value, Dependency) else value
            if parameter.positional:
                positional.append(value)
            else:
                named[parameter.name] = value
        make = partial(factory, *positional, **named)
        function, close = unwrap_function(factory), cast("Close | None", None)
        if inspect.isasyncgenfunction(function):
            async_manager = asynccontextmanager(make)()
            value = await async_manager.__aenter__()
            close = partial(_close_on_loop, async_manager)
        elif inspect.isgeneratorfunction(function):
            resource = _ThreadResource(contextmanager(make)(), self.settings)
            value = await resource.open()
            close = resource.close
        else:
            value = await call_user_function(make, settings=self.settings)
        self._values[factory] = value
        if close is not None:
            self._closers.append((factory, close))
        return value

    async def close(self, error: BaseException | None) -> None:
        """Close everything that was opened, the last first, each with the error so far.

        Raises:
            BaseException: the error, or another one that a factory raised in its place.
        """
        while self._closers:
            factory, close = self._closers.pop()
            try:
                await close(error)
            except BaseException as raised:  # noqa: BLE001 - the others must be closed as well
                if isinstance(error, asyncio.CancelledError):
                    _log_failure(factory, raised)
                elif raised is not error:
                    error = raised
        if error is not None:
            raise error


async def _close_on_loop(manager: Any, error: BaseException | None) -> None:
    await manager.__aexit__(*_describe(error))


def _describe(error: BaseException | None) -> tuple[Any, ...]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _log_failure(factory: Callable[..., Any], error: BaseException) -> None:
    _log.warning("the dependency %s failed to close: %s", get_function_name(factory), type(error).__name__)


class _ThreadResource:
    """A sync generator, which is opened and closed in threads. If its opening is abandoned, that thread closes it."""

    def __init__(self, manager: Any, settings: EngineSettings) -> None:
        self._manager, self._settings = manager, settings
        self._lock = threading.Lock()
        self._is_open = self._is_abandoned = False

    async def open(self) -> Any:
        try:
            return await call_user_function(self._open, settings=self._settings)
        except asyncio.CancelledError as cancelled:
            with self._lock:
                self._is_abandoned = not self._is_open
            if not self._is_abandoned:
                await self.close(cancelled)
            raise

    def _open(self) -> Any:
        value = self._manager.__enter__()
        with self._lock:
            self._is_open = not self._is_abandoned
        if not self._is_open:
            self._manager.__exit__(*_describe(asyncio.CancelledError()))
        return value

    async def close(self, error: BaseException | None) -> None:
        await call_user_function(self._manager.__exit__, *_describe(error), settings=self._settings)


# --- a call --------------------------------------------------------------------------------------


class DependentTool(CompiledTool):
    """The engine's side of a tool with dependencies that runs in another process, which opens them."""

    @override
    def make_picklable_call(self, values: dict[str, Any], context: ToolContext[Any]) -> PicklableCall:
        function, names, values = super().make_picklable_call(values, context)
        return _call_in_worker, (), {"function": function, "names": names, "values": values, "context": context}


async def _call_in_worker(
    function: Callable[..., Any], names: tuple[str, ...], values: dict[str, Any], context: ToolContext[Any]
) -> Any:
    async def work(opened: dict[str, Any]) -> Any:
        positional = [opened.pop(name) for name in names]
        return await collect_value(function(*positional, **opened))

    return await _call_with(work, values, DependencyStack(context, EngineSettings()))


def has_dependencies(compiled: CompiledTool) -> bool:
    """Return True if a tool has parameters that a factory makes."""
    return any(isinstance(parameter.injector, Dependency) for parameter in compiled.parameters)


def add_dependencies(compiled: CompiledTool, runs_on: RunsOn, settings: EngineSettings) -> tuple[CompiledTool, RunsOn]:
    """Return a tool that opens its dependencies around its function, and where to run it: on the loop.

    The function itself runs where `runs_on` says.
    """
    if runs_on == "process" or isinstance(runs_on, RemoteExecutor):
        return DependentTool(**{item.name: getattr(compiled, item.name) for item in fields(compiled)}), runs_on

    async def call(values: dict[str, Any], context: ToolContext[Any]) -> Any:
        async def work(opened: dict[str, Any]) -> Any:
            return await _run_function(partial(compiled.call, opened, context), runs_on, settings)

        return await _call_with(work, values, DependencyStack(context, settings))

    return replace(compiled, call=call, kind="async"), "loop"


async def _call_with(
    work: Callable[[dict[str, Any]], Awaitable[Any]], values: dict[str, Any], stack: DependencyStack
) -> Any:
    """Run a tool with its dependencies open, and close them whatever happens."""
    value, failure = None, None
    try:
        opened = dict(values)
        for name, given in values.items():
            if isinstance(given, Dependency):
                opened[name] = await stack.get(given)
        value = await work(opened)
    except BaseException as error:  # noqa: BLE001 - raised again by `close`
        failure = error
    await stack.close(failure)
    return value


async def _run_function(work: Callable[[], Any], runs_on: RunsOn, settings: EngineSettings) -> Any:
    """Run the function of a tool, and wait for what it returns: it may still use the dependencies."""
    loop = asyncio.get_running_loop()
    if runs_on == "loop":
        value = work()
    elif runs_on == "thread":
        value = await run_in_thread(work, None, settings, loop)
    else:
        value = await loop.run_in_executor(cast("Executor", runs_on), copy_context().run, work)
    if isinstance(value, Future):
        return await asyncio.wrap_future(value)
    return await value if inspect.isawaitable(value) else value


# --- a run ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class _RunResource:
    """Dependency of a run, which one task opens and closes: an async generator may not change its task."""

    opened: asyncio.Future[Any]
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class RunResources:
    """Dependencies with `scope="run"` of one run."""

    def __init__(self) -> None:
        self._by_factory: dict[Any, _RunResource] = {}
        self._open: list[_RunResource] = []
        """Those that are open, in order."""

    async def get(self, dependency: Dependency, context: ToolContext[Any], settings: EngineSettings) -> Any:
        """Return the value of a dependency. The first call opens it; the others wait for the same value."""
        loop = asyncio.get_running_loop()
        key = (loop, dependency.factory)  # synchronous calls of one run may have other loops
        if (resource := self._by_factory.get(key)) is None:
            self._by_factory[key] = resource = _RunResource(loop.create_future())
            resource.task = loop.create_task(self._hold(key, resource, dependency, DependencyStack(context, settings)))
        return await asyncio.shield(resource.opened)

    async def _hold(self, key: Any, resource: _RunResource, dependency: Dependency, stack: DependencyStack) -> None:
        try:
            value = await stack.open(dependency)
        except BaseException as error:  # noqa: BLE001 - each call that waits gets it
            self._by_factory.pop(key, None)  # the next call tries again
            failure = RuntimeError("the run has ended") if isinstance(error, asyncio.CancelledError) else error
            resource.opened.set_exception(failure)
            resource.opened.exception()  # marks it as read, if no call waits any more
            return
        self._open.append(resource)
        resource.opened.set_result(value)
        await resource.closing.wait()
        try:
            await stack.close(None)
        except Exception as error:  # noqa: BLE001 - the run has its outcome
            _log_failure(dependency.factory, error)

    async def aclose(self, seconds: float | None) -> None:
        """Close everything, the last first. `seconds` is the time for each."""
        # In a task of its own, so that a second cancellation of the caller leaves nothing open.
        await asyncio.shield(asyncio.ensure_future(self._close_all(seconds)))

    async def _close_all(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        resources = [*reversed(self._open), *[each for each in self._by_factory.values() if not each.opened.done()]]
        self._open, self._by_factory = [], {}
        for resource in resources:
            task = resource.task
            if task is None or task.done():
                continue
            if task.get_loop() is not loop:
                task.get_loop().call_soon_threadsafe(resource.closing.set)
                continue
            resource.closing.set()
            if not resource.opened.done():
                task.cancel()
            _, late = await asyncio.wait((task,), timeout=seconds)
            if late:
                _log.warning("a dependency of the run did not close within %s s", seconds)
                task.cancel()


def _get_resources(context: ToolContext[Any]) -> RunResources | None:
    """Return the dependencies of the run that a call belongs to; None without a run, and in a worker process."""
    run: Any = get_run(context)
    if not hasattr(run, "resources"):
        return None
    if run.resources is None:
        run.resources = RunResources()
    resources: RunResources = run.resources
    return resources
