"""Measure a cold start with 1,000 tools in 100 modules: imported, and listed from the package manifest.

Each figure comes from a fresh process.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fresh import run_python
from measure import Row, Table
from sources import FLAT, Source

MODULES, EACH = 100, 10
COLUMNS = ("cpu ms", "wall ms (best)", "whole process, cpu ms", "x faster", "x faster, whole process")
LIMIT = 20.0
IMPORTED, LISTED = "floor: import the modules", "toolmason, from_manifest"

READY = "import importlib, json, pkgutil, sys, time\nimport toolmason\nfrom toolmason import Toolbox\n"
START = "cpu, wall = time.process_time(), time.perf_counter()\n"
REPORT = """
listed = [tool.definition for tool in box]
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
assert len(listed) == 1000, len(listed)
print(json.dumps({"cpu": cpu * 1000, "wall": wall * 1000, "whole": time.process_time() * 1000}))
"""
PROGRAMS = {
    IMPORTED: "import wares\nnames = [f'wares.{found.name}' for found in pkgutil.iter_modules(wares.__path__)]\n"
    "box = Toolbox(*map(importlib.import_module, names))",
    LISTED: "box = Toolbox.from_manifest('wares')",
}
"""Both programs end with the definitions of all tools, as a provider request needs them."""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """List the tools both ways in each round. No peer has a manifest, so there is nothing to compare with."""
    del with_peers
    with tempfile.TemporaryDirectory() as folder:
        size = write_package(Path(folder) / "wares", FLAT)
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in PROGRAMS}
        for turn in range(rounds + 1):
            for name, program in PROGRAMS.items():
                figures = run_python("-c", READY + START + program + REPORT, PYTHONPATH=folder)
                if turn:  # the first round writes the bytecode
                    taken[name].append(figures)
    notes = [
        "The first figures start after `import toolmason`, which both need; the whole process includes it.",
        f"The manifest has {size:,} bytes. Each start compares it with the hash of every module's source.",
    ]
    rows = [_row(name, taken) for name in PROGRAMS]
    return [Table(f"Cold start with {MODULES * EACH:,} tools in {MODULES} modules", COLUMNS, rows, notes)]


def write_package(folder: Path, source: Source) -> int:
    """Write a package of tools with its manifest, and return the size of the manifest."""
    folder.mkdir()
    (folder / "__init__.py").touch()
    for module in range(MODULES):
        text = source.module(range(module * EACH, module * EACH + EACH))
        (folder / f"part_{module:03}.py").write_text(text, "utf-8")
    command = [Path(sys.executable).with_name("toolmason"), "build", folder]
    subprocess.run(command, capture_output=True, check=True)
    return (folder / "_toolmason.json").stat().st_size


def _row(name: str, taken: dict[str, list[dict[str, float]]]) -> Row:
    mine, floor = taken[name], taken[IMPORTED]
    cpu, whole = (statistics.median(one[key] for one in mine) for key in ("cpu", "whole"))
    faster, whole_faster = (
        statistics.median(b[key] / a[key] for a, b in zip(mine, floor, strict=True)) for key in ("cpu", "whole")
    )
    figures = (cpu, min(one["wall"] for one in mine), whole, faster, whole_faster)
    if name == IMPORTED:
        return Row(name, figures)
    return Row(name, figures, f"≥ {LIMIT:g} x", "ok" if faster >= LIMIT else "under")
