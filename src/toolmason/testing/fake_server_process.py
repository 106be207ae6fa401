"""An MCP server that answers badly by plan: a program of its own, for the standard library alone.

`python standin.py PLAN LOG` speaks MCP over its standard streams. PLAN is JSON; each call that comes is a line in LOG,
so that a server that died goes on with the next fault of its plan. Not here: how a test says what it wants
(`servers`).
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
HUGE: Final = 2_000_000


class Standin:
    """The server: what it was told to do, and where it writes."""

    def __init__(self, plan: dict[str, Any], log: Path, out: BinaryIO) -> None:
        self.plan, self.log, self.out = plan, log, out

    def write(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.out.write(data)
        self.out.flush()

    def serve(self, lines: Iterable[bytes]) -> None:
        """Answer until the client goes."""
        if self.plan["start"] == "dies":
            raise SystemExit(3)
        if self.plan["start"] == "banner":
            self.raw(b"Fake server, ready.\n")
        for line in lines:
            request = json.loads(line)
            if "id" in request and self.plan["start"] != "silent":
                self.answer(request)

    def answer(self, request: dict[str, Any]) -> None:
        """Answer one request."""
        number, method = request["id"], request.get("method")
        if method == "initialize":
            info = {"name": "fake", "version": "1"}
            self.write(
                {
                    "id": number,
                    "result": {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info},
                }
            )
        elif method == "ping":
            self.write({"id": number, "result": {}})
        elif method == "tools/list":
            self.list(number)
        elif method == "tools/call":
            self.call(number, request["params"])
        else:
            self.write({"id": number, "error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}})

    def list(self, number: Any) -> None:
        """Answer what tools there are."""
        if self.plan["listing"] == "fails":
            self.write({"id": number, "error": {"code": INTERNAL_ERROR, "message": "the list failed on purpose"}})
            return
        tools = [
            {"name": name, "description": tool["description"], "inputSchema": tool["input_schema"]}
            for name, tool in self.plan["tools"].items()
        ]
        if self.plan["listing"] == "bad definition":
            tools.append({"name": "broken", "inputSchema": "none"})
        self.write({"id": number, "result": {"tools": tools}})

    def call(self, number: Any, params: dict[str, Any]) -> None:
        """Answer a call as the plan says."""
        place = len(self.log.read_bytes().splitlines()) if self.log.exists() else 0
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"name": params["name"], "arguments": params.get("arguments") or {}}) + "\n")
        faults = self.plan["faults"]
        answer = self.plan["tools"].get(params["name"], {}).get("answer", "")
        text = answer if isinstance(answer, str) else json.dumps(answer)
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if isinstance(answer, dict):
            result["structuredContent"] = answer
        FAULTS[faults[place] if place < len(faults) else "none"](self, number, result)


def _none(server: Standin, number: Any, result: dict[str, Any]) -> None:
    server.write({"id": number, "result": result})


def _fails(server: Standin, number: Any, result: dict[str, Any]) -> None:
    del result
    server.write({"id": number, "error": {"code": INTERNAL_ERROR, "message": "the call failed on purpose"}})


def _says_no(server: Standin, number: Any, result: dict[str, Any]) -> None:
    del result
    refused = {"content": [{"type": "text", "text": "refused on purpose"}], "isError": True}
    server.write({"id": number, "result": refused})


def _dies(server: Standin, number: Any, result: dict[str, Any]) -> None:
    del server, number, result
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _silent(server: Standin, number: Any, result: dict[str, Any]) -> None:
    del server, number, result


def _garbage(server: Standin, number: Any, result: dict[str, Any]) -> None:
    server.raw(b"Debug: here I am\n\xff\xfe\n{not json\n")
    _none(server, number, result)


def _twice(server: Standin, number: Any, result: dict[str, Any]) -> None:
    _none(server, number, result)
    _none(server, number, result)


def _wrong_id(server: Standin, number: Any, result: dict[str, Any]) -> None:
    server.write({"id": f"not {number}", "result": result})
    _none(server, number, result)


def _no_result(server: Standin, number: Any, result: dict[str, Any]) -> None:
    del result
    server.write({"id": number, "result": {"content": 7}})


def _huge(server: Standin, number: Any, result: dict[str, Any]) -> None:
    result["content"][0]["text"] = "x" * HUGE
    _none(server, number, result)


FAULTS: Final[dict[str, Callable[[Standin, Any, dict[str, Any]], None]]] = {
    "none": _none,
    "fails": _fails,
    "says no": _says_no,
    "dies": _dies,
    "silent": _silent,
    "garbage": _garbage,
    "twice": _twice,
    "wrong id": _wrong_id,
    "no result": _no_result,
    "huge": _huge,
}
"""What can go wrong with a call, by name."""


if __name__ == "__main__":
    Standin(json.loads(sys.argv[1]), Path(sys.argv[2]), sys.stdout.buffer).serve(sys.stdin.buffer)
