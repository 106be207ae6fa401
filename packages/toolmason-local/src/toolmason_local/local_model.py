"""Model that runs one turn locally: call tools, answer with their results, or generate text.

A turn runs in a thread of its own and stops when the caller cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.util import find_spec
from typing import Final

from pydantic_core import to_json
from typing_extensions import override

from toolmason import Message, ToolCall, ToolDefinition, ToolResult
from toolmason.errors import ConfigError
from toolmason.models import Finished, ModelEvent, ModelReply, ModelRequest, TextDelta, iter_reply_events
from toolmason_local.answers import choose_answer, describe_intent, summarize_results
from toolmason_local.engine import LlamaSession, get_engine
from toolmason_local.history import FIND_TOOLS, count_calls, get_arguments, get_last_calls, make_turns
from toolmason_local.prompts import Turn, format_call
from toolmason_local.reply import Reply, decide_reply, filter_allowed
from toolmason_local.smallest_values import is_valid
from toolmason_local.weights import find_adapter, find_weights
from toolmason_local.writer import GenerationLimits, escape_special_tokens

_SYSTEM: Final = "You are a small, friendly assistant. Answer in one or two short sentences."
_MAX_TALK_TOKENS: Final = 80
_MAX_TALK_CHARS: Final = 1600
"""Maximum characters of a conversation in a prompt; every 500 take about a second to process."""
_MAX_PLEASANTRY_WORDS: Final = 4
_MAX_SENTENCES: Final = 3
"""Maximum results that each get a sentence; of more, the results are shown as they are."""
_MAX_CHAINED_CALLS: Final = 4
"""Maximum calls after one message of the user, in steps that each need the result before."""

OnText = Callable[[str], None]


class LocalModel:
    """SmolLM2-135M-Instruct, or another GGUF file, run by llama.cpp. Often wrong, but its calls are always valid."""

    def __init__(self, path: str | None = None) -> None:
        if find_spec("xllamacpp") is None:
            raise ImportError("The local model needs llama.cpp: pip install xllamacpp")
        self.path = find_weights(path)
        self.adapter = find_adapter(self.path)
        self.name = f"local:{path}" if path else "local"
        self._ids = itertools.count(1)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the reply to a request.

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
        """Yield the reply as events; the last one is `Finished` with the complete reply.

        Raises:
            ModelError: the file could not be loaded, or llama.cpp failed.
            ConfigError: the request has tools that a provider would run.
        """
        if request.native:
            kind = type(request.native[0]).__name__
            raise ConfigError(f"The local model does not support {kind}. Remove it, or use another model.")
        queue: asyncio.Queue[ModelEvent | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()

        def emit_text(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: there are no listeners
                loop.call_soon_threadsafe(queue.put_nowait, TextDelta(text))

        def on_done(done: asyncio.Future[ModelReply]) -> None:
            # If the caller has stopped listening, asyncio would warn about an exception that was never retrieved.
            _ = done.cancelled() or done.exception()
            queue.put_nowait(None)

        engine = get_engine(self.path, self.adapter)
        future = loop.run_in_executor(
            engine.thread, lambda: self._run_turn(request, engine.start_session(cancelled.is_set), emit_text)
        )
        future.add_done_callback(on_done)
        try:
            while (event := await queue.get()) is not None:
                yield event
            reply = await future
        finally:
            cancelled.set()
            future.cancel()
        for event in iter_reply_events(reply):
            if not isinstance(event, TextDelta):  # the text was streamed as it was generated
                yield event

    def _run_turn(self, request: ModelRequest, writer: LlamaSession, on_text: OnText) -> ModelReply:
        last = request.messages[-1] if request.messages else Message("user", "")
        searched = bool(last.results) and all(result.name == FIND_TOOLS for result in last.results)
        if request.answer is not None and last.results and not searched:
            return _make_answer(request, writer, on_text)
        tools = filter_allowed(request.tools, request.tool_choice)
        if not tools and not last.results:
            return _generate_reply(request, writer, on_text)
        if last.results and not searched:
            return self._answer_results(request, tools, writer, on_text)
        turns = make_turns(request.messages)
        text = _get_last_user_text(request.messages)
        search_tool = next(
            (tool for tool in tools if tool.name == FIND_TOOLS and is_valid({"query": text}, tool.input_schema)), None
        )
        useful = [tool for tool in tools if tool is not search_tool]
        required = request.tool_choice is not None and request.tool_choice.mode == "required"
        reply = _decide_first(writer, useful, turns, required=required)
        if not reply.calls and search_tool is not None and not searched and reply.intent == "none":
            reply = Reply(((search_tool.name, {"query": text}),))
        if request.answer is not None and (not reply.calls or reply.calls[0][0] == request.answer.definition.name):
            return _make_answer(request, writer, on_text)
        if not reply.calls:
            return _make_text_reply(describe_intent(reply.intent or "none", useful), writer, on_text)
        return self._make_calls(reply, writer)

    def _answer_results(
        self, request: ModelRequest, tools: Sequence[ToolDefinition], writer: LlamaSession, on_text: OnText
    ) -> ModelReply:
        """Return an answer with the results of the last calls, or the next call that the user's request needs."""
        results, calls = request.messages[-1].results, get_last_calls(request.messages)
        text = _get_last_user_text(request.messages)
        if (
            len(results) == 1
            and results[0].error is None
            and tools
            and count_calls(request.messages) < _MAX_CHAINED_CALLS
        ):
            reply = decide_reply(writer, tools, make_turns(request.messages, 0))
            made = {(call.name, to_json(get_arguments(call))) for message in request.messages for call in message.calls}
            # A small model may repeat a call for ever.
            if reply.calls and all((name, to_json(values)) not in made for name, values in reply.calls):
                return self._make_calls(reply, writer)
            if reply.text:
                return _make_text_reply(choose_answer(reply.text, results[0], calls, text), writer, on_text)
        sentences = [_describe_result(writer, tools, text, result, calls) for result in results]
        return _make_text_reply("\n".join(sentences), writer, on_text)

    def _make_calls(self, reply: Reply, writer: LlamaSession) -> ModelReply:
        calls = [ToolCall(f"local_{next(self._ids)}", name, arguments) for name, arguments in reply.calls]
        return ModelReply(Message("assistant", (), calls), finish="calls", usage=writer.usage)

    @override
    def __repr__(self) -> str:
        return f"<model {self.name!r}>"


