"""What a stranger may write into a repository or a model's reply: Python sources, replies and streams of events."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolmason.build.check.find_files import find_target
from toolmason.build.check.run_checks import check
from toolmason.build.check.settings import CheckSettings
from toolmason.errors import ToolmasonError
from toolmason.providers import codec

HEAD = "from toolmason import tool, Toolbox\n"


def tools(count: int, parameters: str = "a: int", keywords: str = "") -> str:
    return HEAD + "".join(
        f"@tool({keywords})\ndef get_{number}({parameters}) -> str:\n    '''Do.'''\n" for number in range(count)
    )


def lines(pattern: str, count: int) -> str:
    """Return numbered lines: `#` is a number, `@` the one before it."""
    return "".join(pattern.replace("#", str(number)).replace("@", str(number - 1)) for number in range(1, count + 1))


SOURCES: dict[str, Callable[[int], str]] = {
    "many tools": tools,
    "one tool over and over": lambda size: HEAD + "@tool\ndef get(a: int): pass\n" * size,
    "many parameters": lambda size: tools(1, ", ".join(f"a{number}: int = {number}" for number in range(size))),
    "a long docstring": lambda size: tools(1).replace("Do.", "Do.\n\n    Args:\n" + lines("        a#: x\n", size)),
    "a chain of classes": lambda size: (
        HEAD
        + "class C0:\n    @tool\n    def get(self): pass\n"
        + lines("class C#(C@):\n    def get(self): pass\n", size)
    ),
    "many bases": lambda size: (
        HEAD
        + lines("class C#:\n    @tool\n    def get#(self): pass\n", size)
        + f"class D({', '.join(f'C{number}' for number in range(1, size + 1))}): pass\n"
    ),
    "a ring of classes": lambda size: HEAD + lines("class C@(C#): pass\n", size) + f"class C{size}(C0): pass\n",
    "types of types": lambda size: (
        "T0 = int\n" + lines("T# = list[T@] | T@\n", min(size, 40)) + tools(1, f"a: T{min(size, 40)}") + "#" * size
    ),
    "texts of texts": lambda size: "X0 = 'a'\n" + lines("X# = X@ + X@\n", size) + tools(1, "", f"description=X{size}"),
    "huge values": lambda size: tools(size, "", "description='a' * 10**9, timeout=9**9**9"),
    "a long sum": lambda size: tools(1, "", "description=" + "+".join(["'a'"] * size)),
    "many toolboxes": lambda size: tools(1) + lines("box# = Toolbox(get_0)\n", size),
    "toolboxes of toolboxes": lambda size: HEAD + "b0 = Toolbox()\n" + lines("b# = Toolbox(b@, b@)\n", size),
    "many calls": lambda size: HEAD + "@tool\ndef get(a: str):\n" + "    open(a)\n" * size,
    "many comments": lambda size: HEAD + "@tool\ndef get(a): pass  # toolmason: ignore[TM101]\n" * size,
    "many imports": lambda size: lines("from m# import *\n", size) + tools(1),
    "brackets": lambda size: tools(1, "", f"description={'(' * size}'a'{')' * size}"),
    "no Python": lambda size: "@tool(\n" * size,
}


def check_source(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tools.py")
        path.write_text(text, "utf-8")
        check([find_target(str(path))], CheckSettings(), mode="static", strict=True)


# --- models ------------------------------------------------------------------------------------

PIECE = 4
"""Characters of one event."""


def split(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def stream_openai(text: str) -> Iterator[Any]:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "t"}
    yield {"type": "response.output_item.added", "item": call}
    for piece in split(text):
        yield {"type": "response.function_call_arguments.delta", "item_id": "other", "delta": piece}
        yield {"type": "response.output_text.delta", "delta": piece}
    yield {"type": "response.completed", "response": {}}


def stream_openai_chat(text: str) -> Iterator[Any]:
    for piece in split(text):
        delta = {
            "content": piece,
            "reasoning_content": piece,
            "reasoning_details": [{"type": "text", "index": 0, "text": piece}],
            "tool_calls": [{"id": "c", "function": {"name": "t", "arguments": piece}}],
        }
        yield {"choices": [{"index": 0, "delta": delta}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def stream_anthropic(text: str) -> Iterator[Any]:
    yield {"type": "message_start", "message": {"role": "assistant"}}
    yield {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c", "name": "t"}}
    kinds = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
    for piece in split(text):
        for kind, key in kinds.items():
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: piece}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}}
        yield {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}
    yield {"type": "content_block_stop", "index": 1}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    yield {"type": "message_stop"}


def stream_gemini(text: str) -> Iterator[Any]:
    for piece in split(text):
        yield {"candidates": [{"content": {"parts": [{"text": piece}]}}]}
    call = {"functionCall": {"name": "t", "args": {"x": text}}}
    yield {"candidates": [{"content": {"parts": [call] * 3}, "finishReason": "STOP"}]}


STREAMS = {
    "openai": stream_openai,
    "openai-chat": stream_openai_chat,
    "anthropic": stream_anthropic,
    "gemini": stream_gemini,
}


def read_stream(provider: str, text: str) -> None:
    """Read a stream of small events."""
    reader = codec(provider).reader(codec(provider).no_names)
    with suppress(ToolmasonError):
        for event in STREAMS[provider](text):
            for _ in reader.feed(event):
                pass
        reader.end()


REPLIES: dict[str, Callable[[str, int], Any]] = {
    "openai": lambda text, count: {
        "status": "completed",
        "output": [
            {"type": "message", "content": [{"type": "output_text", "text": text}]},
            *[{"type": "function_call", "call_id": "c", "name": "t", "arguments": text[:200]}] * count,
        ],
    },
    "openai-chat": lambda text, count: {
        "choices": [
            {
                "finish_reason": "stop",
                "message": {
                    "content": text,
                    "tool_calls": [{"id": "c", "function": {"name": "t", "arguments": text[:200]}}] * count,
                },
            }
        ]
    },
    "anthropic": lambda text, count: {
        "stop_reason": "end_turn",
        "content": [
            {"type": "text", "text": text},
            *[{"type": "tool_use", "id": "c", "name": "t", "input": {"x": text[:200]}}] * count,
        ],
    },
    "gemini": lambda text, count: {
        "candidates": [
            {
                "finishReason": "STOP",
                "content": {
                    "parts": [{"text": text}, *[{"functionCall": {"name": "t", "args": {"x": text[:200]}}}] * count]
                },
            }
        ]
    },
}


def read_reply(provider: str, text: str) -> None:
    """Read a reply with a long text, and one call for each 20 characters, all with one id."""
    with suppress(ToolmasonError):
        codec(provider).decode(REPLIES[provider](text, len(text) // 20))
