"""Requests that nobody would send: every one is answered, none with a 500, and the server goes on."""

import copy
import http.client
import json
import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mcp_server.sample_server import ACCEPT, ENVELOPE, running

pytestmark = pytest.mark.fuzz

METHODS = (
    "tools/call",
    "tools/list",
    "prompts/get",
    "resources/read",
    "server/discover",
    "ping",
    "initialize",
    "tasks/get",
)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e308,
    "",
    "\x00",
    "\u202e",
    "x" * 5000,
    [],
    {},
    [[[]]],
    {"a": {"b": []}},
    2**70,
)
VERSIONS = ("2026-07-28", "2025-11-25", "1999-01-01", "", "\x7f")


def mutated(chance: random.Random) -> tuple[bytes, dict[str, str]]:
    """Return a request that is wrong in some places."""
    method = chance.choice(METHODS)
    params: Any = {"name": chance.choice(["echo", "add", "nope"]), "arguments": {"text": "x"}, "_meta": dict(ENVELOPE)}
    message: Any = {"jsonrpc": "2.0", "id": chance.randrange(100), "method": method, "params": params}
    for _ in range(chance.randrange(4)):
        place = chance.choice([message, params, params["_meta"], params["arguments"]])
        if isinstance(place, dict) and place:
            # A copy: the next turn may change what this one put there.
            place[chance.choice([*place, "extra"])] = copy.deepcopy(chance.choice(STRANGE))
        if not all(isinstance(params.get(key), dict) for key in ("_meta", "arguments")):
            break
    body = bytearray(json.dumps(message).encode())
    for _ in range(chance.choice([0, 0, 0, 1, 5])):
        body[chance.randrange(len(body))] = chance.randrange(256)
    headers = {
        "content-type": chance.choice(["application/json", "application/json", "text/plain"]),
        "accept": chance.choice([ACCEPT, ACCEPT, "*/*"]),
        "mcp-protocol-version": chance.choice(VERSIONS[:2] * 3 + VERSIONS[2:4]),
        "mcp-method": chance.choice([method, method, "other"]),
        "mcp-name": chance.choice(["echo", "add", "nope"]),
    }
    return bytes(body), {name: value for name, value in headers.items() if chance.random() > 0.05}


def test_no_request_brings_a_500_or_makes_the_server_grow(fuzz_count: int):
    chance = random.Random(7)  # noqa: S311 - the same requests each time
    count = max(200, fuzz_count // 4)
    worst: list[tuple[int, bytes]] = []
    with (
        running() as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection,
    ):
        middle = 0
        for number in range(count):
            status, body = exchange(connection, *mutated(chance))
            if status >= 500:
                worst.append((status, body))
            if number == count // 2:
                middle = resident()
        grown = resident() - middle
        alive = server.call("echo", {"text": "alive"})

    assert worst == []
    assert alive["isError"] is False
    assert grown < 30_000_000


def exchange(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection.request("POST", "/mcp", body, headers)
    response = connection.getresponse()
    return response.status, response.read()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
