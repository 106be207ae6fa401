"""Answers of a server that are made to cost far more than they weigh."""

import asyncio
import sys
from pathlib import Path

import anyio
import mcp_types
import pytest
from mcp.shared.message import SessionMessage

from toolmason import McpServer, Toolbox
from toolmason.mcp_client.transport.framing import UnreadableMessage, parse_message, prune
from toolmason.mcp_client.transport.http import SanitizedReader, TrackedWriter
from toolmason.mcp_client.transport.sanitize import MAX_SERVER_REQUESTS, Sanitizer

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")

DEEP = b"[" * 130 + b"]" * 130


@pytest.mark.parametrize("end", [b"", b"\\", b"\n"], ids=["cut", "half an escape", "line"])
@pytest.mark.parametrize("piece", [b'\\"', b'"\\', b"\\\n", b'"[', b'"{\\"'])
def test_a_list_with_a_string_that_never_ends_is_read_once(piece, end):
    text = b'{"id": 7, "result": {"tools": [' + DEEP + b'], "y": "' + piece * 250_000 + end

    found = parse_message(text, {7})

    assert isinstance(found, UnreadableMessage)
    assert found.id == 7


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b'[["]]\\"[[", 1]]', b'[["]]\\"[[", 1]]'),
        (b'[["\\\\", [2]]]', b'[["\\\\", null]]'),
        (b'[[[["]"]], "x', b'[[null, "x'),
        (b'[[["', b"[["),
        (b"]]]", b"]]]"),
    ],
)
def test_brackets_in_strings_are_no_levels(text, kept):
    assert prune(text, 2) == kept


# --- requests of a server ----------------------------------------------------------------------------


def request(number):
    return mcp_types.JSONRPCRequest(jsonrpc="2.0", id=number, method="ping")


def cancel(number):
    method = "notifications/cancelled"
    return mcp_types.JSONRPCNotification(jsonrpc="2.0", method=method, params={"requestId": number})


def respond(number):
    return mcp_types.JSONRPCResponse(jsonrpc="2.0", id=number, result={})


async def test_a_flood_of_requests_of_a_stdio_server_starts_few_tasks(caplog):
    most = 0

    async def watch():
        nonlocal most
        while True:
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0)

    async with Toolbox(McpServer.stdio("raw", sys.executable, [RAW, "request flood", "ping", "20000"])) as box:
        watching = asyncio.create_task(watch())
        result = await box.call("echo", {"text": "hello"}, timeout=60)
        watching.cancel()
        results, errors = map(int, (await box.call("echo", {"text": "count"})).text.split())

    assert result.text == "hello"
    assert most < MAX_SERVER_REQUESTS + 50
    assert results >= MAX_SERVER_REQUESTS
    assert errors > 0
    assert f"more than {MAX_SERVER_REQUESTS} requests at once are refused" in caplog.text


async def test_requests_that_are_no_flood_are_all_answered():
    count = str(MAX_SERVER_REQUESTS)
    async with Toolbox(McpServer.stdio("raw", sys.executable, [RAW, "request flood", "ping", count])) as box:
        for _ in range(3):
            await box.call("echo", {"text": "hello"}, timeout=60)
        answers = ""
        while not answers.startswith("300 "):
            answers = (await box.call("echo", {"text": "count"})).text

    assert answers == "300 0"


async def test_requests_of_a_server_over_http_are_refused_beyond_the_limit():
    sanitizer = Sanitizer("far")
    send_in, receive_in = anyio.create_memory_object_stream(1000)
    send_out, receive_out = anyio.create_memory_object_stream(1000)
    reader, writer = SanitizedReader(receive_in, sanitizer, send_out), TrackedWriter(send_out, sanitizer)
    async with send_in, receive_in, send_out, receive_out:
        for number in range(MAX_SERVER_REQUESTS + 20):
            await send_in.send(SessionMessage(request(number)))
        await send_in.send(SessionMessage(respond(7)))
        admitted = [await anext(reader) for _ in range(MAX_SERVER_REQUESTS)]
        last = await reader.receive()
        refused = [receive_out.receive_nowait().message for _ in range(20)]
        await writer.send(SessionMessage(respond(0)))
        await send_in.send(SessionMessage(request(1000)))
        again = await reader.receive()

    assert [item.message.id for item in admitted] == list(range(MAX_SERVER_REQUESTS))
    assert last.message == respond(7)
    assert [item.id for item in refused] == list(range(MAX_SERVER_REQUESTS, MAX_SERVER_REQUESTS + 20))
    assert all("more than 100 requests at once" in item.error.message for item in refused)
    assert again.message.id == 1000


@pytest.mark.parametrize("end", [cancel, respond], ids=["cancelled", "answered"])
def test_a_request_that_ended_makes_room(end):
    sanitizer = Sanitizer("far")
    for number in range(MAX_SERVER_REQUESTS):
        assert sanitizer.refuse(request(number)) is None

    before = sanitizer.refuse(request("new"))
    assert sanitizer.refuse(end(3)) is None
    sanitizer.settle(end(3))

    assert before.id == "new"
    assert sanitizer.refuse(request("new")) is None
    assert sanitizer.refuse(request("other")) is not None


def test_a_server_cannot_use_the_id_of_a_request_in_progress():
    sanitizer = Sanitizer("far")

    assert sanitizer.refuse(request(1)) is None
    assert sanitizer.refuse(request("1")) is not None
