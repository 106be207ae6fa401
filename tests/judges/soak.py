"""Connect and close again and again, and count what is left: `python tests/judges/soak.py [CYCLES]`.

No child process, no file descriptor and no thread may stay, and memory may grow by a tenth at most.
"""

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from adversaries.raw_http import served
from toolmason import McpServer, Toolbox

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")
WARM = 20


def left() -> tuple[int, int, int, float]:
    """Return what the process holds: children, file descriptors, threads, megabytes."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return len(children), len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), pages * 4096 / 1e6


async def cycled(server: McpServer, times: int) -> None:
    """Connect, call and close."""
    for _ in range(times):
        async with Toolbox(server) as box:
            result = await box.call("echo", {"text": "x"})
            assert result.ok, result.text


async def judged(name: str, server: McpServer, cycles: int, forget: Callable[[], None] = int) -> bool:
    """Do it often enough, and say what is left."""
    await cycled(server, WARM)
    before = left()
    for _ in range(cycles // 10):
        await cycled(server, 10)
        forget()
    await asyncio.sleep(0.5)
    after = left()
    growth = (after[3] - before[3]) / before[3]
    good = after[0] <= before[0] and after[1] <= before[1] + 2 and after[2] <= before[2] + 2 and growth < 0.1
    print(
        f"{'ok' if good else 'FAILED':7} {name}: {cycles} cycles; children {before[0]} -> {after[0]}, "
        f"files {before[1]} -> {after[1]}, threads {before[2]} -> {after[2]}, "
        f"memory {before[3]:.1f} -> {after[3]:.1f} MB ({growth:+.1%})",
        flush=True,
    )
    return good


async def main() -> int:
    """Judge both transports."""
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    stdio = McpServer.stdio("raw", sys.executable, ["-S", "-E", RAW, "plain"])
    good = await judged("stdio", stdio, cycles)
    with served("plain") as server:
        good &= await judged("http", McpServer.http("raw", server.url), cycles, server.forget)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
