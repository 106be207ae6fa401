"""The calls of the parity suite, and everything that can be seen of their results."""

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolmason import Text, Toolbox, ToolCall, ToolResult
from toolmason.errors import ToolCallError
from toolmason.extend import ApprovalRequest

BOUND = 20.0
"""Seconds after which a call that waits has failed."""

ABSENT = "<absent>"
Fields = dict[str, Any]
"""What can be seen of a result, by the name of the field."""


def describe(result: ToolResult) -> Fields:
    """Return every field of a result and of its error. A new field of either is compared without a change here."""
    names = {*ToolResult.__annotations__, "ok", "text", "content", "structured"} - {"error"}
    found = {name: getattr(result, name) for name in names}
    found |= {"duration": result.duration > 0, "meta": dict(result.meta)}
    found |= {"error": None} if result.error is None else _describe_error(result.error)
    return {name: _mask(value) for name, value in found.items()}


def _describe_error(error: ToolCallError) -> Fields:
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "toolmason.errors")
    found = {"error": kind, "error.code": error.code, "error.cause": type(error.__cause__).__name__}
    found |= {f"error.{name}": value for name, value in vars(error).items()}
    if (wait := found.get("error.retry_after")) is not None:
        found["error.retry_after"] = round(wait, -2)  # the time that has passed since then differs
    return found | {
        "error.to_model": error.to_model()["error"],
        "error.args": error.args,
        "error.log_id": bool(error.log_id),
    }


_RANDOM = (
    (re.compile(r"result_\d+_[0-9a-f]{32}"), "result_N"),
    (re.compile(r"(?<=Error id: )[0-9a-f]{12}"), "ID"),
    # How much of a text is shown depends on the length of the handle.
    (re.compile(r"^(.{100}).*(\n\[… )\d+( of .*…\]\n).*(.{40})$", re.DOTALL), r"\1\2N\3\4"),
)


def _mask(value: Any) -> Any:
    """Return a value with a fixed word for each handle, ID and time, which differ from call to call."""
    if isinstance(value, str):
        for pattern, word in _RANDOM:
            value = pattern.sub(word, value)
        return value
    if isinstance(value, ApprovalRequest):
        return dataclasses.replace(value, id="ID", issued=0.0, expires=None, signature="")
    if isinstance(value, Text):
        return Text(_mask(value.text))
    if type(value) in (tuple, list):
        return type(value)(map(_mask, value))
    return {key: _mask(item) for key, item in value.items()} if type(value) is dict else value


Reports = list[Any]


async def _call_in_turn(box: Toolbox, calls: list[ToolCall], reports: Reports) -> list[Fields]:
    return [describe(await box.call(call, on_progress=reports.append)) for call in calls]


async def _call_at_once(box: Toolbox, calls: list[ToolCall], reports: Reports) -> list[Fields]:
    return [describe(result) for result in await asyncio.gather(*map(box.call, calls))]


async def _read_rest(box: Toolbox, calls: list[ToolCall], reports: Reports) -> list[Fields]:
    handle = (await box.call(calls[0])).meta["handle"]
    return [
        describe(await box.call(ToolCall("rest", "read_result", {"handle": handle, "offset": 500, "length": 100}))),
        describe(await box.call(ToolCall("found", "read_result", {"handle": handle, "search": "99"}))),
    ]


async def _cancel_task(box: Toolbox, calls: list[ToolCall], reports: Reports) -> list[Fields]:
    entered = asyncio.Event()
    task = asyncio.create_task(box.call(calls[0], on_progress=lambda _: entered.set()))
    await asyncio.wait_for(entered.wait(), BOUND)
    task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    return [{"raised": type(ended).__name__}, describe(await box.call(ToolCall("after", "was_cancelled")))]


async def _cancel_run(box: Toolbox, calls: list[ToolCall], reports: Reports) -> list[Fields]:
    with box.run() as run:
        result = await run.call(calls[0], on_progress=lambda _: run.cancel())
    return [describe(result), describe(await box.call(ToolCall("after", "was_cancelled")))]


