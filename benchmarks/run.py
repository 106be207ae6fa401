"""Measure the speed of Toolmason against its floor, and against its peers with `--peers`.

Usage: python benchmarks/run.py [SUBJECT ...|all|bars] [--only TEXT] [--peers] [--instructions] [--rounds N] [--write]
"""

import argparse
import datetime as dt
import logging
import os
import platform
import re
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path

import bars
import calls
import define
import environment
import exports
import growth
import imports
import instructions
import loops
import manifests
import remotes
import results
import serving
import sizes
import starts
import threads
import tracing
from measure import ONLY, Neighbours

import scale

README = Path(__file__).with_name("README.md")
SUBJECTS = {
    "call": calls.on_loop,
    "policy": calls.under_policy,
    "run": calls.in_run,
    "thread": threads.table,
    "sizes": sizes.table,
    "loop": loops.table,
    "define": define.table,
    "export": exports.table,
    "growth": growth.table,
    "import": imports.table,
    "start": starts.table,
    "mcp": remotes.table,
    "serving": serving.table,
    "manifest": manifests.table,
    "tracing": tracing.table,
    "instructions": instructions.table,
    "scale": scale.table,
}
ON_REQUEST = ("instructions", "scale")
"""Subjects that need other programs: `all` leaves them out."""
BARS = "bars"
OWN = ("toolmason", "pydantic", "pydantic-core", "anyio")


def main() -> int:
    """Measure the given subjects, print the tables, and write them to the README if requested."""
    parser = argparse.ArgumentParser(description="Measure the speed of Toolmason.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"all (default), {', '.join([*SUBJECTS, BARS])}")
    parser.add_argument(
        "--only", metavar="TEXT", help="measure only samples with this text in their names (call, run, define, export)"
    )
    parser.add_argument("--peers", action="store_true", help="also measure other libraries, in benchmarks/.peers")
    parser.add_argument("--instructions", action="store_true", help="also count instructions; slow, needs valgrind")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="number of interleaved rounds (default: 9)")
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/README.md")
    options = parser.parse_args()
    subjects = options.subjects or ["all"]
    if unknown := {*subjects} - {*SUBJECTS, BARS, "all"}:
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if options.only and options.write:
        parser.error("--write needs every sample; leave out --only")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.peers and not environment.is_current():
        return subprocess.run([environment.python(), __file__, *sys.argv[1:]], check=False).returncode
    _be_quiet()
    ONLY.extend([options.only] if options.only else [])
    chosen = dict.fromkeys(name for subject in subjects for name in _chosen(subject, counts=options.instructions))
    for subject in chosen:
        _show(subject, _report(subject, options.rounds, with_peers=options.peers), write=options.write)
    if not {"all", BARS}.isdisjoint(subjects):
        _show(BARS, bars.table().markdown(), write=options.write)
    return 0


def _chosen(subject: str, *, counts: bool) -> list[str]:
    if subject == BARS:
        return []
    if subject != "all":
        return [subject, *(["instructions"] if counts and subject == "call" else [])]
    return [name for name in SUBJECTS if name not in ON_REQUEST or (counts and name == "instructions")]


def _show(subject: str, text: str, *, write: bool) -> None:
    print(text, end="\n\n", flush=True)
    if write:
        _write(subject, text)


def _report(subject: str, rounds: int, *, with_peers: bool) -> str:
    neighbours = Neighbours()
    tables = SUBJECTS[subject](rounds, with_peers=with_peers)
    today = dt.datetime.now(tz=dt.UTC).date()
    head = (
        f"{today}, {rounds} rounds, Python {platform.python_version()}, {os.cpu_count()} cores; "
        f"other processes used {neighbours.share()} of the machine. {_versions(with_peers=with_peers)}."
    )
    results.save(subject, head, tables, is_part=bool(ONLY))
    return "\n\n".join([head, *(table.markdown() for table in tables)])


def _versions(*, with_peers: bool) -> str:
    wanted = re.findall(r"^([\w-]+)==", environment.WANTED.read_text("utf-8"), re.MULTILINE) if with_peers else []
    return ", ".join(f"{name} {_version(name)}" for name in dict.fromkeys([*OWN, *wanted]))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _be_quiet() -> None:
    # Otherwise the timing of a peer that logs or warns about each rejected call would include its output.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _write(subject: str, text: str) -> None:
    start, end = f"<!-- {subject}: begin -->", f"<!-- {subject}: end -->"
    before, _, rest = README.read_text("utf-8").partition(start)
    _, _, after = rest.partition(end)
    README.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
