"""A tool that has promised data: a real client takes its results, also those that were cut or are made of parts."""

from datetime import date
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client

from mcp_server.sample_server import running
from toolmason import Image, McpServer, Text, Toolbox, tool
from toolmason._core.values.policy import EngineSettings
from toolmason.mcp_server import encode


@tool
def text(size: int) -> str:
    """Return a long text."""
    return "x" * size


@tool
def data(size: int) -> dict[str, list[int]]:
    """Return much data."""
    return {"numbers": list(range(size))}


@tool
def row(size: int) -> list[int]:
    """Return a long list."""
    return list(range(size))


@tool
def parts() -> list[Any]:
    """Return a text, a day, and a picture."""
    return ["a", date(2026, 1, 2), Image(b"png")]


@tool
def something() -> object:
    """Return a text as a part."""
    return Text("b")


@tool
def wrong() -> list[str]:
    """Return something else than was promised."""
    return [Image(b"png")]  # type: ignore[list-item]


def _box() -> Toolbox:
    return Toolbox(text, data, row, parts, something, wrong, settings=EngineSettings(result_bytes=500))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("text", {"size": 5000}),
        ("data", {"size": 5000}),
        ("row", {"size": 5000}),
        ("row", {"size": 0}),
        ("parts", {}),
        ("something", {}),
    ],
)
async def test_a_client_that_insists_on_promised_data_takes_the_result(mode: Any, name: str, arguments: dict[str, Any]):
    with running(_box()) as server:
        async with Client(server.url, mode=mode) as client:
            listed = {entry.name: entry for entry in (await client.list_tools()).tools}

            result = await client.call_tool(name, arguments)

    assert result.is_error is False
    assert Draft202012Validator(listed[name].output_schema or {}).is_valid(result.structured_content)


def test_what_a_model_reads_stays_cut_and_data_are_whole():
    with running(_box()) as server:
        long_text, numbers = server.call("text", {"size": 5000}), server.call("data", {"size": 5000})

    assert long_text["structuredContent"] == {"result": long_text["content"][0]["text"]}
    assert len(long_text["content"][0]["text"]) <= 500
    assert len(numbers["content"][0]["text"]) <= 500
    assert numbers["structuredContent"] == {"numbers": list(range(5000))}


def test_parts_among_data_are_named_without_their_bytes():
    with running(_box()) as server:
        result = server.call("parts")

    picture = {"type": "image", "mimeType": "image/png"}
    assert result["structuredContent"] == {"result": ["a", "2026-01-02", picture]}


def test_data_that_are_too_much_are_an_error_that_says_how_to_read_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encode, "MAX_STRUCTURED_BYTES", 1000)
    with running(_box()) as server:
        result = server.call("data", {"size": 5000})

    assert result["isError"] is True
    assert "read_result" in result["content"][0]["text"]
    assert "structuredContent" not in result


def test_parts_that_are_not_what_was_promised_are_not_called_data():
    with running(_box()) as server:
        result = server.call("wrong")

    assert "structuredContent" not in result


@pytest.mark.parametrize("name", ["data", "row"])
async def test_data_of_a_server_behind_us_are_passed_on_also_where_its_text_is_cut(name: str):
    behind = Toolbox(data, row)
    front = Toolbox(McpServer.of("behind", behind), settings=EngineSettings(result_bytes=500))
    with running(front) as server:
        async with Client(server.url) as client:
            listed = [entry.name for entry in (await client.list_tools()).tools if entry.name.endswith(name)]

            result = await client.call_tool(listed[0], {"size": 500})

    assert result.is_error is False
    assert len(result.structured_content["numbers" if name == "data" else "result"]) == 500
