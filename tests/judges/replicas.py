"""Judge replicas behind HAProxy, which sends each request to the next one: `python tests/judges/replicas.py [KILLS]`.

Three replicas serve clients of both eras while one is killed (SIGKILL) every SECONDS and started again.

- A call is *lost* if its client gets neither its result nor an error. A call that may be repeated is lost if it gets no
  result: its client repeats it.
- A call is *doubled* if a tool that must not be repeated ran twice for it.
"""

import asyncio
import logging
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from server import FIXTURE, free_port, judged

from toolmason import McpServer, Retry, Toolbox

logging.disable(logging.CRITICAL)  # of errors, the table tells

PROGRAM = Path(__file__).with_name("replica_server.py")
WORKERS = 4
"""Calls in progress in each era."""
CALL_SECONDS = 30
REPEATS = 20
"""How often a program repeats a call that may be repeated, beyond the attempts of its retry policy."""
HAPROXY = """
defaults
  mode http
  balance roundrobin
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  # Only a request that was not sent is sent to another replica.
  retries 3
  retry-on conn-failure
  option redispatch 1
frontend all
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
{servers}
"""


class Replicas:
    """Replicas of one program, and a proxy in front of them."""

    def __init__(self, folder: Path, count: int, command: Callable[[int], list[str]], key: str | None) -> None:
        self.command, self.folder = command, folder
        environment = {name: value for name, value in os.environ.items() if name != "TOOLMASON_STATE_KEY"}
        self.environment = environment if key is None else {**environment, "TOOLMASON_STATE_KEY": key}
        self.ports = [free_port() for _ in range(count)]
        self.processes = [self.start(port) for port in self.ports]
        self.port = free_port()
        servers = "\n".join(f"  server r{port} 127.0.0.1:{port} check inter 200ms fall 1 rise 1" for port in self.ports)
        config = folder / "haproxy.cfg"
        config.write_text(HAPROXY.format(port=self.port, servers=servers))
        for port in self.ports:
            wait_for_port(port)
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        self.proxy = subprocess.Popen([program, "-q", "-db", "-f", str(config)], stderr=subprocess.DEVNULL)
        wait_for_port(self.port)
        time.sleep(0.5)  # the proxy has checked each replica once
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def start(self, port: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.command(port), env=self.environment, stderr=subprocess.DEVNULL)

    def kill(self, index: int) -> None:
        """Kill a replica, and start it again."""
        self.processes[index].send_signal(signal.SIGKILL)
        self.processes[index].wait()
        self.processes[index] = self.start(self.ports[index])

    def close(self) -> None:
        for process in (self.proxy, *self.processes):
            process.kill()
            process.wait()


