"""The transport on two streams, in this process: every kind of line, and every end."""

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.sample_server import ENVELOPE, shelf
from toolmason import Toolbox, ToolContext, tool
from toolmason._wire import LineSplitter, OversizedLine
from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES, find_id
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.stdio import stdio_session
from toolmason.mcp_server.stdio.pipes import LineReader, LineWriter
from toolmason.mcp_server.stdio.stdio_session import StdioSession, StopSignal

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask for a name."""
    answer = await ctx.client.elicit("Your name?", SCHEMA)
    return str(answer.content.get("name"))


@tool
async def stubborn() -> str:
    """Go on whatever happens."""
    BEGUN.set()
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "late"


@tool
async def surrogate(ctx: ToolContext) -> str:
    """Report what cannot be written."""
    await ctx.progress(1, None, "half \ud800")
    return "done"


BEGUN = asyncio.Event()


class Streams:
    """A client on two pipes."""

    def __init__(self, box: Toolbox) -> None:
        self.session = StdioSession(Handlers(box))
        self.from_client, to_server = os.pipe()
        from_server, self.to_client = os.pipe()
        self._to, self._from = os.fdopen(to_server, "wb", 0), os.fdopen(from_server, "rb", 0)
        self.reader: asyncio.StreamReader
        self.running: asyncio.Task[int]

    async def start(self, grace: float) -> None:
        self.reader = asyncio.StreamReader(limit=2**25)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), self._from
        )
        self.running = asyncio.create_task(self.session.run(self.from_client, self.to_client, grace))

    async def send(self, *messages: Any) -> None:
        data = b"".join((m if isinstance(m, bytes) else json.dumps(m).encode()) + b"\n" for m in messages)
        await asyncio.to_thread(self._to.write, data)

    async def read(self) -> Any:
        async with asyncio.timeout(10):
            return json.loads(await self.reader.readline())

    async def asked(self, method: str, params: dict[str, Any] | None = None, number: int = 1) -> Any:
        await self.send(request(method, params, number))
        return await self.read()

    async def end(self) -> int:
        if not self._to.closed:
            self._to.close()
        async with asyncio.timeout(10):
            return await self.running

    def close(self) -> None:
        for number in (self.from_client, self.to_client):
            os.close(number)


def request(method: str, params: dict[str, Any] | None = None, number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def modern(name: str, number: Any = 1, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments, "_meta": ENVELOPE}, number)


@asynccontextmanager
async def streams(box: Toolbox | None = None, grace: float = 2.0) -> AsyncIterator[Streams]:
    found = Streams(shelf() if box is None else box)
    await found.start(grace)
    try:
        yield found
        await found.end()
    finally:
        found.running.cancel()
        found.close()


async def greeted(client: Streams) -> None:
    await client.asked("initialize", HELLO, 0)
    await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})


async def test_both_eras_call_and_list():
    async with streams() as client:
        await client.send(modern("add", a=1, b=2))
        stateless = await client.read()
    async with streams() as client:
        await greeted(client)
        listed = await client.asked("tools/list", None, 1)
        called = await client.asked("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 2)
        pinged = await client.asked("ping", None, 3)

    assert stateless["result"]["content"][0]["text"] == "3"
    assert len(listed["result"]["tools"]) == 13
    assert called["result"]["content"][0]["text"] == "3"
    assert pinged == {"jsonrpc": "2.0", "id": 3, "result": {}}


async def test_a_call_of_each_era_has_a_span(spans: Any):
    async with streams() as client:
        await client.send(modern("add", a=1, b=2))
        await client.read()
    async with streams() as client:
        await greeted(client)
        await client.asked("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 2)

    assert spans.tree() == ["tools/call add", "  execute_tool add"] * 2


@pytest.mark.parametrize(
    ("raw", "number", "said"),
    [
        (b"hello", None, "not a JSON object"),
        (b'{"id": 4, "method": ', 4, "cannot be read"),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","id":6}', 5, "duplicate key"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, "id must be"),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, "JSON-RPC 2.0"),
        (b"x" * (MAX_LINE_BYTES + 1), None, "longer than"),
    ],
    ids=["text", "broken", "twice", "bad id", "version", "giant"],
)
async def test_t13_f21s_f55_a_line_that_is_no_request_is_answered(raw: bytes, number: Any, said: str):
    async with streams() as client:
        await client.send(b"", raw)
        answer = await client.read()
        after = await client.asked("tools/list", {"_meta": ENVELOPE}, 9)

    assert answer["id"] == number
    assert said in answer["error"]["message"]
    assert after["id"] == 9


async def test_f53_an_id_under_way_is_refused_and_f52_a_cancelled_call_is_not_answered():
    async with streams() as client:
        await client.send(modern("endless", 1), modern("add", 1, a=1, b=1))
        refused = await client.read()
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await client.send(modern("add", 2, a=1, b=1))
        answer = await client.read()

    assert "in progress" in refused["error"]["message"]
    assert answer["id"] == 2


async def test_a_question_of_a_session_is_asked_and_answered():
    async with streams(Toolbox(ask)) as client:
        await greeted(client)
        asked = await client.asked("tools/call", {"name": "ask", "arguments": {}})
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        found = await client.read()

    assert asked["method"] == "elicitation/create"
    assert found["result"]["content"][0]["text"] == "Ada"


async def test_a_session_that_carries_the_other_eras_envelope_is_told_so():
    async with streams() as client:
        await greeted(client)
        await client.send(modern("add", a=1, b=1))
        answer = await client.read()

    assert answer["id"] == 1


async def test_what_cannot_be_written_does_not_end_the_session():
    async with streams(Toolbox(surrogate)) as client:
        await greeted(client)
        params = {"name": "surrogate", "arguments": {}, "_meta": {"progressToken": "t"}}
        await client.send(request("tools/call", params, 2))
        seen = [await client.read()]
        while seen[-1].get("id") != 2:
            seen.append(await client.read())

    assert seen[-1]["result"]["content"][0]["text"] == "done"


async def test_answers_and_notifications_without_a_session_are_ignored():
    async with streams() as client:
        await client.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}})
        answer = await client.asked("tools/list", {"_meta": ENVELOPE}, 2)

    assert answer["id"] == 2


async def test_f54_reading_goes_on_when_what_was_too_much_is_done(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio_session, "MAX_IN_FLIGHT", 2)
    begun, release = asyncio.Semaphore(0), asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        begun.release()
        await release.wait()
        return "held"

    async with streams(Toolbox(hold)) as client:
        await client.send(modern("hold", 1), modern("hold", 2))
        for _ in range(2):
            await begun.acquire()
        await client.send(modern("hold", 3))
        taken = set(client.session.in_flight)
        release.set()
        answered = {(await client.read())["id"] for _ in range(3)}

    assert taken == {1, 2}
    assert answered == {1, 2, 3}


async def test_f39_the_end_waits_for_answers_and_counts_what_will_not_stop():
    async with streams(Toolbox(stubborn), grace=0.05) as client:
        await client.send(modern("stubborn"))
        await BEGUN.wait()
        left = await client.end()

    assert left == 1


async def test_a_server_on_another_thread_is_told_to_stop():
    stop, event = StopSignal(), asyncio.Event()
    stop.attach(event)

    await asyncio.to_thread(stop)

    async with asyncio.timeout(5):
        await event.wait()


async def test_a_stop_that_came_before_the_start_is_not_forgotten():
    stop, event = StopSignal(), asyncio.Event()
    stop()

    stop.attach(event)

    assert event.is_set()


async def test_standard_input_may_be_a_file_and_standard_output_too(tmp_path: Path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(json.dumps(modern("add", a=2, b=2)).encode() + b"\n")
    with source.open("rb") as wire_in, target.open("wb") as wire_out:
        left = await StdioSession(Handlers(shelf())).run(wire_in.fileno(), wire_out.fileno(), 2.0)

    assert left == 0
    assert json.loads(target.read_text("utf-8"))["result"]["content"][0]["text"] == "4"


async def test_standard_input_may_be_nothing():
    nothing = os.open(os.devnull, os.O_RDWR)
    session = StdioSession(Handlers(shelf()))

    async with asyncio.timeout(10):
        stuck = await session.run(nothing, nothing, 1.0)
    os.close(nothing)

    assert stuck == 0


async def test_a_reader_that_does_not_read_stops_the_writer():
    from_server, to_client = os.pipe()
    out = await LineWriter.open(to_client)

    for _ in range(64):
        out.write(b"x" * 65536)
    full = not out.writable.is_set()
    drained = threading.Thread(target=_drain, args=(from_server, 64 * 65537))
    drained.start()
    async with asyncio.timeout(10):
        await out.writable.wait()
    await out.close()
    drained.join(5)
    os.close(to_client)

    assert full


def _drain(descriptor: int, size: int) -> None:
    while size > 0:
        size -= len(os.read(descriptor, 2**20))
    os.close(descriptor)


async def test_t12_what_cannot_be_answered_is_not_read():
    """Nobody reads our refusals: the sender is held up, and nothing piles up here."""
    from_client, to_server = os.pipe()
    from_server, to_client = os.pipe()
    session, sent = StdioSession(Handlers(shelf())), 100_000
    flood = threading.Thread(target=_flood, args=(to_server, b"x\n" * sent))
    serving = asyncio.create_task(session.run(from_client, to_client, 1.0))
    flood.start()
    # Whole pipes are full when the sender waits; a server that reads on would have taken all of it by then.
    await asyncio.to_thread(flood.join, 1.0)
    held_up = flood.is_alive()
    with os.fdopen(from_server, "rb") as answers:
        refused = await asyncio.to_thread(lambda: [json.loads(answers.readline()) for _ in range(sent)])
    async with asyncio.timeout(20):
        await serving
    os.close(from_client)
    os.close(to_client)

    assert held_up
    assert {answer["error"]["code"] for answer in refused} == {-32700}


def _flood(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb", 0) as stream:
        while data:
            data = data[stream.write(data) :]


async def test_a_reader_that_has_gone_ends_the_writing():
    from_server, to_client = os.pipe()
    out = await LineWriter.open(to_client)
    os.close(from_server)

    out.write(b"hello")
    async with asyncio.timeout(5):
        await out.close()
    os.close(to_client)

    assert out.writable.is_set()


async def test_reading_can_be_paused_before_it_began():
    lines: list[Any] = []
    made = LineReader(lines.append, lambda: None)

    made.pause()
    made.resume()
    made.close()
    made.data_received(b"a\nb\nc")

    assert lines == [b"a", b"b"]


def test_a_line_over_the_cap_is_told_once_and_skipped_to_its_end():
    split = LineSplitter(4)

    found = [list(split.feed(chunk)) for chunk in (b"abc", b"def", b"ghi", b"\nok\n", b"toolong\nend\n")]

    assert [[whole(line) for line in lines] for lines in found] == [
        [],
        [],
        [],
        [b"abcdefghi", b"ok"],
        [b"toolong", b"end"],
    ]


def whole(line: bytes | OversizedLine) -> bytes:
    """Return a line that is shorter than what is kept of one."""
    if isinstance(line, bytes):
        return line
    assert line.end.startswith(line.start)
    assert line.size == len(line.end)
    return line.end


@given(
    st.lists(st.integers(0, 40), max_size=8).map(
        lambda sizes: b"".join(b"%d" % (size % 10) * size + b"\n" for size in sizes)
    ),
    st.lists(st.integers(1, 50), min_size=1, max_size=10),
)
def test_d19_lines_are_the_same_however_long_they_are_and_however_they_arrive(data: bytes, sizes: list[int]):
    split = LineSplitter(16)

    found: list[Any] = []
    rest = data
    for size in cycle(sizes):
        if not rest:
            break
        found += split.feed(rest[:size])
        rest = rest[size:]

    assert [whole(line) for line in found] == data.split(b"\n")[:-1]
    assert all(isinstance(line, bytes) == (len(whole(line)) <= 16) for line in found)


FILLER = {"arguments": {"id": 99, "text": 'x "id": 98, ' + "y" * 150_000}, "id": 97}
MEMBERS = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": FILLER}


@given(st.permutations([*MEMBERS]), st.sampled_from([5, -1, "a", 'b "id":7,', "é"]), st.booleans())
def test_d19_the_id_of_an_oversized_line_is_that_of_the_message(order: list[str], number: Any, spaced: bool):
    text = json.dumps(
        {name: {**MEMBERS, "id": number}[name] for name in order}, separators=None if spaced else (",", ":")
    )
    line = OversizedLine.cut(text.encode())

    assert find_id(line.start + line.end) == number


@pytest.mark.parametrize("order", [("id", "params"), ("params", "id")], ids=["first", "last"])
async def test_d19_the_caller_of_an_oversized_request_gets_the_error(order: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolmason.mcp_server.stdio.pipes.MAX_LINE_BYTES", 100_000)
    message = {name: MEMBERS[name] for name in ("jsonrpc", "method", *order)}
    async with streams() as client:
        await client.send(json.dumps(message).encode())
        answer = await client.read()
        after = await client.asked("tools/list", {"_meta": ENVELOPE}, 9)

    assert (answer["id"], answer["error"]["code"]) == (5, -32600)
    assert after["id"] == 9


async def test_the_rest_of_a_cut_result_is_read():
    @tool
    def log() -> str:
        """Return many lines."""
        return "a line of the log\n" * 100_000

    async with streams(Toolbox(log)) as client:
        await client.send(modern("log"))
        handle = re.search(r"result_\d+_\w+", (await client.read())["result"]["content"][0]["text"])
        await client.send(modern("read_result", 2, handle=handle and handle[0], length=6))
        found = await client.read()

    assert found["result"]["content"][0]["text"].startswith("a line\n")
