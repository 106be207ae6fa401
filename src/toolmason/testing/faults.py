"""Run misbehaving models and MCP servers against the tools of an application, and report what held.

No tool runs: each is replaced by a stand-in with the same definition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._text import clip, pluralize
from toolmason.chat.chat import Chat
from toolmason.errors import ModelError
from toolmason.providers.conversation import check_conversation
from toolmason.testing.fake_server import MCP_FAULTS, FakeMcpServer
from toolmason.testing.faulty_model import FAULTS, FaultyModel

SEEDS: Final = 3
"""Number of runs with each fault of a model."""
CASE_SECONDS: Final = 30.0
"""Seconds after which a case has failed."""
CALL_SECONDS: Final = 1.0
_PROBE: Final = "toolmason_probe"


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """Effect of a fault on the application."""

    case: str
    """Fault: `model: bad json`, `server: dies`, or `your server: weather`."""
    held: bool
    """True if each call had one result, and the application went on."""
    detail: str


async def check_faults(box: Toolbox) -> list[FaultOutcome]:
    """Run every fault against the definitions of a toolbox, and check the health of its servers.

    Raises:
        ImportError: the faulty servers need the extra `mcp`.
    """
    stand_ins = [_make_stand_in(tool) for tool in await box.list()]
    outcomes = [await _limit(f"model: {fault}", _check_model(stand_ins, fault)) for fault in FAULTS]
    outcomes += [await _limit(f"server: {fault}", _check_server(stand_ins, fault)) for fault in MCP_FAULTS]
    for name, health in (await box.health()).items():
        detail = pluralize(health.tools, "tool") if health else clip(health.error or "it does not answer", 200)
        outcomes.append(FaultOutcome(f"your server: {name}", bool(health), detail))
    return outcomes


def _make_stand_in(tool: Tool) -> Tool:
    definition = tool.definition
    return Tool.from_schema(definition.name, definition.description, definition.input_schema, lambda *_: "ok")


async def _limit(case: str, check: Awaitable[tuple[bool, str]]) -> FaultOutcome:
    """Return the outcome of a case, which returns if it held, and what it saw."""
    try:
        async with asyncio.timeout(CASE_SECONDS):
            return FaultOutcome(case, *await check)
    except ImportError:
        raise  # an extra is missing: no fault was tried
    except Exception as error:  # noqa: BLE001 - anything that escapes is what the check looks for
        return FaultOutcome(case, held=False, detail=clip(f"{type(error).__name__}: {error}", 200))


async def _check_model(tools: list[Tool], fault: str) -> tuple[bool, str]:
    calls = 0
    for seed in range(SEEDS):
        try:
            reply = await Chat(FaultyModel(seed, [fault], answers_after=3), Toolbox(*tools)).send("Go on.")
        except ModelError as error:
            if fault != "fails":
                raise
            return True, f"ModelError: {error}"
        if flaws := check_conversation(reply.messages):
            return False, f"the conversation cannot be sent again: {flaws[0]}"
        calls += len(reply.results)
    return True, f"{pluralize(calls, 'call')}, one result for each"


async def _check_server(tools: list[Tool], fault: str) -> tuple[bool, str]:
    server = FakeMcpServer({_PROBE: "pong"}, [fault], timeout=CALL_SECONDS)
    async with Toolbox(*tools, server) as box:
        first, second = await box.call(_PROBE), await box.call(_PROBE)
        missing = {tool.name for tool in tools} - {tool.name for tool in await box.list()}
    if missing:
        return False, f"the tool {min(missing)!r} was lost"
    return second.ok, "; then ".join("ok" if each.error is None else each.error.code for each in (first, second))
