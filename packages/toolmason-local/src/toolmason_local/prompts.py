"""Format the prompts that the adapter was trained on, and read its replies.

Training and inference share this module: the adapter understands only prompts of exactly this form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolmason import ToolDefinition
from toolmason_local.smallest_values import resolve
from toolmason_local.writer import escape_special_tokens

Intent = Literal["none", "help", "hello", "thanks", "bye"]
INTENTS: Final[tuple[Intent, ...]] = ("none", "help", "hello", "thanks", "bye")
"""Replies that are not calls: no tool fits, a question about the tools, a greeting, thanks, a farewell."""
CALL: Final = "call "
SAY: Final = "say "
END: Final = "<|im_end|>"
MAX_TOOLS_CHARS: Final = 2400
"""Maximum characters of all tools; beyond it, the descriptions of parameters are left out."""
_INSTRUCTIONS: Final = """\
Reply with one line: `call NAME JSON` if a tool fits the request, such as: call get_weather {"city": "Oslo"}
Reply `help` to a question about the tools, `hello`, `thanks` or `bye` to a pleasantry, and `none` if no tool fits.
After the result of a tool, reply `say SENTENCE` with an answer for the user."""
_MAX_ABOUT_CHARS: Final = 160
_MAX_NOTE_CHARS: Final = 60
_MAX_TEXT_CHARS: Final = 1500
_MAX_RESULT_CHARS: Final = 500
_MAX_CHOICES: Final = 8
_MAX_TYPE_DEPTH: Final = 3
_USUAL_TYPE: Final = "string"
"""Type of most parameters. Prompts leave it out, because each token takes time."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Message of a conversation as the adapter reads it: of the user, the model or a tool."""

    role: Literal["user", "assistant", "tool"]
    text: str


def format_prompt(tools: Sequence[ToolDefinition], turns: Sequence[Turn], *, is_trained: bool = True) -> str:
    """Return the prompt of a conversation, up to the reply of the model. An untrained model needs instructions."""
    lines = [format_tool(tool) for tool in tools]
    if sum(map(len, lines)) > MAX_TOOLS_CHARS:
        lines = [format_tool(tool, has_notes=False) for tool in tools]
    system = "\n".join([*(() if is_trained else (_INSTRUCTIONS,)), "Tools:", *lines])
    messages = [_format_message("system", system), *(_format_message(turn.role, _shorten(turn)) for turn in turns)]
    return "".join([*messages, "<|im_start|>assistant\n"])


def format_tool(tool: ToolDefinition, *, has_notes: bool = True) -> str:
    """Return the signature and the description of a tool in one line."""
    schema = tool.input_schema
    properties = schema.get("properties")
    required = schema.get("required") or ()
    parts = [
        name
        + ("" if name in required else "?")
        + ("" if (kind := _format_type(part, schema)) == _USUAL_TYPE else f": {kind}")
        + (_format_note(part) if has_notes else "")
        for name, part in (properties.items() if isinstance(properties, Mapping) else ())
        if isinstance(part, Mapping)
    ]
    return f"{tool.name}({', '.join(parts)}) {' '.join(tool.description.split())[:_MAX_ABOUT_CHARS]}"


def format_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as the adapter writes it."""
    return f"{CALL}{name} {json.dumps(dict(arguments), ensure_ascii=False)}"


def _format_type(part: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    part = resolve(part, root)
    choices = part.get("enum")
    if isinstance(choices, list) and choices:
        return "|".join(
            " ".join(choice.split()) if isinstance(choice, str) else json.dumps(choice)
            for choice in choices[:_MAX_CHOICES]
        )
    kind = part.get("type", "any")
    if kind == "array" and depth < _MAX_TYPE_DEPTH:
        return f"{_format_type(part.get('items', {}), root, depth + 1)}[]"
    return part["format"] if isinstance(part.get("format"), str) and kind == _USUAL_TYPE else str(kind)


def _format_note(part: Mapping[str, Any]) -> str:
    note = " ".join(str(part.get("description", "")).split())[:_MAX_NOTE_CHARS]
    return f" ({note})" if note else ""


def _shorten(turn: Turn) -> str:
    if turn.role == "tool":
        return turn.text[:_MAX_RESULT_CHARS]
    return turn.text.strip()[-_MAX_TEXT_CHARS:]


def _format_message(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{escape_special_tokens(text)}{END}\n"
