"""A coroutine → its value now, or the rest of it to wait for.

Lives here: taking the first step of a coroutine in the task that runs, so that what is ready costs no timer, no
second task and no turn of the loop. Not here: what is done while waiting.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Rest:
    """A coroutine that has begun and waits; await it in the same task."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine, self._waits_for = coroutine, waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        step, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - a cancel belongs to who waits inside
                    waits_for = step.throw(error)
                else:
                    waits_for = step.send(sent)
        except StopIteration as end:
            return end.value


def first_step(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, Rest | None]:
    """Return the value of a coroutine that needs not wait, or the rest of one that does.

    Raises:
        BaseException: whatever the coroutine raises before its first wait.
    """
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return end.value, None
    return None, Rest(coroutine, waits_for)