def wait_for_port(port: int) -> None:
    """Wait until a port accepts connections."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(port)


@contextmanager
def replicas(count: int, command: Callable[[int, Path], list[str]], key: str | None = None) -> Iterator[Replicas]:
    """Run replicas with a proxy."""
    with tempfile.TemporaryDirectory(prefix="toolmason-replicas-") as name:
        folder = Path(name)
        made = Replicas(folder, count, lambda port: command(port, folder), key)
        try:
            yield made
        finally:
            made.close()


def run_program(port: int, folder: Path) -> list[str]:
    return [sys.executable, str(PROGRAM), str(port), str(folder / "log")]


def run_fixture(port: int, folder: Path) -> list[str]:
    del folder
    return [sys.executable, str(FIXTURE), str(port), "--replicas"]


# --- kills ---------------------------------------------------------------------------------------


async def call_until(stop: asyncio.Event, url: str, era: str, outcomes: dict[str, str]) -> None:
    """Make calls until told to stop, and record the outcome of each."""
    server = McpServer.http("replicas", url, era=era)  # type: ignore[arg-type]
    # The policy is the same for both tools. It repeats only the calls of the one that may be repeated.
    async with Toolbox(server, timeout=CALL_SECONDS, retry=Retry(delay=0.2)) as box:
        while not stop.is_set():
            for tool in ("pay", "look"):
                tag = f"{era}-{secrets.token_hex(8)}"
                outcomes[f"{tool} {tag}"] = "none"
                result = await box.call(tool, {"tag": tag})
                for _ in range(REPEATS if tool == "look" else 0):  # also if the client does not know the tools yet
                    if result.ok:
                        break
                    await asyncio.sleep(0.2)
                    result = await box.call(tool, {"tag": tag})
                outcomes[f"{tool} {tag}"] = "ok" if result.ok and result.text == tag else f"error: {result.text[:200]}"


async def run_kills(made: Replicas, kills: int, seconds: float) -> dict[str, str]:
    """Kill replicas while clients of both eras make calls. Return the outcomes by tool and tag."""
    outcomes: dict[str, str] = {}
    stop, chance = asyncio.Event(), random.Random(kills)  # noqa: S311 - not a secret
    workers = [asyncio.create_task(call_until(stop, made.url, era, outcomes)) for era in ("auto", "legacy") * WORKERS]
    for _ in range(kills):
        await asyncio.sleep(seconds * chance.uniform(0.8, 1.2))
        await asyncio.to_thread(made.kill, chance.randrange(len(made.processes)))
    await asyncio.sleep(seconds)
    stop.set()
    _, hung = await asyncio.wait(workers, timeout=2 * CALL_SECONDS)
    for worker in (*hung, *workers):
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
    return outcomes


def judge_kills(kills: int, seconds: float) -> int:
    """Print what became of the calls; return how many were lost or doubled."""
    with replicas(3, run_program, secrets.token_hex(32)) as made:
        outcomes = asyncio.run(run_kills(made, kills, seconds))
        runs = Counter((made.folder / "log").read_text().splitlines())
    lost = doubled = 0
    print("| replicas | kills | calls | with a result | ran once | ran twice | more often | told as an error | lost |")
    print("|---" * 9 + "|")
    for era in ("auto", "legacy"):
        for tool in ("pay", "look"):
            calls = {name: outcome for name, outcome in outcomes.items() if name.startswith(f"{tool} {era}-")}
            good = sum(outcome == "ok" for outcome in calls.values())
            gone = [
                name for name, outcome in calls.items() if outcome == "none" or (outcome == "ok" and not runs[name])
            ]
            failed = [name for name, outcome in calls.items() if outcome.startswith("error")]
            twice = sum(runs[name] > 1 for name in calls)
            lost += len(gone) + (len(failed) if tool == "look" else 0)
            doubled += twice if tool == "pay" else 0
            times = Counter(runs[name] for name in calls)
            cells = (kills, len(calls), good, times[1], times[2], times.total() - times[0] - times[1] - times[2])
            told = f"{len(failed)}, of which {sum(runs[name] > 0 for name in failed)} ran"
            print(f"| {tool}, {era} | {' | '.join(f'{n:,}' for n in cells)} | {told} | {len(gone)} |", flush=True)
            for name in failed[:2]:
                print(f"  {calls[name]}")
    return lost + doubled


# --- elicitation and conformance -----------------------------------------------------------------


async def count_answers(url: str, calls: int) -> Counter[str]:
    """Make calls that ask the user; count those that were answered, and the errors."""

    async def answer(request):
        del request
        return {"word": "yes"}

    async with Toolbox(McpServer.http("replicas", url), on_elicit=answer) as box:
        results = [await box.call("ask", {"question": f"{number}?"}) for number in range(calls)]
    return Counter("answered" if result.ok else result.text for result in results)


def judge_elicitation() -> int:
    """Ask the user through two replicas, with one key and without."""
    with replicas(2, run_program, secrets.token_hex(32)) as made:
        shared = asyncio.run(count_answers(made.url, 20))
    with replicas(2, run_program) as made:
        alone = asyncio.run(count_answers(made.url, 20))
    print(f"replicas, questions to the user: with one key {dict(shared)}; without {dict(alone)}", flush=True)
    told = sum(number for text, number in alone.items() if "another state_key" in text)
    return (shared["answered"] != 20) + (told == 0)


def judge_conformance() -> int:
    """Run the required scenarios through the proxy; those of sessions are expected to be refused."""
    short = 0
    with replicas(2, run_fixture, secrets.token_hex(32)) as made:
        for version, refused in REFUSED.items():
            good, bad, _ = judged(made.url, "alpha", ["--requirements", version])
            unexpected = sorted(set(bad) ^ set(refused))
            short += bool(unexpected) or not good
            print(f"replicas, conformance {version} required: {len(good)} pass, {len(bad)} need a session", flush=True)
            for name in bad:
                print(f"  {'FAILED' if name in unexpected else 'refused'} {name}")
    return short


REFUSED: dict[str, tuple[str, ...]] = {
    "2026-07-28": (),
    "2025-11-25": (
        "logging-set-level",
        "tools-call-with-logging",
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "resources-subscribe",
        "resources-unsubscribe",
    ),
}
"""Scenarios that need a session, a task or a subscription, which replicas refuse."""


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    failed = judge_elicitation()
    failed += judge_kills(kills, seconds)
    failed += judge_conformance()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
