"""Count the instructions of calls with callgrind: a figure that does not depend on the load of the machine.

Run as a script under callgrind, this file makes the counted calls.
"""

import asyncio
import gc
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import floors
import ours
import tracing
from fresh import ENVIRONMENT
from measure import Call, Contender, Row, Table, is_chosen, verdict
from samples import MAIN, TWO_INTS, Sample

COLUMNS = ("instructions", "x floor")
WARM_UP, CALLS = 30, 100
TRACING = "tracing"
HINT = "Not measured: `valgrind` is missing. Install it, on Debian with `apt install valgrind`, and run this again."
# The calls stand between these two functions of the interpreter, which nothing else calls meanwhile.
BEGIN, END = "PyGC_Disable", "PyGC_Enable"


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Count each sample, and the cost of tracing, once, whatever the number of rounds."""
    del rounds, with_peers
    names = {sample.name: _contenders(sample) for sample in MAIN} | {TRACING: tracing.contenders()}
    return [
        _table(index, name, contenders) for index, (name, contenders) in enumerate(names.items()) if is_chosen(name)
    ]


def _contenders(sample: Sample) -> list[Contender]:
    bare, usual = sample.limits
    floor = floors.refused(sample) if sample.is_wrong else floors.on_loop(sample)
    return [
        Contender("floor: pydantic-core", floor),
        Contender("toolmason, timeout=None", ours.on_loop(sample, timeout=None), bare),
        Contender("toolmason, all defaults", ours.on_loop(sample), usual),
    ]


def _table(index: int, name: str, contenders: list[Contender]) -> Table:
    title = f"Instructions: {name}"
    if shutil.which("valgrind") is None:
        return Table(title, COLUMNS, [], [HINT])
    # Each in a process of its own: the interpreter specializes code for the contenders that ran before.
    numbers = range(len(contenders))
    counts = [count for number in numbers for count in _count(index, number)] if name == TRACING else _count(index)
    if len(counts) != len(contenders):
        note = f"Not measured: {len(counts)} counts for {len(contenders)} contenders; the interpreter inlines {BEGIN}."
        return Table(title, COLUMNS, [], [note])
    rows = []
    for contender, count in zip(contenders, counts, strict=True):
        ratio, limit = count / counts[0], contender.limit
        text = f"≤ {limit:g} x" if limit else ""
        rows.append(Row(contender.name, (count / CALLS, ratio), text, verdict(ratio, limit)))
    return Table(title, COLUMNS, rows)


def _count(index: int, *numbers: int) -> list[int]:
    """Count the contenders of a table, or those with these numbers."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--zero-before={BEGIN}", f"--dump-before={END}"]
        command += [f"--callgrind-out-file={folder}/count", sys.executable, __file__]
        command += map(str, (index, *numbers))
        environment = {**ENVIRONMENT, "PYTHONHASHSEED": "0"}
        subprocess.run(command, env=environment, capture_output=True, check=True, timeout=600)
        files = sorted(Path(folder).glob("count.*"), key=lambda file: int(file.suffix[1:]))
        totals = [re.search(r"^(?:summary|totals): (\d+)", file.read_text("utf-8"), re.MULTILINE) for file in files]
    return [int(total[1]) for total in totals if total]


async def _call(contenders: list[Contender], text: str) -> None:
    for contender in contenders:
        await _repeat(contender.call, text, WARM_UP)
        gc.collect()
        gc.disable()
        await _repeat(contender.call, text, CALLS)
        gc.enable()


async def _repeat(call: Call, text: str, count: int) -> None:
    for _ in range(count):
        await call(text)


if __name__ == "__main__":
    table_number, *chosen_numbers = map(int, sys.argv[1:])
    chosen = MAIN[table_number] if table_number < len(MAIN) else TWO_INTS
    found = _contenders(chosen) if table_number < len(MAIN) else tracing.contenders()
    asyncio.run(_call([found[number] for number in chosen_numbers] or found, chosen.text))
