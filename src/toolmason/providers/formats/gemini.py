"""Gemini format: tools, conversations, replies and streams of `generateContent`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from typing_extensions import override

from toolmason._core.toolbox import exchange
from toolmason._core.toolbox.exchange import FinishReason, ModelEvent, ModelReply, ModelRequest
from toolmason._core.values.content import matches_structured
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Citation, Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.providers import content_parts
from toolmason.providers.aliases import ToolNames, to_wire_id
from toolmason.providers.codec import Body, ItemCodec, ReplyReader, parse_error
from toolmason.providers.reply_checks import read_usage
from toolmason.providers.schema.losses import NarrowedSchema
from toolmason.providers.schema.strict import fit_gemini
from toolmason.providers.tool_set import EncodedMessage, ProviderRules, ToolSet

_OWN_ID_PREFIX: Final = "gemini_"
"""Prefix of ids generated for calls that arrived without one. They are local and not sent back."""
_OLDER_MODEL: Final = re.compile(r"(models/)?gemini-[12]\b")
"""Models that need no signature on a call and accept only JSON in a result."""
_WITHOUT_URLS: Final = re.compile(r"(models/)?gemini-(1|2\.0)")
"""Models that fetch no files from other addresses."""
_RESULT_MIME_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Types that later models accept in a result; any other type makes them reject the request."""
_INLINE_MIME_TYPE: Final = re.compile(r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/.+|application/pdf")
"""Types that every model accepts from the user."""
_SKIP_SIGNATURE: Final = "skip_thought_signature_validator"
"""Signature that Google's documentation prescribes for a call made by another model; later models reject a call without
one.
"""
_FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "STOP": "stop",
    "FINISH_REASON_UNSPECIFIED": "stop",
    "FUNCTION_CALL": "calls",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "IMAGE_SAFETY": "filter",
}
_CHOICE_MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_USAGE_PATHS: Final = (
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("candidatesTokenCount", "thoughtsTokenCount"),
    ("cachedContentTokenCount",),
    (),
    ("thoughtsTokenCount",),
    ("toolUsePromptTokenCount",),
)


