"""Speak AG-UI, the protocol of CopilotKit and other front ends, version 1."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from typing_extensions import override

from toolmason._core.call.approval import ApprovalRequest, ApprovalVerdict, Deny
from toolmason._core.define.tool import Tool
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.frontends.frontend import (
    Data,
    DataKind,
    Encoder,
    FrontendRequest,
    KnownCalls,
    PartEncoder,
    TextKind,
    describe_reply,
    find_call_id,
    get_field,
    parse_verdict,
)
from toolmason.chat.reply import Reply
from toolmason.errors import ApprovalRequired, ConfigError, ExternalCall

MAX_FRONTEND_TOOLS: Final = 128
"""Tools that a front end offers."""
_RESULT_FIELDS: Final = ("finish", "finish_reason", "problem", "output")
_ANSWER_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["approved"],
}


class AgUiFrontend:
    """AG-UI over server-sent events."""

    headers: Sequence[tuple[bytes, bytes]] = ()
    last_line = b""

    def parse(self, body: Any) -> FrontendRequest:
        """Read a `RunAgentInput`."""
        get_field(body, "threadId", str, "")
        messages = tuple(_parse_messages(get_field(body, "messages", list, [])))
        answers: dict[str, ApprovalVerdict] = {}
        for entry in get_field(body, "resume", list, []):
            name = get_field(entry, "interruptId", str, "")
            is_cancelled = entry.get("status") == "cancelled"
            answers[name] = Deny("the user declined") if is_cancelled else parse_verdict(name, entry.get("payload"))
        if not messages and not answers:
            raise ConfigError("The body must have `messages` or `resume`.")
        tools = get_field(body, "tools", list, [])
        if len(tools) > MAX_FRONTEND_TOOLS:
            raise ConfigError(f"The body has {len(tools)} tools, more than {MAX_FRONTEND_TOOLS}.")
        offered = tuple(Tool.external({**tool, "name": get_field(tool, "name", str, "")}) for tool in tools)
        return FrontendRequest(messages, body.get("threadId"), answers, _find_results(messages), tools=offered)

    def make_encoder(self, body: Any, run: str, known: KnownCalls) -> Encoder:
        """Return the encoder of a run. The front end chooses the ids of the thread and of the run."""
        thread, run = str(body.get("threadId") or run), str(body.get("runId") or run)
        given = {entry.get("toolCallId") for entry in get_field(body, "messages", list, [])}
        return AgUiEncoder(thread, run, known, given)


def _parse_messages(entries: Sequence[Any]) -> Iterator[Message]:
    """Yield the messages of the conversation. A front end cannot set the system message."""
    names: dict[str, str] = {}
    for entry in entries:
        role = get_field(entry, "role", str, "")
        if role == "user":
            yield Message("user", _read_text(entry.get("content")))
        elif role == "assistant":
            calls = [_parse_call(call) for call in get_field(entry, "toolCalls", list, [])]
            names |= {call.id: call.name for call in calls}
            text = _read_text(entry.get("content"))
            yield Message("assistant", text or (), calls)
        elif role == "tool":
            call_id = get_field(entry, "toolCallId", str, "")
            text = _read_text(entry.get("content"))
            yield Message("tool", results=[ToolResult(call_id, names.get(call_id, ""), value=text)])


def _find_results(messages: Sequence[Message]) -> dict[str, ToolResult]:
    """Return the results at the end of a conversation."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        if message.role != "tool":
            break
        results |= {result.call_id: result for result in message.results}
    return results


def _parse_call(call: Any) -> ToolCall:
    function = get_field(call, "function", dict, {})
    arguments = get_field(function, "arguments", str, "{}")
    return ToolCall(get_field(call, "id", str, ""), get_field(function, "name", str, ""), arguments)


def _read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


class AgUiEncoder(PartEncoder):
    """Encoder of the events of one run."""

    def __init__(self, thread: str, run: str, known: KnownCalls, given: Collection[Any]) -> None:
        super().__init__(known)
        self._thread, self._run = thread, run
        self._given = given
        """Calls whose results the front end has."""
        self._messages = self._steps = 0

    def start(self) -> Iterator[Data]:
        """Yield the start of the run."""
        yield {"type": "RUN_STARTED", "threadId": self._thread, "runId": self._run}

    def fail(self, code: str, message: str) -> Iterator[Data]:
        """Yield the error that ends the run."""
        yield {"type": "RUN_ERROR", "message": message, "code": code}

    @override
    def make_step(self, phase: Literal["start", "end"]) -> Iterator[Data]:
        self._steps += phase == "start"
        yield {"type": "STEP_STARTED" if phase == "start" else "STEP_FINISHED", "stepName": f"turn {self._steps}"}

    @override
    def make_text(self, kind: TextKind, phase: Literal["start", "delta", "end"], text: str) -> Iterator[Data]:
        self._messages += phase == "start"
        message = {"messageId": f"{self._run}-{self._messages}"}
        prefix = kind.upper()
        if phase == "delta":
            yield {"type": f"{prefix}_MESSAGE_CONTENT", **message, "delta": text}
        elif phase == "end":
            yield {"type": f"{prefix}_MESSAGE_END", **message}
            if kind == "reasoning":
                yield {"type": "REASONING_END", **message}
        else:
            if kind == "reasoning":
                yield {"type": "REASONING_START", **message}
            role = "assistant" if kind == "text" else "reasoning"
            yield {"type": f"{prefix}_MESSAGE_START", **message, "role": role}

    @override
    def make_call_start(self, call_id: str, name: str) -> Data:
        return {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name}

    @override
    def make_arguments(self, call_id: str, text: str) -> Data:
        return {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": text}

    @override
    def make_call_end(self, call: ToolCall) -> Data:
        return {"type": "TOOL_CALL_END", "toolCallId": call.id}

    @override
    def make_result(self, call: ToolCall, result: ToolResult) -> Iterator[Data]:
        # A request for approval is an interrupt at the end of the run.
        if not isinstance(result.error, ApprovalRequired | ExternalCall) and call.id not in self._given:
            self._messages += 1
            message = f"{self._run}-{self._messages}"
            data = {"messageId": message, "toolCallId": call.id, "content": result.text, "role": "tool"}
            yield {"type": "TOOL_CALL_RESULT", **data}

    @override
    def make_data(self, kind: DataKind, data: Any) -> Iterator[Data]:
        yield {"type": "CUSTOM", "name": f"toolmason.{kind}", "value": data}

    @override
    def finish(self, reply: Reply[Any]) -> Iterator[Data]:
        outcome: Data = {"type": "cancelled" if reply.finish == "cancelled" else "success"}
        if reply.pending:
            interrupts = [_make_interrupt(reply, request) for request in reply.pending]
            outcome = {"type": "interrupt", "interrupts": interrupts}
        usage = {"inputTokens": reply.usage.input_tokens, "outputTokens": reply.usage.output_tokens}
        result = {name: value for name, value in describe_reply(reply).items() if name in _RESULT_FIELDS}
        data = {"threadId": self._thread, "runId": self._run, "outcome": outcome, "result": result, "usage": [usage]}
        yield {"type": "RUN_FINISHED", **data}


def _make_interrupt(reply: Reply[Any], request: ApprovalRequest) -> Data:
    return {
        "id": request.id,
        "reason": "toolmason:approval",
        "message": request.preview or f"Allow {request.path}?",
        "toolCallId": find_call_id(reply, request),
        "responseSchema": _ANSWER_SCHEMA,
        "metadata": {"tool": request.tool, "path": request.path, "arguments": dict(request.arguments)},
    }
