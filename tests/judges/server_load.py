"""Put our example server under load: `python tests/judges/server_load.py [SECONDS]`, 64 clients, two minutes.

Prints how many calls there were, how many failed, the latencies and how much the server grew; fails on any error.
"""

import asyncio
import sys
import time
from pathlib import Path

from server import served

CLIENTS = 64
BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"},"_meta":'
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
)
REQUEST = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
    b"mcp-method: tools/call\r\nmcp-name: greet\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
MOST_GROWTH = 1.05


async def load(port: int, seconds: float) -> tuple[list[float], int]:
    """Return the time of each call, and how many went wrong."""
    times: list[float] = []
    failed = 0
    ends = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < ends:
            started = time.perf_counter()
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(size)
            failed += b" 200 " not in head[:20] or b"Hello, Ada!" not in body
            times.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return times, failed


def resident(pid: int) -> int:
    """Return the memory of a process, in kilobytes."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def main() -> int:
    """Warm up, load, and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    with served() as url:
        port = int(url.split(":")[2].split("/")[0])
        pid = served.process.pid  # type: ignore[attr-defined]
        asyncio.run(load(port, min(10.0, seconds / 4)))
        before = resident(pid)
        times, failed = asyncio.run(load(port, seconds))
        growth = resident(pid) / before
    times.sort()
    p50, p99 = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
    print(f"{CLIENTS} clients, {seconds:g} s: {len(times)} calls, {len(times) / seconds:.0f}/s, {failed} failed")
    print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, memory x {growth:.3f}")
    return 1 if failed or growth > MOST_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
