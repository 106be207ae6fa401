"""Chaos for five minutes, or SECONDS: `python tests/judges/chaos.py [SECONDS]`.

A gateway serves its own tools and those of four servers over stdio and two over HTTP to 64 clients: half of them send
requests, half are toolboxes. Meanwhile servers are killed, started again, stopped for seconds, and change their
lists; tools raise, hang and end their process; callers cancel and hang up. At the end: each call had one outcome, none
that must run once ran twice, no process is left, and files and memory of the gateway are what they were.
"""

import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx2

sys.path.insert(0, str(Path(__file__).parent))

from server import free_port

from toolmason import McpServer, Toolbox

PROGRAM = str(Path(__file__).with_name("chaos_server.py"))
CLIENTS = 64
STDIO = 4
HTTP = 2
CALL_SECONDS = 30.0
"""Several times the time-out of the gateway, for a busy machine. A call that takes longer has no outcome."""
HARM_SECONDS = 3.0
MOST_GROWTH = 1.05
PEAK_MEGABYTES = 96
"""Resident memory that the process may keep after its first peaks: 64 calls that wait for six servers at once."""
FLAT_MEGABYTES = 48
"""The same in a soak of `FULL_SECONDS` or more, whose warm-up reaches most of the peaks."""
FULL_SECONDS = 300.0
IN_USE_MEGABYTES = 4
"""Memory in use that may differ. A leak shows here, in the blocks and in the objects."""
CACHED_STRINGS = 16_384
"""Strings that the JSON parser of pydantic-core keeps, at most. Each is a block, and the soak fills this cache."""
SPARE_FILES = 24
TOOLS = [*["echo"] * 40, *["echo_sync"] * 20, *["slow"] * 20, *["fail"] * 10, *["hang"] * 4, "drift", "die"]
TOOLS += ["missing", "drifting"] * 2
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Soak:
    """The processes of a soak, and what its calls came to."""

    folder: Path
    random: random.Random
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    succeeded: set[str] = field(default_factory=set)
    started: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    ports: list[int] = field(default_factory=list)
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ends: float = 0.0

    @property
    def log(self) -> Path:
        return self.folder / "ran.txt"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the program; its messages go to a file."""
        with (self.folder / "messages.txt").open("ab") as messages:
            return subprocess.Popen(
                [sys.executable, PROGRAM, words[0], str(self.log), *words[1:]], stdout=messages, stderr=messages
            )

    def make_call(self) -> tuple[str, dict[str, object], str]:
        """Return a tool, its arguments and the tag of a call."""
        self.started += 1
        tag = f"c{self.started}-{'x' * self.random.randrange(9)}"
        name = self.random.choice(TOOLS)
        place = self.random.randrange(STDIO + HTTP + 2)
        arguments: dict[str, object] = {"tag": tag}
        if name in {"slow", "echo_sync"}:
            arguments["seconds"] = self.random.choice([0.01, 0.1, 0.5, 6.0 if name == "slow" else 1.0])
        return name if place >= STDIO + HTTP else f"s{place}__{name}", arguments, tag

    async def count(self, name: str, tag: str, outcome: str, text: str) -> None:
        """Record the outcome of a call. A caller whose call failed pauses."""
        self.outcomes[outcome] += 1
        if outcome == "error":
            await asyncio.sleep(0.1)
        if outcome == "ok":
            self.succeeded.add(tag)
            if tag not in text:
                self.problems.append(f"{name} {tag}: has the result of another call: {text[:200]}")


async def send_requests(soak: Soak, url: str) -> None:
    """Be a client that sends requests, and hangs up now and then."""
    client = httpx2.AsyncClient(timeout=CALL_SECONDS)
    while time.monotonic() < soak.ends:
        name, arguments, tag = soak.make_call()
        body = {
            "jsonrpc": "2.0",
            "id": tag,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments, "_meta": META},
        }
        patience = soak.random.random() if soak.random.random() < 0.1 else CALL_SECONDS
        try:
            async with asyncio.timeout(patience):
                response = await client.post(url, json=body, headers={**HEADERS, "mcp-name": name})
        except TimeoutError:
            if patience == CALL_SECONDS:
                soak.problems.append(f"{name} {tag}: no outcome after {CALL_SECONDS} s")
            soak.outcomes["hung up"] += 1
            await client.aclose()
            client = httpx2.AsyncClient(timeout=CALL_SECONDS)
            continue
        except httpx2.HTTPError as error:
            soak.problems.append(f"{name} {tag}: the gateway did not answer: {error!r}")
            continue
        lines = [line for line in response.text.splitlines() if line.startswith(("{", "data: {"))]
        answers = [message for line in lines if "id" in (message := json.loads(line.removeprefix("data: ")))]
        if [answer["id"] for answer in answers] != [tag]:
            soak.problems.append(f"{name} {tag}: {len(answers)} answers, HTTP {response.status_code}")
            continue
        result = answers[0].get("result")
        is_ok = result is not None and not result.get("isError")
        await soak.count(name, tag, "ok" if is_ok else "error", response.text)
    await client.aclose()


async def use_toolbox(soak: Soak, box: Toolbox) -> None:
    """Be a caller of a toolbox, and cancel now and then."""
    while time.monotonic() < soak.ends:
        name, arguments, tag = soak.make_call()
        call = asyncio.ensure_future(box.call(name, arguments, timeout=CALL_SECONDS - 4))
        patience = soak.random.random() if soak.random.random() < 0.1 else CALL_SECONDS
        done, _ = await asyncio.wait({call}, timeout=patience)
        if not done:
            if patience == CALL_SECONDS:
                soak.problems.append(f"{name} {tag}: no outcome after {CALL_SECONDS} s")
            call.cancel()
            done, _ = await asyncio.wait({call}, timeout=CALL_SECONDS)
            if not done:
                soak.problems.append(f"{name} {tag}: does not end when it is cancelled")
        if call.cancelled():
            soak.outcomes["cancelled"] += 1
        elif error := call.exception():
            soak.problems.append(f"{name} {tag}: raised {error!r}")
        else:
            result = call.result()
            await soak.count(name, tag, "ok" if result.ok else "error", result.text)


def list_children(pid: int) -> list[int]:
    """Return the processes that a process started and that still run."""
    try:
        texts = [task.joinpath("children").read_text("ascii") for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def signal_process(pid: int, number: signal.Signals) -> None:
    """Send a signal, if the process is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


