"""A run that was recorded → the same run again, without model and without tools.

Lives here: `Recording`: what is written down, what is redacted, and what is said where a request is another than the
recorded one. Not here: matching by likeness; a recording that does not fit is a failure of the test.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

from toolmason._core.call.limits import json_like
from toolmason._core.toolbox.exchange import (
    CallClosed,
    CallOpened,
    Finished,
    ModelEvent,
    ModelReply,
    ModelRequest,
    TextDelta,
)
from toolmason._core.toolbox.exchange import Usage as _Usage
from toolmason._core.values.messages import Message, dump_result, load_result
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import Abort, ConfigError, clip
from toolmason.models.by_name import model as model_of
from toolmason.models.protocol import Model

FORMAT: Final = "toolmason-recording"
VERSION: Final = 1
HIDDEN: Final = "[redacted]"
KEYS: Final = re.compile(r"(?i)(api[_-]?key|authorization|passw(or)?d|passphrase|secret|token|cookie|private[_-]?key)$")
"""Fields whose values are never written down: by the end of their names, such as `client_secret`."""
PATTERNS: Final = (r"\bsk-[\w-]{8,}", r"(?i)\bbearer\s+[\w.~+/=-]{8,}", r"\bgh[pousr]_\w{20,}", r"\bAKIA[A-Z0-9]{16}\b")
"""What is never written down, wherever it stands."""

Mode = Literal["auto", "record", "replay"]


class Recording:
    """A file with what a model and tools answered; see `model` and `hook`.

    `mode` is `"record"`, `"replay"`, or `"auto"`: replay where there is a file, else record. `redact` adds patterns of
    texts that are not written down; `ignore` has paths of fields that may change, such as `$.messages[*].results`.
    """

    def __init__(
        self, path: str | Path, mode: Mode = "auto", *, redact: Iterable[str] = (), ignore: Iterable[str] = ()
    ) -> None:
        if mode not in ("auto", "record", "replay"):
            raise ConfigError(f'mode={mode!r}: give "auto", "record" or "replay".')
        self.path = Path(path)
        self.replaying = mode == "replay" or (mode == "auto" and self.path.exists())
        self.ignore = tuple(ignore)
        self._patterns = [_compiled(pattern) for pattern in (*redact, *PATTERNS)]
        self._turns: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._used = 0
        if self.replaying:
            self._read()

    def model(self, model: Model | str) -> Model:
        """Return a model that records what this one answers, or replays it; then this one is never asked."""
        return _RecordedModel(self, model)

    async def hook(self, call: ToolCall, following: Callable[[ToolCall], Awaitable[ToolResult]]) -> ToolResult:
        """Record what a tool answers, or replay it, so that no tool runs: `box.use(recording.hook)`."""
        made = {"name": call.name, "arguments": self.redacted(json_like(_arguments(call)))}
        if not self.replaying:
            result = await following(call)
            self._calls.append({**made, "result": self.redacted(dump_result(result))})
            self._write()
            return result
        # Calls that ran side by side come in any order.
        found = next((kept for kept in self._calls if self._difference(_asked(kept), made) is None), None)
        if found is None:
            near = next((kept for kept in self._calls if kept["name"] == call.name), None)
            raise self._miss(f"call of {call.name}", None if near is None else _asked(near), made)
        self._calls.remove(found)
        return load_result({**found["result"], "call_id": call.id})

    @property
    def unused(self) -> int:
        """How many recorded turns and calls were not asked for; 0 where a replay is complete."""
        return len(self._turns) - self._used + len(self._calls) if self.replaying else 0

    # --- turns of the model --------------------------------------------------------------------------

    def keep(self, request: ModelRequest, reply: ModelReply) -> None:
        """Write down one turn of a model."""
        usage = {name: getattr(reply.usage, name) for name in _Usage.__slots__}
        answer = {"message": reply.message.to_dict(), "finish": reply.finish, "usage": usage}
        self._turns.append({"request": self.redacted(_plain(request)), "reply": self.redacted(answer)})
        self._write()

    def next(self, request: ModelRequest) -> ModelReply:
        """Return the recorded answer to the next request.

        Raises:
            Abort: the request is another than the recorded one; names the field.
        """
        now = self.redacted(_plain(request))
        number = self._used
        if number >= len(self._turns):
            raise self._miss(f"turn {number + 1} of the model", None, now)
        kept = self._turns[number]
        if self._difference(kept["request"], now) is not None:
            raise self._miss(f"turn {number + 1} of the model", kept["request"], now)
        self._used += 1
        reply = kept["reply"]
        return ModelReply(Message.from_dict(reply["message"]), (), reply["finish"], _Usage(**reply["usage"]))

    # --- the file ------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"The recording {str(self.path)!r} cannot be read: {error}. Record it again.") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            raise ConfigError(f"{str(self.path)!r} is no recording of this version. Record it again.")
        self._turns, self._calls = data["turns"], data["calls"]

    def _write(self) -> None:
        data = {"format": FORMAT, "version": VERSION, "turns": self._turns, "calls": self._calls}
        half = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        half.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
        half.replace(self.path)

    def redacted(self, value: Any) -> Any:
        """Return JSON data without secrets."""
        if isinstance(value, Mapping):
            return {
                key: HIDDEN if isinstance(part, str) and KEYS.search(str(key)) else self.redacted(part)
                for key, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redacted(part) for part in value]
        if isinstance(value, str):
            value = self._without_fields(value)
            for pattern in self._patterns:
                value = pattern.sub(HIDDEN, value)
        return value

    def _without_fields(self, text: str) -> str:
        """Return a text without secrets where it is JSON itself, as the text of a result or the arguments of a call."""
        if text.lstrip()[:1] not in ("{", "["):
            return text
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return text
        kept = self.redacted(data)
        return text if kept == data else json.dumps(kept, ensure_ascii=False, separators=(",", ":"))

    def _difference(self, kept: Any, now: Any) -> tuple[str, Any, Any] | None:
        return next((d for d in differences(kept, now) if not any(_fits(d[0], p) for p in self.ignore)), None)

    def _miss(self, what: str, kept: Any, now: Any) -> Abort:
        found = None if kept is None else self._difference(kept, now)
        if found is None:
            return Abort(f"The recording {str(self.path)!r} has no {what} left. Record it again with mode='record'.")
        place, before, after = found
        return Abort(
            f"The recording {str(self.path)!r} has another {what}: {place} was {clip(repr(before))}, and is "
            f"{clip(repr(after))}. Record it again with mode='record', or leave the field out with ignore=."
        )


class _RecordedModel:
    def __init__(self, recording: Recording, model: Model | str) -> None:
        self.recording = recording
        self.name = model if isinstance(model, str) else model.name
        # A replay needs no key and no package of the provider.
        self._asked: Model | None = None if recording.replaying or isinstance(model, str) else model

    def _model(self) -> Model:
        if self._asked is None:
            self._asked = model_of(self.name)
        return self._asked

    async def respond(self, request: ModelRequest) -> ModelReply:
        if self.recording.replaying:
            return self.recording.next(request)
        reply = await self._model().respond(request)
        self.recording.keep(request, reply)
        return reply

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if not self.recording.replaying:
            async for event in self._model().stream(request):
                if isinstance(event, Finished):
                    self.recording.keep(request, event.reply)
                yield event
            return
        reply = self.recording.next(request)
        if reply.text:
            yield TextDelta(reply.text)
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            yield CallClosed(call)
        yield Finished(reply)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"redact={pattern!r} is not a regular expression: {error}. Correct it.") from error


def differences(kept: Any, now: Any, place: str = "$") -> Iterable[tuple[str, Any, Any]]:
    """Yield the fields in which two pieces of JSON data differ: path, before, after."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in [*kept, *(key for key in now if key not in kept)]:
            yield from differences(kept.get(key), now.get(key), f"{place}.{key}")
    elif isinstance(kept, list) and isinstance(now, list):
        for index in range(max(len(kept), len(now))):
            before, after = (part[index] if index < len(part) else None for part in (kept, now))
            yield from differences(before, after, f"{place}[{index}]")
    elif kept != now:
        yield place, kept, now


def _fits(place: str, pattern: str) -> bool:
    wanted = pattern.replace("[", "[[]")
    return fnmatchcase(place, wanted) or fnmatchcase(place, f"{wanted}[.[]*")


def _asked(kept: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": kept["name"], "arguments": kept["arguments"]}


def _arguments(call: ToolCall) -> Any:
    given = call.arguments
    return bytes(given).decode("utf-8", "replace") if isinstance(given, bytes | bytearray | memoryview) else given


def _plain(request: ModelRequest) -> dict[str, Any]:
    choice = request.tool_choice
    data = {
        "messages": [message.to_dict() for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ],
        "tool_choice": None if choice is None else {"mode": choice.mode, "names": list(choice.names)},
        "options": dict(request.options),
    }
    plain: dict[str, Any] = json.loads(json.dumps(json_like(data)))
    return plain
