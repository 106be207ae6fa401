"""OpenAI Chat Completions format, used by OpenAI, Azure and compatible servers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from toolmason._core.toolbox import exchange
from toolmason._core.toolbox.exchange import FinishReason, ModelEvent, ModelReply, ModelRequest
from toolmason._core.values.content import Content, ResourceLink, Text
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._services import SERVICES
from toolmason.providers import content_parts
from toolmason.providers.aliases import PORTABLE_ID, ToolNames, hash_text, to_wire_id
from toolmason.providers.codec import (
    Body,
    Codec,
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

_AUDIO_FORMATS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_PASSTHROUGH_KEYS: Final = SERVICES["openai-chat"].returned_keys
_SHORT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
_DETAIL_TEXTS: Final = ("text", "summary", "data")
_USAGE_PATHS: Final = make_openai_usage_paths("prompt", "completion")
_FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filter",
}


class OpenAiChatReader(ReplyReader["OpenAiChatCodec"]):
    """Reader of one Chat Completions stream."""

    def __init__(self, codec: OpenAiChatCodec, names: ToolNames) -> None:
        super().__init__(codec, names)
        self._calls: dict[Any, dict[str, Any]] = {}
        self._latest: dict[Any, Any] = {}
        """Key of the latest call for each index."""
        self._finish: str | None = None
        self._closed: set[Any] = set()
        self._body: Body = {}
        self._passthrough: dict[str, Any] = {}

    @override
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error"):
            raise parse_error(self.codec.service.name, event)
        self._body.update({key: event[key] for key in ("id", "model", "usage") if event.get(key)})
        for choice in event.get("choices") or ():
            if choice.get("index"):
                continue
            delta = choice.get("delta") or {}
            for key in ("content", "refusal"):
                if piece := _join_text(delta.get(key)):
                    self.pieces[key].append(piece)
                    yield exchange.TextDelta(piece)
            if thought := delta.get("reasoning_content") or delta.get("reasoning"):
                yield exchange.ThoughtDelta(str(thought))
            self._collect_passthrough(delta)
            for piece in delta.get("tool_calls") or ():
                yield from self._read_call_delta(piece)
            if choice.get("finish_reason"):
                self._finish = choice["finish_reason"]
                yield from self._close_calls()

    def _collect_passthrough(self, delta: Mapping[str, Any]) -> None:
        for key in (*_PASSTHROUGH_KEYS, "annotations"):
            piece = delta.get(key)
            if piece and isinstance(piece, str):
                self.pieces[key].append(piece)
            elif isinstance(piece, list) and isinstance(known := self._passthrough.setdefault(key, []), list):
                known += piece
            elif piece:
                self._passthrough[key] = piece

    def _read_call_delta(self, piece: Mapping[str, Any]) -> Iterator[ModelEvent]:
        function, index, call_id = piece.get("function") or {}, piece.get("index"), str(piece.get("id") or "")
        name = str(function.get("name") or "")
        if index is None:  # some servers omit it: an id starts a call, a delta without id continues the last one
            index = call_id or next(reversed(self._calls), 0)
        key = self._latest.get(index, index)
        if key in self._calls and call_id and name and call_id != self._calls[key]["id"]:
            key = index, call_id  # every call of Ollama has the index 0 (ollama/ollama#15457)
        self._latest[index] = key
        if key not in self._calls:
            call_id = call_id or content_parts.make_call_id()
            self._calls[key] = {"id": call_id, "type": "function", "function": {"name": "", "arguments": ""}}
        call = self._calls[key]
        call.update(_get_extra_content(piece))
        known = call["function"]
        if not known["name"] and name:
            known["name"] = name
            yield exchange.CallOpened(call["id"], self.names.get_name(name))
        text = content_parts.read_arguments(function.get("arguments")) or ""
        if not isinstance(text, str):  # llama.cpp and others have sent the object itself
            text = content_parts.get_arguments_json(ToolCall("", "", text))
        if text:
            self.pieces["call", key].append(text)
            yield exchange.ArgumentsDelta(call["id"], text)

    def _join_arguments(self, key: Any) -> None:
        function = self._calls[key]["function"]
        function["arguments"] = content_parts.join_pieces(self.pieces, ("call", key), function["arguments"])

    def _get_ordered_keys(self) -> list[Any]:
        keys = [*self._calls]
        return sorted(keys) if all(isinstance(key, int) for key in keys) else keys

    def _close_calls(self) -> Iterator[ModelEvent]:
        for key in self._get_ordered_keys():
            if key not in self._closed:
                self._closed.add(key)
                self._join_arguments(key)
                yield exchange.CallClosed(_parse_call(self._calls[key], self.names))

    @override
    def build_body(self) -> Body | None:
        if self._finish is None:
            return None
        for key in self._calls:
            self._join_arguments(key)
        texts = {key: content_parts.join_pieces(self.pieces, key) for key in tuple(self.pieces)}
        kept = {
            key: join_details(v) if isinstance(v, list) and key != "annotations" else v
            for key, v in self._passthrough.items()
        }
        message: Body = {"role": "assistant", "content": None, **texts, **kept}
        if self._calls:
            message["tool_calls"] = [self._calls[key] for key in self._get_ordered_keys()]
        return {**self._body, "choices": [{"index": 0, "finish_reason": self._finish, "message": message}]}


class OpenAiChatCodec(Codec):
    """Codec for OpenAI's Chat Completions API."""

    _reader_class = OpenAiChatReader
    rules = ProviderRules(
        provider="openai-chat", fit_schema=fit_openai, name_pattern=PORTABLE_ID.pattern, max_name_length=64
    )

    @override
    def format_definition(self, tool: ToolDefinition, narrowed: NarrowedSchema, alias: str) -> Body:
        function = {"name": alias, "description": tool.description, "parameters": narrowed.schema}
        strict = {} if self.rules.strict == "never" else {"strict": narrowed.strict}
        return {"type": "function", "function": {**function, **strict}}

    @override
    def result(self, result: ToolResult, names: ToolNames | None = None) -> Body:
        return {
            "role": "tool",
            "tool_call_id": self._get_wire_id(result.call_id),
            "content": content_parts.replace_surrogates(result.text),
        }

    def _get_wire_id(self, call_id: str) -> str:
        if not self.service.short_call_ids or _SHORT_ID.fullmatch(call_id):
            return to_wire_id(call_id)
        return hash_text(call_id, 9)

    @override
    def format_message(self, message: Message, names: ToolNames, model: str) -> list[Body]:
        items = self.format_plain_message(message, names)
        provider_items = get_provider_items(message, self.name) if message.role == "assistant" else []
        # Compatible servers reject each other's extra keys, so they are sent back only to the same model.
        if provider_items and _is_same_model(str(provider_items[0].get("model") or ""), model):
            return [self._restore_state(item, provider_items[0]) for item in items]
        return items

    def _restore_state(self, item: Body, state: Mapping[str, Any]) -> Body:
        returned = self.service.returned_keys
        restored = {**item, **{key: state[key] for key in returned if key in state}}
        state_calls = state.get("tool_calls") if "extra_content" in returned else None
        calls = item.get("tool_calls")
        if not isinstance(state_calls, list) or not calls or len(state_calls) != len(calls):
            return restored
        pairs = zip(calls, state_calls, strict=True)
        restored["tool_calls"] = [{**call, **_get_extra_content(state_call)} for call, state_call in pairs]
        return restored

    def format_plain_message(self, message: Message, names: ToolNames) -> list[Body]:
        """Return one message without its extra keys; a result with an image needs an additional user message."""
        if message.role == "tool":
            results = [self.result(result, names) for result in message.results]
            attachments = list(_iter_attachments(message)) if self.service.allows_user_after_tool else []
            return [*results, {"role": "user", "content": attachments}] if attachments else results
        if message.role == "user" and any(map(_is_attachment, message.content)):
            return [{"role": "user", "content": [_format_user_part(part) for part in message.content]}]
        text = content_parts.join_parts(message.content)
        if not message.calls:
            return [{"role": message.role, "content": text}]
        calls = [self._format_call(call, names) for call in message.calls]
        return [{"role": message.role, "content": text or None, "tool_calls": calls}]

    def _format_call(self, call: ToolCall, names: ToolNames) -> Body:
        function = {"name": names.get_alias(call.name), "arguments": content_parts.get_arguments_json(call)}
        return {"id": self._get_wire_id(call.id), "type": "function", "function": function}

    @override
    def build_body(self, request: ModelRequest, messages: Sequence[EncodedMessage], model: str) -> Body:
        items = [item for message in messages for item in message.items]
        return {"model": model, "messages": items or [{"role": "user", "content": content_parts.FILLER_TEXT}]}

    @override
    def offer_tools(self, request: ModelRequest, tool_set: ToolSet) -> Body:
        return format_openai_tools(self.format_tools(tool_set), request, tool_set.names, nest=True)

    @override
    def as_streaming(self, body: Body) -> Body:
        usage = {"stream_options": {"include_usage": True}} if self.service.has_stream_options else {}
        return {**body, "stream": True, **usage}

    @override
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        choice = body["choices"][0]
        message_body = choice["message"]
        if isinstance(choice.get("error"), Mapping):
            raise parse_error(self.service.name, choice)
        text = _join_text(message_body.get("content"))
        refusal = message_body.get("refusal")
        content: list[Content] = [Text(part) for part in (text, refusal) if part]
        calls = [_parse_call(call, names) for call in message_body.get("tool_calls") or () if call.get("function")]
        reason = choice.get("finish_reason") or ""
        finish: FinishReason = _FINISH_REASONS.get(reason or "stop", "error")
        state = self._make_state(message_body, body.get("model"))
        marks = message_body.get("annotations") or ()
        citations = [make_openai_citation(mark.get(mark.get("type")) or mark, 0) for mark in marks]
        message = Message("assistant", content, calls, provider_state=state, citations=citations)
        if refusal and not calls:
            finish = "refusal"
        return ModelReply(message, (), finish, read_usage(body.get("usage"), _USAGE_PATHS), body, str(reason))

    def _make_state(self, message_body: Mapping[str, Any], model: Any) -> dict[str, Any] | None:
        passthrough: dict[str, Any] = {key: message_body[key] for key in _PASSTHROUGH_KEYS if message_body.get(key)}
        tool_calls = [call for call in message_body.get("tool_calls") or () if call.get("function")]
        if any(call.get("extra_content") for call in tool_calls):
            passthrough["tool_calls"] = [_get_extra_content(call) for call in tool_calls]
        return {"provider": self.name, "items": [{"model": model, **passthrough}]} if passthrough else None


