"""Record a run with a model and tools, and replay it without them.

Requests must match exactly: a recording that differs fails the test.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

from toolmason._core.call.limits import to_json_like
from toolmason._core.toolbox.exchange import Finished, ModelEvent, ModelReply, ModelRequest, iter_reply_events
from toolmason._core.values.messages import dump_result, load_result
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._explain import explain_arguments
from toolmason._secrets import SECRET_NAMES, SECRET_PATTERNS
from toolmason.errors import Abort, ConfigError, clip
from toolmason.models.by_name import model as make_model
from toolmason.models.protocol import Model

FORMAT: Final = "toolmason-recording"
VERSION: Final = 1
REDACTED: Final = "[redacted]"

RecordingMode = Literal["auto", "record", "replay"]


class Recording:
    """File with recorded replies of a model and results of tools. See `model` and `hook`.

    `mode` is `"record"`, `"replay"`, or `"auto"`: replay if the file exists, otherwise record. `redact` adds
    patterns to redact; `ignore` lists paths of fields that may differ, such as `$.messages[*].results`.
    """

    @explain_arguments
    def __init__(
        self, path: str | Path, mode: RecordingMode = "auto", *, redact: Iterable[str] = (), ignore: Iterable[str] = ()
    ) -> None:
        if mode not in ("auto", "record", "replay"):
            raise ConfigError(f'mode={mode!r}: must be "auto", "record" or "replay".')
        self.path = Path(path)
        self.is_replaying = mode == "replay" or (mode == "auto" and self.path.exists())
        self.ignore = tuple(ignore)
        self._patterns = [_compile(pattern) for pattern in (*redact, *SECRET_PATTERNS)]
        self._turns: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._replayed_turns = 0
        if self.is_replaying:
            self._read()

    def model(self, model: Model | str) -> Model:
        """Return a model that records the replies of `model`, or replays them without calling it."""
        return _RecordedModel(self, model)

    async def hook(self, call: ToolCall, call_next: Callable[[ToolCall], Awaitable[ToolResult]]) -> ToolResult:
        """Record the results of tools, or replay them without running any: `box.use(recording.hook)`."""
        current = {"name": call.name, "arguments": self.redact(to_json_like(_get_arguments(call)))}
        if not self.is_replaying:
            result = await call_next(call)
            self._calls.append({**current, "result": self.redact(dump_result(result))})
            self._write()
            return result
        recorded = self._find_call(current)
        self._calls.remove(recorded)
        return load_result({**recorded["result"], "call_id": call.id})

    def _find_call(self, current: dict[str, Any]) -> dict[str, Any]:
        """Return the recorded call that matches. Concurrent calls arrive in any order."""
        similar = None
        for recorded in self._calls:
            request = {key: recorded[key] for key in ("name", "arguments")}
            if self._find_difference(request, current) is None:
                return recorded
            if similar is None and recorded["name"] == current["name"]:
                similar = request
        raise self._make_mismatch_error(f"the call of {current['name']}", similar, current)

    @property
    def unused(self) -> int:
        """Number of recorded turns and calls not yet replayed. 0 if the replay is complete."""
        return len(self._turns) - self._replayed_turns + len(self._calls) if self.is_replaying else 0

    # --- model turns ---------------------------------------------------------------------------------

    def record(self, request: ModelRequest, reply: ModelReply) -> None:
        """Record one turn of a model."""
        self._turns.append({"request": self.redact(_dump_request(request)), "reply": self.redact(reply.to_dict())})
        self._write()

    def replay(self, request: ModelRequest) -> ModelReply:
        """Return the recorded reply to the next request.

        Raises:
            Abort: the request differs from the recorded one; the message names the field.
        """
        current = self.redact(_dump_request(request))
        number = self._replayed_turns
        if number >= len(self._turns):
            raise self._make_mismatch_error(f"turn {number + 1} of the model", None, current)
        recorded = self._turns[number]
        if self._find_difference(recorded["request"], current) is not None:
            raise self._make_mismatch_error(f"turn {number + 1} of the model", recorded["request"], current)
        self._replayed_turns += 1
        return ModelReply.from_dict(recorded["reply"])

    # --- file ----------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"The recording {str(self.path)!r} cannot be read: {error}. Record it again.") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            raise ConfigError(f"{str(self.path)!r} is not a recording of this version. Record it again.")
        self._turns, self._calls = data["turns"], data["calls"]

    def _write(self) -> None:
        data = {"format": FORMAT, "version": VERSION, "turns": self._turns, "calls": self._calls}
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
        temporary.replace(self.path)

    def redact(self, value: Any) -> Any:
        """Return JSON data without secrets."""
        if isinstance(value, Mapping):
            return {
                key: REDACTED if isinstance(part, str) and re.search(SECRET_NAMES, str(key)) else self.redact(part)
                for key, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact(part) for part in value]
        if isinstance(value, str):
            value = self._redact_json_text(value)
            for pattern in self._patterns:
                value = pattern.sub(REDACTED, value)
        return value

    def _redact_json_text(self, text: str) -> str:
        """Redact a string that contains JSON itself, such as the text of a result or the arguments of a call."""
        if text.lstrip()[:1] not in ("{", "["):
            return text
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return text
        redacted = self.redact(data)
        return text if redacted == data else json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))

    def _find_difference(self, recorded: Any, current: Any) -> tuple[str, Any, Any] | None:
        for path, before, after in find_differences(recorded, current):
            if not any(_matches_path(path, pattern) for pattern in self.ignore):
                return path, before, after
        return None

    def _make_mismatch_error(self, label: str, recorded: Any, current: Any) -> Abort:
        found = None if recorded is None else self._find_difference(recorded, current)
        if found is None:
            return Abort(
                f"The recording {str(self.path)!r} has no match left for {label}. Record it again with mode='record'."
            )
        path, before, after = found
        return Abort(
            f"The recording {str(self.path)!r} does not match {label}: {path} was {clip(repr(before))}, now "
            f"{clip(repr(after))}. Record it again with mode='record', or skip the field with ignore=."
        )


class _RecordedModel:
    def __init__(self, recording: Recording, model: Model | str) -> None:
        self.recording = recording
        self.name = model if isinstance(model, str) else model.name
        # Replaying needs neither an API key nor the provider's package.
        self._wrapped: Model | None = None if recording.is_replaying or isinstance(model, str) else model

    def _get_wrapped(self) -> Model:
        if self._wrapped is None:
            self._wrapped = make_model(self.name)
        return self._wrapped

    async def respond(self, request: ModelRequest) -> ModelReply:
        if self.recording.is_replaying:
            return self.recording.replay(request)
        reply = await self._get_wrapped().respond(request)
        self.recording.record(request, reply)
        return reply

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if not self.recording.is_replaying:
            async for event in self._get_wrapped().stream(request):
                if isinstance(event, Finished):
                    self.recording.record(request, event.reply)
                yield event
            return
        for event in iter_reply_events(self.recording.replay(request)):
            yield event


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"redact={pattern!r} is not a regular expression: {error}. Correct it.") from error


def find_differences(recorded: Any, current: Any, path: str = "$") -> Iterable[tuple[str, Any, Any]]:
    """Yield the fields in which two JSON values differ: path, before, after."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in [*recorded, *(key for key in current if key not in recorded)]:
            yield from find_differences(recorded.get(key), current.get(key), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(current, list):
        for index in range(max(len(recorded), len(current))):
            before, after = (part[index] if index < len(part) else None for part in (recorded, current))
            yield from find_differences(before, after, f"{path}[{index}]")
    elif recorded != current:
        yield path, recorded, current


def _matches_path(path: str, pattern: str) -> bool:
    escaped = pattern.replace("[", "[[]")
    return fnmatchcase(path, escaped) or fnmatchcase(path, f"{escaped}[.[]*")


def _get_arguments(call: ToolCall) -> Any:
    arguments = call.raw
    if isinstance(arguments, bytes | bytearray | memoryview):
        return bytes(arguments).decode("utf-8", "replace")
    return arguments


def _dump_request(request: ModelRequest) -> dict[str, Any]:
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
    plain: dict[str, Any] = json.loads(json.dumps(to_json_like(data)))
    return plain
