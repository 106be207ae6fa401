"""Requests between a client and a server are one trace, whatever carries them, and have one span on each side."""

import asyncio
import sys

import pytest
from mcp import Client
from opentelemetry import trace

from mcp_server.sample_server import running
from toolmason import Chat, McpServer, Toolbox, ToolContext, ToolError, prompt, resource, tool
from toolmason._core.toolbox.toolbox import get_state
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.sdk_server import make_server
from toolmason.testing import ScriptedModel

SECRET = "sk-0123456789abcdef"  # noqa: S105 - not a key of anybody
SERVER = """
from toolmason import Toolbox, ToolContext, serve, tool

@tool
async def trace_of(ctx: ToolContext) -> str:
    return str(ctx.get("traceparent"))

serve(Toolbox(trace_of))
"""
CALL = [
    "execute_tool add",
    "  tools/call add",
    "    tools/call add",
    "      execute_tool add",
]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def trace_of(ctx: ToolContext) -> str:
    """Return the trace header of the call."""
    return str(ctx.get("traceparent"))


@tool
async def refuse() -> str:
    """Refuse."""
    raise ToolError(f"not with {SECRET}")


@prompt
def greet(name: str) -> str:
    """Greet."""
    return f"Greet {name}."


@resource("note://one")
def note() -> str:
    """Read a note."""
    return "one"


@pytest.fixture
def box():
    return Toolbox(add, trace_of, refuse, greet, note, name="shelf")


def lines_of(spans, root):
    """Return the part of the tree below the spans of a name, and these."""
    tree, found = spans.tree(), []
    for line in tree:
        if found and not line.startswith(" "):
            break
        if found or line == root:
            found.append(line)
    return found


async def test_a_call_in_memory_is_one_trace_with_one_span_on_each_side(box, spans):
    async with Toolbox(McpServer.of("shelf", box)) as client:
        await client.call("add", {"a": 1, "b": 2})

    assert lines_of(spans, "execute_tool add") == CALL
    sent, received = spans.named("tools/call add")
    assert (sent.kind, received.kind) == (trace.SpanKind.CLIENT, trace.SpanKind.SERVER)
    assert sent.attributes["mcp.method.name"] == "tools/call"
    assert sent.attributes["toolmason.server"] == "shelf"
    assert sent.attributes["mcp.protocol.version"] == received.attributes["mcp.protocol.version"]
    assert received.links == ()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_call_over_http_is_one_trace(era, box, spans):
    with running(box) as server:
        async with Toolbox(McpServer.http("shelf", server.url, era=era)) as client:
            result = await client.call("add", {"a": 1, "b": 2})

    assert result.value == 3
    assert lines_of(spans, "execute_tool add") == CALL
    sent, _ = spans.named("tools/call add")
    assert sent.attributes["network.transport"] == "tcp"
    assert sent.attributes["server.address"] == "127.0.0.1"


async def test_a_server_process_gets_the_trace_of_the_client(spans, tmp_path):
    (tmp_path / "server.py").write_text(SERVER, "utf-8")

    async with Toolbox(McpServer.stdio("far", sys.executable, [str(tmp_path / "server.py")])) as client:
        result = await client.call("trace_of")

    sent = spans.one("tools/call trace_of")
    assert sent.attributes["network.transport"] == "pipe"
    assert result.text.split("-")[1:3] == [f"{sent.context.trace_id:032x}", f"{sent.context.span_id:016x}"]


async def test_the_header_that_a_tool_sees_is_that_of_the_request(box, spans):
    async with Toolbox(McpServer.of("shelf", box)) as client:
        result = await client.call("trace_of")

    sent, _ = spans.named("tools/call trace_of")
    assert result.text.split("-")[2] == f"{sent.context.span_id:016x}"


async def test_the_sdk_writes_no_span_for_requests_of_a_toolbox(box, spans):
    with running(box) as server:
        async with Toolbox(McpServer.http("shelf", server.url), McpServer.of("near", box, prefix="near")) as client:
            await client.call("add", {"a": 1, "b": 2})
            await client.prompt("greet", {"name": "Ada"})
            await client.read("note://one")

    assert {span.instrumentation_scope.name for span in spans.all} == {"toolmason"}


