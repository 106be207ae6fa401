"""The transport on standard streams, as a real process."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fork_server import Forked, ForkServer
from mcp_server.sample_server import ENVELOPE

SERVER = Path(__file__).with_name("stdio_server.py")


class Process:
    def __init__(self, process: Forked | subprocess.Popen[bytes]) -> None:
        self.process = process
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.inlet, self.outlet = self.process.stdin, self.process.stdout
        # Nobody reads it otherwise, and a full pipe stops whoever writes.
        self.words: list[bytes] = []
        self.reader = threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True)
        self.reader.start()

    def _listen(self, stream: Any) -> None:
        self.words.extend(stream)

    def write(self, data: bytes) -> None:
        self.inlet.write(data)
        self.inlet.flush()

    def ask(self, asked: Any, method: str, **params: Any) -> None:
        self.write(line({"jsonrpc": "2.0", "id": asked, "method": method, "params": {"_meta": ENVELOPE, **params}}))

    def call(self, asked: Any, name: str, **arguments: Any) -> None:
        self.ask(asked, "tools/call", name=name, arguments=arguments)

    def read(self) -> Any:
        return json.loads(self.outlet.readline())

    def end(self) -> int:
        self.inlet.close()
        return self.process.wait(10)


@contextmanager
def using(process: Forked | subprocess.Popen[bytes]) -> Iterator[Process]:
    found = Process(process)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()
        found.reader.join(5)
        for stream in (found.process.stdin, found.process.stdout, found.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@pytest.fixture
def started(forks: ForkServer):
    """Start the server in a fork."""

    def start(grace: str = "4") -> AbstractContextManager[Process]:
        return using(forks.open([sys.executable, str(SERVER)], env={"GRACE": grace, "PATH": ""}))

    return start


@pytest.fixture
def started_new():
    """Start the server in a new interpreter, because a fork ends in another way."""

    def start(grace: str = "4") -> AbstractContextManager[Process]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return using(
            subprocess.Popen([sys.executable, str(SERVER)], env={"GRACE": grace, "PATH": ""}, **pipes),
        )

    return start


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def test_a_stateless_client_calls_without_a_handshake(started_new):
    with started_new() as server:
        server.call(1, "echo", text="hi")

        assert server.read()["result"]["content"] == [{"type": "text", "text": "hi"}]
        assert server.end() == 0


def test_a_tool_with_scopes_is_refused_over_standard_streams(started):
    with started() as server:
        server.write(
            line(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {
                        "_meta": {**ENVELOPE, "scopes": ["notes:write"]},
                        "name": "guarded",
                        "arguments": {},
                        "scopes": ["notes:write"],
                    },
                }
            )
        )

        result = server.read()["result"]

    assert result["isError"]
    assert "the caller lacks the scope 'notes:write'" in result["content"][0]["text"]


def test_a_client_with_a_handshake_lists_and_calls(started):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with started() as server:
        server.write(line({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}))
        opened = server.read()
        server.write(line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        server.write(line({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}))
        listed = server.read()
        call = {"name": "echo", "arguments": {"text": "hi"}}
        server.write(line({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}))
        called = server.read()
        code = server.end()

    assert opened["result"]["protocolVersion"] == "2025-06-18"
    assert "echo" in [tool["name"] for tool in listed["result"]["tools"]]
    assert called["result"]["content"][0]["text"] == "hi"
    assert code == 0


def test_f56_nothing_but_the_protocol_is_on_standard_output(started):
    with started() as server:
        server.call(1, "noisy")
        found = server.read()
        server.inlet.close()
        rest = server.outlet.read()

    assert found["result"]["content"][0]["text"] == "quiet"
    assert rest == b""


@pytest.mark.parametrize(
    ("raw", "asked"),
    [
        (b'{"jsonrpc":"2.0","id":"x","method":"\\ud800"}', "x"),
        (b'{"jsonrpc":"2.0","id":7,"method":"a","params":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 7),
        (b'{"jsonrpc":"2.0","id":8,"method":"a","params":' + b"[" * 250 + b"]" * 250 + b"}", 8),
        (b'{"jsonrpc":"2.0","id":9,"method":"a",', 9),
        (b'\xff{"id":1}', None),
        (b"[]", None),
        (b"not json", None),
        (b'{"jsonrpc":"2.0","id":{},"method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"a"}', None),
    ],
    ids=["surrogate", "10,000 deep", "250 deep", "cut off", "not UTF-8", "batch", "text", "object id", "bool id"],
)
def test_f16s_f21s_a_line_that_cannot_be_read_is_answered(started, raw: bytes, asked: Any):
    with started() as server:
        server.write(raw + b"\n")
        answer = server.read()
        server.call("after", "echo", text="alive")

        assert answer["id"] == asked
        assert answer["error"]["code"] in (-32700, -32600)
        assert server.read()["id"] == "after"


def test_f55_a_line_over_the_cap_is_refused_and_skipped(started):
    with started() as server:
        threading.Thread(target=lambda: server.write(b"x" * (17 << 20) + b"\n"), daemon=True).start()
        refused = server.read()
        server.call("after", "echo", text="alive")

        assert "longer than" in refused["error"]["message"]
        assert server.read()["id"] == "after"


def test_f55_a_line_of_200_mb_is_not_kept(started):
    with started() as server:
        pid = server.process.pid
        server.call("before", "echo", text="alive")
        server.read()
        before = read_peak(pid)
        threading.Thread(
            target=lambda: [server.write(b"x" * (1 << 20)) for _ in range(200)] and server.write(b"\n"), daemon=True
        ).start()
        refused = server.read()
        grown = read_peak(pid) - before

    assert "longer than" in refused["error"]["message"]
    assert grown < 100 << 10


def read_peak(pid: int) -> int:
    """Return the peak of a process's memory, in KB; 0 where the system does not tell."""
    found = (
        re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()) if sys.platform == "linux" else None
    )
    return int(found[1]) if found else 0


