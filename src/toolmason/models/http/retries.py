"""A failed request → whether to try it again, and after how long.

Lives here: statuses, `Retry-After`, back-off with jitter. Not here: sending (`transport`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_RETRY_STATUSES: Final = frozenset({408, 409, 429})
_SERVER_ERROR: Final = 500
_FIRST_DELAY, _MAX_DELAY, _MAX_RETRY_AFTER = 0.5, 8.0, 60.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent again, and how long to wait before."""

    max_retries: int = 2
    """Beside the first attempt."""

    def get_delay(self, attempt: int, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before another attempt; `None` where there is none.

        A wait that the provider asks for is kept to, up to a minute: more is for the caller to decide.
        """
        if attempt >= self.max_retries or (retry_after is not None and retry_after > _MAX_RETRY_AFTER):
            return None
        import random  # noqa: PLC0415 - 2 ms at start-up, for requests that failed

        max_delay = min(_MAX_DELAY, _FIRST_DELAY * 2.0**attempt)
        # Clients that failed together must not come back together.
        return max(retry_after or 0.0, max_delay * (0.75 + random.random() / 4))  # noqa: S311 - no secret


def is_retryable_status(status: int) -> bool:
    """Tell whether a failure of this status may go away by itself."""
    return status in _RETRY_STATUSES or status >= _SERVER_ERROR


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
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
