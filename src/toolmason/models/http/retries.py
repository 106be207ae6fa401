"""A failed request → whether to try it again, and after how long.

Lives here: statuses, `Retry-After`, back-off with jitter. Not here: sending (`transport`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_AGAIN: Final = frozenset({408, 409, 429})
_SERVER_ERROR: Final = 500
_FIRST, _LONGEST, _PATIENCE = 0.5, 8.0, 60.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent again, and how long to wait before."""

    most: int = 2
    """Beside the first attempt."""

    def wait(self, attempt: int, asked: float | None = None) -> float | None:
        """Return the seconds to wait before another attempt; `None` where there is none.

        A wait that the provider asks for is kept to, up to a minute: more is for the caller to decide.
        """
        if attempt >= self.most or (asked is not None and asked > _PATIENCE):
            return None
        import random  # noqa: PLC0415 - 2 ms at start-up, for requests that failed

        longest = min(_LONGEST, _FIRST * 2.0**attempt)
        # Clients that failed together must not come back together.
        return max(asked or 0.0, longest * (0.75 + random.random() / 4))  # noqa: S311 - no secret


def may_pass(status: int) -> bool:
    """Tell whether a failure of this status may go away by itself."""
    return status in _AGAIN or status >= _SERVER_ERROR


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a provider asks us to wait."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 5 ms at start-up, for the rare date

    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, when.timestamp() - time.time())
