"""The BFCL corpus (PyPI `bfcl-eval`) → definitions in JSON Schema and the calls that answer its questions.

Lives here: reading it out of the wheel, and its dialect of types. Not here: what is asked of it.
"""

import json
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / ".venv" / "judges"
TYPES = {
    "dict": "object",
    "hashmap": "object",
    "hashtable": "object",
    "object": "object",
    "float": "number",
    "double": "number",
    "number": "number",
    "long": "integer",
    "short": "integer",
    "byte": "integer",
    "int": "integer",
    "integer": "integer",
    "bigint": "integer",
    "tuple": "array",
    "list": "array",
    "array": "array",
    "arraylist": "array",
    "set": "array",
    "queue": "array",
    "stack": "array",
    "boolean": "boolean",
    "bool": "boolean",
    "string": "string",
    "str": "string",
    "char": "string",
    "null": "null",
}
"""What the corpus calls a type → what JSON Schema does; what is not here is anything."""


def normal(node: Any) -> Any:
    """Return a schema of the corpus as JSON Schema."""
    if not isinstance(node, dict):
        return {}
    made = {key: node[key] for key in ("description", "default", "enum", "required") if key in node}
    if isinstance(said := node.get("type"), str) and (kind := TYPES.get(said.lower())):
        made["type"] = kind
    if isinstance(inner := node.get("properties"), dict):
        made["properties"] = {name: normal(part) for name, part in inner.items()}
    if "items" in node:
        made["items"] = normal(node["items"])
    if not isinstance(made.get("required", []), list):
        del made["required"]
    if not isinstance(made.get("enum", []), list):
        del made["enum"]
    return made


def lines(archive: zipfile.ZipFile, name: str) -> list[Any]:
    return [json.loads(line) for line in archive.read(name).decode().splitlines() if line.strip()]


@lru_cache
def questions() -> list[dict[str, Any]]:
    """Return every question with its functions, and the calls that answer it where the corpus knows them."""
    wheels = sorted(FOLDER.glob("bfcl_eval-*.whl"))
    if not wheels:
        pytest.fail("The corpus is not here. Run `make test-providers`, which fetches it.")
    found = []
    with zipfile.ZipFile(wheels[-1]) as archive:
        names = [n for n in archive.namelist() if n.startswith("bfcl_eval/data/BFCL_v4_") and n.endswith(".json")]
        for name in names:
            kind = name.rpartition("BFCL_v4_")[2].removesuffix(".json")
            if kind.startswith(("multi_turn", "memory", "web_search", "format")):
                continue
            answers = f"bfcl_eval/data/possible_answer/BFCL_v4_{kind}.json"
            known = (
                {a["id"]: a["ground_truth"] for a in lines(archive, answers)} if answers in archive.namelist() else {}
            )
            found += [{**q, "kind": kind, "calls": known.get(q["id"], [])} for q in lines(archive, name)]
    return found


@lru_cache
def functions() -> list[dict[str, Any]]:
    """Return the distinct functions, in JSON Schema."""
    distinct = {}
    for question in questions():
        for function in question["function"]:
            distinct.setdefault(json.dumps(function, sort_keys=True), function)
    return [
        {
            "name": f["name"],
            "description": f["description"],
            "parameters": {"type": "object", **normal(f["parameters"])},
        }
        for f in distinct.values()
    ]
