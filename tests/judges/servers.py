"""Use servers that others wrote, all in one toolbox: `python tests/judges/servers.py`.

Installs them from npm and PyPI into `.judges/servers`, lists 22 of them at once, lists them over pipes and over HTTP,
calls one tool of each, kills one in the middle, and does it all twice: the names must be the same.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from suite import HOME

from toolmason import McpServer, Toolbox

PLACE = HOME / "servers"
SCOPE = "@modelcontextprotocol"
NPM = [
    "node@24",
    f"{SCOPE}/server-everything",
    f"{SCOPE}/server-filesystem",
    f"{SCOPE}/server-memory",
    f"{SCOPE}/server-sequential-thinking",
    "@upstash/context7-mcp",
]
PYPI = ["mcp-server-time", "mcp-server-git", "mcp-server-fetch", "markitdown-mcp", "mcp-grafana"]
BIN = PLACE / "node_modules" / ".bin"
SCRIPTS = PLACE / "venv" / "bin"
NODE = str(BIN / "node")


def install() -> None:
    """Install what is missing."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if not (BIN / "mcp-server-everything").exists():
        (PLACE / "package.json").write_text('{"name": "judges", "private": true}\n', "utf-8")
        npm = shutil.which("npm")
        if npm is None:
            sys.exit("The servers need npm: install Node and npm, then run this again.")
        subprocess.run([npm, "install", "--silent", "--no-audit", "--no-fund", *NPM], cwd=PLACE, check=True)
    if not (SCRIPTS / "mcp-grafana").exists():
        venv.create(PLACE / "venv", with_pip=True, clear=True)
        subprocess.run([SCRIPTS / "python", "-m", "pip", "install", "-qq", *PYPI], check=True)


MANY = 22
"""Servers of one toolbox that all have to be in its first list, with the default settings, also on two cores."""


def stdio(folder: Path, **words: float) -> list[McpServer]:
    """The servers that run as processes."""
    return [
        McpServer.stdio("everything", NODE, [str(BIN / "mcp-server-everything")], **words),
        McpServer.stdio("files", NODE, [str(BIN / "mcp-server-filesystem"), str(folder)], **words),
        McpServer.stdio("memory", NODE, [str(BIN / "mcp-server-memory")], **words),
        McpServer.stdio("thinking", NODE, [str(BIN / "mcp-server-sequential-thinking")], **words),
        McpServer.stdio("context7", NODE, [str(BIN / "context7-mcp")], **words),
        McpServer.stdio("time", str(SCRIPTS / "mcp-server-time"), **words),
        McpServer.stdio("git", str(SCRIPTS / "mcp-server-git"), **words),
        McpServer.stdio("fetch", str(SCRIPTS / "mcp-server-fetch"), ["--allow-private-ips"], **words),
        McpServer.stdio("markitdown", str(SCRIPTS / "markitdown-mcp"), **words),
        McpServer.stdio("grafana", str(SCRIPTS / "mcp-grafana"), **words),
    ]


def calls(folder: Path, page: str) -> dict[str, dict[str, object]]:
    """What each server is asked."""
    thought = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    library = {"query": "json", "libraryName": "json"}
    return {
        "everything__echo": {"message": "hello"},
        "files__list_allowed_directories": {},
        "memory__read_graph": {},
        "thinking__sequentialthinking": thought,
        "time__get_current_time": {"timezone": "Europe/Prague"},
        "git__git_status": {"repo_path": str(folder)},
        "fetch__fetch": {"url": page},
        "markitdown__convert_to_markdown": {"uri": (folder / "page.html").as_uri()},
        "context7__resolve-library-id": library,
        "grafana__list_datasources": {},
        "web_everything__echo": {"message": "over HTTP"},
        "sse_everything__echo": {"message": "over SSE"},
        "web_context7__resolve-library-id": library,
        "web_grafana__list_datasources": {},
    }


# These ask a service that is not there: their own words about it are the answer.
WITHOUT_SERVICE = ("context7", "web_context7", "grafana", "web_grafana")