@dataclass(frozen=True)
class Case:
    """Calls of one tool."""

    tool: str
    arguments: tuple[Mapping[str, Any] | str, ...] = ({},)
    make: Callable[[Toolbox, list[ToolCall], Reports], Awaitable[list[Fields]]] = _call_in_turn
    name: str = ""

    @property
    def id(self) -> str:
        return self.name or self.tool

    async def run(self, box: Toolbox) -> list[Fields]:
        """Make the calls; return what can be seen of each, and at last the progress that was reported."""
        reports: Reports = []
        calls = [ToolCall(f"call {number}", self.tool, given) for number, given in enumerate(self.arguments)]
        found = await asyncio.wait_for(self.make(box, calls, reports), BOUND)
        return [*found, {"progress": [dataclasses.asdict(report) for report in reports]}]


KEY = "c0ffee00-0000-4000-8000-000000000001"
ORDER = {"id": KEY, "placed": "2026-05-01", "price": "12.50", "sizes": [{"width": 2}], "remark": "soon"}
CASES = (
    Case("add", ({"a": 1, "b": 2}, {"a": 1}, '{"a": 5}')),
    Case("halve", ({"x": 3}, {"x": 4.0}, {"x": 1e300})),
    Case("negate", ({"flag": True},)),
    Case("word", tuple({"text": text} for text in ("hello", "7", "", "Größe ☃", "{}", "Success"))),
    Case("paint", ({"color": "red"},)),
    Case("choose", ({"level": "low"}, {"level": 3})),
    Case("day", ({"date": "2026-05-01"},)),
    Case("moment", ({"at": "2026-05-01T10:00:00Z"},)),
    Case("wait_for", ({"span": "PT5M"},)),
    Case("ident", ({"key": KEY},)),
    Case("price", ({"amount": "12.50"}, {"amount": 3})),
    Case("blob", ({"data": "AAH/"},)),
    Case("order", ({"order": ORDER},)),
    Case("move", ({"point": {"x": 1}}, {"point": {"x": 1, "y": 5}})),
    Case("movie", ({"movie": {"title": "Alien", "year": 1979}},)),
    Case("names", ({"names": ["b", "a"]}, {"names": []})),
    Case("either", ({"value": 7}, {"value": "7"}, {"value": None}, {})),
    Case("nothing"),
    Case("silence"),
    Case("nested", ({"orders": [ORDER], "by": {"a": [{"x": 1}], "b": []}},)),
    Case("ranks", ({"by": {"1": "Ada", "2": "Bob"}}, {"by": {}}, {"by": {"first": "Ada"}}, '{"by": {"1": "Ada"}}')),
    Case("pair"),
    Case("unique"),
    Case("outcome"),
    Case("anything", tuple({"kind": kind} for kind in ("dict", "text", "number", "none", "list"))),
    Case("count"),
    Case("add", ({"a": "5", "b": 2.0}, {"a": 1, "extra": 2}, {"a": 1, "b": None}), name="repairs"),
    Case("names", ({"names": "one"}, {"names": '["a"]'}), name="repairs of lists"),
    Case("add", ({"a": "x", "b": -1}, {}, '{"a": 1'), name="wrong arguments"),
    Case("nested", ({"orders": [{"id": "no", "placed": 1}], "by": {"a": [{"y": "z"}]}},), name="nested problems"),
    Case("paint", ({"color": "blue"},), name="unknown enum"),
    Case("choose", ({"level": "loud"},), name="unknown literal"),
    Case("ident", ({"key": "no"},), name="wrong format"),
    Case("either", ({"value": []},), name="wrong union"),
    Case("unheard_of"),
    Case("complain"),
    Case("sell"),
    Case("explode"),
    Case("disconnect"),
    Case("mumble"),
    Case("stay"),
    Case("recover"),
    Case("give_up"),
    Case("redact_me"),
    Case("picture"),
    Case("sound"),
    Case("mixed"),
    Case("link"),
    Case("embedded"),
    Case("summarize"),
    Case("locate"),
    Case("convert", ({"number": 7},)),
    Case("report"),
    Case("approved", ({"amount": 5},)),
    Case("denied", ({"amount": 5},)),
    Case("undecided", ({"amount": 5},)),
    Case("once", ({}, {})),
    Case("seldom", ({}, {})),
    Case("alone", ({}, {}, {}), _call_at_once),
    Case("long_text"),
    Case("long_rows"),
    Case("long_text", make=_read_rest, name="rest of a long result"),
    Case("tenant"),
    Case("direct"),
    Case("hang", make=_cancel_task, name="cancelled task"),
    Case("hang", make=_cancel_run, name="cancelled run"),
)
