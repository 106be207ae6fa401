"""Measure a cold start with 1,000 tools in 100 modules: imported, and listed from the package manifest.

Each figure comes from a fresh process.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from define import SOURCE
from measure import Row, Table

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
        _write_package(Path(folder) / "wares")
        environment = {**os.environ, "PYTHONPATH": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        code = "from toolmason.build.manifest.package_manifest import build, write_file\nbuilt = build('wares')\n"
        _run(code + "write_file(built.file, built.data)", environment)
        size = (Path(folder) / "wares" / "_toolmason.json").stat().st_size
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in PROGRAMS}
        for turn in range(rounds + 1):
            for name, program in PROGRAMS.items():
                figures = json.loads(_run(READY + START + program + REPORT, environment))
                if turn:  # the first round writes the bytecode
                    taken[name].append(figures)
    notes = [
        "The first figures start after `import toolmason`, which both need; the whole process includes it.",
        f"The manifest has {size:,} bytes. Each start compares it with the hash of every module's source.",
    ]
    rows = [_row(name, taken) for name in PROGRAMS]
    return [Table(f"Cold start with {MODULES * EACH:,} tools in {MODULES} modules", COLUMNS, rows, notes)]


def _write_package(folder: Path) -> None:
    folder.mkdir()
    (folder / "__init__.py").touch()
    for module in range(MODULES):
        tools = "".join(
            "\n@tool" + SOURCE.format(number=number) for number in range(module * EACH, module * EACH + EACH)
        )
        (folder / f"part_{module:03}.py").write_text(f"from toolmason import tool\n{tools}", "utf-8")


def _run(program: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


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