def _get_last_user_text(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def _decide_first(
    writer: LlamaSession, tools: Sequence[ToolDefinition], turns: Sequence[Turn], *, required: bool
) -> Reply:
    """Return the reply to a request."""
    if not tools:
        return Reply(intent="none")
    if not required and len(turns) > 1 and len(turns[-1].text.split()) <= _MAX_PLEASANTRY_WORDS:
        # Thanks or a greeting are recognized without the conversation before them.
        alone = decide_reply(writer, tools, turns[-1:])
        if alone.intent not in (None, "none"):
            return alone
    return decide_reply(writer, tools, turns, must="call" if required else None)


def _describe_result(
    writer: LlamaSession, tools: Sequence[ToolDefinition], request: str, result: ToolResult, calls: Sequence[ToolCall]
) -> str:
    call = next((call for call in calls if call.id == result.call_id), None)
    if result.error is not None or call is None or not tools or len(calls) > _MAX_SENTENCES:
        return summarize_results([result], calls)
    line = Turn("assistant", format_call(call.name, get_arguments(call)))
    reply = decide_reply(writer, tools, [Turn("user", request), line, Turn("tool", result.text)], must="say")
    return choose_answer(reply.text, result, calls, request)


def _make_text_reply(text: str, writer: LlamaSession, on_text: OnText) -> ModelReply:
    on_text(text)
    return ModelReply(Message("assistant", text), usage=writer.usage)


def _make_answer(request: ModelRequest, writer: LlamaSession, on_text: OnText) -> ModelReply:
    """Return a typed answer, from the results of the last calls, or else from the last request of the user."""
    assert request.answer is not None  # noqa: S101 - checked by the caller
    results = request.messages[-1].results if request.messages else ()
    # Not from both: a number of the request beside the name of a field would win over the result.
    text = "\n".join(result.text for result in results) or _get_last_user_text(request.messages)
    reply = decide_reply(writer, [request.answer.definition], [Turn("user", text)], must="call")
    return _make_text_reply(to_json(reply.calls[0][1]).decode() if reply.calls else "", writer, on_text)


def _generate_reply(request: ModelRequest, writer: LlamaSession, on_text: OnText) -> ModelReply:
    requested_tokens = request.options.get("max_tokens")
    stop_option = request.options.get("stop")
    max_tokens = requested_tokens if isinstance(requested_tokens, int) and requested_tokens > 0 else _MAX_TALK_TOKENS
    stop = (stop_option,) if isinstance(stop_option, str) else tuple(stop_option or ())
    limits = GenerationLimits(max_tokens=min(max_tokens, 1024), stop=("<|im_end|>", *stop))
    completion = writer.generate(_format_conversation(request.messages), limits, on_text)
    return ModelReply(
        Message("assistant", completion.text.strip()), (), "stop" if completion.is_complete else "length", writer.usage
    )


def _format_conversation(messages: Sequence[Message]) -> str:
    system = next((message.text for message in messages if message.role == "system"), _SYSTEM)
    turns = [
        _format_message(message.role, message.text) for message in messages if message.role != "system" and message.text
    ]
    history = ""
    for turn in reversed(turns):
        if len(history) + len(turn) > _MAX_TALK_CHARS:
            break
        history = turn + history
    return f"{_format_message('system', system[:_MAX_TALK_CHARS])}{history}<|im_start|>assistant\n"


def _format_message(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{escape_special_tokens(text)[-_MAX_TALK_CHARS // 2 :]}<|im_end|>\n"
