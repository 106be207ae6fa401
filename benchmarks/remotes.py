"""Measure calls of a tool on an MCP server against the SDK's own client: in memory, over HTTP, and a cached list."""

import asyncio
import logging
import multiprocessing
import socket
import statistics
import time
from collections.abc import Awaitable, Callable

import mcp_types as t
from mcp import Client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from measure import Contender, Row, Table, race

from toolmason import McpServer, Toolbox

COLUMNS = ("cpu µs", "wall µs (best)", "x SDK")
LIMIT = 1.15
SECONDS, TURNS = 0.05, 12
"""Seconds that each contender runs at a time, and turns per round. The clock of a shared machine drifts within a
second, so
compared runs must be close in time; a call takes a millisecond, so many turns are needed.
"""
TOOLS, LIST_LIMIT_MS = 500, 0.1


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure Toolmason and the SDK's client."""
    del with_peers
    return asyncio.run(_tables(rounds))


def _served() -> MCPServer:
    server = MCPServer("bench")

    @server.tool()
    def echo(text: str) -> str:
        """Echo."""
        return text

    return server


async def _tables(rounds: int) -> list[Table]:
    memory = await _compared("in memory", _served(), McpServer.of("bench", _served()), rounds)
    port = _free_port()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    process.start()
    try:
        await _until_there(port)
        url = f"http://127.0.0.1:{port}/mcp"
        http = await _compared("over HTTP", url, McpServer.http("bench", url), rounds)
    finally:
        process.kill()
    return [memory, http, await _listed(rounds)]


async def _compared(where: str, target: object, source: McpServer, rounds: int) -> Table:
    async with Client(target, cache=None) as client, Toolbox(source) as box:  # type: ignore[arg-type]  # any target
        await client.list_tools()

        async def theirs(text: str) -> object:
            return await client.call_tool("echo", {"text": text})

        async def ours(text: str) -> object:
            return (await box.call("echo", {"text": text})).text

        contenders = [Contender("the SDK's client", theirs), Contender("toolmason", ours, LIMIT)]
        rows = await race(contenders, "hello", rounds * TURNS, SECONDS)
    return Table(f"Call to an MCP server {where}", COLUMNS, rows)


async def _listed(rounds: int) -> Table:
    tools = [t.Tool(name=f"tool_{number}", input_schema={"type": "object"}) for number in range(TOOLS)]

    async def list_tools(context: object, params: object) -> t.ListToolsResult:
        del context, params
        return t.ListToolsResult(tools=tools)

    server = Server("many", on_list_tools=list_tools)
    async with Toolbox(McpServer.of("many", server)) as box:
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
    import uvicorn

    logging.disable(logging.CRITICAL)
    uvicorn.run(_served().streamable_http_app(), host="127.0.0.1", port=port, log_level="critical")


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
