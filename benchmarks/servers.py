"""Run an echo server of one kind for `serving.py`: `python benchmarks/servers.py KIND WAY PORT TOOLS`.

Every kind serves the same tools, and runs under the same uvicorn with httptools and uvloop, except `serve()`.
"""

import asyncio
import sys
import time
from typing import Any


def ours(tools: int) -> Any:
    """Toolmason."""
    from toolmason import Tool, Toolbox

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    box = Toolbox(*(Tool.from_function(echo, name=f"echo_{number}") for number in range(tools)))
    from toolmason.mcp_server.http.app import asgi_app

    return box, asgi_app(box)


def sdk(tools: int) -> Any:
    """Low-level server of the MCP SDK."""
    import mcp_types as types
    from mcp.server import Server

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    entries = [types.Tool(name=f"echo_{n}", description="Return the text.", input_schema=schema) for n in range(tools)]

    async def list_tools(_ctx: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=entries)

    async def call_tool(_ctx: Any, params: Any) -> Any:
        text = params.arguments["text"]
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"result": text})

    server = Server("sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return server, server.streamable_http_app(json_response=True)


def sdk_high(tools: int) -> Any:
    """High-level server of the MCP SDK."""
    from mcp.server import MCPServer

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    server = MCPServer("sdk")
    for number in range(tools):
        server.add_tool(echo, name=f"echo_{number}")
    return server, server.streamable_http_app(json_response=True)


def fastmcp(tools: int) -> Any:
    """FastMCP."""
    from fastmcp import FastMCP
    from fastmcp.tools import Tool

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    server = FastMCP("fastmcp")
    for number in range(tools):
        server.add_tool(Tool.from_function(echo, name=f"echo_{number}"))
    return server, server.http_app(json_response=True)


def bare(tools: int) -> Any:
    """Minimal handler of such a call: the checks that the protocol requires, and no library."""
    del tools
    from pydantic_core import from_json, to_json

    version = "2026-07-28"

    def is_right(headers: dict[bytes, bytes], request: Any) -> bool:
        params = request["params"]
        return (
            headers.get(b"host", b"").startswith(b"127.0.0.1:")
            and b"origin" not in headers
            and headers.get(b"content-type") == b"application/json"
            and b"application/json" in headers.get(b"accept", b"")
            and headers.get(b"mcp-protocol-version") == version.encode()
            and headers.get(b"mcp-method") == request["method"].encode()
            and headers.get(b"mcp-name") == params["name"].encode()
            and request["jsonrpc"] == "2.0"
            and params["_meta"]["io.modelcontextprotocol/protocolVersion"] == version
        )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        request = from_json((await receive())["body"])
        if not is_right(dict(scope["headers"]), request):
            raise SystemExit("the request is invalid")
        text = request["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": text}], "structuredContent": {"result": text}}
        body = to_json({"jsonrpc": "2.0", "id": request["id"], "result": result})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return None, app


KINDS = {
    "bare handler": bare,
    "toolmason": ours,
    "toolmason, serve()": ours,
    "mcp low-level": sdk,
    "mcp MCPServer": sdk_high,
    "fastmcp": fastmcp,
}


def main() -> None:
    """Run the server named on the command line."""
    kind, way, port, tools = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    server, app = KINDS[kind](tools)
    if way == "http" and kind == "toolmason, serve()":
        from toolmason import serve

        serve(server, "http", port=port)
    elif way == "http":
        import uvicorn

        uvicorn.run(app, port=port, http="httptools", loop="uvloop", log_level="warning", access_log=False)
    elif way == "alone":
        asyncio.run(_alone(app))
    elif kind == "toolmason":
        from toolmason import serve

        serve(server)
    elif kind == "fastmcp":
        server.run("stdio", show_banner=False)
    else:
        asyncio.run(_stdio(server))


async def _alone(app: Any) -> None:
    """Answer calls without a socket. For each input line with a number of seconds, print the CPU time per call."""
    from serving import REQUEST

    head, _, body = REQUEST.partition(b"\r\n\r\n")
    headers = [tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:]]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
    scope |= {"path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": ""}
    scope |= {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)}

    async def call() -> None:
        begun, gone, sent = False, asyncio.Event(), bytearray()

        async def receive() -> Any:
            nonlocal begun
            if begun:
                await gone.wait()
                return {"type": "http.disconnect"}
            begun = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.extend(message.get("body", b""))

        await app(dict(scope), receive, send)
        if b"hello" not in sent:
            raise SystemExit(f"unexpected response: {bytes(sent)!r}")

    events: asyncio.Queue[Any] = asyncio.Queue()
    started = asyncio.Event()

    async def told(message: Any) -> None:
        if message["type"] == "lifespan.startup.complete":
            started.set()

    await events.put({"type": "lifespan.startup"})
    life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, events.get, told))
    await started.wait()
    while line := await asyncio.to_thread(sys.stdin.readline):
        ends, count, before = time.perf_counter() + float(line), 0, time.process_time()
        while time.perf_counter() < ends:
            await call()
            count += 1
        print((time.process_time() - before) / count * 1e6, flush=True)
    life.cancel()


async def _stdio(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    main()
