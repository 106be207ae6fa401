"""Anthropic Messages format: tools, conversations, replies and streams of `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from toolmason._core.toolbox import exchange
from toolmason._core.toolbox.exchange import FinishReason, ModelEvent, ModelReply, ModelRequest
from toolmason._core.values.content import Content
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Citation, Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._wire import load_json, parse_json
from toolmason.providers import content_parts
from toolmason.providers.aliases import PORTABLE_ID, ToolNames, to_wire_id
from toolmason.providers.codec import Body, ItemCodec, ReplyReader, parse_error
from toolmason.providers.native_tools import format_anthropic_servers
from toolmason.providers.reply_checks import read_usage
from toolmason.providers.schema.losses import NarrowedSchema
from toolmason.providers.schema.strict import fit_anthropic
from toolmason.providers.tool_set import EncodedMessage, ProviderRules, ToolSet

_DEFAULT_MAX_TOKENS: Final = 8192
"""The API requires a limit; every current model accepts this one."""
_FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_CHOICE_MODES: Final = {"auto": "auto", "required": "any", "none": "none"}
_SIGNED_TYPES: Final = ("thinking", "redacted_thinking")
_USAGE_PATHS: Final = (
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    ("output_tokens",),
    ("cache_read_input_tokens",),
    ("cache_creation_input_tokens",),
    ("output_tokens_details.thinking_tokens",),
    (),
    ("server_tool_use.web_search_requests", "server_tool_use.web_fetch_requests"),
)


class AnthropicReader(ReplyReader["AnthropicCodec"]):
    """Reader of one Messages stream."""

    def __init__(self, codec: AnthropicCodec, names: ToolNames) -> None:
        super().__init__(codec, names)
        self._body: dict[str, Any] = {"content": [], "usage": {}}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._ended = False

    @override
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type")
        if kind == "error" or (kind is None and "error" in event):
            raise parse_error(self.codec.service.name, event)
        if kind == "message_start":
            self._body.update(event.get("message") or {})
            self._body["usage"] = dict(self._body.get("usage") or {})
        elif kind == "content_block_start":
            yield from self._start_block(int(event.get("index") or 0), dict(event.get("content_block") or {}))
        elif kind == "content_block_delta":
            yield from self._read_delta(int(event.get("index") or 0), event.get("delta") or {})
        elif kind == "content_block_stop":
            yield from self._close_block(int(event.get("index") or 0))
        elif kind == "message_delta":
            self._body.update({k: v for k, v in (event.get("delta") or {}).items() if v is not None})
            self._body["usage"].update({k: v for k, v in (event.get("usage") or {}).items() if v is not None})
        elif kind == "message_stop":
            self._ended = True
            for index in [index for index, key in self.pieces if key == "input"]:
                yield from self._close_block(index)

    def _start_block(self, index: int, block: dict[str, Any]) -> Iterator[ModelEvent]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            block["id"] = str(block.get("id") or content_parts.make_call_id("toolu"))
            yield exchange.CallOpened(block["id"], self.names.get_name(str(block.get("name") or "")))
        elif block.get("type") == "text" and block.get("text"):
            yield exchange.TextDelta(block["text"])

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        kind = delta.get("type")
        if kind == "text_delta":
            self.pieces[index, "text"].append(delta["text"])
            yield exchange.TextDelta(delta["text"])
        elif kind == "thinking_delta":
            self.pieces[index, "thinking"].append(delta["thinking"])
            yield exchange.ThoughtDelta(delta["thinking"])
        elif kind == "signature_delta":
            self.pieces[index, "signature"].append(delta["signature"])
        elif kind == "citations_delta":
            if not isinstance(block.get("citations"), list):
                block["citations"] = []
            block["citations"].append(delta["citation"])
        elif kind == "input_json_delta":
            self.pieces[index, "input"].append(delta["partial_json"])
            if block.get("type") == "tool_use" and delta["partial_json"]:
                yield exchange.ArgumentsDelta(block["id"], delta["partial_json"])

    def _close_block(self, index: int) -> Iterator[ModelEvent]:
        block = self._blocks.get(index, {})
        if (index, "input") in self.pieces:
            text = content_parts.join_pieces(self.pieces, (index, "input"))
            try:
                load_json(text or "{}")
                parsed = parse_json(text or "{}")
            except (ValueError, RecursionError):
                parsed = None
            # Truncated, not an object, or with a key twice: binding the text as arguments reports the problem.
            block["input"] = parsed if isinstance(parsed, dict) else text
        call = self.codec.parse_call(block, self.names)
        if call is not None:
            yield exchange.CallClosed(call)

    @override
    def build_body(self) -> Body | None:
        for index, key in tuple(self.pieces):
            block = self._blocks[index]
            block[key] = content_parts.join_pieces(self.pieces, (index, key), block.get(key) or "")
        content = [self._blocks[index] for index in sorted(self._blocks)]
        return {**self._body, "content": content} if self._ended else None


class AnthropicCodec(ItemCodec):
    """Codec for Anthropic's Messages API."""

    _reader_class = AnthropicReader
    call_id_prefix = "toolu"
    search_tool = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}  # noqa: RUF012 - never changed
    rules = ProviderRules(
        provider="anthropic", fit_schema=fit_anthropic, name_pattern=PORTABLE_ID.pattern, max_name_length=64
    )

    @override
    def format_definition(self, tool: ToolDefinition, narrowed: NarrowedSchema, alias: str) -> Body:
        definition: Body = {"name": alias, "description": tool.description, "input_schema": narrowed.schema}
        return {**definition, "strict": True} if narrowed.strict else definition

    @override
    def result(self, result: ToolResult, names: ToolNames | None = None) -> Body:
        block: Body = {"type": "tool_result", "tool_use_id": to_wire_id(result.call_id)}
        if result.ok and any(content_parts.get_blob(part) for part in result.content):
            block["content"] = [part for part in map(_format_part, result.content) if part is not None]
        else:
            block["content"] = content_parts.replace_surrogates(result.text)
        return block if result.ok else {**block, "is_error": True}

    @override
    def format_message(self, message: Message, names: ToolNames, model: str) -> list[Body]:
        if message.role == "assistant":
            blocks = self.format_assistant(message, names)
            for block in blocks:
                if block.get("type") == "text" and not str(block.get("text") or "").strip():
                    return [*_iter_sendable(blocks)]
            return blocks
        if message.role == "tool":
            return [self.result(result, names) for result in message.results]
        if message.role == "user":
            return [part for part in map(_format_user_part, message.content) if part is not None]
        return []

    @override
    def build_body(self, request: ModelRequest, messages: Sequence[EncodedMessage], model: str) -> Body:
        turns: list[Body] = []
        for message in messages:
            role = "assistant" if message.role == "assistant" else "user"
            if not message.items:
                continue
            # Results must come first in the one message after their calls, so user content is appended to them.
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"] += message.items
            else:
                turns.append({"role": role, "content": [*message.items]})
        if not turns or turns[0]["role"] == "assistant":
            turns.insert(0, {"role": "user", "content": [{"type": "text", "text": content_parts.FILLER_TEXT}]})
        body: Body = {"model": model, "max_tokens": _DEFAULT_MAX_TOKENS, "messages": turns}
        if (text := content_parts.join_system_texts(request.messages)).strip():
            body["system"] = text
        return body

    @override
    def _apply_options(self, body: Body, request: ModelRequest, model: str) -> Body:
        body = super()._apply_options(body, request, model)
        budget = (body.get("thinking") or {}).get("budget_tokens")
        if budget is not None and "max_tokens" not in request.options:
            body["max_tokens"] = _DEFAULT_MAX_TOKENS + budget
        if (mark := body.get("cache_control")) and isinstance(body.get("system"), str):
            # The mark of the request moves with its last block; this one keeps the tools and instructions for others.
            body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
        return body

    @override
    def offer_tools(self, request: ModelRequest, tool_set: ToolSet) -> Body:
        choice = request.tool_choice
        # This API has no list of allowed tools, so only the allowed ones are offered.
        chosen = tool_set.only(choice.names) if choice is not None and choice.names else tool_set
        offer: Body = {}
        if tools := self.format_tools(chosen):
            offer = {"tools": tools, **_format_choice(request, tool_set.names)}
        if servers := format_anthropic_servers(tool_set.native):
            offer["mcp_servers"] = servers
        return offer

    @override
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        message = self.read_message(body["content"], names)
        finish: FinishReason = _FINISH_REASONS.get(body.get("stop_reason") or "end_turn", "error")
        usage = read_usage(body.get("usage"), _USAGE_PATHS)
        return ModelReply(message, (), finish, usage, body, str(body.get("stop_reason") or ""))

    @override
    def parse_call(self, item: Mapping[str, Any], names: ToolNames) -> ToolCall | None:
        if item.get("type") != "tool_use":
            return None
        name = names.get_name(str(item.get("name") or ""))
        sent = item.get("input")
        sent = sent if type(sent) is dict else content_parts.read_arguments(sent) or {}
        return ToolCall(str(item.get("id") or ""), name, names.restore_keys(name, sent))

    @override
    def format_call(self, call: ToolCall, names: ToolNames) -> Body:
        return {
            "type": "tool_use",
            "id": to_wire_id(call.id),
            "name": names.get_alias(call.name),
            "input": names.alias_keys(call.name, content_parts.get_arguments_object(call)),
        }

    @override
    def parse_text(self, item: Mapping[str, Any]) -> str | None:
        return str(item.get("text") or "") if item.get("type") == "text" else None

    @override
    def format_text(self, text: str) -> Body:
        return {"type": "text", "text": text}

    @override
    def _read_citations(self, item: Mapping[str, Any], start: int) -> Iterator[Citation]:
        end = start + len(item.get("text") or "")
        for mark in (item.get("citations") or ()) if item.get("type") == "text" else ():
            number = mark.get("document_index")
            source = str(mark.get("file_id") or mark.get("source") or ("" if number is None else number))
            title = str(mark.get("title") or mark.get("document_title") or "")
            yield Citation(str(mark.get("url") or ""), title, str(mark.get("cited_text") or ""), source, start, end)


