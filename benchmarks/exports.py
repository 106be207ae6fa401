"""Measure the list of 1,000 tools in a provider's format: cold, warm, and from a manifest.

Each figure comes from a fresh process, which runs this file as a script.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import export_peers
from fresh import explain, run_python
from manifests import write_package
from measure import Row, Table, is_chosen, judge
from sources import SOURCES, Source, functions

COUNT = 1000
PROVIDERS = ("openai", "openai-chat", "anthropic", "gemini")
COLUMNS = ("load ms", "first export, ms", "cold ms", "warm ms")
COLD_LIMIT_MS, MANIFEST_LIMIT_MS, WARM_LIMIT_MS = 15.0, 5.0, 0.1
MANIFEST = ", from a manifest"

Figures = dict[str, float]


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Measure both kinds of functions."""
    chosen = [source for source in SOURCES.values() if is_chosen(source.name)]
    return [_table(min(rounds, 5), source, with_peers=with_peers) for source in chosen]


def _table(rounds: int, source: Source, *, with_peers: bool) -> Table:
    names = [*PROVIDERS, *(provider + MANIFEST for provider in PROVIDERS), *(export_peers.PEERS if with_peers else ())]
    taken: dict[str, list[Figures]] = {name: [] for name in names}
    notes = [
        "Load: make the toolbox, of functions or from the manifest. First export: of one tool; it loads the codec.",
        "Cold: the first export of all tools, after that. Warm: the second and later ones, the best of 20.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_package(Path(folder) / "wares", source)
        for turn in range(rounds + 1):
            for name in list(taken):
                try:
                    figures = run_python(__file__, name, source.name, PYTHONPATH=folder)
                except subprocess.CalledProcessError as failed:
                    del taken[name]
                    notes.append(explain(failed, name))
                else:
                    if turn:  # the first turn writes the compiled files
                        taken[name].append(figures)
    rows = [_row(name, figures) for name, figures in taken.items()]
    return Table(f"Export {COUNT:,} tools, cpu: {source.name}", COLUMNS, rows, notes)


def _row(name: str, taken: Sequence[Figures]) -> Row:
    load, first, cold, warm = (
        statistics.median(one[key] for one in taken) for key in ("load", "first", "cold", "warm")
    )
    if name in export_peers.PEERS:
        return Row(name, (load, first, cold, warm))
    limit = MANIFEST_LIMIT_MS if name.endswith(MANIFEST) else COLD_LIMIT_MS
    bars = {"cold ms": (cold, limit), "warm ms": (warm, WARM_LIMIT_MS)}
    text = f"cold ≤ {limit:g} ms, warm ≤ {WARM_LIMIT_MS:g} ms"
    return Row(f"toolmason, {name}", (load, first, cold, warm), text, judge(bars))


# --- in the fresh process ----------------------------------------------------------------------------


def _measure(name: str, source: Source) -> Figures:
    spare, *many = functions(COUNT + 1, source)
    if name in export_peers.PEERS:
        make = export_peers.PEERS[name]
        one = make([spare])
        load, export = _timed(lambda: make(many))
    else:
        from toolmason import Tool, Toolbox

        provider = name.removesuffix(MANIFEST)
        small = Toolbox(Tool.from_function(spare))
        one = lambda: small.definitions(provider)  # noqa: E731 - the same form as that of the peers
        if name.endswith(MANIFEST):
            load, box = _timed(lambda: Toolbox.from_manifest("wares"))
        else:
            load, box = _timed(lambda: Toolbox(*map(Tool.from_function, many)))
        export = lambda: box.definitions(provider)  # noqa: E731 - the same
    first, _ = _timed(one)
    cold, listed = _timed(export)
    count = sum(len(entry.get("functionDeclarations", [entry])) if isinstance(entry, dict) else 1 for entry in listed)
    if count != COUNT:
        raise SystemExit(f"{name} exported {count} tools")
    warm = min(_timed(export)[0] for _ in range(20))
    return {"load": load, "first": first, "cold": cold, "warm": warm}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    made = work()
    return (time.process_time() - start) * 1000, made


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], SOURCES[sys.argv[2]])))
