"""Measure the cost of start-up in fresh processes: CPU time, wall time and memory, net of an empty interpreter."""

import resource
import statistics
import subprocess
import sys
import time

import peers
from fresh import ENVIRONMENT, explain
from measure import Row, Table, judge, verdict

COLUMNS = ("cpu ms", "wall ms (best)", "x floor", "modules", "RSS MB")
RATIO_LIMIT, MEMORY_LIMIT_MB = 1.25, 30.0
# 100 ms on a machine where this floor takes 94; a ratio, because machines differ by more than the figure.
MODEL_LIMIT = 1.06

EMPTY, FLOOR, OURS = "(empty interpreter)", "floor: pydantic, asyncio", "toolmason"
MODEL = "toolmason, first model"
STATEMENTS = {
    EMPTY: "pass",
    FLOOR: "import pydantic, asyncio; pydantic.BaseModel, pydantic.TypeAdapter",
    OURS: "import toolmason; toolmason.tool, toolmason.Toolbox",
    MODEL: "import toolmason; toolmason.model('openai-chat:m', base_url='http://127.0.0.1:1')",
}

# The process reads its own memory, because `ru_maxrss` would include its parent's.
REPORT = """
import sys
try:
    with open("/proc/self/status", encoding="utf-8") as status:
        memory = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
except OSError:
    memory = 0
print(len(sys.modules), memory)
"""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Import each in a fresh process per round; the first round fills the caches and is not counted."""
    statements = STATEMENTS | (peers.IMPORT if with_peers else {})
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in statements}
    notes = ["CPU, wall time and modules are net of the empty interpreter, except in its own row; RSS is always gross."]
    for turn in range(rounds + 1):
        for name in list(taken):
            try:
                figures = _fresh(statements[name])
            except subprocess.CalledProcessError as failed:
                del taken[name]
                notes.append(explain(failed, name))
            else:
                if turn:
                    taken[name].append(figures)
    return [Table("Import, fresh processes", COLUMNS, [_row(name, taken) for name in taken], notes)]


def _fresh(statement: str) -> tuple[float, ...]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", statement + REPORT]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    modules, memory = map(int, done.stdout.split())
    return cpu * 1000, wall * 1000, modules, memory / 1024


def _row(name: str, taken: dict[str, list[tuple[float, ...]]]) -> Row:
    cpu, wall, modules, memory = zip(*taken[name], strict=True)
    empty_cpu, empty_wall, empty_modules, _ = zip(*taken[EMPTY], strict=True)
    rss = statistics.median(memory)
    if name == EMPTY:
        return Row(name, (statistics.median(cpu), min(wall), None, modules[0], rss))
    net = [mine - empty for mine, empty in zip(cpu, empty_cpu, strict=True)]
    floor = [one[0] - empty for one, empty in zip(taken[FLOOR], empty_cpu, strict=True)]
    ratio = statistics.median(mine / base for mine, base in zip(net, floor, strict=True))
    figures = (statistics.median(net), min(wall) - min(empty_wall), ratio, modules[0] - empty_modules[0], rss)
    if name == MODEL:
        return Row(name, figures, f"≤ {MODEL_LIMIT:g} x", verdict(ratio, MODEL_LIMIT))
    if name != OURS:
        return Row(name, figures)
    bars = {"x floor": (ratio, RATIO_LIMIT), "RSS MB": (rss, MEMORY_LIMIT_MB)}
    return Row(name, figures, f"≤ {RATIO_LIMIT:g} x, ≤ {MEMORY_LIMIT_MB:g} MB", judge(bars))