def join_details(pieces: Iterable[Any]) -> list[Any]:
    """Return reasoning details with the pieces of each one joined."""
    details: list[Any] = []
    texts: defaultdict[Any, list[str]] = defaultdict(list)
    for piece in pieces:
        last = details[-1] if details else None
        if not isinstance(piece, Mapping) or not isinstance(last, dict) or not _is_continuation(last, piece):
            details.append(dict(piece) if isinstance(piece, Mapping) else piece)
            continue
        joined = {key: last[key] for key in _DETAIL_TEXTS if key in last and key in piece}
        for key in joined:
            texts[len(details) - 1, key].append(piece[key])
        last.update({**{key: value for key, value in piece.items() if value is not None}, **joined})
    for number, key in tuple(texts):
        details[number][key] = content_parts.join_pieces(texts, (number, key), details[number][key])
    return details


def _is_continuation(last: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    return piece.get("index") is not None and all(last.get(key) == piece.get(key) for key in ("index", "type"))


def _is_same_model(reported: str, requested: str) -> bool:
    """Return True if both names mean the same model; servers add dates and prefixes to the name."""
    reported_name = reported.rpartition("/")[2]
    requested_name = requested.rpartition("/")[2]
    return not reported_name or reported_name.startswith(requested_name) or requested_name.startswith(reported_name)


def _join_text(content: Any) -> Any:
    """Return the text of a message; Mistral sends a list of parts if it also has thoughts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, Mapping))
    return content


def _get_extra_content(call: Any) -> Body:
    extra = call.get("extra_content") if isinstance(call, Mapping) else None
    return {"extra_content": extra} if extra else {}


def _is_attachment(part: Content) -> bool:
    """Return True if a part of the user is sent as something else than text."""
    is_link = isinstance(part, ResourceLink) and _format_user_part(part)["type"] != "text"
    return is_link or content_parts.get_blob(part) is not None


def _format_user_part(part: Content) -> Body:
    file = content_parts.get_remote_file(part, "openai", "openai-chat")
    if file is not None and file.file_id:
        return {"type": "file", "file": {"file_id": file.file_id}}
    if file is not None and file.is_image:
        return {"type": "image_url", "image_url": {"url": file.url}}
    return _format_part(part)


def _format_part(part: Content) -> Body:
    blob = content_parts.get_blob(part)
    if blob is not None and blob.mime_type in content_parts.IMAGE_MIME_TYPES:
        return {"type": "image_url", "image_url": {"url": blob.url}}
    if blob is not None and blob.mime_type in _AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": blob.base64, "format": _AUDIO_FORMATS[blob.mime_type]}}
    if blob is not None and blob.mime_type == content_parts.PDF_MIME_TYPE:
        return {"type": "file", "file": {"filename": blob.name, "file_data": blob.url}}
    return {"type": "text", "text": content_parts.part_to_text(part)}


def _iter_attachments(message: Message) -> Iterator[Body]:
    """Yield the non-text content of a turn's results, which the API accepts only from the user."""
    for result in message.results:
        parts = [_format_part(part) for part in result.content if content_parts.get_blob(part) is not None]
        attachments = [part for part in parts if part["type"] != "text"]
        if attachments:
            yield {"type": "text", "text": f"Content returned by call {to_wire_id(result.call_id)} of {result.name}:"}
            yield from attachments


def _parse_call(item: Mapping[str, Any], names: ToolNames) -> ToolCall:
    function = item["function"]
    name = names.get_name(str(function.get("name") or ""))
    arguments = content_parts.read_arguments(function.get("arguments")) or "{}"
    return ToolCall(str(item.get("id") or content_parts.make_call_id()), name, arguments)


CODEC: Final = OpenAiChatCodec()
