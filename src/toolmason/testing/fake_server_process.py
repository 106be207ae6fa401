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
from typing import Any, BinaryIO, Final

VERSION: Final = "2025-06-18"
METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
HUGE_CHARS: Final = 2_000_000


class FakeServerProcess:
    """MCP server that follows a plan."""

    def __init__(self, plan: dict[str, Any], log: Path, out: BinaryIO) -> None:
        self.plan, self.log, self.out = plan, log, out

    def write(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.write_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write_raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self.out.write(data)
        self.out.flush()

    def serve(self, lines: Iterable[bytes]) -> None:
        """Answer requests until the client disconnects."""
        if self.plan["start"] == "dies":
            raise SystemExit(3)
        if self.plan["start"] == "banner":
            self.write_raw(b"Fake server, ready.\n")
        for line in lines:
            request = json.loads(line)
            if "id" in request and self.plan["start"] != "silent":
                self.handle_request(request)

    def handle_request(self, request: dict[str, Any]) -> None:
        """Answer one request."""
        request_id, method = request["id"], request.get("method")
        if method == "initialize":
            info = {"name": "fake", "version": "1"}
            self.write(
                {
                    "id": request_id,
                    "result": {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info},
                }
            )
        elif method == "ping":
            self.write({"id": request_id, "result": {}})
        elif method == "tools/list":
            self.list_tools(request_id)
        elif method == "tools/call":
            self.call_tool(request_id, request["params"])
        else:
            self.write({"id": request_id, "error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}})

    def list_tools(self, request_id: Any) -> None:
        """Answer a request for the list of tools."""
        if self.plan["listing"] == "fails":
            self.write({"id": request_id, "error": {"code": INTERNAL_ERROR, "message": "the list failed on purpose"}})
            return
        tools = [
            {"name": name, "description": tool["description"], "inputSchema": tool["input_schema"]}
            for name, tool in self.plan["tools"].items()
        ]
        if self.plan["listing"] == "bad definition":
            tools.append({"name": "broken", "inputSchema": "none"})
        self.write({"id": request_id, "result": {"tools": tools}})

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> None:
        """Answer a call according to the plan."""
        call_index = len(self.log.read_bytes().splitlines()) if self.log.exists() else 0
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"name": params["name"], "arguments": params.get("arguments") or {}}) + "\n")
        faults = self.plan["faults"]
        answer = self.plan["tools"].get(params["name"], {}).get("answer", "")
        text = answer if isinstance(answer, str) else json.dumps(answer)
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if isinstance(answer, dict):
            result["structuredContent"] = answer
        fault = faults[call_index] if call_index < len(faults) else "none"
        FAULTS[fault](self, request_id, result)


def _answer_normally(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    server.write({"id": request_id, "result": result})


def _send_error(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    del result
    server.write({"id": request_id, "error": {"code": INTERNAL_ERROR, "message": "the call failed on purpose"}})


def _refuse(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    del result
    refused = {"content": [{"type": "text", "text": "refused on purpose"}], "isError": True}
    server.write({"id": request_id, "result": refused})


def _kill_process(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    del server, request_id, result
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _stay_silent(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    del server, request_id, result


def _answer_after_garbage(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    server.write_raw(b"Debug: here I am\n\xff\xfe\n{not json\n")
    _answer_normally(server, request_id, result)


def _answer_twice(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    _answer_normally(server, request_id, result)
    _answer_normally(server, request_id, result)


def _answer_after_wrong_id(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    server.write({"id": f"not {request_id}", "result": result})
    _answer_normally(server, request_id, result)


def _send_invalid_result(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    del result
    server.write({"id": request_id, "result": {"content": 7}})


def _answer_with_huge_text(server: FakeServerProcess, request_id: Any, result: dict[str, Any]) -> None:
    result["content"][0]["text"] = "x" * HUGE_CHARS
    _answer_normally(server, request_id, result)


FAULTS: Final[dict[str, Callable[[FakeServerProcess, Any, dict[str, Any]], None]]] = {
    "none": _answer_normally,
    "fails": _send_error,
    "says no": _refuse,
    "dies": _kill_process,
    "silent": _stay_silent,
    "garbage": _answer_after_garbage,
    "twice": _answer_twice,
    "wrong id": _answer_after_wrong_id,
    "no result": _send_invalid_result,
    "huge": _answer_with_huge_text,
}
"""Functions that answer a call, by the name of the fault."""


if __name__ == "__main__":
    FakeServerProcess(json.loads(sys.argv[1]), Path(sys.argv[2]), sys.stdout.buffer).serve(sys.stdin.buffer)
