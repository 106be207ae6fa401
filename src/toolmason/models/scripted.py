"""Model that replays a script, for tests, demos and first steps without an API key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import from_json
from typing_extensions import override

from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, iter_reply_events
from toolmason._core.values.messages import Message
from toolmason._core.values.results import Arguments, ToolCall
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError, ModelError

ScriptTurn: TypeAlias = "str | Iterable[ToolCall | tuple[str, Arguments]] | ModelReply"
ScriptStep: TypeAlias = "ScriptTurn | Callable[[ModelRequest], ScriptTurn]"


class ScriptedModel:
    """Model that replies with the items of a list, one per request.

    An item is a string (the answer), a list of calls, or a function that takes the request and returns one of these.
    """

    @explain_arguments
    def __init__(self, script: Iterable[ScriptStep], name: str = "scripted") -> None:
        if isinstance(script, str | bytes | Mapping):
            raise ConfigError(f"The script {script!r:.60} is not a list of turns. Use [{script!r:.60}].")
        self.name = name
        self.script = list(script)
        for turn in self.script:
            if isinstance(turn, tuple) and turn and isinstance(turn[0], str):
                raise ConfigError(f"The script has a call {turn!r:.60} in place of a turn. Use [{turn!r:.60}].")
        self.requests: list[ModelRequest] = []
        """Requests received, in order."""

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the next item of the script.

        Raises:
            ModelError: the script has ended.
        """
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self.script):
            raise ModelError(self.name, f"the script has {len(self.script)} turns, but this is request {number}")
        step = self.script[number - 1]
        turn = step(request) if callable(step) else step
        if isinstance(turn, ModelReply):
            return turn
        if isinstance(turn, str):
            return ModelReply(Message("assistant", turn))
        calls = [
            call if isinstance(call, ToolCall) else ToolCall(f"call_{number}_{index}", *call)
            for index, call in enumerate(turn, 1)
        ]
        return ModelReply(Message("assistant", (), calls), finish="calls")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the next item of the script, word by word."""
        for event in iter_reply_events(await self.respond(request)):
            yield event

    @override
    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.requests)} of {len(self.script)} turns>"


def load_script(path: str) -> ScriptedModel:
    """Read a script from a file: a list of strings and of lists of `{name, arguments}`.

    Raises:
        ConfigError: the file cannot be read or is not a valid script.
    """
    file = Path(path)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The script {path!r} cannot be read: {error}. Pass the path of a file.") from error
    turns = _parse_file(text, file)
    if not isinstance(turns, list):
        raise ConfigError(f"The script {path!r} is not a list. It needs one item per turn.")
    return ScriptedModel(
        [_parse_turn(turn, f"{path!r}, turn {n}") for n, turn in enumerate(turns, 1)], f"scripted:{path}"
    )


def _parse_file(text: str, file: Path) -> Any:
    if file.suffix == ".json":
        try:
            return from_json(text)
        except ValueError as error:
            raise ConfigError(f"The script {str(file)!r} is not valid JSON: {error}. Fix the file.") from error
    try:
        import yaml  # noqa: PLC0415 - an optional package, needed only for YAML scripts
    except ImportError as missing:  # pragma: no cover - the test suite has it
        raise ImportError("Scripts in YAML need PyYAML: pip install 'toolmason[yaml]'") from missing
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"The script {str(file)!r} is not valid YAML: {error}. Fix the file.") from error


def _parse_turn(turn: Any, location: str) -> ScriptTurn:
    if isinstance(turn, str):
        return turn
    calls = [turn] if isinstance(turn, Mapping) else turn
    if not isinstance(calls, list) or not all(isinstance(c, Mapping) and isinstance(c.get("name"), str) for c in calls):
        raise ConfigError(f"The script {location}: expected a string, or calls with `name` and `arguments`.")
    return [(call["name"], call.get("arguments") or {}) for call in calls]
