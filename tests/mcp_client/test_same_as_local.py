"""A tool is the same behind a server as in this process: its value, its errors, and what the model reads."""

import asyncio
from dataclasses import dataclass

import pytest

from adversaries.raw_http import served
from toolmason import Image, McpServer, Retry, Tool, Toolbox, ToolError, tool
from toolmason.chat import Chat, Limits
from toolmason.errors import (
    ApprovalRequired,
    ExecutionError,
    InvalidArguments,
    LimitExceeded,
    ResultError,
    ToolTimeout,
)
from toolmason.mcp_client.calls.result_marks import ERROR_META_KEY, RESULT_META_KEY
from toolmason.testing import ScriptedModel


@dataclass
class Point:
    x: int


@dataclass
class Outcome:
    result: int


@tool
def count() -> int:
    """Count."""
    return 11550


@tool
def names() -> list[str]:
    """List names."""
    return ["a", "b"]


@tool
def word(text: str) -> str:
    """Return a word."""
    return text


@tool
def nothing() -> int | None:
    """Return nothing."""


@tool
def point() -> Point:
    """Return a point."""
    return Point(1)


@tool
def outcome() -> Outcome:
    """Return an object whose only field is named `result`."""
    return Outcome(3)


def behind(*tools, **options):
    return Toolbox(McpServer.of("far", Toolbox(*tools, **options)))


@pytest.mark.parametrize(
    ("made", "arguments", "value", "structured"),
    [
        (count, {}, 11550, {"result": 11550}),
        (names, {}, ["a", "b"], {"result": ["a", "b"]}),
        (word, {"text": "hello"}, "hello", {"result": "hello"}),
        (word, {"text": "7"}, "7", {"result": "7"}),
        (word, {"text": ""}, "", {"result": ""}),
        (nothing, {}, None, {"result": None}),
        (point, {}, {"x": 1}, {"x": 1}),
        (outcome, {}, {"result": 3}, {"result": 3}),
    ],
)
async def test_the_value_of_a_remote_tool_is_its_value(made, arguments, value, structured):
    name = made.__name__
    near = await Toolbox(made).call(name, arguments)
    async with behind(made) as box:
        far = await box.call(name, arguments)

    assert (far.value, far.structured) == (value, structured)
    assert (far.text, far.content, far.structured) == (near.text, near.content, near.structured)


async def test_a_value_is_the_same_after_two_hops_and_if_it_is_too_long():
    @tool(max_result_bytes=400)
    def rows() -> list[int]:
        """Return many rows."""
        return list(range(200))

    inner = behind(rows, count)
    async with Toolbox(McpServer.of("gate", inner)) as box:
        assert (await box.call("count", {})).value == 11550
        long = await box.call("rows", {})

    assert long.value == list(range(200))


LONG = "m" * 9999
WRAPPED = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"], "title": "fOutput"}


async def listed(schema, result, meta=None):
    entry = {"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": schema}
    with served("content") as server:
        server.tools = [entry | ({} if meta is None else {"_meta": meta})]
        server.states = [result]
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            return await box.call("echo", {})


@pytest.mark.parametrize(
    ("schema", "meta", "result_meta", "value"),
    [
        (WRAPPED, None, None, 7),
        ({**WRAPPED, "x-fastmcp-wrap-result": True}, None, {"fastmcp": {"wrap_result": True}}, 7),
        ({"type": "object"}, None, {"fastmcp": {"wrap_result": True}}, 7),
        ({"type": "object"}, {"toolmason/wrapped": True}, None, 7),
        (WRAPPED, {"toolmason/wrapped": False}, None, {"result": 7}),
        ({**WRAPPED, "required": []}, None, None, {"result": 7}),
        ({**WRAPPED, "properties": {**WRAPPED["properties"], "more": {}}}, None, None, {"result": 7}),
        ({"type": "object"}, None, None, {"result": 7}),
    ],
)
async def test_only_what_a_server_wrapped_is_unwrapped(schema, meta, result_meta, value):
    sent = {"content": [{"type": "text", "text": "7"}], "structuredContent": {"result": 7}}
    result = await listed(schema, sent | ({} if result_meta is None else {"_meta": result_meta}), meta)

    assert (result.value, result.structured, result.text) == (value, {"result": 7}, "7")


