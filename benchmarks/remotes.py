"""Measure calls of a tool on an MCP server against the SDK's own client: in memory, over HTTP, and a cached list."""

import asyncio
import contextlib
import logging
import multiprocessing
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import mcp_types as t
from mcp import Client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from measure import Call, Contender, Row, Table, race

from toolmason import McpServer, Toolbox

COLUMNS = ("cpu µs", "wall µs (best)", "x SDK")
LIMIT = 1.15
SECONDS, TURNS = 0.05, 12
"""Seconds that each contender runs at a time, and turns per round.

The clock of a shared machine drifts within a second, so compared runs must be close in time; a call takes a
millisecond, so many turns are needed.
"""
TOOLS, LIST_LIMIT_MS, CONNECT_LIMIT = 500, 0.1, 1.1


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure Toolmason and the SDK's client."""
    return asyncio.run(_tables(rounds, with_peers=with_peers))


def _served() -> MCPServer:
    server = MCPServer("bench")

    @server.tool()
    def echo(text: str) -> str:
        """Echo."""
        return text

    return server


async def _tables(rounds: int, *, with_peers: bool) -> list[Table]:
    memory = await _compared("in memory", _served(), McpServer.of("bench", _served()), rounds, with_peers=with_peers)
    async with _running(_serve) as url:
        http = await _compared("over HTTP", url, McpServer.http("bench", url), rounds, with_peers=with_peers)
    async with _running(_serve_many) as url:
        connect = await _connected(url, rounds, with_peers=with_peers)
    return [memory, http, connect, await _listed(rounds)]


@contextlib.asynccontextmanager
async def _running(serve: Callable[[int], None]) -> AsyncIterator[str]:
    """Run a server in another process."""
    port = _free_port()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    process.start()
    try:
        await _until_there(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.join()


async def _compared(where: str, target: Any, source: McpServer, rounds: int, *, with_peers: bool) -> Table:
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(target, cache=None))
        box = await stack.enter_async_context(Toolbox(source))
        await client.list_tools()

        async def theirs(text: str) -> object:
            return await client.call_tool("echo", {"text": text})

        async def ours(text: str) -> object:
            return (await box.call("echo", {"text": text})).text

        contenders = [Contender("the SDK's client", theirs), Contender("toolmason", ours, LIMIT)]
        if with_peers:
            contenders.append(Contender("fastmcp, Client", await _fastmcp(target, stack)))
        rows = await race(contenders, "hello", rounds * TURNS, SECONDS)
    return Table(f"Call to an MCP server {where}", COLUMNS, rows)


async def _fastmcp(target: Any, stack: contextlib.AsyncExitStack) -> Call:
    from fastmcp import Client as FastClient
    from fastmcp import FastMCP

    if not isinstance(target, str):
        target = FastMCP("bench")

        @target.tool
        def echo(text: str) -> str:
            """Echo."""
            return text

    client = await stack.enter_async_context(FastClient(target))

    async def call(text: str) -> object:
        return await client.call_tool("echo", {"text": text})

    return call


async def _connected(url: str, rounds: int, *, with_peers: bool) -> Table:
    """Measure a connection and the first list of tools, which the server writes in another process."""

    async def theirs(_: str) -> object:
        async with Client(url, cache=None) as client:
            return await client.list_tools()

    async def ours(_: str) -> object:
        async with Toolbox(McpServer.http("bench", url)) as box:
            listed = await box.list()
            assert len(listed) == TOOLS  # noqa: S101 - an incomplete list would look fast
            return listed

    contenders = [
        Contender("the SDK's client, connect and list", theirs),
        Contender("toolmason", ours, CONNECT_LIMIT),
    ]
    if with_peers:
        contenders.append(Contender("fastmcp, Client", _fastmcp_connect(url)))
    rows = await race(contenders, "", rounds, SECONDS)
    return Table(f"Connect to an MCP server with {TOOLS} tools over HTTP", COLUMNS, rows)


def _fastmcp_connect(url: str) -> Call:
    from fastmcp import Client as FastClient

    async def call(_: str) -> object:
        async with FastClient(url) as client:
            return await client.list_tools()

    return call


def _many() -> Server[Any]:
    properties = {
        "city": {"type": "string", "description": "The city, optionally with its country."},
        "days": {"type": "integer", "minimum": 1, "default": 3, "description": "The number of days ahead."},
        "unit": {"enum": ["C", "F"], "type": "string", "description": "The unit of the temperature."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "The parts to report."},
    }
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    tools = [
        t.Tool(name=f"tool_{number}", description=f"Forecast, variant {number}.", input_schema=schema)
        for number in range(TOOLS)
    ]

    async def list_tools(context: object, params: object) -> t.ListToolsResult:
        del context, params
        return t.ListToolsResult(tools=tools)

    return Server("many", on_list_tools=list_tools)


async def _listed(rounds: int) -> Table:
    async with Toolbox(McpServer.of("many", _many())) as box:
        taken = [await _timed(box.list) for _ in range(max(rounds, 5))]
    best = min(taken)
    verdict = "ok" if best <= LIST_LIMIT_MS else "over"
    row = Row("toolmason", (best, statistics.median(taken)), f"≤ {LIST_LIMIT_MS:g} ms", verdict)
    return Table(f"List {TOOLS} tools of a server from the cache", ("wall ms (best)", "wall ms (median)"), [row])


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1000


def _serve(port: int) -> None:
    _run(_served().streamable_http_app(), port)


def _serve_many(port: int) -> None:
    _run(_many().streamable_http_app(json_response=True), port)


def _run(app: Any, port: int) -> None:
    import uvicorn

    logging.disable(logging.CRITICAL)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def _until_there(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise TimeoutError("the server did not start")