async def test_the_sdk_keeps_the_spans_of_other_clients(box, spans, monkeypatch):
    # The SDK keeps the tracer of the provider that was set first in this process.
    monkeypatch.setattr("mcp.shared._otel._tracer", trace.get_tracer("mcp-python-sdk"))
    async with Client(make_server(Handlers(box)), mode="legacy") as client:
        await client.call_tool("add", {"a": 1, "b": 2})

    own = spans.one("tools/call add")
    assert own.kind is trace.SpanKind.SERVER
    assert spans.parent_of(own).name == "MCP send tools/call add"
    assert spans.parent_of(own).instrumentation_scope.name == "mcp-python-sdk"


async def test_an_error_marks_both_sides_without_its_message(box, spans):
    async with Toolbox(McpServer.of("shelf", box)) as client:
        await client.call("refuse")

    sent, received = spans.named("tools/call refuse")
    assert sent.attributes["error.type"] == received.attributes["error.type"] == "tool_error"
    assert not any(SECRET in span.to_json() for span in spans)


async def test_prompts_and_resources_have_spans_on_both_sides(box, spans):
    async with Toolbox(McpServer.of("shelf", box)) as client:
        await client.prompt("greet", {"name": "Ada"})
        await client.read("note://one")

    sent, received = [*spans.named("prompts/get greet"), *spans.named("prompts/get")]
    assert spans.parent_of(received) == sent
    assert sent.attributes["gen_ai.prompt.name"] == "greet"
    assert len(spans.named("resources/read")) == 2


async def test_connecting_and_listing_are_in_the_trace_of_the_first_caller(box, spans):
    client = Toolbox(McpServer.of("shelf", box))

    with trace.get_tracer("application").start_as_current_span("start"):
        await client.call("add", {"a": 1, "b": 2})
    await client.__aexit__(None, None, None)

    tree = spans.tree()
    assert tree[0] == "start"
    assert {"    connect shelf", "  tools/list"} <= set(tree)
    assert not [line for line in tree[1:] if not line.startswith(" ")]


async def test_a_server_can_be_described_in_a_program_that_traces(box, spans):
    async with Toolbox(McpServer.of("shelf", box)) as client:
        await client.list()
        facts = await get_state(client).remotes.sources[0].describe()

    assert facts["server"]["name"] == "shelf"
    assert not [span for span in spans if "describe" in span.name]


async def test_an_approval_by_the_clients_user_has_a_span(spans):
    @tool(approval=True)
    async def book() -> str:
        """Book."""
        return "booked"

    server = McpServer.of("desk", Toolbox(book))
    async with Toolbox(server, on_elicit=lambda _: {"approve": True}) as client:
        await client.call("book")

    assert spans.named("approve book")[-1].attributes["toolmason.approval.verdict"] == "allow"


async def test_a_forged_or_huge_header_of_a_client_starts_a_new_trace(box, spans):
    meta = {"traceparent": "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "baggage": "x" * 100_000, "tracestate": 5}
    async with Client(make_server(Handlers(box)), mode="legacy") as client:
        await client.call_tool("add", {"a": 1, "b": 2}, meta=meta)

    assert spans.one("tools/call add").context.is_valid


async def test_metrics_of_both_sides_and_of_the_health_of_a_server(box, metrics):
    client = Toolbox(McpServer.of("shelf", box), McpServer.stdio("gone", sys.executable, ["-c", "raise SystemExit(1)"]))
    async with client:
        await client.call("add", {"a": 1, "b": 2})
        await Chat(ScriptedModel(["Hello."]), client).send("Hi")

    sent = [point for point, _ in metrics("mcp.client.operation.duration") if point["mcp.method.name"] == "tools/call"]
    received = [point for point, _ in metrics("mcp.server.operation.duration")]
    assert [point["gen_ai.tool.name"] for point in sent] == ["add"]
    assert {point["mcp.method.name"] for point in received} >= {"tools/call", "tools/list"}
    up = {point["toolmason.server"]: value for point, value in metrics("toolmason.mcp.server.up")}
    assert up == {"shelf": 1, "gone": 0}
    assert [point["toolmason.cache"] for point, _ in metrics("toolmason.cache.hits")] == ["list"]


async def test_a_call_from_another_loop_keeps_its_trace(box, spans):
    async with Toolbox(McpServer.of("shelf", box)) as client:
        await client.call("add", {"a": 1, "b": 1})
        await asyncio.to_thread(client.call_sync, "add", {"a": 1, "b": 2})

    roots = [line for line in spans.tree() if line == "execute_tool add"]
    assert len(roots) == 2
    assert len(spans.named("tools/call add")) == 4
