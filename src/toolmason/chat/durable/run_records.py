"""Describe the runs of a journal for people: what was asked, the state, and the steps as spans."""

from __future__ import annotations

from typing import Any

from toolmason._core.values.messages import Message
from toolmason.chat.durable.journal import RunRecord, StoreRuntime
from toolmason.observe.span_record import SpanRecord


def read_input(record: RunRecord) -> list[Message]:
    """Return the input of a run; a run that was killed at once has only that of its command line."""
    if "asked" in record.facts:
        return [Message.from_dict(message) for message in (*record.facts["system"], *record.facts["asked"])]
    command_record = record.facts.get("command", {})
    system = [Message("system", command_record["system"])] if command_record.get("system") else []
    return [*system, Message("user", command_record.get("prompt", ""))]


def format_prompt(record: RunRecord, max_chars: int | None = 60) -> str:
    """Return the messages of the user that a run began with."""
    return " ".join(message.text for message in read_input(record) if message.role == "user")[:max_chars]


def describe_record(record: RunRecord) -> dict[str, Any]:
    """Return a run as JSON data, without its steps."""
    return {
        "run": record.run,
        "state": record.state,
        "begun": record.begun,
        "finish": record.finish,
        "steps": record.effects,
        "held": record.held,
        "asked": format_prompt(record, None),
        "text": record.facts.get("text"),
        "command": record.facts.get("command"),
    }


def make_spans(runtime: StoreRuntime, record: RunRecord) -> list[SpanRecord]:
    """Return a run as spans: one for the run, and one for each step and each delegated run below it."""
    runs = [other for other in runtime.runs() if other.run == record.run or other.run.startswith(f"{record.run}/")]
    spans: list[SpanRecord] = []
    for each in runs:
        effects = runtime.effects(each.run)
        end = max([each.begun, *(effect.ended or effect.at for effect in effects)])
        parent = None if each is record or each.run == record.run else record.run
        facts = {"toolmason.run.id": each.run, "toolmason.run.finish": each.state}
        spans.append(SpanRecord(f"run {each.run}", each.run, parent, _to_ns(each.begun), _to_ns(end), facts))
        for effect in effects:
            error = effect.outcome.get("error") if isinstance(effect.outcome, dict) else None
            attributes = {"toolmason.effect.key": effect.key, "toolmason.attempts": effect.attempt}
            if isinstance(error, dict):
                attributes["error.type"] = str(error.get("code"))
            elif effect.state != "done":
                attributes["error.type"] = effect.state
            kind = "chat" if effect.kind == "model" else "execute_tool"
            times = _to_ns(effect.at), _to_ns(effect.ended or effect.at)
            key = f"{each.run}/{effect.key}"
            failed = "error.type" in attributes
            spans.append(SpanRecord(f"{kind} {effect.name}", key, each.run, *times, attributes, failed=failed))
    return spans


def _to_ns(seconds: float) -> int:
    return int(seconds * 1e9)