def test_f53_an_id_that_is_under_way_is_refused(started):
    with started() as server:
        server.call(1, "nap", seconds=0.5)
        server.call(1, "echo", text="second")

        refused, answered = server.read(), server.read()

    assert refused["error"]["code"] == -32600
    assert answered["result"]["content"][0]["text"] == "awake"


def test_f52_a_cancelled_call_is_not_answered(started):
    with started() as server:
        server.call(1, "nap", seconds=30)
        server.write(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        server.call(2, "echo", text="next")

        assert server.read()["id"] == 2
        assert server.end() == 0


@pytest.mark.parametrize("kind", ["exit", "interrupt", "base"])
def test_f28_whatever_a_tool_raises_the_process_lives(started, kind: str):
    with started() as server:
        server.call(1, "leave", kind=kind)
        server.call(2, "echo", text="alive")

        answers = {found["id"]: found["result"]["isError"] for found in (server.read(), server.read())}

    assert answers == {1: True, 2: False}


def test_f26_a_lone_surrogate_from_a_tool_does_not_end_the_process(started):
    with started() as server:
        server.call(1, "surrogate")
        server.call(2, "echo", text="alive")

        assert {server.read()["id"], server.read()["id"]} == {1, 2}


def test_f38_stuck_tools_leave_the_server_able_to_hear(started):
    with started("0.2") as server:
        for number in range(60):
            server.call(number, "stuck")
        server.call("heard", "echo", text="alive")

        assert server.read()["id"] == "heard"


def test_f39_the_end_of_input_ends_the_process_though_a_tool_is_stuck(started_new):
    with started_new("0.3") as server:
        server.call(1, "stuck")
        server.call(2, "echo", text="x")
        server.read()

        assert server.end() == 0


def test_a_client_that_listens_does_not_keep_the_process_alive(started_new):
    """Found by the parity suite: each close of a toolbox took the whole grace period, four seconds."""
    with started_new("60") as server:
        server.ask("changes", "subscriptions/listen", notifications={"toolsListChanged": True})
        server.read()
        server.call(2, "echo", text="x")
        server.read()

        assert server.end() == 0


def test_cancelled_calls_that_report_progress_are_forgotten(started_new):
    """The SDK answers none of them, so that each stayed in flight: after 256 the server read no more."""
    with started_new("60") as server:
        for number in range(300):
            asked = {"name": "nap", "arguments": {"seconds": 60}, "_meta": {**ENVELOPE, "progressToken": number}}
            server.write(line({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": asked}))
            cancelled = {"requestId": number, "_meta": ENVELOPE}
            server.write(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}))
        server.call("last", "echo", text="x")

        assert server.read()["id"] == "last"
        assert server.end() == 0


def test_f39b_sigterm_answers_what_was_taken_in_and_exits(started_new):
    with started_new() as server:
        server.call(1, "nap", seconds=0.5)
        server.call(2, "echo", text="x")
        first = server.read()
        server.process.send_signal(signal.SIGTERM)
        second = server.read()

        assert [first["id"], second["id"]] == [2, 1]
        assert server.process.wait(10) == 0


def test_f54_many_pipelined_calls_are_each_answered_once_when_the_answers_are_read_late(started):
    """Back-pressure: while no answer is read, the server stops to read requests, and its memory is bounded."""
    count = int(os.environ.get("PIPELINED_CALLS", "3000"))
    call = {"name": "echo", "arguments": {"text": "x"}, "_meta": ENVELOPE}
    body = line({"jsonrpc": "2.0", "id": 1234567, "method": "tools/call", "params": call})
    with started() as server:
        server.call(0, "echo", text="x")
        server.read()
        before = peak_memory(server.process.pid)
        calls = b"".join(body.replace(b"1234567", b"%d" % number) for number in range(count))
        writer = threading.Thread(target=server.write, args=(calls,), daemon=True)
        writer.start()
        writer.join(1.0)
        was_stopped = writer.is_alive()
        found = [int(ANSWERED_ID.search(server.outlet.readline())[1]) for _ in range(count)]
        grown = peak_memory(server.process.pid) - before

    assert was_stopped
    assert sorted(found) == list(range(count))
    assert grown < 50_000


ANSWERED_ID = re.compile(rb'"id":(\d+)')


def peak_memory(pid: int) -> int:
    """Return the most memory that a process had, in kilobytes."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_question_of_a_stateless_call_comes_as_its_result(started):
    able = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    with started() as server:
        server.ask(1, "tools/call", name="ask", arguments={}, _meta=able)
        first = server.read()["result"]
        answers = {"question": {"action": "accept", "content": {"n": "Ann"}}}
        again = {"inputResponses": answers, "requestState": first["requestState"]}
        server.ask(2, "tools/call", name="ask", arguments={}, _meta=able, **again)
        second = server.read()["result"]

    assert first["resultType"] == "input_required"
    assert second["content"][0]["text"] == "{'n': 'Ann'}"
