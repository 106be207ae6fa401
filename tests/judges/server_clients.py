"""Have other people's clients list and call our example server: `python tests/judges/server_clients.py`.

The Inspector (both eras, stdio and HTTP, and its check of schemas), the TypeScript clients v1 and v2, and the Python
client of the 1.x line; installed into `.judges/`, once.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from server import served
from suite import HOME, NODE

CLIENTS = HOME / "clients"
OLD = HOME / "mcp1"
PACKAGES = (
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
)
STDIO = Path(__file__).parents[1] / "mcp_server" / "stdio_server.py"
SECONDS = 120

V1 = """
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
const [kind, tool, ...rest] = process.argv.slice(2);
const transport = kind === 'http' ? new StreamableHTTPClientTransport(new URL(rest[0]))
  : new StdioClientTransport({ command: rest[0], args: rest.slice(1) });
const client = new Client({ name: 'judge', version: '1' });
await client.connect(transport);
const { tools } = await client.listTools();
const args = tool === 'echo' ? { text: 'hi' } : { name: 'hi' };
const result = await client.callTool({ name: tool, arguments: args });
console.log(tools.length, JSON.stringify(result.content));
await client.close();
"""
V2 = """
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
const [kind, mode, tool, ...rest] = process.argv.slice(2);
const transport = kind === 'http' ? new StreamableHTTPClientTransport(new URL(rest[0]))
  : new StdioClientTransport({ command: rest[0], args: rest.slice(1) });
const options = mode === 'default' ? {} : { versionNegotiation: { mode } };
const client = new Client({ name: 'judge', version: '1' }, options);
await client.connect(transport);
const { tools } = await client.listTools();
const args = tool === 'echo' ? { text: 'hi' } : { name: 'hi' };
const result = await client.callTool({ name: tool, arguments: args });
console.log(tools.length, JSON.stringify(result.content));
await client.close();
"""
PY1 = """
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

async def main():
    kind, tool, *rest = sys.argv[1:]
    way = streamablehttp_client(rest[0]) if kind == "http" else stdio_client(
        StdioServerParameters(command=rest[0], args=rest[1:]))
    async with way as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        result = await session.call_tool(tool, {"text": "hi"} if tool == "echo" else {"name": "hi"})
        print(len(tools), result.content)

asyncio.run(main())
"""


def install() -> None:
    """Install the clients where they are not there."""
    if not (CLIENTS / "node_modules" / "@modelcontextprotocol" / "client").is_dir():
        CLIENTS.mkdir(parents=True, exist_ok=True)
        (CLIENTS / "package.json").write_text('{"name": "clients", "private": true, "type": "module"}\n', "utf-8")
        npm = shutil.which("npm") or sys.exit("The clients need npm: install Node and npm, then run this again.")
        subprocess.run(
            [npm, "install", "--silent", "--no-audit", "--no-fund", NODE, *PACKAGES], cwd=CLIENTS, check=True
        )
    if not (OLD / "bin" / "python").exists():
        venv.create(OLD, with_pip=True)
        subprocess.run([OLD / "bin" / "python", "-m", "pip", "install", "-q", "mcp>=1.30,<2"], check=True)
    for name, text in (("v1.mjs", V1), ("v2.mjs", V2)):
        (CLIENTS / name).write_text(text, "utf-8")
    (OLD / "old.py").write_text(PY1, "utf-8")


def commands(url: str) -> dict[str, list[str]]:
    """Return what to run, by name."""
    node = str(CLIENTS / "node_modules" / ".bin" / "node")
    inspector = [node, str(CLIENTS / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
    local = [sys.executable, str(STDIO)]
    ways = {"http": ([url], "greet", "name=hi"), "stdio": (local, "echo", "text=hi")}
    found: dict[str, list[str]] = {}
    for way, (target, tool, argument) in ways.items():
        for era in ("legacy", "modern"):
            base = [*inspector, *target, "--protocol-era", era]
            if way == "http":
                base += ["--transport", "http"]
            found[f"inspector {way} {era}: list"] = [*base, "--method", "tools/list", "--strict"]
            call = ["--method", "tools/call", "--tool-name", tool, "--tool-arg", argument]
            found[f"inspector {way} {era}: call"] = [*base, *call]
        found[f"typescript v1 {way}"] = [node, str(CLIENTS / "v1.mjs"), way, tool, *target]
        for mode in ("default", "auto"):
            found[f"typescript v2 {way} {mode}"] = [node, str(CLIENTS / "v2.mjs"), way, mode, tool, *target]
        found[f"mcp 1.x {way}"] = [str(OLD / "bin" / "python"), str(OLD / "old.py"), way, tool, *target]
    return found


def main() -> int:
    """Run every client, and print the table."""
    install()
    failed = 0
    with served() as url:
        for name, command in commands(url).items():
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=CLIENTS)
            print(f"{'ok' if done.returncode == 0 else 'FAILED':7} {name}", flush=True)
            if done.returncode:
                failed += 1
                print((done.stdout + done.stderr)[-600:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
