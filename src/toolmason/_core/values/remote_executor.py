"""Define what runs tools on other machines, and the data of a call that travels there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResources:
    """Resources that one call of a tool needs; None for the executor's default."""

    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RemoteCall:
    """One attempt of a call, as data: the function by its name, the values by pickle."""

    name: str
    """Name of the tool."""
    payload: bytes
    """Pickled function, names of its positional parameters, and values."""
    repeatable: bool
    """True if running the tool twice does no harm."""
    resources: ToolResources
    carrier: Mapping[str, str]
    """Trace context."""
    report: Callable[..., None] | None
    """Receives progress reports; None if the call has no `on_progress`."""


class StoredValue(ABC):
    """Large return value that an executor keeps. The model reads its text, which is only a description."""

    @abstractmethod
    def get(self) -> Any:
        """Copy the value to this process, and return it."""

    @abstractmethod
    def __str__(self) -> str: ...


class RemoteExecutor(ABC):
    """Runs tools outside of this process. Pass it as `runs_on=` of a tool, or as `executor=` of a toolbox."""

    kind: str = ""
    """Name that tools use to ask for such an executor: `runs_on="ray"`."""

    @abstractmethod
    async def run(self, call: RemoteCall) -> Any:
        """Run a call and return its value. If this is cancelled, at the deadline, end the work as well.

        Raises:
            WorkerDied: the worker ended before the call; whether the call took effect is unknown.
            BaseException: any exception of the tool.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Release the workers."""
