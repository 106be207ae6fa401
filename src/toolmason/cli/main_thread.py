"""Run a coroutine in a second thread, so that the main thread can read lines and receive Ctrl-C.

A thread that waits for a line cannot be interrupted: only the main thread receives signals.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

import click

_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Side:
    """State of one `run_beside`: questions for the main thread, and the reaction to Ctrl-C."""

    def __init__(self) -> None:
        self.questions: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.reactions: list[Callable[[], object]] = []
        """Reactions to the next Ctrl-C, the last one first."""


_SIDE: Final[ContextVar[_Side]] = ContextVar("toolmason_main_thread")


def run_beside(coro: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to completion in a second thread, and its questions in this one.

    Ctrl-C cancels the coroutine, unless `on_interrupt` sets another reaction; one more does not wait for its end.
    """
    side = _Side()
    outcome: Future[_T] = Future()
    context = copy_context()
    context.run(_SIDE.set, side)
    # A daemon: a tool that ignores its cancellation must not block the exit.
    threading.Thread(target=context.run, args=(_run, coro, side, outcome), name="toolmason-chat", daemon=True).start()
    while not outcome.done():
        try:
            _answer(side)
        except KeyboardInterrupt:
            if side.loop is None or not side.reactions:
                raise
            side.loop.call_soon_threadsafe(side.reactions.pop())
    return outcome.result()


def _run(coro: Coroutine[Any, Any, _T], side: _Side, outcome: Future[_T]) -> None:
    async def run() -> _T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        side.reactions.append(task.cancel)
        side.loop = asyncio.get_running_loop()
        return await coro

    try:
        outcome.set_result(asyncio.run(run()))
    except asyncio.CancelledError:
        outcome.set_exception(KeyboardInterrupt())
    except BaseException as error:  # noqa: BLE001 - the main thread raises it
        outcome.set_exception(error)
    finally:
        side.questions.put(None)


def _answer(side: _Side) -> None:
    while (question := side.questions.get()) is not None:
        question()


async def ask_main_thread(function: Callable[_P, _T], *args: _P.args, **keywords: _P.kwargs) -> _T:
    """Call a function that reads from the terminal; raise `click.Abort` on Ctrl-C or at the end of the input."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def ask() -> None:
        try:
            value = function(*args, **keywords)
        except (KeyboardInterrupt, EOFError):
            # An asyncio task that raises KeyboardInterrupt would end its loop at once.
            loop.call_soon_threadsafe(answer.set_exception, click.Abort())
        except Exception as error:  # noqa: BLE001 - the coroutine raises it
            loop.call_soon_threadsafe(answer.set_exception, error)
        else:
            loop.call_soon_threadsafe(answer.set_result, value)

    _SIDE.get().questions.put(ask)
    return await answer


@contextmanager
def on_interrupt(react: Callable[[], object]) -> Generator[None]:
    """Call a function on the first Ctrl-C in this block, instead of cancelling the coroutine."""
    reactions = _SIDE.get().reactions
    reactions.append(react)
    try:
        yield
    finally:
        if react in reactions:
            reactions.remove(react)
