"""Judge our server by the official suite: `python tests/judges/server.py`.

Every set of scenarios against the fixture, directly and through one gateway hop.
"""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite import installed

FIXTURE = Path(__file__).with_name("server_fixture.py")
SECONDS = 300
SETS = (
    ("0.1.16 active", "stable", ["--suite", "active"], 30),
    ("2025-11-25 required", "alpha", ["--requirements", "2025-11-25"], 30),
    ("2026-07-28 required", "alpha", ["--requirements", "2026-07-28"], 37),
    ("alpha, all", "alpha", ["--suite", "all"], 64),
)


def free_port() -> int:
    """Return a port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def served(*words: str) -> Iterator[str]:
    """Run the fixture, and yield its address."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(FIXTURE), str(port), *words])
    setattr(served, "process", process)  # noqa: B010 - the load test looks at its memory
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(10)


def judged(url: str, suite: str, words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Run one set; return the names that count and passed, those that failed, and those without a check."""
    command = [*installed(suite), "server", "--url", url, *words]
    text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS).stdout
    summary, _, unscored = text.split("=== SUMMARY ===")[-1].partition("Not scored")
    free = set(re.findall(r"^\s+[✓✗] (\S+)", unscored, re.MULTILINE))
    # A scenario without a single check is a tick as well; it proves nothing, and does not count.
    ticks = re.findall(r"^✓ (\S+): (\d+) passed", summary, re.MULTILINE)
    good, empty = ([name for name, number in ticks if bool(int(number)) is wanted] for wanted in (True, False))
    bad = re.findall(r"^✗ (\S+):", summary, re.MULTILINE)
    return [name for name in good if name not in free], [name for name in bad if name not in free], empty


def main() -> int:
    """Run every set over every way in, and print the table."""
    failed = 0
    with served() as url:
        failed += table("directly", url)
    with served() as behind, served("--gateway", behind) as url:
        failed += table("through a gateway", url)
    return 1 if failed else 0


def table(way: str, url: str) -> int:
    """Print the rows of one way in; return how many sets fell short."""
    short = 0
    for name, suite, words, most in SETS:
        good, bad, empty = judged(url, suite, words)
        short += bool(bad) or len(good) < most
        print(f"server, {way}: {name}: {len(good)}/{len(good) + len(bad)} scenarios (known: {most})", flush=True)
        for each in bad:
            print(f"  FAILED {each}")
        if len(good) < most:
            print(f"  without a check: {', '.join(empty)}")
    return short


if __name__ == "__main__":
    sys.exit(main())