class GeminiReader(ReplyReader["GeminiCodec"]):
    """Reader of one Gemini stream; each event is a complete response with the next parts."""

    def __init__(self, codec: GeminiCodec, names: ToolNames) -> None:
        super().__init__(codec, names)
        self._parts: list[dict[str, Any]] = []
        self._candidate: dict[str, Any] = {}
        self._body: dict[str, Any] = {}
        self._finish: str | None = None

    @override
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error"):
            raise parse_error(self.codec.service.name, event)
        self._body.update({key: value for key, value in event.items() if key != "candidates"})
        for candidate in (event.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                yield from self._read_part(dict(part))
            self._finish = candidate.get("finishReason") or self._finish
            self._candidate.update({key: value for key, value in candidate.items() if key != "content"})

    def _read_part(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
        if "functionCall" in part:
            # Assign the id here, so that the reply and the events have the same one.
            if isinstance(sent := part["functionCall"], Mapping):
                part["functionCall"] = {**sent, "id": sent.get("id") or content_parts.make_call_id("gemini")}
            if (call := self.codec.parse_call(part, self.names)) is not None:
                yield exchange.CallOpened(call.id, call.name)
                yield exchange.ArgumentsDelta(call.id, content_parts.get_arguments_json(call))
                yield exchange.CallClosed(call)
        elif isinstance(text := part.get("text"), str):
            if not text and part.keys() <= {"text", "thought"}:
                return  # streams often end with one, which Vertex AI rejects in the next request
            if text:
                yield exchange.ThoughtDelta(text) if part.get("thought") else exchange.TextDelta(text)
            last = self._parts[-1] if self._parts else {}
            is_same_kind = last.keys() == part.keys() and last.get("thought") == part.get("thought")
            if is_same_kind and part.keys() <= {"text", "thought"}:
                self.pieces[len(self._parts) - 1].append(text)
                return
        self._parts.append(part)

    @override
    def build_body(self) -> Body | None:
        if self._finish is None:
            return self._body if _get_block_reason(self._body) and not self._parts else None
        for number in tuple(self.pieces):
            self._parts[number]["text"] = content_parts.join_pieces(self.pieces, number, self._parts[number]["text"])
        content = {"role": "model", "parts": self._parts}
        candidate = {**self._candidate, "content": content, "finishReason": self._finish}
        return {**self._body, "candidates": [candidate]}


class GeminiCodec(ItemCodec):
    """Codec for Google's Gemini API."""

    _reader_class = GeminiReader
    call_id_prefix = "gemini"
    signature_key = "thoughtSignature"
    rules = ProviderRules(
        provider="gemini", fit_schema=fit_gemini, name_pattern=r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", max_name_length=128
    )

    @override
    def format_definition(self, tool: ToolDefinition, narrowed: NarrowedSchema, alias: str) -> Body:
        definition: Body = {"name": alias, "description": tool.description}
        # The API rejects an object without properties, so a function without parameters has no schema.
        return (
            {**definition, "parametersJsonSchema": narrowed.schema} if narrowed.schema.get("properties") else definition
        )

    @override
    def format_tools(self, tool_set: ToolSet) -> list[Body]:
        own = [
            self.format_definition(tool, narrowed, tool_set.names.get_alias(tool.name))
            for tool, narrowed in tool_set.tools
        ]
        return [*([{"functionDeclarations": own}] if own else []), *self.format_native_tools(tool_set)]

    @override
    def result(self, result: ToolResult, names: ToolNames | None = None) -> Body:
        alias = (names or self.no_names).get_alias(result.name)
        blobs = [blob for blob in _get_blobs(result) if blob.mime_type in _RESULT_MIME_TYPES]
        structured = result.structured if result.ok else None
        text = content_parts.replace_surrogates(result.text)
        # The text is authoritative for the model; structured data may replace it only if both agree.
        agrees = result.structured_from is not None or matches_structured(result.text, structured)
        output = structured if structured is not None and not _get_blobs(result) and agrees else text
        response: Body = {"name": alias, "response": {"output": output} if result.ok else {"error": text}}
        if not result.call_id.startswith(_OWN_ID_PREFIX):
            response["id"] = to_wire_id(result.call_id)
        if blobs:
            response["parts"] = [_format_inline_data(blob) for blob in blobs]
        return {"functionResponse": response}

    @override
    def format_message(self, message: Message, names: ToolNames, model: str) -> list[Body]:
        older = _OLDER_MODEL.match(model) is not None
        if message.role == "assistant":
            parts = self.format_assistant(message, names)
            first = next((part for part in parts if "functionCall" in part), None)
            if not older and first is not None and "thoughtSignature" not in first:
                first["thoughtSignature"] = _SKIP_SIGNATURE
            return [_strip_own_id(part) for part in parts if part.get("text") != "" or part.keys() > {"text"}]
        if message.role == "tool":
            results = (self._format_result_parts(result, names, older=older) for result in message.results)
            return [part for parts in results for part in parts]
        parts = []
        for content in message.content if message.role == "user" else ():
            file = content_parts.get_remote_file(content, "gemini", "gs")
            if (blob := content_parts.get_blob(content)) is not None and _INLINE_MIME_TYPE.fullmatch(blob.mime_type):
                parts.append(_format_inline_data(blob))
            elif file is not None and (file.file_id or not _WITHOUT_URLS.match(model)) and file.mime_type:
                uri = f"gs:{file.file_id}" if file.file_id.startswith("//") else file.file_id or file.url
                parts.append({"fileData": {"fileUri": uri, "mimeType": file.mime_type}})
            elif text := content_parts.part_to_text(content):
                parts.append({"text": text})
        return parts

    @override
    def build_body(self, request: ModelRequest, messages: Sequence[EncodedMessage], model: str) -> Body:
        turns: list[Body] = []
        for message in messages:
            parts = [*message.items]
            role = "model" if message.role == "assistant" else "user"
            # Results must follow their calls one by one, with nothing else among them.
            if results := [part for part in parts if "functionResponse" in part]:
                turns.append({"role": role, "parts": results})
                parts = [part for part in parts if "functionResponse" not in part]
            if not parts:
                continue
            if turns and turns[-1]["role"] == role and "functionResponse" not in turns[-1]["parts"][0]:
                turns[-1]["parts"].extend(parts)
            else:
                turns.append({"role": role, "parts": parts})
        if not turns or turns[0]["role"] == "model":
            turns.insert(0, {"role": "user", "parts": [{"text": content_parts.FILLER_TEXT}]})
        body: Body = {"contents": turns}
        if text := content_parts.join_system_texts(request.messages):
            body["systemInstruction"] = {"parts": [{"text": text}]}
        return body

    @override
    def offer_tools(self, request: ModelRequest, tool_set: ToolSet) -> Body:
        tools = self.format_tools(tool_set)
        mode = _format_choice(request, tool_set) if tools else None
        return {
            **({"tools": tools} if tools else {}),
            **({"toolConfig": {"functionCallingConfig": mode}} if mode else {}),
        }

    def _format_result_parts(self, result: ToolResult, names: ToolNames, *, older: bool) -> Iterator[Body]:
        """Yield a result, then the content that a result cannot hold, as parts of the user."""
        response = self.result(result, names)
        if older:
            response["functionResponse"].pop("parts", None)
        yield response
        rest = [blob for blob in _get_blobs(result) if older or blob.mime_type not in _RESULT_MIME_TYPES]
        if inline_parts := [_format_inline_data(blob) for blob in rest if _INLINE_MIME_TYPE.fullmatch(blob.mime_type)]:
            yield {"text": f"Content returned by {names.get_alias(result.name)}:"}
            yield from inline_parts

    @override
    def as_streaming(self, body: Body) -> Body:
        return body  # streaming is chosen by the URL

    @override
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        usage = read_usage(body.get("usageMetadata"), _USAGE_PATHS)
        candidates = body.get("candidates") or []
        if not candidates:
            if not (reason := _get_block_reason(body)):
                raise ValueError("the response has no candidate")
            return ModelReply(Message("assistant"), (), "filter", usage, body, reason)
        parts = (candidates[0].get("content") or {}).get("parts") or []
        message = self.read_message(parts, names)
        if citations := [*_read_grounding(candidates[0], message.text)]:
            message = replace(message, citations=tuple(citations))
        reason = str(candidates[0].get("finishReason") or "")
        finish: FinishReason = _FINISH_REASONS.get(reason or "STOP", "error")
        return ModelReply(message, (), finish, usage, body, reason)

    @override
    def parse_call(self, item: Mapping[str, Any], names: ToolNames) -> ToolCall | None:
        call = item.get("functionCall")
        if not isinstance(call, Mapping):
            return None
        name = names.get_name(str(call.get("name") or ""))
        return ToolCall(str(call.get("id") or ""), name, content_parts.read_arguments(call.get("args")) or {})

    @override
    def format_call(self, call: ToolCall, names: ToolNames) -> Body:
        function_call: Body = {"name": names.get_alias(call.name), "args": content_parts.get_arguments_object(call)}
        if not call.id.startswith(_OWN_ID_PREFIX):
            function_call = {"id": to_wire_id(call.id), **function_call}
        return {"functionCall": function_call}

    @override
    def parse_text(self, item: Mapping[str, Any]) -> str | None:
        text = item.get("text")
        return text if isinstance(text, str) and not item.get("thought") else None

    @override
    def format_text(self, text: str) -> Body:
        return {"text": text}


def _get_block_reason(body: Mapping[str, Any]) -> str:
    """Return why a prompt was blocked; empty if it was not. The ratings of a prompt also come without a reason."""
    return str((body.get("promptFeedback") or {}).get("blockReason") or "")


def _read_grounding(candidate: Mapping[str, Any], text: str) -> Iterator[Citation]:
    """Yield the sources of a reply."""
    marks = (candidate.get("citationMetadata") or {}).get("citationSources") or ()
    grounding = candidate.get("groundingMetadata") or {}
    supports = grounding.get("groundingSupports") or ()
    # The API counts positions in bytes of UTF-8.
    ends = [*accumulate(len(char.encode("utf-8", "replace")) for char in text)] if marks or supports else []
    for mark in marks:
        yield Citation(str(mark.get("uri") or ""), "", "", "", *_find_place(ends, mark))
    chunks = dict(enumerate(grounding.get("groundingChunks") or ()))
    for support in supports:
        place = _find_place(ends, support.get("segment") or {})
        for chunk in filter(None, map(chunks.get, support.get("groundingChunkIndices") or ())):
            found = chunk.get("web") or chunk.get("retrievedContext") or {}
            yield Citation(str(found.get("uri") or ""), str(found.get("title") or ""), "", "", *place)


def _find_place(ends: Sequence[int], segment: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of characters that end before the two positions."""
    return bisect_right(ends, segment.get("startIndex") or 0), bisect_right(ends, segment.get("endIndex") or 0)


def _get_blobs(result: ToolResult) -> list[content_parts.Blob]:
    return [blob for part in result.content if (blob := content_parts.get_blob(part)) is not None] if result.ok else []


def _format_inline_data(blob: content_parts.Blob) -> Body:
    return {"inlineData": {"mimeType": blob.mime_type, "data": blob.base64}}


def _format_choice(request: ModelRequest, tool_set: ToolSet) -> Body:
    choice = request.tool_choice
    allowed_names = [tool_set.names.get_alias(name) for name in choice.names] if choice is not None else []
    mode = _CHOICE_MODES[choice.mode] if choice is not None else ""
    # AUTO accepts no list of allowed functions; VALIDATED does, and also enforces the schemas of calls.
    if mode in ("", "AUTO") and tool_set.tools and (allowed_names or tool_set.strict is True):
        mode = "VALIDATED"
    if not mode:
        return {}
    return {"mode": mode, **({"allowedFunctionNames": allowed_names} if allowed_names and mode != "NONE" else {})}


def _strip_own_id(part: Body) -> Body:
    call = part.get("functionCall")
    if not isinstance(call, Mapping) or not str(call.get("id", "")).startswith(_OWN_ID_PREFIX):
        return part
    return {**part, "functionCall": {key: value for key, value in call.items() if key != "id"}}


CODEC: Final = GeminiCodec()