def over_http(stack: ExitStack) -> list[McpServer]:
    """Start servers that listen, and say where they are."""

    def started(name: str, words: list[str], path: str = "/mcp", env: dict[str, str] | None = None) -> McpServer:
        port = _free_port()
        command = [word.replace("PORT", str(port)) for word in words]
        own = {**os.environ, "PORT": str(port), **(env or {})}
        process = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait, 10)
        stack.callback(process.kill)
        return McpServer.http(name, f"http://127.0.0.1:{port}{path}", connect_timeout=30.0)

    everything = str(BIN / "mcp-server-everything")
    return [
        started("web_everything", [NODE, everything, "streamableHttp"]),
        started("sse_everything", [NODE, everything, "sse"], "/sse"),
        started("web_context7", [NODE, str(BIN / "context7-mcp"), "--transport", "http", "--port", "PORT"]),
        started("web_grafana", [str(SCRIPTS / "mcp-grafana"), "-t", "streamable-http", "--address", "127.0.0.1:PORT"]),
    ]


def _page(stack: ExitStack, folder: Path) -> str:
    """Put a page and a repository into a folder, serve it, and return the address of the page."""
    (folder / "page.html").write_text("<h1>A page</h1><p>of our own</p>", "utf-8")
    subprocess.run([shutil.which("git") or "git", "init", "-q", str(folder)], check=True)
    port = str(_free_port())
    command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait, 10)
    stack.callback(process.kill)
    return f"http://127.0.0.1:{port}/page.html"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def used(box: Toolbox, asked: dict[str, dict[str, object]], *, kill: bool) -> list[str]:
    """List and call every server; return the names."""
    names = [tool.name for tool in await box.list()]
    health = await box.health()
    for server, state in health.items():
        print(f"{'ok' if state else 'FAILED':7} {server:16} {state.tools:3} tools  {state.error or ''}")
    assert all(health.values()), "a server cannot be used"
    for name, arguments in asked.items():
        assert name in names, f"{name} is not offered"
        result = await box.call(name, arguments)
        said = result.ok or (name.split("__")[0] in WITHOUT_SERVICE and result.error.code == "tool_error")
        assert said, f"{name}: {result.text}"
    if kill:
        await _kill_one(box)
    return names


async def list_many(folder: Path, web: list[McpServer]) -> None:
    """List many servers at once, some of them twice: the first list has the tools of all of them."""
    processes = stdio(folder)
    again = [replace(server, name=f"{server.name}_again") for server in processes]
    servers = [*processes, *web, *again][:MANY]
    started = time.perf_counter()
    async with Toolbox(*servers, on_conflict="prefix") as box:
        names = [tool.name for tool in await box.list()]
        seconds = time.perf_counter() - started
    missing = [server.name for server in servers if not any(name.startswith(f"{server.name}__") for name in names)]
    assert not missing, f"the first list lacks {', '.join(missing)}"
    print(f"ok      {len(names)} tools of {len(servers)} servers in the first list, after {seconds:.1f} s")


async def _kill_one(box: Toolbox) -> None:
    for pid in _running("mcp-server-memory"):
        os.kill(pid, signal.SIGKILL)
    others = await box.call("time__get_current_time", {"timezone": "UTC"})
    assert others.ok, others.text
    for _ in range(50):
        back = await box.call("memory__read_graph", {})
        if back.ok:
            print("ok      memory was killed; the others answered, and it came back")
            return
        await asyncio.sleep(0.1)
    raise AssertionError(back.text)


def _running(word: str) -> list[int]:
    """Return the processes whose command holds a word."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if word in command and "judges/servers.py" not in command:
            found.append(int(place.name))
    return found


async def main() -> None:
    """Do it twice."""
    install()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        web, page = over_http(stack), _page(stack, folder)
        await asyncio.sleep(3)
        await list_many(folder, web)
        seen = []
        for kill in (False, True):
            async with Toolbox(*stdio(folder, connect_timeout=60.0), *web, on_conflict="prefix") as box:
                seen.append(await used(box, calls(folder, page), kill=kill))
    assert seen[0] == seen[1], "the names differ from run to run"
    print(f"{len(seen[0])} tools of 14 servers, each called, the same names twice")


if __name__ == "__main__":
    asyncio.run(main())
