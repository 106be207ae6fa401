"""Read boxes: the tools of an application, with requests as people write them and the calls that they need.

Usage: python training/boxes.py FILE... checks files and prints what is suspicious.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "boxes"
INTENTS = ("none", "help", "hello", "thanks", "bye")
TYPES = {"string", "integer", "number", "boolean"}
_TOOL = re.compile(r"tool ([\w.-]+)\((.*)\) (\S.*)")
_PARAMETER = re.compile(r'(\w+)(\?)?: ([^",]+?)(?: "([^"]*)")?(?:, |$)')
_CHECKS = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "array": list}


@dataclass(frozen=True)
class BoxTool:
    """Tool of a box."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Request with the calls that it needs, or an intent; perhaps a result with its answer, and perhaps a follow-up."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    intent: str = ""
    result: str = ""
    answer: str = ""
    before: Case | None = None
    """The request before this one, if this is a follow-up."""


@dataclass
class Box:
    """Tools of an application, and requests to it."""

    name: str
    tools: list[BoxTool] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)


def read_boxes(paths: list[Path] | None = None) -> list[Box]:
    """Return the boxes of the files, or of all files in the folder."""
    boxes: list[Box] = []
    for path in paths or sorted(FOLDER.glob("*.txt")):
        found = len(boxes)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                _read_line(line.strip(), boxes)
            except (ValueError, IndexError) as error:
                raise ValueError(f"{path.name}:{number}: {error}") from error
        if len(boxes) == found:
            raise ValueError(f"{path.name}: no box")
    return boxes


def _read_line(line: str, boxes: list[Box]) -> None:
    key, _, rest = line.partition(" ")
    if not line or line.startswith("#"):
        return
    if key == "box":
        boxes.append(Box(rest))
        return
    box = boxes[-1]
    if key == "tool":
        box.tools.append(_read_tool(line))
    elif key in ("ask", "then"):
        text, arrow, reply = rest.rpartition(" => ")
        if not arrow:
            raise ValueError("no ' => '")
        before = box.cases[-1] if key == "then" else None
        if before is not None and not before.calls:
            raise ValueError("`then` needs a call before it")
        calls = () if reply in INTENTS else tuple(_read_call(part, box) for part in reply.split(" ;; "))
        box.cases.append(Case(text, calls, reply if reply in INTENTS else "", before=before))
    elif key == "result":
        result, arrow, answer = rest.partition(" => ")
        last = box.cases[-1]
        if not arrow or len(last.calls) != 1:
            raise ValueError("`result` needs ' => ' and one call before it")
        box.cases[-1] = Case(last.text, last.calls, "", result, answer, last.before)
    else:
        raise ValueError(f"unknown line: {line[:40]!r}")


def _read_tool(line: str) -> BoxTool:
    match = _TOOL.fullmatch(line)
    if match is None:
        raise ValueError("expected: tool name(parameters) Description.")
    name, inside, about = match.groups()
    properties: dict[str, Any] = {}
    required = []
    position = 0
    while position < len(inside):
        found = _PARAMETER.match(inside, position)
        if found is None:
            raise ValueError(f"cannot read the parameters at {inside[position : position + 40]!r}")
        parameter, optional, kind, note = found.groups()
        schema = _read_type(kind.strip())
        properties[parameter] = {**schema, "description": note} if note else schema
        if not optional:
            required.append(parameter)
        position = found.end()
    return BoxTool(name, about, {"type": "object", "properties": properties, "required": required})


def _read_type(kind: str) -> dict[str, Any]:
    if kind.endswith("[]"):
        return {"type": "array", "items": _read_type(kind[:-2])}
    if kind in TYPES:
        return {"type": kind}
    if kind in ("date", "time"):
        return {"type": "string", "format": kind}
    if "|" in kind:
        return {"type": "string", "enum": kind.strip("()").split("|")}
    raise ValueError(f"unknown type {kind!r}")


def _read_call(text: str, box: Box) -> tuple[str, dict[str, Any]]:
    name, _, rest = text.strip().partition(" ")
    tool = next((one for one in box.tools if one.name == name), None)
    if tool is None:
        raise ValueError(f"no tool {name!r} in box {box.name}")
    arguments = json.loads(rest or "{}")
    properties = tool.schema["properties"]
    if not set(tool.schema["required"]) <= arguments.keys() <= properties.keys():
        raise ValueError(f"{name}: arguments {sorted(arguments)}, required {tool.schema['required']}")
    for key, value in arguments.items():
        _check(value, properties[key], f"{name}.{key}")
    return name, {key: arguments[key] for key in properties if key in arguments}


def _check(value: Any, schema: dict[str, Any], where: str) -> None:
    kind = schema["type"]
    if not isinstance(value, _CHECKS[kind]) or isinstance(value, bool) != (kind == "boolean"):
        raise ValueError(f"{where}: {value!r} is not of type {kind}")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{where}: {value!r} is not one of {schema['enum']}")
    pattern = {"date": r"\d{4}-\d\d-\d\d", "time": r"\d\d:\d\d"}.get(schema.get("format", ""))
    if pattern and not re.fullmatch(pattern, value):
        raise ValueError(f"{where}: {value!r} is not a {schema['format']}")
    if kind == "array":
        for one in value:
            _check(one, schema["items"], where)


def find_strange(boxes: list[Box]) -> list[str]:
    """Return strings of arguments that their request does not contain."""
    strange = []
    for box in boxes:
        schemas = {tool.name: tool.schema["properties"] for tool in box.tools}
        for case in box.cases:
            said = case.text.lower() + (case.before.text.lower() if case.before else "")
            for name, arguments in case.calls:
                for key, value in arguments.items():
                    for one in value if isinstance(value, list) else [value]:
                        part = schemas[name][key]
                        part = part.get("items", part)
                        is_free = isinstance(one, str) and "enum" not in part and "format" not in part
                        if is_free and one.lower() not in said:
                            strange.append(f"{box.name}: {case.text!r}: {key} = {one!r} is not in the request")
    return strange


if __name__ == "__main__":
    found = read_boxes([Path(one) for one in sys.argv[1:]])
    for line in find_strange(found):
        print(line)
    print(len(found), "boxes,", sum(len(box.cases) for box in found), "cases")