async def harm(soak: Soak, gateway: subprocess.Popen[bytes]) -> None:
    """Kill a server now and then, start those over HTTP again, and stop some for seconds."""
    while time.monotonic() < soak.ends:
        await asyncio.sleep(HARM_SECONDS)
        kind = soak.random.choice(["kill stdio", "kill stdio", "kill http", "stop stdio", "stop http"])
        if kind == "kill http":
            index = soak.random.randrange(HTTP)
            soak.servers[index].kill()
            soak.servers[index].wait()
            await asyncio.sleep(soak.random.random())
            soak.servers[index] = soak.start(str(soak.ports[index]))
        else:
            pids = list_children(gateway.pid) if "stdio" in kind else [server.pid for server in soak.servers]
            if not pids:
                continue
            pid = soak.random.choice(pids)
            signal_process(pid, signal.SIGKILL if "kill" in kind else signal.SIGSTOP)
            if "stop" in kind:
                await asyncio.sleep(soak.random.random() * 3)
                signal_process(pid, signal.SIGCONT)
        soak.killed[kind] += 1


class Figures(NamedTuple):
    """What the gateway holds."""

    files: int
    megabytes: float
    """Resident memory."""
    objects: int
    blocks: int
    """Blocks of memory that Python has given out, of all strings and bytes as well."""
    megabytes_in_use: float
    """Memory in use beside those blocks."""


async def measure(pid: int, url: str) -> Figures:
    """Return what the gateway holds."""
    async with Toolbox(McpServer.http("gw", url)) as box:
        # Otherwise a server that is still starting makes the difference.
        for server in range(STDIO + HTTP):
            for number in range(60):
                if (await box.call(f"s{server}__echo", {"tag": f"measure-{time.monotonic_ns()}-{number}"})).ok:
                    break
                await asyncio.sleep(0.5)
        objects, blocks, in_use = (await box.call("count_memory")).unwrap()
    return Figures(*read_process(pid), objects, blocks, in_use / 1e6)


def read_process(pid: int) -> tuple[int, float]:
    """Return how many files a process has open, and its memory in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), pages * 4096 / 1e6


def find_left(folder: Path) -> list[int]:
    """Return the processes that name the folder of the soak in their command."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def wait_for(port: int) -> None:
    """Wait until a port is listened to."""
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise TimeoutError(f"nothing listens to port {port}")


