"""A failure that goes through servers that are behind servers."""

import json

import pytest

from mcp_server.sample_server import running
from toolmason import McpServer, Toolbox, ToolError, tool


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool
def look() -> str:
    """Fail in words of its own."""
    raise ToolError("No such order.", retryable=True)


async def test_a_client_of_ours_hears_the_failure_and_not_its_form():
    async with Toolbox(McpServer.of("hop", Toolbox(add, look))) as box:
        misfit, refused = await box.call("add", {"a": "x"}), await box.call("look", {})

    assert (misfit.error.code, misfit.error.retryable) == ("invalid_arguments", True)
    assert misfit.error.message.startswith("Invalid arguments: $.a")
    assert (refused.error.code, refused.error.message) == ("tool_error", "No such order.")


@pytest.mark.parametrize("hops", [1, 2])
def test_an_error_of_ours_is_the_same_after_each_hop(hops: int):
    box = Toolbox(add, look)
    with running(box) as server:
        direct = [server.call("add", {"a": "x"}), server.call("look")]
    for hop in range(hops):
        box = Toolbox(McpServer.of(f"hop{hop}", box))
    with running(box) as server:
        found = [server.call("add", {"a": "x"}), server.call("look")]

    assert [result["content"] for result in found] == [result["content"] for result in direct]
    error = json.loads(found[0]["content"][0]["text"])["error"]
    assert (error["code"], error["retryable"]) == ("invalid_arguments", True)
