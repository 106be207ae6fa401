"""The model in the box: a real, very small language model on this machine, with no key and no network.

Lives here: `LocalModel`, one turn of it. A turn is a call or an answer: choose a tool, fill in its arguments, say what
came of it; where no tool is meant, the model talks. It runs in a thread of its own and ends when nobody waits for it.
Not here: the steps (`choosing`, `filling`, `telling`), or llama.cpp (`engine`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final

from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.toolbox.exchange import (
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    Finished,
    ModelEvent,
    ModelReply,
    ModelRequest,
    TextDelta,
)
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall
from toolmason.errors import ConfigError
from toolmason_local.choose_tool import allowed, chosen
from toolmason_local.engine import Session, engine_of
from toolmason_local.fill_arguments import filled
from toolmason_local.smallest_values import fits
from toolmason_local.summarize import calls_before, told
from toolmason_local.weights import weights_at
from toolmason_local.writer import Bounds, harmless

_SYSTEM: Final = "You are a small, friendly assistant. Answer in one or two short sentences."
_MOST_SAID: Final = 80
_FIND_TOOLS: Final = "find_tools"
"""The tool by which a chat offers a search of its other tools."""
_LONGEST_TALK: Final = 1600
"""Characters of a conversation that are read again for each answer: a second of waiting for each 500."""
_FOLLOW_UP: Final = 8
"""A text of no more words than this may be about the tool that was called before: "And in Brno?"."""

Tell = Callable[[str], None]


class LocalModel:
    """SmolLM2-135M-Instruct, or another GGUF file, through llama.cpp. Small, and often wrong; its calls always fit."""

    def __init__(self, path: str | None = None) -> None:
        if find_spec("xllamacpp") is None:
            raise ImportError("The local model needs llama.cpp: pip install xllamacpp")
        self.path = weights_at(path)
        self.name = f"local:{path}" if path else "local"
        self._ids = itertools.count(1)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request.

        Raises:
            ModelError: the file could not be loaded, or llama.cpp failed.
            ConfigError: the request has tools that a provider would run.
        """
        reply: ModelReply | None = None
        async for event in self.stream(request):
            reply = event.reply if isinstance(event, Finished) else None
        assert reply is not None  # noqa: S101 - the last event of every stream
        return reply

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer piece by piece; the last event is `Finished` with the whole of it.

        Raises:
            ModelError: the file could not be loaded, or llama.cpp failed.
            ConfigError: the request has tools that a provider would run.
        """
        if request.native:
            kind = type(request.native[0]).__name__
            raise ConfigError(
                f"The local model has no {kind}: nobody runs it here. Leave it out, or name another model."
            )
        queue: asyncio.Queue[ModelEvent | None] = asyncio.Queue()
        loop, over = asyncio.get_running_loop(), threading.Event()

        def tell(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens
                loop.call_soon_threadsafe(queue.put_nowait, TextDelta(text))

        def end(done: asyncio.Future[ModelReply]) -> None:
            # Whoever has stopped listening does not ask what went wrong; asyncio would complain that nobody did.
            _ = done.cancelled() or done.exception()
            queue.put_nowait(None)

        engine = engine_of(self.path)
        future = loop.run_in_executor(engine.thread, lambda: self._turn(request, engine.session(over.is_set), tell))
        future.add_done_callback(end)
        try:
            while (event := await queue.get()) is not None:
                yield event
            reply = await future
        finally:
            over.set()
            future.cancel()
        for call in reply.calls:
            yield CallOpened(call.id, call.name)
            yield ArgumentsDelta(call.id, to_json(call.arguments).decode())
            yield CallClosed(call)
        yield Finished(reply)

    def _turn(self, request: ModelRequest, writer: Session, tell: Tell) -> ModelReply:
        last = request.messages[-1] if request.messages else Message("user", "")
        searched = bool(last.results) and all(result.name == _FIND_TOOLS for result in last.results)
        if last.results and not searched:
            return _said(told(last.results, calls_before(request.messages)), writer, tell)
        text = last.text if last.role == "user" else _asked(request.messages)
        tools = allowed(request.tools, request.tool_choice)
        must = request.tool_choice is not None and request.tool_choice.mode == "required"
        search = next(
            (tool for tool in tools if tool.name == _FIND_TOOLS and fits({"query": text}, tool.input_schema)), None
        )
        useful = [tool for tool in tools if tool is not search]
        tool = _tool_for(writer, text, useful, request.messages, must=must) or (None if searched else search)
        if tool is None:
            return _talk(request, writer, tell)
        arguments: Any = {"query": text} if tool is search else filled(writer, tool, text)
        if arguments is None:
            return _said(f"I found no arguments for {tool.name} that fit.", writer, tell)
        call = ToolCall(f"local_{next(self._ids)}", tool.name, arguments)
        return ModelReply(Message("assistant", (), [call]), finish="calls", usage=writer.usage)

    @override
    def __repr__(self) -> str:
        return f"<model {self.name!r}>"


def _asked(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def _tool_for(
    writer: Session, text: str, tools: Sequence[ToolDefinition], messages: Sequence[Message], *, must: bool
) -> ToolDefinition | None:
    tool = chosen(writer, text, tools, must=must)
    before = calls_before(messages)
    if tool is None and before and text.casefold().startswith(("and ", "what about", "how about")):
        short = len(text.split()) <= _FOLLOW_UP
        tool = next((one for one in tools if short and one.name == before[-1].name), None)
    return tool


def _said(text: str, writer: Session, tell: Tell) -> ModelReply:
    tell(text)
    return ModelReply(Message("assistant", text), usage=writer.usage)


def _talk(request: ModelRequest, writer: Session, tell: Tell) -> ModelReply:
    wanted, ends = request.options.get("max_tokens"), request.options.get("stop")
    most = wanted if isinstance(wanted, int) and wanted > 0 else _MOST_SAID
    stop = (ends,) if isinstance(ends, str) else tuple(ends or ())
    bounds = Bounds(most=min(most, 1024), stop=("<|im_end|>", *stop))
    written = writer.write(_conversation(request.messages), bounds, tell)
    return ModelReply(
        Message("assistant", written.text.strip()), (), "stop" if written.whole else "length", writer.usage
    )


def _conversation(messages: Sequence[Message]) -> str:
    system = next((message.text for message in messages if message.role == "system"), _SYSTEM)
    turns = [_line(message.role, message.text) for message in messages if message.role != "system" and message.text]
    said = ""
    for turn in reversed(turns):
        if len(said) + len(turn) > _LONGEST_TALK:
            break
        said = turn + said
    return f"{_line('system', system[:_LONGEST_TALK])}{said}<|im_start|>assistant\n"


def _line(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{harmless(text)[-_LONGEST_TALK // 2 :]}<|im_end|>\n"