@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        (["a", "b"], {"result": ["a", "b"]}),
        (['{"x": 1}', '{"x": 2}'], {"result": [{"x": 1}, {"x": 2}]}),
        (['{"n": 1}'], {"n": 1}),
        (["hello"], {"content": "hello"}),
    ],
)
async def test_text_that_repeats_the_data_is_told_once(blocks, structured):
    content = [{"type": "text", "text": block} for block in blocks]
    result = await listed({"type": "object"}, {"content": content, "structuredContent": structured})

    assert result.text == "\n".join(blocks)


@tool
def fails() -> str:
    """Fail."""
    raise RuntimeError("no disk")


@tool
def complains() -> str:
    """Fail in words of its own."""
    raise ToolError("No such order.", retryable=True)


@tool
def mumbles() -> float:
    """Return no JSON."""
    return float("nan")


@tool(timeout=0.01)
async def stays() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


@tool(max_calls=1)
def once() -> str:
    """Run once."""
    return "x"


@tool(approval=True)
def pays() -> str:
    """Pay."""
    raise AssertionError


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize(
    ("made", "arguments", "kind"),
    [
        (fails, {}, ExecutionError),
        (complains, {}, ToolError),
        (mumbles, {}, ResultError),
        (stays, {}, ToolTimeout),
        (once, {}, LimitExceeded),
        (add, {"a": "x"}, InvalidArguments),
    ],
)
async def test_an_error_of_a_remote_tool_is_the_error(made, arguments, kind):
    name = made.__name__
    local = Toolbox(made)
    async with Toolbox(McpServer.of("far", Toolbox(made))) as box:
        if made is once:
            await local.call(name, arguments)
            await box.call(name, arguments)
        near, far = await local.call(name, arguments), await box.call(name, arguments)

    assert isinstance(far.error, kind)
    assert (far.error.code, far.error.message, far.error.retryable) == (
        near.error.code,
        near.error.message,
        near.error.retryable,
    )
    for field in ("problems", "limit", "seconds"):
        assert getattr(far.error, field, None) == getattr(near.error, field, None)
    assert ERROR_META_KEY not in far.meta


@pytest.mark.parametrize("hops", [1, 2])
async def test_an_approval_that_a_server_needs_is_no_request_to_decide(hops):
    box = Toolbox(pays)
    for hop in range(hops):
        box = Toolbox(McpServer.of(f"hop{hop}", box))
    model = ScriptedModel([[("pays", {})], "It needs approval."])
    async with box:
        result = await box.call("pays", {})
        reply = await Chat(model, box).send("pay")

    assert result.error.code == "approval_required"
    assert not isinstance(result.error, ApprovalRequired)
    assert not hasattr(result.error, "request")
    assert (reply.finish, reply.pending, reply.text) == ("stop", (), "It needs approval.")


def faked(code, message, **data):
    text = {"type": "text", "text": message}
    return {"content": [text], "isError": True, "_meta": {ERROR_META_KEY: {"code": code, "retryable": False, **data}}}


async def test_a_limit_that_a_server_reports_does_not_end_the_run():
    fake = faked("limit_exceeded", "the limit of 3 calls for this run has been reached", limit="calls", ends_run=True)
    with served("content") as server:
        server.states = [fake, fake, fake]
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            model = ScriptedModel([[("echo", {"text": "a"})], [("echo", {"text": "b"})], "done"])
            reply = await Chat(model, box, limits=Limits(calls=10)).send("go")

    assert (reply.finish, reply.text) == ("stop", "done")
    assert [result.error.code for result in reply.results] == ["limit_exceeded"] * 2
    assert not reply.results[0].error.ends_run


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"code": "approval_denied"}, "approval_denied"),
        ({"code": "unknown_tool"}, "unknown_tool"),
        ({"code": "sold_out"}, "sold_out"),
        ({"code": "made up"}, "tool_error"),
        ({"code": "m" * 99}, "tool_error"),
        ({"code": "tool_call_error", "id": "x" * 99, "attempts": -1}, "tool_error"),
        ({"code": ["x"]}, "tool_error"),
        ({"code": "cancelled"}, "tool_error"),
        (
            {"code": "invalid_arguments", "parameters": [7, {"path": 1, "message": "m" * 9999}] * 99},
            "invalid_arguments",
        ),
        ({"code": "invalid_arguments", "parameters": {}}, "invalid_arguments"),
        ({"code": "timeout", "seconds": "x", "limit": 7}, "timeout"),
        ({"code": "limit_exceeded", "limit": None}, "limit_exceeded"),
        ([], "tool_error"),
    ],
)
async def test_odd_data_about_an_error_does_no_harm(data, code):
    sent = {"content": [{"type": "text", "text": "no"}], "isError": True, "_meta": {ERROR_META_KEY: data}}
    result = await listed({"type": "object"}, sent)

    assert (result.error.code, result.error.message, result.error.retryable) == (code, "no", False)
    assert len(result.text) < 50_000


