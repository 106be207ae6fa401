"""`toolmason dev` and `serve --reload`, in a real terminal and with a connected client."""

import asyncio
import os
import re
import stat
from pathlib import Path

import pytest

from cli.sample_tools import COMMAND, environment
from toolmason import Toolbox
from toolmason.mcp import McpServer

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/mcp")
DESK = '''
from toolmason import tool

@tool
def hours() -> str:
    """When the desk is open."""
    return "9 to 17"
'''
MORE = DESK.replace("def hours", "def phone") + DESK
NPM = """#!/bin/sh
echo "$@" "$HOST" "$MCP_AUTO_OPEN_ENABLED" > npm.words
sleep 600 &
echo $! > child.pid
echo "Inspector is up"
trap '' TERM
wait
"""


@pytest.fixture
def desk(tmp_path) -> Path:
    (tmp_path / "desk.py").write_text(DESK, "utf-8")
    (tmp_path / "bin").mkdir()
    return tmp_path


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def save(folder: Path, text: str) -> None:
    """Write a file as an editor does: the new one takes the place of the old."""
    (folder / "new").write_text(text, "utf-8")
    (folder / "new").rename(folder / "desk.py")


async def follow_changes(server: McpServer, folder: Path) -> list[list[str]]:
    """Return the tools that a client has before and after a change, a mistake, and its correction."""
    changed = asyncio.Event()
    async with Toolbox(server) as box:
        loop = asyncio.get_running_loop()
        box.servers.watch(lambda _: loop.call_soon_threadsafe(changed.set))
        found = [sorted(tool.name for tool in await box.list())]
        for text in (MORE, DESK.replace("def hours", "def times")):
            changed.clear()
            save(folder, text)
            async with asyncio.timeout(30):
                while sorted(tool.name for tool in await box.list()) == found[-1]:
                    await changed.wait()
                    changed.clear()
            found.append(sorted(tool.name for tool in box.tools))
        return found


EXPECTED = [["hours"], ["hours", "phone"], ["times"]]


async def test_a_client_over_stdio_is_notified_of_changed_files(desk):
    server = McpServer.stdio("desk", COMMAND, ["serve", "desk.py", "--reload"], cwd=desk, env=environment())

    assert await follow_changes(server, desk) == EXPECTED


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_over_http_is_notified_of_changed_files(terminal, desk, era):
    shell = terminal("serve", "desk.py", "--transport", "http", "--port", "0", "--reload", cwd=desk)
    shell.expect("/mcp")
    server = McpServer.http("desk", ADDRESS.search(shell.text)[0], era=era)

    assert await follow_changes(server, desk) == EXPECTED
    assert shell.interrupt() in (0, 130)


def test_a_mistake_is_one_line_and_the_tools_from_before_stay(terminal, desk):
    shell = terminal("dev", "desk.py", "--no-inspector", cwd=desk, COLUMNS="300")
    shell.expect("Serving 1 tool on http://127.0.0.1:")
    save(desk, "def (\n")
    shell.expect("Not loaded again, so the tools from before stay:")
    save(desk, MORE)
    shell.expect("Loaded again: 2 tools.")

    [line] = [line for line in shell.text.splitlines() if "Not loaded again" in line]
    assert "SyntaxError" in line
    assert "Traceback" not in shell.text
    assert shell.interrupt() in (0, 130)


def test_ctrl_c_ends_the_inspector_with_its_children(terminal, desk):
    npm = desk / "bin" / "npm"
    npm.write_text(NPM, "utf-8")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    path = f"{desk / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shell = terminal("dev", "desk.py", cwd=desk, PATH=path)
    shell.expect("Inspector is up")
    words = (desk / "npm.words").read_text()
    child = int((desk / "child.pid").read_text())

    assert is_running(child)
    assert shell.interrupt() in (0, 130)
    assert not is_running(child)
    assert "@modelcontextprotocol/inspector" in words
    assert words.endswith(f"{ADDRESS.search(shell.text)[0]} 127.0.0.1 false\n")


def test_an_inspector_that_fails_leaves_the_server_running(terminal, desk):
    npm = desk / "bin" / "npm"
    npm.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    shell = terminal("dev", "desk.py", cwd=desk, PATH=f"{desk / 'bin'}{os.pathsep}{os.environ['PATH']}", COLUMNS="200")

    shell.expect("The MCP Inspector ended with exit code 3. The server goes on.")
    save(desk, MORE)
    shell.expect("Loaded again: 2 tools.")
    assert shell.interrupt() in (0, 130)


def test_without_npm_a_sentence_says_what_is_missing(terminal, desk):
    shell = terminal("dev", "desk.py", cwd=desk, PATH=str(desk / "bin"), COLUMNS="200")

    shell.expect("The MCP Inspector needs npm, which is not installed.")
    assert shell.interrupt() in (0, 130)
