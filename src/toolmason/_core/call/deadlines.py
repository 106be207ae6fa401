"""Deadlines of batches and runs, and the time-outs of a call, its tool and its toolboxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from toolmason._core.values.policy import INHERIT, EngineSettings, Inherit, Timeout
from toolmason.errors import ToolTimeout

CLOCK_SLACK: Final = 0.005
"""Seconds a timer may fire early. Its deadline counts as passed."""
DEFAULT_SETTINGS: Final = EngineSettings()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Deadline:
    """Moment at which a batch or a run ends."""

    at: float
    """On the clock of `time.monotonic()`."""
    seconds: float
    """Total seconds of the batch or run."""
    limit: str
    """Name of the limit in error messages."""

    @property
    def remaining(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.at - monotonic())

    @property
    def is_over(self) -> bool:
        """True if the deadline has passed."""
        return monotonic() >= self.at - CLOCK_SLACK

    def make_error(self, tool: str, *, retryable: bool = False, is_harmless: bool = False) -> ToolTimeout:
        """Return the error of a call that the deadline ended."""
        return ToolTimeout(tool, self.seconds, limit=self.limit, retryable=retryable, is_harmless=is_harmless)


def get_earlier(first: Deadline | None, second: Deadline | None) -> Deadline | None:
    """Return the earlier of two deadlines; None means none."""
    if first is None or second is None:
        return second if first is None else first
    return second if second.at < first.at else first


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimeoutRule:
    """Time-out of each attempt of a tool's calls.

    Within one toolbox the order is call, tool, toolbox, setting. Between toolboxes the strictest that was set holds.
    """

    own: Timeout
    """Value that the called toolbox sets, as an option or a setting, or a tool that belongs to it."""
    inner: Timeout
    """Strictest value that the inner toolboxes set."""
    maximum: float

    @classmethod
    def combine(cls, per_box: Sequence[Timeout], maximum: float) -> TimeoutRule:
        """Return the rule of a tool, given the time-out that each toolbox sets."""
        return cls(per_box[-1], _get_strictest(per_box[:-1]), maximum)

    def get_seconds(self, call_timeout: Timeout) -> float | None:
        """Return the seconds of one attempt, given the time-out of the call. None means no limit."""
        chosen = _get_strictest([self.own if isinstance(call_timeout, Inherit) else call_timeout, self.inner])
        seconds = DEFAULT_SETTINGS.call_timeout if isinstance(chosen, Inherit) else chosen
        return None if seconds is None else min(seconds, self.maximum)


def _get_strictest(timeouts: Sequence[Timeout]) -> Timeout:
    """Return the shortest time-out that was set. None, no limit, counts only if nothing shorter was set."""
    numbers = [timeout for timeout in timeouts if timeout is not None and not isinstance(timeout, Inherit)]
    if numbers:
        return min(numbers)
    return None if None in timeouts else INHERIT
