"""`check_faults` and `toolmason doctor`: what holds is told, what does not is told too, and no tool runs."""

import json
import sys
from pathlib import Path

import pytest

from toolmason import McpServer, Toolbox, tool
from toolmason.testing import faults
from toolmason.testing.faults import FAULTS, MCP_FAULTS, check_faults

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")
ran = []


@tool(destructive=True)
def pay(amount: int, to: str = "") -> str:
    """Pay."""
    ran.append(amount)
    return "paid"


async def test_every_fault_holds_and_no_tool_runs():
    async with Toolbox(pay, McpServer.stdio("raw", sys.executable, [RAW, "plain"])) as box:
        outcomes = await check_faults(box)

    cases = [
        *(f"model: {fault}" for fault in FAULTS),
        *(f"server: {fault}" for fault in MCP_FAULTS),
        "your server: raw",
    ]
    assert [outcome.case for outcome in outcomes] == cases
    assert [outcome for outcome in outcomes if not outcome.held] == []
    assert ran == []


async def test_what_breaks_is_told(monkeypatch):
    def break_down(model, request):
        raise ZeroDivisionError("broken \x1b model")

    monkeypatch.setitem(FAULTS, "none", break_down)
    monkeypatch.setattr(faults, "MCP_FAULTS", ())

    outcomes = await check_faults(Toolbox(pay))

    [broken] = [outcome for outcome in outcomes if not outcome.held]
    assert broken.case == "model: none"
    assert "\x1b" not in broken.detail


async def test_a_server_of_the_application_that_is_down_is_told(monkeypatch):
    monkeypatch.setattr(faults, "FAULTS", ())
    monkeypatch.setattr(faults, "MCP_FAULTS", ())

    async with Toolbox(McpServer.stdio("raw", sys.executable, [RAW, "dies at once"])) as box:
        [outcome] = await check_faults(box)

    assert (outcome.case, outcome.held) == ("your server: raw", False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(
        'from toolmason import tool\n\n\n@tool\ndef buy(n: int) -> str:\n    """Buy."""\n    raise SystemExit\n'
    )
    return tmp_path


def test_the_command_prints_a_table(forks, folder):
    from fork_server import COMMAND

    plain = forks.run([COMMAND, "doctor", "shop.py"], cwd=folder)
    data = forks.run([COMMAND, "doctor", "shop.py", "--json"], cwd=folder)

    assert plain.returncode == data.returncode == 0, plain.stderr
    assert "held  server: dies" in plain.stdout
    assert f"{len(FAULTS) + len(MCP_FAULTS)} of {len(FAULTS) + len(MCP_FAULTS)} cases held." in plain.stderr
    assert all(outcome["held"] for outcome in json.loads(data.stdout))
