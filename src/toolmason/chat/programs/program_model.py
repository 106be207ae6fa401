"""Run a program in a sandbox as the model of a run: each call of a function is a call of a tool."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import pydantic_monty as monty
from pydantic_core import PydanticSerializationError, from_json, to_json

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, iter_reply_events
from toolmason._core.values.messages import Message, dump_result
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.programs.code import PROGRAM_FAILED, PROGRAM_MODEL, Code
from toolmason.chat.programs.stubs import Stub
from toolmason.errors import ToolError

MAX_PROGRAM_BYTES: Final = 64 * 1024
MAX_PAUSED: Final = 256
"""Programs that wait for a call, and go on without being run again from their start."""
CHECKOUT_SECONDS: Final = 60.0
"""Wait for a sandbox if all are in use."""
_MAX_ERROR_CHARS: Final = 4000
_OS_POLICY: Final[Any] = {
    # A program that is run again has to make the same calls, so that it has no clock and no entropy.
    "datetime": "call_host",
    "sleep": "call_host",
    "process_time": "zero",
    "random_start": {"seed": 0},
}
_FAILURES: Final = (monty.MontyError, monty.MontyCrashedError, TimeoutError, UnicodeError, ToolError)
"""Errors of a program, of the sandbox, and of text that is not Unicode."""
_Round: TypeAlias = tuple[ToolCall, ToolResult]

_pools: dict[int, Any] = {}
"""Pool of sandboxes, by the ID of the process: a forked child cannot use those of its parent."""
_lock = threading.Lock()


def open_pool() -> Any:
    """Return the sandboxes of this process, which end with it."""
    with _lock:
        if (pool := _pools.get(os.getpid())) is None:
            pool = monty.Monty(checkout_timeout=CHECKOUT_SECONDS, request_timeout=CHECKOUT_SECONDS)
            pool.__enter__()
            _pools[os.getpid()] = pool
        return pool


@atexit.register
def _close_pool() -> None:
    if (pool := _pools.pop(os.getpid(), None)) is not None:
        pool.__exit__(None, None, None)


@dataclass(slots=True)
class _Progress:
    """Output and use of a program so far, and its state if it waits for a call."""

    limit: int
    printed: str = ""
    is_truncated: bool = False
    seconds: float = 0.0
    state: bytes = b""

    def print(self, _: str, text: str) -> None:
        """Keep what the program prints, up to the limit."""
        room = self.limit - len(self.printed)
        self.printed += text[:room]
        self.is_truncated = self.is_truncated or len(text) > room


class ProgramModel:
    """Model that runs the program in the first message, and asks for the calls that the program makes.

    A program is resumed from its state in the memory of this process. In another process it is run again, with the
    results that the conversation has.
    """

    name = PROGRAM_MODEL

    def __init__(self, settings: Code, stubs: Mapping[str, Stub]) -> None:
        self._settings, self._stubs = settings, stubs
        self._paused: OrderedDict[str, _Progress] = OrderedDict()

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Run the program until it calls a tool, or ends."""
        return await asyncio.to_thread(self._advance, request.messages)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply as events."""
        for event in iter_reply_events(await self.respond(request)):
            yield event

    def _advance(self, messages: Sequence[Message]) -> ModelReply:
        code = next(message.text for message in messages if message.role == "user")
        results = {result.call_id: result for message in messages for result in message.results}
        rounds = [(call, results[call.id]) for message in messages for call in message.calls]
        paused = self._paused.pop(rounds[-1][0].id, None) if rounds else None
        progress = paused or _Progress(self._settings.output_chars)
        started = time.perf_counter()
        try:
            if len(code.encode("utf-8", "replace")) > MAX_PROGRAM_BYTES:
                raise ToolError(f"The program is longer than {MAX_PROGRAM_BYTES} bytes. Write a shorter one.")
            with open_pool().checkout(limits=self._make_limits(progress), os_policy=_OS_POLICY) as session:
                if paused is not None:
                    snapshot = session.load_snapshot(paused.state, print_callback=progress.print)
                    earlier = deque(rounds[-1:])
                else:
                    snapshot = session.feed_start(code, print_callback=progress.print)
                    earlier = deque(rounds)
                snapshot, call = self._drive(snapshot, earlier)
                progress.seconds += time.perf_counter() - started
                if call is None:
                    return _succeed(progress, snapshot.output)
                progress.state = snapshot.dump()
        except _FAILURES as error:
            return ModelReply(Message("assistant", _join(progress, _describe(error))), finish_reason=PROGRAM_FAILED)
        self._paused[call.id] = progress
        while len(self._paused) > MAX_PAUSED:
            self._paused.popitem(last=False)
        return ModelReply(Message("assistant", (), [call]), finish="calls")

    def _make_limits(self, progress: _Progress) -> Any:
        settings = self._settings
        return {
            "max_memory": settings.memory_bytes,
            "max_feed_duration_secs": max(0.01, settings.cpu_seconds - progress.seconds),
            "max_suspensions": 100_000,
            "max_total_sleep_secs": 0.0,
        }

    def _drive(self, snapshot: Any, earlier: deque[_Round]) -> tuple[Any, ToolCall | None]:
        """Run a program until it ends, or makes a call that has no result yet. Return the call, or None."""
        while not isinstance(snapshot, monty.MontyComplete):
            if isinstance(snapshot, monty.NameLookupSnapshot):
                # A function may be used as a value; other names are not defined.
                known = snapshot.variable_name in self._stubs and snapshot.object_id is None
                snapshot = snapshot.resume(value=_make_function(snapshot.variable_name)) if known else snapshot.resume()
                continue
            if isinstance(snapshot, monty.FutureSnapshot):
                refusal: Any = {"exception": RuntimeError("nothing can be awaited here")}
                snapshot = snapshot.resume({call_id: refusal for call_id in snapshot.pending_call_ids})  # noqa: C420 - its type
                continue
            if snapshot.is_os_function:
                snapshot = snapshot.resume_not_handled()  # files, clock, environment, imports
                continue
            try:
                call = self._make_call(snapshot)
            except (TypeError, NameError) as error:
                snapshot = snapshot.resume({"exception": error})
                continue
            if not earlier:
                return snapshot, call
            recorded, result = earlier.popleft()
            # As JSON text: NaN does not equal itself.
            if recorded.name != call.name or to_json(recorded.arguments) != to_json(call.arguments):
                raise ToolError(f"The program was run again, and called {call.name} in place of {recorded.name}.")
            snapshot = snapshot.resume(self._make_answer(snapshot.function_name, result))
        return snapshot, None

    def _make_call(self, snapshot: Any) -> ToolCall:
        name = snapshot.function_name
        stub = self._stubs.get(name) if snapshot.object_id is None else None
        if stub is None:
            raise NameError(f"name {name!r} is not defined")
        try:
            arguments = from_json(to_json(stub.bind(snapshot.args, snapshot.kwargs), inf_nan_mode="constants"))
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise TypeError(f"{name}: an argument is not JSON: {error}") from None
        # The ID is unique, because the state of the program is found by it.
        return ToolCall(f"call_{uuid.uuid4().hex[:12]}", stub.tool, arguments)

    def _make_answer(self, function: str, result: ToolResult) -> Any:
        if result.error is None:
            return {"return_value": self._stubs[function].get_value(result)}
        # The message as a model reads it: the policy may have redacted the error.
        return {"exception": RuntimeError(str(dump_result(result)["error"]["message"])[:_MAX_ERROR_CHARS])}


def _make_function(name: str) -> Any:
    def stand_in(*_: Any) -> None: ...

    stand_in.__name__ = name
    return stand_in


def _describe(error: BaseException) -> str:
    display = getattr(error, "display", None)
    return str(error) if display is None else str(display())[-_MAX_ERROR_CHARS:]


def _succeed(progress: _Progress, value: Any) -> ModelReply:
    text = "" if value is None else _format(value)
    if len(text) > progress.limit - len(progress.printed):
        text, progress.is_truncated = text[: progress.limit - len(progress.printed)], True
    return ModelReply(
        Message("assistant", _join(progress, text) or "The program printed nothing. Print what you need.")
    )


def _join(progress: _Progress, text: str) -> str:
    note = f"[truncated: the limit is {progress.limit} characters]" if progress.is_truncated else ""
    return "\n".join(filter(None, (progress.printed.rstrip("\n"), text, note)))


def _format(value: Any) -> str:
    if isinstance(value, str):
        return value
    for write in (partial(to_json, fallback=repr, inf_nan_mode="constants"), repr):
        try:
            text = write(value)
        except (PydanticSerializationError, ValueError, RecursionError):
            continue
        return text if isinstance(text, str) else text.decode()
    return f"<{type(value).__name__}>"
