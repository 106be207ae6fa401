"""OpenAI Responses format: tools, conversations, replies and streams of `POST /v1/responses`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from toolmason._core.toolbox import exchange
from toolmason._core.toolbox.exchange import FinishReason, ModelEvent, ModelReply, ModelRequest
from toolmason._core.values.content import Content
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Citation, Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.providers import content_parts
from toolmason.providers.aliases import ToolNames, to_wire_id
from toolmason.providers.codec import (
    Body,
    ItemCodec,
    ReplyReader,
    format_openai_tools,
    get_provider_items,
    make_openai_citation,
    parse_error,
)
from toolmason.providers.reply_checks import make_openai_usage_paths, read_usage
from toolmason.providers.schema.losses import NarrowedSchema
from toolmason.providers.schema.strict import fit_openai
from toolmason.providers.tool_set import EncodedMessage, ProviderRules, ToolSet

_THOUGHT_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_END_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.done")
_NON_REASONING_MODEL: Final = re.compile(r"(ft:|openai/)?(gpt-[34]|chatgpt)")
"""Models without reasoning, which reject a request for it."""
_CLIENT_CALLS: Final = frozenset(
    {"computer_call", "local_shell_call", "shell_call", "apply_patch_call", "custom_tool_call"}
)
"""Items that the application would have to answer; no tool of a toolbox does."""
_USAGE_PATHS: Final = make_openai_usage_paths("input", "output")


class OpenAiResponsesReader(ReplyReader["OpenAiResponsesCodec"]):
    """Reader of one Responses stream."""

    def __init__(self, codec: OpenAiResponsesCodec, names: ToolNames) -> None:
        super().__init__(codec, names)
        self._items: dict[int, dict[str, Any]] = {}
        self._last = 0
        self._numbers_by_id: dict[str, int] = {}
        self._closed: set[int] = set()
        self._body: dict[str, Any] | None = None

    @override
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type", "")
        if kind == "error" or (not kind and "error" in event):
            error_body = event if isinstance(event.get("error"), Mapping) else {"error": dict(event)}
            raise parse_error(self.codec.service.name, error_body)
        if kind in ("response.output_item.added", "response.output_item.done"):
            yield from self._read_item(kind, event)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            yield exchange.TextDelta(event.get("delta") or "")
        elif kind in _THOUGHT_EVENTS:
            yield exchange.ThoughtDelta(event.get("delta") or "")
        elif kind == "response.function_call_arguments.delta":
            number, item = self._open_item(event)
            self.pieces[number].append(event.get("delta") or "")
            yield exchange.ArgumentsDelta(str(item.get("call_id") or ""), event.get("delta") or "")
        elif kind == "response.function_call_arguments.done":
            number, item = self._open_item(event)
            item["arguments"] = content_parts.read_arguments(event.get("arguments")) or self._join_arguments(number)
        elif kind in _END_EVENTS:
            yield from self._finish(event.get("response") or {})

    def _get_number(self, event: Mapping[str, Any], item_id: Any, default: int) -> int:
        """Return the number of an item. Some servers omit it."""
        number = event.get("output_index")
        return number if isinstance(number, int) else self._numbers_by_id.get(str(item_id), default)

    def _open_item(self, event: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        number = self._get_number(event, event.get("item_id"), self._last)
        self._last = max(self._last, number)
        return number, self._items.setdefault(number, {})

    def _join_arguments(self, number: int) -> str:
        return content_parts.join_pieces(self.pieces, number, self._items.get(number, {}).get("arguments") or "")

    def _read_item(self, kind: str, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        item = dict(event.get("item") or {})
        is_done = kind.endswith("done")
        continues = is_done and self._last in self._items and self._last not in self._closed
        number = self._get_number(event, item.get("id"), self._last if continues else len(self._items))
        self._last = max(self._last, number)
        if item.get("id"):
            self._numbers_by_id[str(item["id"])] = number
        if item.get("type") == "function_call":
            known_id = self._items.get(number, {}).get("call_id")
            item["call_id"] = item.get("call_id") or item.get("id") or known_id or content_parts.make_call_id()
            item["arguments"] = content_parts.read_arguments(item.get("arguments")) or self._join_arguments(number)
            if not is_done:
                yield exchange.CallOpened(str(item["call_id"]), self.names.get_name(str(item.get("name") or "")))
        self._items[number] = item
        if is_done and number not in self._closed:
            self._closed.add(number)
            yield from self._close_item(item)

    def _close_item(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if (call := self.codec.parse_call(item, self.names)) is not None:
            yield exchange.CallClosed(call)

    def _finish(self, response: Mapping[str, Any]) -> Iterator[ModelEvent]:
        for number in sorted(self._items.keys() - self._closed):
            if number in self.pieces:
                self._items[number]["arguments"] = self._join_arguments(number)
            yield from self._close_item(self._items[number])
        self._closed.update(self._items)
        # Some servers do not repeat the items at the end.
        output = response.get("output") or [self._items[number] for number in sorted(self._items)]
        self._body = {"status": "completed", **response, "output": output}

    @override
    def build_body(self) -> Body | None:
        return self._body


class OpenAiResponsesCodec(ItemCodec):
    """Codec for OpenAI's Responses API."""

    _reader_class = OpenAiResponsesReader
    search_tool = {"type": "tool_search"}  # noqa: RUF012 - never changed
    rules = ProviderRules(
        provider="openai", fit_schema=fit_openai, name_pattern=r"[A-Za-z0-9_-]{1,128}", max_name_length=128
    )

    @override
    def format_definition(self, tool: ToolDefinition, narrowed: NarrowedSchema, alias: str) -> Body:
        return {
            "type": "function",
            "name": alias,
            "description": tool.description,
            "parameters": narrowed.schema,
            "strict": narrowed.strict,
        }

    @override
    def result(self, result: ToolResult, names: ToolNames | None = None) -> Body:
        has_blobs = any(content_parts.get_blob(part) for part in result.content) and result.ok
        output: Any = (
            [_format_part(part) for part in result.content]
            if has_blobs
            else content_parts.replace_surrogates(result.text)
        )
        return {"type": "function_call_output", "call_id": to_wire_id(result.call_id), "output": output}

    @override
    def format_message(self, message: Message, names: ToolNames, model: str) -> list[Body]:
        if message.role == "assistant":
            return self.format_assistant(message, names)
        if message.role == "tool":
            return [self.result(result, names) for result in message.results]
        if message.role == "system":
            return [{"type": "message", "role": "developer", "content": content_parts.join_parts(message.content)}]
        # Opaque items, such as a response to an MCP approval request, may accompany the text.
        provider_items = [dict(item) for item in get_provider_items(message, self.name)]
        if provider_items and not message.content:
            return provider_items
        parts = [_format_user_part(part) for part in message.content]
        return [{"type": "message", "role": "user", "content": parts}, *provider_items]

    @override
    def build_body(self, request: ModelRequest, messages: Sequence[EncodedMessage], model: str) -> Body:
        system_count = next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))
        items = [item for message in messages[system_count:] for item in message.items]
        body: Body = {"model": model, "input": items}
        if instructions := content_parts.join_system_texts(request.messages[:system_count]):
            body["instructions"] = instructions
        if not items:
            body["input"] = [{"type": "message", "role": "user", "content": content_parts.FILLER_TEXT}]
        # The client keeps the conversation, so reasoning must be returned encrypted in order to be sent back.
        body["store"] = False
        if not _NON_REASONING_MODEL.match(model):
            body["include"] = ["reasoning.encrypted_content"]
        return body

    @override
    def offer_tools(self, request: ModelRequest, tool_set: ToolSet) -> Body:
        return format_openai_tools(self.format_tools(tool_set), request, tool_set.names, nest=False)

    @override
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        if body.get("status") == "failed":
            raise parse_error(self.service.name, body if body.get("error") else {"error": "the response failed"})
        output = body["output"]
        message = self.read_message(output, names)
        finish, reason = _get_finish(body, output, message.calls)
        return ModelReply(message, (), finish, read_usage(body.get("usage"), _USAGE_PATHS), body, reason)

    @override
    def parse_call(self, item: Mapping[str, Any], names: ToolNames) -> ToolCall | None:
        if item.get("type") != "function_call":
            return None
        call_id = str(item.get("call_id") or item.get("id") or "")
        name = names.get_name(str(item.get("name") or ""))
        return ToolCall(call_id, name, content_parts.read_arguments(item.get("arguments")) or "{}")

    @override
    def format_call(self, call: ToolCall, names: ToolNames) -> Body:
        return {
            "type": "function_call",
            "call_id": to_wire_id(call.id),
            "name": names.get_alias(call.name),
            "arguments": content_parts.get_arguments_json(call),
        }

    @override
    def parse_text(self, item: Mapping[str, Any]) -> str | None:
        if item.get("type") != "message":
            return None
        return "".join(part.get("text") or part.get("refusal") or "" for part in item.get("content") or ())

    @override
    def format_text(self, text: str) -> Body:
        return {"type": "message", "role": "assistant", "content": text}

    @override
    def _read_citations(self, item: Mapping[str, Any], start: int) -> Iterator[Citation]:
        for part in item.get("content") or ():
            for mark in part.get("annotations") or ():
                yield make_openai_citation(mark, start)
            start += len(part.get("text") or part.get("refusal") or "")


