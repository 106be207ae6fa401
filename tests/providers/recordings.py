"""Streams as the providers send them, written after their documents and SDK types; each with odd chunking in it."""

import json

ARGUMENTS = '{"city": "Orléans ☀", "unit": "F"}'


def sse(events, *, named=False, done=False, newline="\n", comment=True):
    """Return events as the bytes of a stream."""
    lines = []
    for event in events:
        if named:
            lines.append(f"event: {event['type']}")
        lines += [f"data: {json.dumps(event, ensure_ascii=False)}", ""]
    lines += ["data: [DONE]", ""] if done else []
    return newline.join([*([": keep-alive", ""] if comment else []), *lines, ""]).encode()


def pieces(text, size=5):
    return [text[start : start + size] for start in range(0, len(text), size)]


def chat(finish="tool_calls"):
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}

    def chunk(delta, reason=None):
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    def call(index, **fields):
        return chunk({"tool_calls": [{"index": index, **fields}]})

    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": piece}) for piece in pieces("Let me look. ☀")),
        call(0, id="call_a", type="function", function={"name": "get_weather", "arguments": ""}),
        *(call(0, function={"arguments": piece}) for piece in pieces(ARGUMENTS, 3)),
        call(1, id="call_b", type="function", function={"name": "now", "arguments": "{}"}),
        chunk({}, finish),
        {**base, "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
    ]


def responses():
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    said = {"type": "output_text", "text": "Let me look. ☀", "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    first = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_a",
        "name": "get_weather",
        "arguments": ARGUMENTS,
        "status": "completed",
    }
    second = {**first, "id": "fc_2", "call_id": "call_b", "name": "now", "arguments": "{}"}
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    events = [{"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}]
    place = {"content_index": 0, "item_id": "msg_1", "output_index": 1}
    events += [
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning},
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
        {"type": "response.output_item.added", "output_index": 1, "item": {**message, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**said, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": p, "logprobs": []} for p in pieces(said["text"])),
        {"type": "response.output_text.done", **place, "text": said["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": said},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
    ]
    for index, item in ((2, first), (3, second)):
        where = {"item_id": item["id"], "output_index": index}
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}},
            *(
                {"type": "response.function_call_arguments.delta", **where, "delta": p}
                for p in pieces(item["arguments"], 3)
            ),
            {
                "type": "response.function_call_arguments.done",
                **where,
                "name": item["name"],
                "arguments": item["arguments"],
            },
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    output = [reasoning, message, first, second]
    end = {**whole, "status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": end})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def anthropic():
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }

    def block(index, first, *deltas):
        yield {"type": "content_block_start", "index": index, "content_block": first}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}

    def use(call_id, name):
        return {"type": "tool_use", "id": call_id, "name": name, "input": {}}

    return [
        {"type": "message_start", "message": start},
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *block(1, {"type": "text", "text": ""}, *({"type": "text_delta", "text": p} for p in pieces("Let me look. ☀"))),
        *block(
            2,
            use("call_a", "get_weather"),
            {"type": "input_json_delta", "partial_json": ""},
            *({"type": "input_json_delta", "partial_json": p} for p in pieces(ARGUMENTS, 3)),
        ),
        *block(3, use("call_b", "now")),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def gemini():
    def chunk(*parts, **more):
        return {"candidates": [{"index": 0, "content": {"role": "model", "parts": list(parts)}, **more}]}

    first = {"functionCall": {"id": "call_a", "name": "get_weather", "args": json.loads(ARGUMENTS)}}
    second = {"functionCall": {"id": "call_b", "name": "now", "args": {}}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 15}
    return [
        chunk({"text": "Hm.", "thought": True}),
        *(chunk({"text": piece}) for piece in pieces("Let me look. ☀")),
        chunk({**first, "thoughtSignature": "c2ln"}, second),
        {**chunk({"text": ""}, finishReason="STOP"), "usageMetadata": usage, "modelVersion": "gemini-3"},
    ]


STREAMS = {
    "openai": sse(responses(), named=True),
    "openai-chat": sse(chat(), done=True),
    "anthropic": sse(anthropic(), named=True),
    "gemini": sse(gemini(), newline="\r\n", comment=False),  # google-genai reads no comments
}
