"""Gemini: tools, conversations and answers as `generateContent` has them.

Lives here: the format, plain and streaming. Not here: sending.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from typing_extensions import override

from toolmason._core.toolbox.exchange import (
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    Finish,
    ModelEvent,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    Usage,
)
from toolmason._core.values.content import Text, says_the_same
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ModelError
from toolmason.providers.aliases import Names, wire_id
from toolmason.providers.codec import Body, Codec, Reader, Replay, allowed, error_in, state_of
from toolmason.providers.content_parts import (
    FILLER,
    Blob,
    arguments_object,
    arguments_text,
    blob_of,
    clean,
    fields_of,
    joined,
    new_id,
    words_of,
)
from toolmason.providers.reply_checks import count
from toolmason.providers.schema.losses import Narrowed
from toolmason.providers.schema.strict import fit_gemini
from toolmason.providers.tool_set import Offer, Terms

_OWN: Final = "gemini_"
"""Begins the id of a call that came without one. It is ours alone, so it does not go back."""
_OLDER: Final = re.compile(r"(models/)?gemini-[12]\b")
"""Models that want no signature on a call, and take nothing but data in a result."""
_IN_RESULTS: Final = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""What later models take in a result; another kind there makes them refuse the request."""
_INLINE: Final = re.compile(r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/.+|application/pdf")
"""What every model takes from the user."""
_SIGNATURE: Final = "skip_thought_signature_validator"
"""What Google's documents say to send with a call that another model made: later models refuse one without."""
_FINISHES: Final[Mapping[str, Finish]] = {
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
_MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


class GeminiCodec(Codec):
    """Google's Gemini API."""

    name = "gemini"
    terms = Terms(provider="gemini", fit=fit_gemini, rule=r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", longest=128)

    @override
    def definition(self, tool: ToolDefinition, narrowed: Narrowed, alias: str) -> Body:
        made: Body = {"name": alias, "description": tool.description}
        # A function without parameters has no schema here: an object without properties is refused.
        return {**made, "parametersJsonSchema": narrowed.schema} if narrowed.schema.get("properties") else made

    @override
    def tools(self, offer: Offer) -> list[Body]:
        own = [self.definition(tool, narrowed, offer.names.alias(tool.name)) for tool, narrowed in offer.tools]
        return [*([{"functionDeclarations": own}] if own else []), *self.native_tools(offer)]

    @override
    def result(self, result: ToolResult, names: Names | None = None) -> Body:
        alias = (names or self.no_names).alias(result.name)
        blobs = [blob for blob in _blobs(result) if blob.mime_type in _IN_RESULTS]
        structured = result.structured if result.ok else None
        text = clean(result.text)
        # What a model is told is the text; data in its place must say the same.
        same = result.structured_from is not None or says_the_same(result.text, structured)
        output = structured if structured is not None and not _blobs(result) and same else text
        made: Body = {"name": alias, "response": {"output": output} if result.ok else {"error": text}}
        if not result.call_id.startswith(_OWN):
            made["id"] = wire_id(result.call_id)
        if blobs:
            made["parts"] = [_inline(blob) for blob in blobs]
        return {"functionResponse": made}

    @override
    def body(self, request: ModelRequest, offer: Offer, model: str) -> Body:
        body: Body = {"contents": self._contents(request, offer, older=bool(_OLDER.match(model)))}
        system = [joined(message.content) for message in request.messages if message.role == "system"]
        if text := "\n\n".join(filter(None, system)):
            body["systemInstruction"] = {"parts": [{"text": text}]}
        if tools := self.tools(offer):
            body["tools"] = tools
            if mode := _mode(request, offer):
                body["toolConfig"] = {"functionCallingConfig": mode}
        known = {
            "max_tokens": "maxOutputTokens",
            "temperature": "temperature",
            "top_p": "topP",
            "stop": "stopSequences",
        }
        if settings := fields_of(request.options, known, self.name):
            body["generationConfig"] = settings
        return body

    def _contents(self, request: ModelRequest, offer: Offer, *, older: bool) -> list[Body]:
        turns: list[Body] = []
        for message in request.messages:
            parts = list(offer.written(message, partial(self._parts, message, offer.names, older=older)))
            role = "model" if message.role == "assistant" else "user"
            # Results answer the calls before them one by one, and nothing else may stand among them.
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
            turns.insert(0, {"role": "user", "parts": [{"text": FILLER}]})
        return turns

    def _parts(self, message: Message, names: Names, *, older: bool) -> Iterator[Body]:
        if message.role == "assistant":
            replay = Replay(
                lambda p: _call_in(p, names, ""), _text_in, lambda c: _call_to(c, names), lambda t: {"text": t}
            )
            parts = list(replay.items(message, state_of(message, self.name), joined(message.content)))
            first = next((part for part in parts if "functionCall" in part), None)
            if not older and first is not None and "thoughtSignature" not in first:
                first["thoughtSignature"] = _SIGNATURE
            yield from map(_without_own_id, parts)
        elif message.role == "tool":
            for result in message.results:
                yield from self._answer(result, names, older=older)
        elif message.role == "user":
            for part in message.content:
                if (blob := blob_of(part)) is not None and _INLINE.fullmatch(blob.mime_type):
                    yield _inline(blob)
                elif text := words_of(part):
                    yield {"text": text}

    def _answer(self, result: ToolResult, names: Names, *, older: bool) -> Iterator[Body]:
        """Yield a result, and what of it has no place there: the user hands that over."""
        made = self.result(result, names)
        if older:
            made["functionResponse"].pop("parts", None)
        yield made
        rest = [blob for blob in _blobs(result) if older or blob.mime_type not in _IN_RESULTS]
        if held := [_inline(blob) for blob in rest if _INLINE.fullmatch(blob.mime_type)]:
            yield {"text": f"What the call of {names.alias(result.name)} gave:"}
            yield from held

    @override
    def streaming(self, body: Body) -> Body:
        return body  # the address says it

    @override
    def reader(self, names: Names) -> Reader:
        return GeminiReader(self, names)

    @override
    def read(self, body: Mapping[str, Any], names: Names) -> ModelReply:
        candidates = body.get("candidates") or []
        if not candidates:
            if not body.get("promptFeedback"):
                raise ValueError("there is no candidate")
            return ModelReply(Message("assistant"), (), "filter", _usage(body.get("usageMetadata")), body)
        parts = (candidates[0].get("content") or {}).get("parts") or []
        # Citations and the like part one text into several; together they are what the model said.
        text = "".join(part for part in map(_text_in, parts) if part)
        content = [Text(text)] if text else []
        calls = [call for call in (_call_in(part, names, new_id("gemini")) for part in parts) if call is not None]
        opaque = any(
            "thoughtSignature" in part or (_text_in(part) is None and "functionCall" not in part) for part in parts
        )
        state = {"provider": self.name, "items": list(parts)} if opaque else None
        finish: Finish = _FINISHES.get(candidates[0].get("finishReason") or "STOP", "other")
        if calls and finish == "stop":
            finish = "calls"
        message = Message("assistant", content, calls, provider_state=state)
        return ModelReply(message, message.calls, finish, _usage(body.get("usageMetadata")), body)


class GeminiReader(Reader):
    """One stream of the Gemini API: each event is a whole answer with the next parts."""

    def __init__(self, codec: GeminiCodec, names: Names) -> None:
        super().__init__(codec.name)
        self._codec, self._names = codec, names
        self._parts: list[dict[str, Any]] = []
        self._body: dict[str, Any] = {}
        self._finish: str | None = None

    @override
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error"):
            raise error_in(self._codec.name, event)
        self._body.update({key: value for key, value in event.items() if key != "candidates"})
        for candidate in (event.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                yield from self._part(dict(part))
            self._finish = candidate.get("finishReason") or self._finish

    def _part(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
        if "functionCall" in part:
            # The id is given here, so that the reply has the same one as the events.
            call = _call_in(part, self._names, new_id("gemini"))
            if call is not None:
                part["functionCall"] = {**part["functionCall"], "id": call.id}
                yield CallOpened(call.id, call.name)
                yield ArgumentsDelta(call.id, arguments_text(call))
                yield CallClosed(call)
        elif isinstance(text := part.get("text"), str):
            if text:
                yield ThoughtDelta(text) if part.get("thought") else TextDelta(text)
            last = self._parts[-1] if self._parts else {}
            if last.keys() == part.keys() and part.keys() <= {"text", "thought"}:
                last["text"] += text
                return
        self._parts.append(part)

    @override
    def whole(self) -> ModelReply:
        if self._finish is None and not self._body.get("promptFeedback"):
            raise ModelError(self._codec.name, "the stream ended before the answer did", code="cut", retryable=True)
        candidate = {"content": {"role": "model", "parts": self._parts}, "finishReason": self._finish}
        return self._codec.decode({**self._body, **({"candidates": [candidate]} if self._finish else {})}, self._names)


def _blobs(result: ToolResult) -> list[Blob]:
    return [blob for part in result.content if (blob := blob_of(part)) is not None] if result.ok else []


def _inline(blob: Blob) -> Body:
    return {"inlineData": {"mimeType": blob.mime_type, "data": blob.base64}}


def _mode(request: ModelRequest, offer: Offer) -> Body:
    choice, wanted = request.tool_choice, allowed(request.tool_choice, offer.names)
    mode = _MODES[choice.mode] if choice is not None else ""
    # AUTO takes no list of allowed functions; VALIDATED does, and also holds calls to their schemas.
    if mode in ("", "AUTO") and offer.tools and (wanted or offer.strict is True):
        mode = "VALIDATED"
    if not mode:
        return {}
    return {"mode": mode, **({"allowedFunctionNames": wanted} if wanted and mode != "NONE" else {})}


def _call_in(part: Mapping[str, Any], names: Names, otherwise: str) -> ToolCall | None:
    call = part.get("functionCall")
    if not isinstance(call, Mapping):
        return None
    return ToolCall(str(call.get("id") or otherwise), names.name(call["name"]), call.get("args") or {})


def _call_to(call: ToolCall, names: Names) -> Body:
    made: Body = {"name": names.alias(call.name), "args": arguments_object(call)}
    return {"functionCall": made if call.id.startswith(_OWN) else {"id": wire_id(call.id), **made}}


def _without_own_id(part: Body) -> Body:
    call = part.get("functionCall")
    if not isinstance(call, Mapping) or not str(call.get("id", "")).startswith(_OWN):
        return part
    return {**part, "functionCall": {key: value for key, value in call.items() if key != "id"}}


def _text_in(part: Mapping[str, Any]) -> str | None:
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else None


def _usage(told: Any) -> Usage:
    if not isinstance(told, Mapping):
        return Usage()
    thought = count(told, "thoughtsTokenCount")
    return Usage(
        count(told, "promptTokenCount") + count(told, "toolUsePromptTokenCount"),
        count(told, "candidatesTokenCount") + thought,
        count(told, "cachedContentTokenCount"),
        0,
        thought,
    )


CODEC: Final = GeminiCodec()
