"""Describe the runs of a journal for the page, and set the outcomes of interrupted calls."""

from __future__ import annotations

from typing import Any

from toolmason.chat.durable.effects import Completed, NotExecuted
from toolmason.chat.durable.journal import StoreRuntime
from toolmason.chat.durable.run_records import describe_record, make_spans
from toolmason.chat.frontends.frontend import get_field
from toolmason.errors import ConfigError
from toolmason.observe.span_record import walk_tree


def describe_journal(runtime: StoreRuntime | None) -> dict[str, Any]:
    """Return the runs of a journal, latest first."""
    if runtime is None:
        return {"journal": None, "runs": []}
    records = [record for record in runtime.runs() if "/" not in record.run]
    return {"journal": runtime.tables.store.name, "runs": [describe_record(record) for record in reversed(records)]}


def describe_run(runtime: StoreRuntime | None, run: str) -> dict[str, Any]:
    """Return a run with its steps, and the rows of its waterfall.

    Raises:
        KeyError: the run is unknown.
    """
    journal = require_journal(runtime)
    record = journal.run(run)
    interrupted = [] if record.held else journal.interrupted_calls(run)
    return {
        **describe_record(record),
        "effects": [effect.to_dict() for effect in journal.effects(run)],
        "interrupted": [effect.key for effect in interrupted],
        "spans": [
            {
                "name": row.span.name,
                "depth": len(row.lasts),
                "start": row.span.start / 1e6,
                "end": row.span.end / 1e6,
                "note": row.span.note,
                "failed": row.span.failed,
            }
            for row in walk_tree(make_spans(journal, record))
        ],
    }


def reconcile_call(runtime: StoreRuntime | None, run: str, body: Any) -> None:
    """Set the outcome of an interrupted call: `{"key": …, "done": VALUE}`, or without `done` to repeat it.

    Raises:
        KeyError: the run or the call is unknown.
        ConfigError: the call was not interrupted.
        RunTaken: a process is executing the run.
    """
    key = get_field(body, "key", str, "")
    require_journal(runtime).reconcile(run, key, Completed(body["done"]) if "done" in body else NotExecuted())


def require_journal(runtime: StoreRuntime | None) -> StoreRuntime:
    """Return the journal of a page. Raise ConfigError if it has none."""
    if runtime is None:
        raise ConfigError("The page has no journal. Start it with `toolmason ui TARGET --durable`.")
    return runtime
