"""The state of one call, which its context shows to the tool."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pydantic_core import to_json

from toolmason._core.values.results import ToolCall


class RunOwner(Protocol):
    """Run of a chat."""

    def find_effect(self, call_id: str) -> str:
        """Return the key of a call in the run, the same each time the run is executed; empty if it has none."""
        ...

    def find_origins(self) -> frozenset[str]:
        """Return the origins of the results so far."""
        ...


class CallRun(RunOwner, Protocol):
    """Run that a call belongs to, as its context shows it."""

    @property
    def id(self) -> str:
        """ID of the run."""
        ...


_KEY_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _RunFacts:
    """Run of a call in another process."""

    id: str
    origins: frozenset[str]

    def find_effect(self, call_id: str) -> str:
        """Return an empty string: the key of the call crosses with its state."""
        del call_id
        return ""

    def find_origins(self) -> frozenset[str]:
        """Return the origins of the results before the call."""
        return self.origins


@dataclass(slots=True, eq=False, repr=False)
class CallState:
    """State that one call shares with its context: the call, the attempt, the deadline, cancellation."""

    call: ToolCall | None = None
    attempt: int = 1
    deadline: float | None = None
    run: CallRun | None = None
    cancelled: bool = False
    report: Any = None
    """Progress callback of (done, total, message)."""
    first: CallState = field(init=False)
    """State of the call itself, in the states of its attempts; else not set, as most calls have one attempt."""
    key: str = field(init=False)
    """Idempotency key; not set until it is needed."""

    def with_deadline(self, deadline: float | None) -> CallState:
        """Return the state of an attempt. A tool that overruns keeps the state it started with."""
        state = CallState(self.call, self.attempt, deadline, self.run, self.cancelled, self.report)
        state.first = self
        return state

    def detach(self) -> CallState:
        """Return the state for another process. Progress is reported back separately."""
        run = None if self.run is None else _RunFacts(self.run.id, self.run.find_origins())
        state = CallState(self.call, self.attempt, self.deadline, run, self.cancelled)
        state.key = getattr(getattr(self, "first", self), "key", "")
        return state

    def get_key(self, call_id: str, source: str) -> str:
        """Return the idempotency key: of the run and the call in it, else of `source`, else a random one."""
        import uuid  # noqa: PLC0415 - 5 ms at start-up, needed only here

        state = getattr(self, "first", self)
        with _KEY_LOCK:  # two threads of one tool must not make two keys
            if not getattr(state, "key", ""):
                if self.run is not None and (effect := self.run.find_effect(call_id)):
                    source = to_json([self.run.id, effect]).decode()
                state.key = str(uuid.uuid5(uuid.NAMESPACE_OID, f"toolmason {source}") if source else uuid.uuid4())
            return state.key
