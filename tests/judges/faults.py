"""Run the catalogue of faults: each row in a process of its own, with a limit, as a table.

`python tests/judges/faults.py F01 T8` runs these rows alone. A row without a test fails.
"""

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Path(__file__).with_suffix(".toml")
LIMIT_SECONDS = 240
SHOWN_LINES = 40
"""Lines of the output of a broken row that are printed."""
WORKERS = 2


@dataclass(frozen=True)
class Row:
    """A row of the catalogue: what goes wrong, and how it is shown that it does no harm."""

    name: str
    text: str
    part: str
    tests: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Sizes for which `make test` has no time."""


@dataclass(frozen=True)
class Outcome:
    """How a row ended."""

    row: Row
    verdict: str
    seconds: float
    output: str


def find_named_tests() -> dict[str, list[str]]:
    """Return the tests that name each row: `test_f05_f06_…` shows F05 and F06, and `test_f39b_…` F39."""
    found = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE):
            for word in name.split("_")[1:]:
                if code := re.fullmatch(r"([fth]\d+)[a-z]?", word):
                    found[code[1].upper()].append(f"{path.relative_to(ROOT / 'tests').as_posix()}::{name}")
                elif not re.fullmatch(r"and|[a-z]{1,2}\d+", word):
                    break
    return found


def read_catalogue() -> dict[str, Row]:
    """Return the rows by name, each with its tests."""
    parts = tomllib.loads(CATALOGUE.read_text("utf-8"))
    entries = {
        name: (part["title"], {"text": entry} if isinstance(entry, str) else entry)
        for part in parts.values()
        for name, entry in part.items()
        if name != "title"
    }
    named = find_named_tests()

    def collect(name: str) -> Iterator[str]:
        _, entry = entries[name]
        yield from named[name]
        yield from entry.get("tests", ())
        for other in entry.get("rows", ()):
            yield from collect(other)

    return {
        name: Row(
            name,
            entry["text"],
            part,
            tuple(dict.fromkeys(collect(name))),
            tuple(entry.get("command", ())),
            entry.get("environment", {}),
        )
        for name, (part, entry) in entries.items()
    }


def run(row: Row) -> Outcome:
    """Run a row in a process group of its own, which is killed at the limit."""
    if not row.tests and not row.command:
        return Outcome(row, "has no test", 0.0, "")
    pytest = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *(f"tests/{test}" for test in row.tests),
    ]
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *(row.command or pytest)],
        cwd=ROOT,
        env={**os.environ, **row.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
        verdict = "holds" if process.returncode == 0 else "BROKEN"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        verdict = f"BROKEN, hangs for {LIMIT_SECONDS} s"
    return Outcome(row, verdict, time.monotonic() - started, output)


def main() -> int:
    """Run the rows that are named, or all, and print the table."""
    catalogue = read_catalogue()
    rows = [catalogue[name] for name in sys.argv[1:]] or list(catalogue.values())
    broken, part = [], None
    with ThreadPoolExecutor(WORKERS) as pool:
        for outcome in pool.map(run, rows):
            row = outcome.row
            if row.part != part:
                part = row.part
                print(f"\n## {part}\n\n| # | Case | Tests | | Seconds |\n|---|---|--:|---|--:|", flush=True)
            tests = len(row.tests) or 1
            print(f"| {row.name} | {row.text} | {tests} | {outcome.verdict} | {outcome.seconds:.0f} |", flush=True)
            if outcome.verdict != "holds":
                broken.append(outcome)
    for outcome in broken:
        print(f"\n### {outcome.row.name}\n", *outcome.output.splitlines()[-SHOWN_LINES:], sep="\n")
    print(f"\n{len(rows) - len(broken)} of {len(rows)} rows hold")
    return bool(broken)


if __name__ == "__main__":
    raise SystemExit(main())
