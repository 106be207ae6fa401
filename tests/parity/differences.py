"""The differences that must be: each row is shown in `docs/reference/parity.md`."""

import datetime as dt
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic_core import to_jsonable_python

from parity.cases import ABSENT, Fields

WIRE = ("in-memory server", "stdio", "HTTP, sessions", "HTTP, stateless", "gateway", "served manifest")
HTTP = ("HTTP, sessions", "HTTP, stateless")
ANY = ("*",)
MESSAGE = ("text", "content", "error.message", "error.args", "error.to_model")

Becomes = Callable[[Fields, Fields], bool]
"""Return whether the fields of a remote result are what the difference makes of the local ones."""


@dataclass(frozen=True)
class Difference:
    """Fields of some results that are not as those of a local tool, and what they are instead."""

    ways: tuple[str, ...]
    cases: tuple[str, ...]
    """IDs of the cases; `ANY` for all of them."""
    fields: tuple[str, ...]
    holds: Becomes
    what: str
    """What a user sees, as the page says it."""
    reason: str

    def covers(self, way: str, case: str, field: str) -> bool:
        return way in self.ways and (self.cases == ANY or case in self.cases) and field in self.fields


def _to_json(value: Any) -> Any:
    """Return the JSON form of a value, as its type is written in a schema."""
    if isinstance(value, bytes):
        return to_jsonable_python(value, bytes_mode="base64")
    return to_jsonable_python(value, by_alias=True)


def _is_json_form(near: Fields, far: Fields) -> bool:
    value = near["value"]
    is_typed = isinstance(value, Enum | tuple | set | bytes | dt.date) or not isinstance(
        value, str | int | float | list
    )
    return is_typed and far["value"] == _to_json(value)


def _is_redacted(near: Fields, far: Fields) -> bool:
    model = far["error.to_model"]
    return (
        near["error"] in ("ExecutionError", "ResultError")
        and f"{model['tool']} failed because of an internal error." in model["message"]
        and near["error.message"] not in far["text"]
        and far["error.message"] == model["message"]
    )


def _names_the_server(near: Fields, far: Fields) -> bool:
    return far["error.to_model"] == {**near["error.to_model"], "server": "far"} and '"server":"far"' in far["text"]


def _has(**fields: Any) -> Becomes:
    """Return a check that fields have these values; `_` in a name stands for a dot."""
    return lambda near, far: all(far[name.replace("__", ".")] == value for name, value in fields.items())


def _has_wire_form(near: Fields, far: Fields) -> bool:
    return near["structured"] is None and isinstance(far["structured"], dict) and [*far["structured"]] == ["result"]


def _leaves_formats_to_the_server(near: Fields, far: Fields) -> bool:
    return set(far["error.problems"]) < set(near["error.problems"])


DIFFERENCES = (
    Difference(
        WIRE,
        ANY,
        ("value",),
        _is_json_form,
        "`value` of a class, date, `UUID`, `Decimal`, `bytes`, enum, tuple, set or dict with other keys than strings "
        "is its JSON form.",
        "The class is not known on this side.",
    ),
    Difference(
        WIRE,
        ("summarize",),
        ("value",),
        lambda near, far: far["value"] == far["text"] == near["text"],
        "`value` of a `ToolReturn` without an output schema is the text.",
        "The value stays in the application that serves the tool.",
    ),
    Difference(
        WIRE,
        ("convert",),
        ("value",),
        lambda near, far: far["value"] == far["text"] == near["text"],
        "`value` of a tool with a `converter` is the text.",
        "The converter makes what is sent.",
    ),
    Difference(
        WIRE,
        ("summarize",),
        ("meta",),
        _has(meta={}),
        "`meta` of a `ToolReturn` is not sent.",
        "It is data for the application that serves the tool.",
    ),
    Difference(
        WIRE,
        ("long_text",),
        ("value",),
        lambda near, far: far["value"] == far["text"] == near["text"],
        "`value` of truncated text is the truncated text.",
        "The server keeps the full text; `read_result` reads it there.",
    ),
    Difference(
        WIRE,
        ("long_text", "long_rows", "mixed"),
        ("structured",),
        _has_wire_form,
        '`structured` of a truncated result and of content parts is `{"result": …}` instead of `None`.',
        "MCP requires structured content of a tool that has an output schema.",
    ),
    Difference(
        WIRE,
        ("direct",),
        ("return_direct",),
        _has(return_direct=False),
        "`return_direct` is False.",
        "A server does not decide what a run of your application does with a result.",
    ),
    Difference(
        WIRE,
        ("nested problems",),
        (*MESSAGE, "error.problems"),
        _leaves_formats_to_the_server,
        "If other arguments are wrong, a wrong UUID, pattern or other format is not among the problems.",
        "Formats are checked by the server, and nothing is sent while other arguments are wrong.",
    ),
    Difference(
        WIRE,
        ANY,
        ("error.server",),
        _has(error__server="far"),
        "An error has the attribute `server`.",
        "It names the server that reported the error.",
    ),
    Difference(
        WIRE,
        ANY,
        ("error.data",),
        lambda near, far: isinstance(far["error.data"], str) and far["error.data"].startswith('{"error":'),
        "`error.data` is the text that the server sent.",
        "`data` of a `ToolError` stays in the application that serves the tool.",
    ),
    Difference(
        WIRE,
        ANY,
        ("error.result_fields",),
        lambda near, far: near.get("error.result_fields", ABSENT) in (ABSENT, {}),
        "Every error of a server is also a `ToolError`, with its attributes.",
        "It came from the tool's side, as one that the tool raised.",
    ),
    Difference(
        WIRE,
        ANY,
        ("error.cause",),
        _has(error__cause="NoneType"),
        "`error.__cause__` is None.",
        "The exception stays in the process of the server.",
    ),
    Difference(
        HTTP,
        ANY,
        MESSAGE,
        _is_redacted,
        "The message of an exception is redacted over HTTP, and has the id of the server's log.",
        "An exception may hold secrets; `on_error=` of the tool or the server says otherwise.",
    ),
    Difference(
        WIRE,
        ("denied", "undecided"),
        ("error",),
        _has(error="ToolError"),
        "`approval_required` and `approval_denied` of a server are a plain `ToolError` with that code.",
        "A server must not put a request to the application that `box.approvals.decide` accepts.",
    ),
    Difference(
        WIRE,
        ("denied", "undecided"),
        ("error.request", "error.reason"),
        lambda near, far: "error.request" not in far and "error.reason" not in far,
        "Such an error has no `request` and no `reason`.",
        "Only the application that serves the tool can decide; the message has the reason.",
    ),
    Difference(
        WIRE,
        ("denied", "undecided", "once", "seldom"),
        ("text", "content", "error.to_model"),
        _names_the_server,
        "The model reads the name of the server with a refused approval and a reached limit.",
        "It must not take them for decisions of your application.",
    ),
    Difference(
        WIRE,
        ANY,
        ("origin",),
        _has(origin="server:far"),
        "`origin` is `server:NAME` instead of `own`.",
        "Your application knows which results a server made.",
    ),
)


def find_difference(way: str, case: str, field: str) -> list[Difference]:
    """Return the rows for a field."""
    return [row for row in DIFFERENCES if row.covers(way, case, field)]


def make_table() -> str:
    """Return the table of the page."""
    ways = {WIRE: "every server", HTTP: "HTTP"}
    lines = ["| Where | Difference | Reason |", "|---|---|---|"]
    return "\n".join(
        itertools.chain(lines, (f"| {ways[row.ways]} | {row.what} | {row.reason} |" for row in DIFFERENCES))
    )
