"""Results as MCP answers them, judged by the types of its own SDK."""

import pytest
from mcp.types import CallToolResult, Tool

from providers.samples import LINK, PDF, PNG, WAV, box
from toolmason import EmbeddedResource, Text, ToolResult
from toolmason.errors import ToolError, UnsupportedProvider
from toolmason.providers import codec
from toolmason.providers.registry import get_format

PARTS = (Text("21"), PNG, WAV, PDF, LINK, EmbeddedResource("file:///a.txt", text="contents"))


def test_every_part_has_its_own_kind():
    made = get_format("mcp").result(ToolResult("c", "t", content=PARTS))

    read = CallToolResult.model_validate(made)
    assert [part.type for part in read.content] == ["text", "image", "audio", "resource", "resource_link", "resource"]
    assert not made["isError"]


def test_structured_results_and_failures_are_told():
    good = get_format("mcp").result(ToolResult("c", "t", text='{"a": 1}', structured={"a": 1}))
    bad = get_format("mcp").result(ToolResult("c", "t", error=ToolError("closed")))

    assert good["structuredContent"] == {"a": 1}
    assert bad["isError"] is True
    assert "closed" in bad["content"][0]["text"]


def test_the_sdk_reads_our_tools():
    assert [Tool.model_validate(tool).name for tool in box().definitions("mcp")] == [
        "get_weather",
        "now",
        "shop_find_it",
    ]


def test_mcp_is_no_format_of_conversations():
    with pytest.raises(UnsupportedProvider) as caught:
        codec("mcp")

    assert "mcp" not in caught.value.known