def _iter_sendable(blocks: Sequence[Body]) -> Iterator[Body]:
    """Yield the blocks that the API accepts: it refuses text of nothing but spaces."""
    signed = [number for number, block in enumerate(blocks) if block.get("type") in _SIGNED_TYPES]
    for number, block in enumerate(blocks):
        text = str(block.get("text") or "")
        # What the provider sent between signed blocks must not change.
        is_kept = bool(text and signed) and signed[0] < number < signed[-1]
        if block.get("type") != "text" or text.strip() or is_kept:
            yield block


def _format_user_part(part: Content) -> Body | None:
    file = content_parts.get_remote_file(part, "anthropic")
    if file is None or not (file.is_image or file.file_id or file.mime_type == content_parts.PDF_MIME_TYPE):
        return _format_part(part)
    source = {"type": "file", "file_id": file.file_id} if file.file_id else {"type": "url", "url": file.url}
    return {"type": "image" if file.is_image else "document", "source": source}


def _format_part(part: Content) -> Body | None:
    blob = content_parts.get_blob(part)
    if blob is not None and blob.mime_type in content_parts.IMAGE_MIME_TYPES:
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": blob.mime_type, "data": blob.base64},
        }
    if blob is not None and blob.mime_type == content_parts.PDF_MIME_TYPE:
        source = {"type": "base64", "media_type": content_parts.PDF_MIME_TYPE, "data": blob.base64}
        return {"type": "document", "source": source, "title": blob.name}
    text = content_parts.part_to_text(part)
    return {"type": "text", "text": text} if text.strip() else None


def _format_choice(request: ModelRequest, names: ToolNames) -> Body:
    choice = request.tool_choice
    parallel = request.options.get("parallel")
    if choice is None and parallel is None:
        return {}
    tool_choice: Body = {"type": _CHOICE_MODES[choice.mode] if choice is not None else "auto"}
    if choice is not None and choice.mode == "required" and len(choice.names) == 1:
        tool_choice = {"type": "tool", "name": names.get_alias(choice.names[0])}
    if parallel is False and tool_choice["type"] != "none":
        tool_choice["disable_parallel_tool_use"] = True
    return {"tool_choice": tool_choice}


CODEC: Final = AnthropicCodec()
