"""Replies of each provider's API, plain and as streams: a text, or one call."""

import json

from providers.recordings import pieces, sse

BASES = {"openai": "/v1", "openai-chat": "/v1", "anthropic": "", "gemini": "/v1beta"}
NATIVE = {"openai": "gpt-5", "openai-chat": "gpt-5", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-pro"}
"""A model of each provider that enforces a schema."""
OTHER = {"openai": "gpt-4", "openai-chat": "llama-3", "anthropic": "claude-3-opus", "gemini": "gemini-2.0-flash"}
"""A model of each provider that does not."""
_STOPS = {
    "stop": ("completed", "stop", "end_turn", "STOP"),
    "length": ("incomplete", "length", "max_tokens", "MAX_TOKENS"),
    "refusal": ("completed", "stop", "refusal", "SAFETY"),
}


def reply(kind, text="", *, call=None, finish="stop"):
    """Return the body of a reply with a text, or with a call as (name, arguments)."""
    responses, chat, messages, gemini = _STOPS[finish]
    arguments = json.dumps(call[1]) if call else ""
    if kind == "openai":
        part = {"type": "refusal", "refusal": text} if finish == "refusal" else {"type": "output_text", "text": text}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        made = {"type": "function_call", "id": "f", "call_id": "c", "status": "completed"}
        output = [{**made, "name": call[0], "arguments": arguments}] if call else [said]
        details = {"incomplete_details": {"reason": "max_output_tokens"}} if finish == "length" else {}
        return {"id": "r", "object": "response", "status": responses, "output": output, "model": "m", **details}
    if kind == "openai-chat":
        message = {"role": "assistant", "content": text}
        if finish == "refusal":
            message = {"role": "assistant", "content": None, "refusal": text}
        if call:
            function = {"name": call[0], "arguments": arguments}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}
            message["tool_calls"][0]["function"] = function
        return {
            "id": "r",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else chat}],
        }
    if kind == "anthropic":
        block = (
            {"type": "tool_use", "id": "c", "name": call[0], "input": call[1]}
            if call
            else {"type": "text", "text": text}
        )
        reason = "tool_use" if call else messages
        return {
            "id": "r",
            "type": "message",
            "role": "assistant",
            "content": [block],
            "stop_reason": reason,
            "usage": {},
        }
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": text}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": gemini}]}


def stream(kind, text="", *, call=None):
    """Return the same as the bytes of a stream, with the JSON in pieces."""
    whole = reply(kind, text, call=call)
    parts = pieces(json.dumps(call[1]) if call else text, 6)
    if kind == "gemini":
        if call:
            return sse([whole])
        chunks = [{"candidates": [{"content": {"role": "model", "parts": [{"text": part}]}}]} for part in parts]
        return sse([*chunks, {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]}])
    if kind == "openai-chat":
        deltas = [{"content": part} for part in parts]
        if call:
            start = {"index": 0, "id": "c", "type": "function", "function": {"name": call[0], "arguments": ""}}
            deltas = [{"tool_calls": [start]}]
            deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts]
        events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        ended = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}
        return sse([*events, {"choices": [ended]}], done=True)
    if kind == "anthropic":
        block = {**whole["content"][0], **({"input": {}} if call else {"text": ""})}
        delta = "input_json_delta" if call else "text_delta"
        key = "partial_json" if call else "text"
        written = [{"type": "content_block_delta", "index": 0, "delta": {"type": delta, key: part}} for part in parts]
        return sse(
            [
                {"type": "message_start", "message": {**whole, "content": []}},
                {"type": "content_block_start", "index": 0, "content_block": block},
                *written,
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}, "usage": {}},
                {"type": "message_stop"},
            ],
            named=True,
        )
    item = whole["output"][0]
    name = "response.function_call_arguments.delta" if call else "response.output_text.delta"
    added = {**item, **({"arguments": ""} if call else {"content": []})}
    return sse(
        [
            {"type": "response.output_item.added", "output_index": 0, "item": added},
            *({"type": name, "output_index": 0, "item_id": item["id"], "delta": part} for part in parts),
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ],
        named=True,
    )