async def run_phase(soak: Soak, gateway: subprocess.Popen[bytes], url: str, seconds: float) -> None:
    """Call and harm for some seconds, then let the servers come back."""
    soak.ends = time.monotonic() + seconds
    async with Toolbox(McpServer.http("gw", url, timeout=CALL_SECONDS), max_concurrency=CLIENTS) as box:
        callers = [send_requests(soak, url) for _ in range(CLIENTS // 2)]
        callers += [use_toolbox(soak, box) for _ in range(CLIENTS // 2)]
        await asyncio.gather(harm(soak, gateway), *callers)
    await asyncio.sleep(6)


def check_log(soak: Soak) -> None:
    """Compare what ran with what succeeded."""
    ran = Counter(soak.log.read_text("utf-8").split())
    twice = [tag for tag, times in ran.items() if times > 1]
    if twice:
        soak.problems.append(f"{len(twice)} calls ran more than once: {twice[:5]}")


def check_growth(before: Figures, after: Figures, seconds: float) -> dict[str, bool]:
    """Compare what the gateway holds after a soak with what it held before."""
    spare_megabytes = FLAT_MEGABYTES if seconds >= FULL_SECONDS else PEAK_MEGABYTES
    return {
        f"files {before.files} -> {after.files}": after.files <= before.files + SPARE_FILES,
        f"resident {before.megabytes:.1f} -> {after.megabytes:.1f} MB": (
            after.megabytes <= before.megabytes + spare_megabytes
        ),
        f"in use {before.megabytes_in_use:.1f} -> {after.megabytes_in_use:.1f} MB": (
            after.megabytes_in_use <= before.megabytes_in_use + IN_USE_MEGABYTES
        ),
        f"blocks {before.blocks} -> {after.blocks}": after.blocks <= before.blocks * MOST_GROWTH + CACHED_STRINGS,
        f"objects {before.objects} -> {after.objects}": after.objects <= before.objects * MOST_GROWTH,
    }


async def main() -> int:
    """Warm up, measure, soak, measure again, end, and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else FULL_SECONDS
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        soak = Soak(Path(name), random.Random(7))  # noqa: S311 - no secret
        soak.ports = [free_port() for _ in range(HTTP)]
        soak.servers = [soak.start(str(port)) for port in soak.ports]
        port = free_port()
        command = f"{sys.executable} {PROGRAM} stdio {soak.log}"
        words = [f"s{index}={command}" for index in range(STDIO)]
        words += [f"s{STDIO + index}=http://127.0.0.1:{port}/mcp" for index, port in enumerate(soak.ports)]
        gateway = soak.start(str(port), *words)
        await asyncio.gather(*map(wait_for, (port, *soak.ports)))
        url = f"http://127.0.0.1:{port}/mcp"

        await run_phase(soak, gateway, url, max(30.0, seconds / 2))
        before = await measure(gateway.pid, url)
        await run_phase(soak, gateway, url, seconds)
        after = await measure(gateway.pid, url)
        if not all(check_growth(before, after, seconds).values()):
            await asyncio.sleep(10)  # a server that connects again holds more for a while; a leak stays
            after = await measure(gateway.pid, url)
        check_log(soak)

        started = time.monotonic()
        for process in (gateway, *soak.servers):
            process.terminate()
        for process in (gateway, *soak.servers):
            process.wait(30)
        closing = time.monotonic() - started
        left = find_left(soak.folder)
        for pid in left:
            signal_process(pid, signal.SIGKILL)
        messages = (soak.folder / "messages.txt").read_text("utf-8", "replace")

    total = sum(soak.outcomes.values())
    checks = {
        f"{soak.started} calls, {total} outcomes": soak.started == total and not soak.problems,
        # How many calls meet a server that is down depends on the speed of the machine.
        f"{soak.outcomes['ok']} succeeded, more than a quarter": soak.outcomes["ok"] * 4 > total,
        **check_growth(before, after, seconds),
        f"closed in {closing:.1f} s": closing <= 10,
        f"{len(left)} processes left": not left,
        f"{messages.count('Task exception was never retrieved')} lost exceptions": "never retrieved" not in messages,
    }
    print(f"{CLIENTS} clients, {seconds:g} s:", dict(soak.outcomes), dict(soak.killed))
    for text, is_good in checks.items():
        print(f"{'ok' if is_good else 'FAILED':7} {text}")
    print(*soak.problems[:20], sep="\n")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
