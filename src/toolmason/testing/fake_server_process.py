"""Run a scripted MCP server over stdio, using only the standard library.

Usage: `python fake_server_process.py PLAN LOG`. PLAN is JSON. Each call adds a line to LOG, so that a restarted
server continues with the next fault of its plan.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

VERSION: Final = "2025-06-18"
METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
HUGE_CHARS: Final = 2_000_000

JsonObject: TypeAlias = dict[str, Any]


def serve(plan: JsonObject, log: Path, lines: Iterable[bytes], out: BinaryIO) -> None:
    """Answer requests until the client disconnects."""
    if plan["start"] == "dies":
        raise SystemExit(3)
    if plan["start"] == "banner":
        out.write(b"Fake server, ready.\n")
        out.flush()
    for line in lines:
        request = json.loads(line)
        if "id" in request and plan["start"] != "silent":
            out.write(_answer(plan, log, request))
            out.flush()


def _answer(plan: JsonObject, log: Path, request: JsonObject) -> bytes:
    request_id, method = request["id"], request.get("method")
    if method == "initialize":
        info = {"name": "fake", "version": "1"}
        return _reply(request_id, {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info})
    if method == "ping":
        return _reply(request_id, {})
    if method == "tools/list":
        return _list_tools(plan, request_id)
    if method == "tools/call":
        return _call_tool(plan, log, request_id, request["params"])
    return _fail(request_id, f"no method {method}", METHOD_NOT_FOUND)


def _list_tools(plan: JsonObject, request_id: Any) -> bytes:
    if plan["listing"] == "fails":
        return _fail(request_id, "the list failed on purpose")
    tools = [
        {"name": name, "description": tool["description"], "inputSchema": tool["input_schema"]}
        for name, tool in plan["tools"].items()
    ]
    if plan["listing"] == "bad definition":
        tools.append({"name": "broken", "inputSchema": "none"})
    return _reply(request_id, {"tools": tools})


def _call_tool(plan: JsonObject, log: Path, request_id: Any, params: JsonObject) -> bytes:
    call_index = len(log.read_bytes().splitlines()) if log.exists() else 0
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": params["name"], "arguments": params.get("arguments") or {}}) + "\n")
    answer = plan["tools"].get(params["name"], {}).get("answer", "")
    result = _make_result(answer if isinstance(answer, str) else json.dumps(answer))
    if isinstance(answer, dict):
        result["structuredContent"] = answer
    fault = plan["faults"][call_index] if call_index < len(plan["faults"]) else "none"
    return FAULTS[fault](request_id, result)


def _make_result(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}]}


def _encode(message: JsonObject) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _reply(request_id: Any, result: JsonObject) -> bytes:
    return _encode({"id": request_id, "result": result})


def _fail(request_id: Any, message: str, code: int = INTERNAL_ERROR) -> bytes:
    return _encode({"id": request_id, "error": {"code": code, "message": message}})


def _kill_process(request_id: Any, result: JsonObject) -> bytes:
    del request_id, result
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    return b""


FAULTS: Final[dict[str, Callable[[Any, JsonObject], bytes]]] = {
    "none": _reply,
    "fails": lambda request_id, _: _fail(request_id, "the call failed on purpose"),
    "says no": lambda request_id, _: _reply(request_id, {**_make_result("refused on purpose"), "isError": True}),
    "dies": _kill_process,
    "silent": lambda _id, _result: b"",
    "garbage": lambda request_id, result: b"Debug: here I am\n\xff\xfe\n{not json\n" + _reply(request_id, result),
    "twice": lambda request_id, result: _reply(request_id, result) * 2,
    "wrong id": lambda request_id, result: _reply(f"not {request_id}", result) + _reply(request_id, result),
    "no result": lambda request_id, _: _reply(request_id, {"content": 7}),
    "huge": lambda request_id, result: _reply(request_id, {**result, **_make_result("x" * HUGE_CHARS)}),
}
"""Functions that return the bytes of an answer to a call, by the name of the fault."""


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]), Path(sys.argv[2]), sys.stdin.buffer, sys.stdout.buffer)