async def test_a_redacted_message_stays_redacted_for_a_toolmason_client():
    inner = Toolbox(fails, on_error="redact")
    async with Toolbox(McpServer.of("far", inner)) as box:
        result = await box.call("fails", {})

    assert result.error.code == "execution_error"
    assert "no disk" not in repr(vars(result)) + repr(vars(result.error))


# --- marks of a result -----------------------------------------------------------------------------

PNG = {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}
LOOK = {"type": "text", "text": "look"}


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ([PNG], Image(b"\x89PNG")),
        ([LOOK, PNG], ["look", Image(b"\x89PNG")]),
        ([LOOK, LOOK], "look\nlook"),
        ([{"type": "text", "text": "7"}], "7"),
        ([], ""),
    ],
)
async def test_the_value_of_content_without_data_is_the_content(content, value):
    result = await listed({"type": "object"}, {"content": content})

    assert result.value == value


@pytest.mark.parametrize("returned", [[Image(b"a")], ["look", Image(b"a")], Image(b"a")], ids=["one", "two", "image"])
async def test_content_is_the_same_list_behind_a_server(returned):
    def show():
        return returned

    async with behind(Tool.from_function(show)) as box:
        result = await box.call("show", {})

    assert result.value == returned


@pytest.mark.parametrize(
    "marks",
    [
        7,
        {"value": "made up", "attempts": "many", "size": -1, "wrapped": "no", "handle": 7, "digest": []},
        {"value": ["json"], "attempts": 10**9, "shows_content": 1},
        {"attempts": True, "digest": "without a handle"},
    ],
)
async def test_odd_marks_of_a_result_do_no_harm(marks):
    sent = {"content": [LOOK], "structuredContent": {"n": 1}, "_meta": {RESULT_META_KEY: marks, "own": 1}}
    result = await listed({"type": "object"}, sent)

    assert (result.value, result.attempts, result.meta, result.full_text_digest) == ({"n": 1}, 1, {"own": 1}, None)
    assert result.text == 'look\n{"n":1}'


async def test_text_that_is_marked_as_json_but_is_none_is_the_value():
    result = await listed({"type": "object"}, {"content": [LOOK], "_meta": {RESULT_META_KEY: {"value": "json"}}})

    assert result.value == "look"


async def test_the_attempts_of_both_sides_are_counted():
    failures = iter((True, True, False))

    @tool(retry=Retry(2, delay=0), idempotent=True)
    def flaky() -> str:
        """Fail twice."""
        if next(failures):
            raise ConnectionError("reset")
        return "ran"

    async with behind(flaky) as box:
        result = await box.call("flaky", {}, retry=Retry(3, delay=0))

    assert (result.value, result.attempts) == ("ran", 3)


@pytest.mark.parametrize("hops", [0, 1, 2])
async def test_the_rest_of_a_truncated_result_is_read_on_the_server(hops):
    @tool(max_result_bytes=400)
    def long() -> str:
        """Return many lines."""
        return "\n".join(f"line {number}" for number in range(200))

    box = Toolbox(long)
    for hop in range(hops):
        box = Toolbox(McpServer.of(f"hop{hop}", box))
    async with box:
        result = await box.call("long", {})
        found = await box.call("read_result", {"handle": result.meta["handle"], "search": "line 99"})
        part = await box.call("read_result", {"handle": result.meta["handle"], "offset": 7, "length": 6})
        wrong = await box.call("read_result", {"handle": "result_1_0"})
        offered = [made.name for made in box.tools]

    assert result.meta["bytes"] == 1689
    assert found.text.startswith("100 (character")
    assert part.text == "line 1\n[characters 7 to 13 of 1689]"
    assert wrong.error.code == "tool_error"
    assert "read_result" in offered
