"""Speak the UI message stream of the Vercel AI SDK (`useChat`), version 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from typing_extensions import override

from toolmason._core.call.approval import ApprovalVerdict
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._wire import parse_json
from toolmason.chat.frontends.frontend import (
    Data,
    DataKind,
    Encoder,
    FrontendRequest,
    KnownCalls,
    PartEncoder,
    TextKind,
    get_field,
    make_failed,
    parse_verdict,
)
from toolmason.chat.reply import Reply
from toolmason.errors import ApprovalDenied, ApprovalRequired, ConfigError, ExternalCall

_FINISH_REASONS: Final = {
    "stop": "stop",
    "direct": "stop",
    "calls": "tool-calls",
    "pending": "tool-calls",
    "length": "length",
    "refusal": "content-filter",
    "filter": "content-filter",
    "error": "error",
}


class VercelFrontend:
    """The UI message stream over server-sent events."""

    headers: Sequence[tuple[bytes, bytes]] = ((b"x-vercel-ai-ui-message-stream", b"v1"),)
    last_line = b"data: [DONE]\n\n"

    def parse(self, body: Any) -> FrontendRequest:
        """Read the messages that `useChat` sends. Approvals are in the parts of the last one."""
        entries = get_field(body, "messages", list, [])
        messages = tuple(_parse_messages(entries))
        answers = dict(_find_answers(entries[-1])) if entries else {}
        if not messages:
            raise ConfigError("The body must have `messages`.")
        is_continued = entries[-1].get("role") == "assistant"
        results = dict(_find_results(entries[-1])) if is_continued else {}
        return FrontendRequest(messages, get_field(body, "id", str), answers, results)

    def make_encoder(self, body: Any, run: str, known: KnownCalls) -> Encoder:
        """Return the encoder of a run. An answer to an approval continues the last message."""
        last = body["messages"][-1]
        continued = last.get("id") if last.get("role") == "assistant" else None
        return VercelEncoder(continued if isinstance(continued, str) else run, known)


def _find_answers(entry: Any) -> Iterator[tuple[str, ApprovalVerdict]]:
    for part in get_field(entry, "parts", list, []):
        approval = part.get("approval") if isinstance(part, Mapping) else None
        if isinstance(approval, Mapping) and part.get("state") == "approval-responded":
            name = get_field(approval, "id", str, "")
            yield name, parse_verdict(name, approval)


def _find_results(entry: Any) -> Iterator[tuple[str, ToolResult]]:
    """Yield the results in the parts of a message, of calls that the front end or the server ran."""
    parts = get_field(entry, "parts", list, [])
    for call, result in zip(*_parse_calls(parts), strict=True):
        failed = any(part.get("toolCallId") == call.id and part.get("state") == "output-error" for part in parts)
        yield call.id, make_failed(call.id, str(result.value)) if failed else result


def _parse_messages(entries: Sequence[Any]) -> Iterator[Message]:
    """Yield the messages of the conversation. A front end cannot set the system message."""
    for entry in entries:
        role, parts = get_field(entry, "role", str, ""), get_field(entry, "parts", list, [])
        texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
        text = "\n".join(text for text in texts if isinstance(text, str))
        if role == "user":
            yield Message("user", text)
        elif role == "assistant":
            calls, results = _parse_calls(parts)
            if calls:
                yield Message("assistant", (), calls)
                yield Message("tool", results=results)
            if text:
                yield Message("assistant", text)


def _parse_calls(parts: Sequence[Any]) -> tuple[list[ToolCall], list[ToolResult]]:
    calls, results = [], []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str) or not (kind == "dynamic-tool" or kind.startswith("tool-")):
            continue
        name = str(part.get("toolName", "")) if kind == "dynamic-tool" else kind.removeprefix("tool-")
        call_id, state = get_field(part, "toolCallId", str, ""), part.get("state")
        if state in ("output-available", "output-error"):
            calls.append(ToolCall(call_id, name, get_field(part, "input", dict, {})))
            value = part.get("output") if state == "output-available" else part.get("errorText")
            results.append(ToolResult(call_id, name, value=value))
    return calls, results


class VercelEncoder(PartEncoder):
    """Encoder of the events of one run."""

    repeats_calls = True

    def __init__(self, message: str, known: KnownCalls) -> None:
        super().__init__(known)
        self._message, self._parts = message, 0

    def start(self) -> Iterator[Data]:
        """Yield the start of the message."""
        yield {"type": "start", "messageId": self._message}

    def fail(self, code: str, message: str) -> Iterator[Data]:
        """Yield the error that ends the run."""
        del code
        yield {"type": "error", "errorText": message}

    @override
    def make_step(self, phase: Literal["start", "end"]) -> Iterator[Data]:
        yield {"type": "start-step" if phase == "start" else "finish-step"}

    @override
    def make_text(self, kind: TextKind, phase: Literal["start", "delta", "end"], text: str) -> Iterator[Data]:
        self._parts += phase == "start"
        data = {"type": f"{kind}-{phase}", "id": str(self._parts)}
        yield {**data, "delta": text} if phase == "delta" else data

    @override
    def make_call_start(self, call_id: str, name: str) -> Data:
        return {"type": "tool-input-start", "toolCallId": call_id, "toolName": name, "dynamic": True}

    @override
    def make_arguments(self, call_id: str, text: str) -> Data:
        return {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": text}

    @override
    def make_call_end(self, call: ToolCall) -> Data:
        data = {"toolCallId": call.id, "toolName": call.name or "unknown", "input": _read_arguments(call)}
        if call.name in self._known.external:
            # The SDK runs a call at once, before its approval, unless the provider executes it.
            data["providerExecuted"] = self._is_request
        return {"type": "tool-input-available", **data, "dynamic": True}

    @override
    def make_result(self, call: ToolCall, result: ToolResult) -> Iterator[Data]:
        error = result.error
        if isinstance(error, ApprovalRequired):
            yield {"type": "tool-approval-request", "approvalId": error.request.id, "toolCallId": call.id}
        elif isinstance(error, ApprovalDenied):
            yield {"type": "tool-output-denied", "toolCallId": call.id}
        elif isinstance(error, ExternalCall):
            return  # the front end runs it
        elif error is not None:
            yield {"type": "tool-output-error", "toolCallId": call.id, "errorText": result.text, "dynamic": True}
        else:
            output = result.text if result.structured is None else result.structured
            yield {"type": "tool-output-available", "toolCallId": call.id, "output": output, "dynamic": True}

    @override
    def make_data(self, kind: DataKind, data: Any) -> Iterator[Data]:
        # An answer stays in the message, and each part of it replaces the one before.
        options: Data = {"id": "answer"} if kind == "answer" else {"transient": True}
        yield {"type": f"data-{kind}", "data": data, **options}

    @override
    def finish(self, reply: Reply[Any]) -> Iterator[Data]:
        if reply.finish == "cancelled":
            yield {"type": "abort", "reason": "cancelled"}
            return
        usage = {"inputTokens": reply.usage.input_tokens, "outputTokens": reply.usage.output_tokens}
        metadata = {"finish": reply.finish, "finishReason": reply.finish_reason, "usage": usage}
        reason = _FINISH_REASONS.get(reply.finish, "other")
        yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}


def _read_arguments(call: ToolCall) -> Any:
    raw: Any = call.raw
    if not isinstance(raw, str | bytes):
        return dict(raw or {})
    try:
        return parse_json(raw or "{}")
    except ValueError:
        return {"text": raw if isinstance(raw, str) else raw.decode("utf-8", "replace")}
