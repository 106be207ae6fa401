"""A toolbox with servers, inside of another toolbox."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.raw_http import TOOL, served
from toolmason import McpServer, Toolbox, prompt, resource
from toolmason._core.toolbox.toolbox import get_state


def one() -> int:
    """One."""
    return 1


def two() -> int:
    """Two."""
    return 2


def inner() -> Toolbox:
    return Toolbox(McpServer.of("far", Toolbox(one, two)))


async def test_the_servers_of_a_toolbox_come_along():
    async with Toolbox(inner()) as box:
        result = await box.call("two")
        health = await box.health()

    assert result.text == "2"
    assert health["far"].ok


async def test_a_view_shows_what_it_shows_also_from_within():
    async with Toolbox(inner().select("o*").prefixed("far_"), two) as box:
        names = [tool.name for tool in box]
        gone = await box.call("far_two")

    assert names == ["far_one", "two"]
    assert gone.error.code == "unknown_tool"


async def test_a_local_tool_keeps_its_name_there_too():
    def one() -> str:
        """One of our own."""
        return "ours"

    async with Toolbox(inner(), one) as box:
        mine, theirs = await box.call("one"), await box.call("far__one")

    assert (mine.text, theirs.text) == ("ours", "1")


async def test_both_can_be_used_and_either_closed():
    first = inner()
    async with Toolbox(first) as second:
        await second.call("one")
    again = await first.call("one")
    await first.aclose()

    assert again.text == "1"


async def test_a_server_cannot_take_the_name_of_the_tool_that_reads_results():
    with served("plain") as server:
        server.tools = [{**TOOL, "name": "read_result"}]
        async with Toolbox(McpServer.http("far", server.url)) as box:
            names = [tool.name for tool in box]

    assert names == ["far__read_result"]


async def test_prompts_and_resources_come_along():
    @prompt
    def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    @resource("notes://all")
    def notes() -> str:
        """All notes."""
        return "a note"

    async with Toolbox(Toolbox(McpServer.of("far", Toolbox(greet, notes)))) as box:
        [message] = await box.prompt("greet", {"name": "Ada"})
        [content] = await box.read("notes://all")

    assert message.text == "Hello Ada"
    assert content.text == "a note"


class StopHere(Exception):
    """What ends a connection in between."""


async def use(box: Toolbox, how: str) -> None:
    if how == "raise":
        raise StopHere
    if how == "call":
        await box.call("one")
    elif how == "refresh":
        await box.refresh()
    elif how == "watch":
        box.servers.watch(lambda uri: None)
        await box.list()


@given(st.lists(st.sampled_from(["call", "refresh", "watch", "raise", "nothing"]), min_size=1, max_size=4))
@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("depth", [1, 2])
def test_d13_a_connection_in_memory_leaves_no_watcher(era: Any, depth: int, ways: list[str]):
    async def main() -> list[int]:
        target = far = Toolbox(one)
        for _ in range(depth - 1):
            far = Toolbox(McpServer.of("between", far, era=era))
        counts = []
        for way in ways:
            async with far:
                with suppress(StopHere):
                    async with Toolbox(McpServer.of("far", far, era=era)) as box:
                        await use(box, way)
            counts.append(len(get_state(target).remotes.watchers))
        return counts

    assert asyncio.run(main()) == [0] * len(ways)
