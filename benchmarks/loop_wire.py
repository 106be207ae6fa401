"""Run a loop over HTTP on this machine: a server that asks for one call per step, a plain loop, and Toolmason."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from samples import TWO_INTS

Run = Callable[[int], Awaitable[object]]
TEXT = '{"a": 1, "b": 2}'
add = TWO_INTS.on_loop
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


# --- the server --------------------------------------------------------------------------------------


def serve(found: Any) -> None:
    """Serve until killed; put the port into a queue."""
    asyncio.run(_serve(found))


async def _serve(found: Any) -> None:
    server = await asyncio.start_server(_connected, "127.0.0.1", 0, limit=1 << 26)
    found.put(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            answer = json.dumps(_answer(json.loads(await reader.readexactly(length)))).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n" % len(answer) + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionResetError):
        writer.close()


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    """Ask for a call until there are as many results as the first message states."""
    done = sum(message["role"] == "tool" for message in body["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": "done"}
    if done < int(body["messages"][0]["content"]):
        call = {"id": f"c{done}", "type": "function", "function": {"name": "add", "arguments": TEXT}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": usage}


# --- clients ---------------------------------------------------------------------------------------


def runs(port: int) -> dict[str, Run]:
    """Return the loops that use a server."""
    base = f"http://127.0.0.1:{port}/v1"
    return {"floor: hand-written loop, httpx2 and json": _floor(base), "toolmason": _ours(base)}


def _floor(base: str) -> Run:
    import httpx2

    async def run(steps: int) -> object:
        messages: list[dict[str, Any]] = [{"role": "user", "content": str(steps)}]
        async with httpx2.AsyncClient() as client:
            while True:
                body = {"model": "m", "messages": messages, "tools": [TOOL]}
                answer = await client.post(f"{base}/chat/completions", json=body)
                said = answer.json()["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return said["content"]
                for call in said["tool_calls"]:
                    value = await add(**json.loads(call["function"]["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(value)})

    return run


def _ours(base: str) -> Run:
    from toolmason import Chat, Limits, Toolbox, model, tool

    marked = tool(read_only=True, repeats="allow")(add)
    limits = Limits(steps=None, calls=None, per_tool=None)

    async def run(steps: int) -> object:
        async with model("openai-chat:m", base_url=base, api_key="none") as made:
            reply = await Chat(made, Toolbox(marked), limits=limits).send(str(steps))
        assert len(reply.results) == steps  # noqa: S101 - a run that ends early would look fast
        return reply

    return run
