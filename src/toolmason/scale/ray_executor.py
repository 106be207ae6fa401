"""Run tools on a Ray cluster, as tasks or in a pool of actors.

Retries belong to the toolbox: Ray repeats a call only if the tool is idempotent. A call that is cancelled, at its
deadline or by the program, ends with its worker process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from typing_extensions import override

from toolmason._core.run.processes import WorkerDied, unpickle_error_chain
from toolmason._core.run.slots import Semaphore
from toolmason._core.values.remote_executor import RemoteCall, RemoteExecutor, StoredValue
from toolmason._explain import explain_arguments
from toolmason._text import clip, safe_str
from toolmason.errors import ConfigError
from toolmason.scale.ray_worker import describe_program, run_call, stream_call

_REPEATS: Final = 1
"""Number of times that a lost call of an idempotent tool is repeated: by Ray if it is a task."""
_CONNECT_SECONDS: Final = 5.0


class RayObject(StoredValue):
    """Large return value of a tool, in the object store of the cluster. `get()` copies it to this process."""

    def __init__(self, reference: Any, kind: str, size: int, head: str) -> None:
        self.reference, self.kind, self.size, self.head = reference, kind, size, head

    @override
    def get(self) -> Any:
        """Return the value. Blocks until it is copied."""
        ray = import_module("ray")
        return pickle.loads(ray.get(self.reference))  # noqa: S301 - from a worker of the same application

    @override
    def __str__(self) -> str:
        return f"{self.head}\n[{self.kind}, {self.size:,} bytes, kept in the object store]"

    @override
    def __repr__(self) -> str:
        return f"RayObject({self.kind}, {self.size:,} bytes)"


class RayExecutor(RemoteExecutor):
    """Runs tools on a Ray cluster: one task for each call or, with `actors`, in as many processes that stay."""

    kind = "ray"

    @explain_arguments
    def __init__(
        self,
        address: str | None = None,
        *,
        actors: int | None = None,
        cpus: float = 1,
        runtime_env: Mapping[str, Any] | None = None,
        init: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare to use the cluster at `address`; the first call connects.

        None means the variable RAY_ADDRESS or, without it, a cluster on this machine that ends with the program.
        `cpus` is what a call, or an actor, needs unless its tool says it. `init` has more options of `ray.init`.
        """
        if actors is not None and actors < 1:
            raise ConfigError(f"RayExecutor(actors={actors!r}): must be at least 1, or None for a task for each call.")
        if not cpus >= 0:
            raise ConfigError(f"RayExecutor(cpus={cpus!r}): must be at least 0.")
        self.address, self.actors, self.cpus = address, actors, cpus
        self.runtime_env, self.init = dict(runtime_env or {}), dict(init or {})
        self._lock = threading.Lock()
        self._ray: Any = None
        self._owns_ray = False
        self._slots = None if actors is None else Semaphore(actors)
        self._idle: list[Any] = []
        self._functions: dict[Any, Any] = {}

    # --- connection ----------------------------------------------------------------------------------

    def connect(self) -> Any:
        """Connect to the cluster, or start one on this machine. Return the module `ray`. Blocks for some seconds.

        Raises:
            ConfigError: no cluster answers at the address, or its versions differ.
        """
        with self._lock:
            if self._ray is None:
                ray = self._start()
                # Once for each connection: Ray sends the functions to the cluster.
                self._functions = {function: ray.remote(function) for function in (run_call, stream_call, _Worker)}
                self._ray = ray
            return self._ray

    def _start(self) -> Any:
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if address == "local" and "ray" not in sys.modules:
            # Ray opens its ports on all interfaces: without a token, any host could run code here. A program that
            # has imported Ray has decided: Ray reads the variables at that moment.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            ray = import_module("ray")
        except ImportError as missing:
            raise ImportError("Ray is not installed: pip install 'toolmason[ray]'") from missing
        if ray.is_initialized():
            return ray
        _check_reachable(address)
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "namespace": "toolmason"}
        if address == "local":
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        if self.runtime_env:
            options["runtime_env"] = self.runtime_env
        try:
            ray.init(address=address, **{**options, **self.init})
        except Exception as error:
            raise ConfigError(
                f"RayExecutor(address={address!r}): cannot connect: {clip(safe_str(error), 300)}. "
                "Start a node with `ray start --head`, and check that both have the same versions of Python and Ray."
            ) from error
        self._owns_ray = True
        return ray

    @override
    async def aclose(self) -> None:
        """End the actors, and disconnect if this executor connected."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            ray, self._ray = self._ray, None
            idle, self._idle = self._idle, []
            if ray is None:
                return
            for actor in idle:
                ray.kill(actor)
            if self._owns_ray:
                self._owns_ray = False
                ray.shutdown()

    # --- calls ---------------------------------------------------------------------------------------

    @override
    async def run(self, call: RemoteCall) -> Any:
        ray = self._ray or await asyncio.to_thread(self.connect)
        needs = call.resources
        # An actor has its resources for life, so a tool with its own runs as a task.
        in_actor = self._slots is not None and needs.cpus is needs.gpus is needs.memory is None
        if not in_actor:
            return await self._run_task(ray, call)
        for _ in range(_REPEATS if call.repeatable else 0):
            with suppress(WorkerDied):
                return await self._run_in_actor(ray, call)
        return await self._run_in_actor(ray, call)

    async def _run_task(self, ray: Any, call: RemoteCall) -> Any:
        needs = call.resources
        options = {
            "name": f"toolmason.{call.name}",
            "num_cpus": self.cpus if needs.cpus is None else needs.cpus,
            "num_gpus": needs.gpus or 0,
            "max_retries": _REPEATS if call.repeatable else 0,
        }
        if needs.memory is not None:
            options["memory"] = needs.memory
        is_streaming = call.report is not None
        function = self._functions[stream_call if is_streaming else run_call]
        options["num_returns"] = "streaming" if is_streaming else 2
        sent = function.options(**options).remote(*_make_arguments(call))
        target = sent if is_streaming else sent[0]
        try:
            return await _receive(sent, call)
        except asyncio.CancelledError:
            ray.cancel(target, force=True)
            raise
        except ray.exceptions.RayError as error:
            raise _translate(error) from error

    async def _run_in_actor(self, ray: Any, call: RemoteCall) -> Any:
        slots = self._slots
        assert slots is not None  # noqa: S101 - the caller checked it
        await slots.acquire()
        actor: Any = None
        is_reusable = False
        try:
            actor = self._take_actor()
            is_streaming = call.report is not None
            method = actor.stream.options(num_returns="streaming") if is_streaming else actor.run.options(num_returns=2)
            value = await _receive(method.remote(*_make_arguments(call)), call)
            is_reusable = True
        except ray.exceptions.RayError as error:
            raise _translate(error) from error
        except asyncio.CancelledError:
            raise
        except BaseException:
            is_reusable = True  # an exception of the tool
            raise
        else:
            return value
        finally:
            self._release_actor(ray, actor, is_reusable=is_reusable)
            slots.release()

    def _take_actor(self) -> Any:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._functions[_Worker].options(num_cpus=self.cpus, max_restarts=0, max_task_retries=0).remote()

    def _release_actor(self, ray: Any, actor: Any, *, is_reusable: bool) -> None:
        """Keep an actor for the next call, or end it with the work that it still does."""
        if actor is None:
            return
        if is_reusable and self._ray is not None:
            with self._lock:
                self._idle.append(actor)
        else:
            ray.kill(actor, no_restart=True)


class _Worker:
    """Actor that runs one call after the other."""

    def run(self, *arguments: Any) -> Any:
        return run_call(*arguments)

    def stream(self, *arguments: Any) -> Any:
        yield from stream_call(*arguments)


def _make_arguments(call: RemoteCall) -> tuple[Any, ...]:
    path = [entry for entry in sys.path if entry]
    return call.payload, path, describe_program(), dict(call.carrier)


async def _receive(sent: Any, call: RemoteCall) -> Any:
    """Wait for the outcome of a call, and return its value or raise its exception."""
    if call.report is None:
        outcome, stored = await asyncio.wrap_future(sent[0].future()), sent[1]
    else:
        outcome = stored = None
        async for reference in sent:
            if outcome is not None:
                stored = reference
                break
            item = await reference
            if item[0] == "progress":
                call.report(*item[1])
            else:
                outcome = item
    match outcome:
        case ("ok", data):
            return pickle.loads(data)  # noqa: S301 - from a worker of this program
        case ("stored", kind, size, head):
            return RayObject(stored, kind, size, head)
        case ("error", chain):
            raise unpickle_error_chain(chain)
        case _:
            raise WorkerDied(None, "on Ray sent no outcome")


def _translate(error: Exception) -> Exception:
    """Return the error of a call that Ray could not finish."""
    exceptions = import_module("ray.exceptions")
    text = clip(safe_str(error), 300)
    if isinstance(error, exceptions.RayTaskError | exceptions.RuntimeEnvSetupError):
        return ConfigError(f"Ray cannot run the call on its worker: {text}")
    return WorkerDied(None, f"on Ray was lost ({type(error).__name__}): {text}")


def _check_reachable(address: str) -> None:
    """Raise if no program listens at an address: Ray itself would try for minutes.

    Raises:
        ConfigError: no program listens there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"RayExecutor(address={address!r}): cannot connect: {error}. Start a node with `ray start --head`."
        ) from error


@lru_cache(maxsize=1)
def get_ray_executor() -> RayExecutor:
    """Return the executor of this program for tools with `runs_on="ray"` in a toolbox without one."""
    return RayExecutor()