def _format_user_part(part: Content) -> Body:
    file = content_parts.get_remote_file(part, "openai")
    if file is None or not (file.is_image or file.file_id or file.mime_type == content_parts.PDF_MIME_TYPE):
        return _format_part(part)
    if file.is_image:
        return {"type": "input_image", **_name_file(file, "image_url"), "detail": "auto"}
    return {"type": "input_file", **_name_file(file, "file_url")}


def _name_file(file: content_parts.RemoteFile, url_key: str) -> Body:
    return {"file_id": file.file_id} if file.file_id else {url_key: file.url}


def _format_part(part: Content) -> Body:
    blob = content_parts.get_blob(part)
    if blob is not None and blob.mime_type in content_parts.IMAGE_MIME_TYPES:
        return {"type": "input_image", "image_url": blob.url, "detail": "auto"}
    if blob is not None and blob.mime_type == content_parts.PDF_MIME_TYPE:
        return {"type": "input_file", "filename": blob.name, "file_data": blob.url}
    return {"type": "input_text", "text": content_parts.part_to_text(part)}


def _get_finish(body: Mapping[str, Any], output: list[Any], calls: Sequence[ToolCall]) -> tuple[FinishReason, str]:
    """Return why the model stopped, and the word of the response that says so."""
    status = str(body.get("status") or "")
    if status in ("cancelled", "in_progress", "queued"):
        return "error", status
    if status == "incomplete":
        reason = str((body.get("incomplete_details") or {}).get("reason") or status)
        return "filter" if reason == "content_filter" else "length", reason
    if calls:
        return "calls", status
    kinds = {str(item.get("type")): item for item in output}
    if "mcp_approval_request" in kinds:
        return "pause", "mcp_approval_request"
    if waiting := kinds.keys() & _CLIENT_CALLS:
        return "calls", min(waiting)
    parts = (part for item in output if item.get("type") == "message" for part in item.get("content") or ())
    return ("refusal", "refusal") if any(part.get("type") == "refusal" for part in parts) else ("stop", status)


CODEC: Final = OpenAiResponsesCodec()
