"""Measure the start of each command in fresh processes, and the first answer of a server over stdio."""

import contextlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fresh import ENVIRONMENT, cpu_seconds
from measure import Row, Table, verdict
from serving import message

COLUMNS = ("cpu ms", "wall ms (best)", "cpu ms over Python")
HELP_LIMIT_MS = 100.0
SERVE_LIMIT = 0.6
EMPTY, FLOOR, HELP = "python -c pass", "python: pydantic, asyncio", "toolmason --help"
SDK = "floor: a script with the SDK's MCPServer"

TOOLS = """from toolmason import tool


@tool
async def echo_0(text: str) -> str:
    \"\"\"Return the text.\"\"\"
    return text
"""
SDK_SCRIPT = """from mcp.server import MCPServer

server = MCPServer("sdk")


@server.tool()
async def echo_0(text: str) -> str:
    \"\"\"Return the text.\"\"\"
    return text


if __name__ == "__main__":
    server.run("stdio")
"""
FASTMCP_SCRIPT = SDK_SCRIPT.replace("from mcp.server import MCPServer", "from fastmcp import FastMCP").replace(
    'MCPServer("sdk")', 'FastMCP("fastmcp")'
)
Command = Sequence[str]
Cost = tuple[float, float]


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure commands that end, and servers until their first answer."""
    with _folder() as folder:
        target = str(folder / "tools.py")
        ours = _program("toolmason")
        commands: dict[str, Command] = {
            EMPTY: [sys.executable, "-c", "pass"],
            FLOOR: [sys.executable, "-c", "import pydantic, asyncio; pydantic.BaseModel, pydantic.TypeAdapter"],
            HELP: [ours, "--help"],
            "toolmason list": [ours, "list", target],
            "toolmason call": [ours, "call", target, "echo_0", "text=hello"],
        }
        servers: dict[str, Command] = {
            SDK: [sys.executable, str(folder / "sdk.py")],
            "the SDK's low-level server": [sys.executable, _here("servers.py"), "mcp low-level", "stdio", "0", "1"],
            "toolmason serve": [ours, "serve", target],
        }
        if with_peers:
            commands |= {
                "fastmcp --help": [_program("fastmcp"), "--help"],
                "fastmcp inspect": [_program("fastmcp"), "inspect", str(folder / "fast.py")],
                "llm --help": [_program("llm"), "--help"],
                "llm tools list": [_program("llm"), "tools", "list"],
            }
            servers["fastmcp, a script"] = [sys.executable, str(folder / "fast.py")]
        started = _taken(commands, _run, rounds)
        answered = _taken(servers, _answer, rounds)
    return [
        Table("Start of commands, fresh processes", COLUMNS, [_row(name, started) for name in started]),
        Table(
            "First answer over stdio, fresh processes",
            ("cpu ms", "wall ms (best)", "x floor"),
            [_server_row(name, answered) for name in answered],
            ["CPU time until the answer to the first `tools/call`, read from the system in steps of 10 ms."],
        ),
    ]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tools.py").write_text(TOOLS, "utf-8")
        (folder / "sdk.py").write_text(SDK_SCRIPT, "utf-8")
        (folder / "fast.py").write_text(FASTMCP_SCRIPT, "utf-8")
        yield folder


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def _here(name: str) -> str:
    return str(Path(__file__).with_name(name))


def _taken(commands: Mapping[str, Command], run: Callable[[Command], Cost], rounds: int) -> dict[str, list[Cost]]:
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name in list(taken):
            try:
                cost = run(commands[name])
            except (subprocess.SubprocessError, OSError, SystemExit):
                if name.startswith(("fastmcp", "llm")):  # a peer that fails has no line
                    del taken[name]
                    continue
                raise
            if turn:  # the first round writes the compiled files
                taken[name].append(cost)
    return taken


def _run(command: Command) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True, timeout=60)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, wall * 1e3


def _answer(command: Command) -> Cost:
    """Send one call of the 2026-07-28 era, which needs no handshake."""
    pipe = subprocess.PIPE
    start = time.perf_counter()
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        if process.stdin is None or process.stdout is None:
            raise SystemExit("the server has no pipes")
        try:
            process.stdin.write(message(1) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            wall, cpu = time.perf_counter() - start, cpu_seconds(process.pid)
        finally:
            process.kill()
    if b"hello" not in line:
        raise SystemExit(f"{command}: unexpected first answer {line!r}")
    return cpu * 1e3, wall * 1e3


def _row(name: str, taken: Mapping[str, Sequence[Cost]]) -> Row:
    cpu, wall = zip(*taken[name], strict=True)
    net = statistics.median(mine - empty[0] for mine, empty in zip(cpu, taken[EMPTY], strict=True))
    limit = f"Python + {HELP_LIMIT_MS:g} ms" if name == HELP else ""
    return Row(name, (statistics.median(cpu), min(wall), net), limit, verdict(net, HELP_LIMIT_MS if limit else None))


def _server_row(name: str, taken: Mapping[str, Sequence[Cost]]) -> Row:
    cpu, wall = zip(*taken[name], strict=True)
    ratio = statistics.median(mine / floor[0] for mine, floor in zip(cpu, taken[SDK], strict=True))
    limit = SERVE_LIMIT if name.startswith("toolmason") else None
    figures = (statistics.median(cpu), min(wall), ratio)
    return Row(name, figures, f"≤ {limit:g} x" if limit else "", verdict(ratio, limit))
