"""Define the requests to the workflow of a run, its answers, and its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

DRIVE: Final = "drive"
"""Name of the activity in which a worker drives a run."""
RUNS_QUEUE: Final = "/runs"
"""End of the name of the task queue of the workers that drive runs."""


def get_workflow_id(run: str, generation: int) -> str:
    """Return the ID of a workflow of a run. A run that goes on after its workflow has ended gets another one."""
    return f"toolmason/{run}" if generation == 1 else f"toolmason#{generation}/{run}"


@dataclass(frozen=True, slots=True)
class EffectState:
    """Record of one effect."""

    key: str
    kind: str
    name: str
    arguments: dict[str, Any]
    repeatable: bool
    attempt: int = 1
    state: str = "started"
    """`started`, `done`, `waits`, `again` or `unknown`, as in the SQLite journal."""
    outcome: Any = None
    at: float = 0.0
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Acquisition:
    """Request of a driver to hold the run."""

    holder: str
    """ID of this execution of the run."""
    process: str
    queue: str
    """Task queue that only the driver polls."""
    lease: float
    dead_holder: str = ""
    """Holder whose process is known to have ended."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """Answer to a driver: the recorded facts, or why it cannot hold the run."""

    state: Literal["held", "taken", "empty", "retired"]
    """`empty`: the record of `previous` has to be restored first. `retired`: the run goes on in another workflow."""
    facts: dict[str, Any] = field(default_factory=dict)
    holder: str = ""
    process: str = ""
    previous: str = ""


@dataclass(frozen=True, slots=True)
class Performance:
    """Request to perform an effect."""

    holder: str
    effect: EffectState
    activity: str
    """ID of the activity."""
    again: bool = False
    """True if the effect is known not to have been executed."""


@dataclass(frozen=True, slots=True)
class EffectDecision:
    """Answer to a driver about an effect: its record, or that it has to be performed."""

    state: Literal["start", "done", "unknown", "changed", "taken"]
    known: EffectState | None = None
    is_full: bool = False
    """True if the run has to go on in another workflow soon."""


@dataclass(frozen=True, slots=True)
class ChildRun:
    """Request to start the workflow of a run that belongs to this one: a delegated chat, or work in the background."""

    workflow: str
    """ID of the workflow."""
    survives: bool
    """True if it goes on after this workflow was cancelled."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of an effect that was interrupted, set by its driver or by an operator."""

    holder: str
    key: str = ""
    state: str = ""
    outcome: Any = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of a run to record, and its end."""

    holder: str
    facts: dict[str, Any]
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class DriveRequest:
    """Request that any worker of a task queue drives the run."""

    run: str
    queue: str
    lease: float
    message: dict[str, Any]
    conversation: str | None = None
    decisions: list[dict[str, Any]] = field(default_factory=list)
    """Decisions about the calls that wait for approval."""
    carrier: dict[str, str] = field(default_factory=dict)
    """Trace of the program that started the run."""


@dataclass(frozen=True, slots=True)
class RunView:
    """Record of a run without its effects."""

    begun: float
    finish: str | None
    effects: int
    held: bool
    facts: dict[str, Any]
    previous: str = ""
    """ID of the workflow that has the record, if it was not restored from there."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some of the effects of a run."""

    effects: list[EffectState]
    next: int | None = None
    """Index of the next page, or None after the last one."""
    view: RunView | None = None
