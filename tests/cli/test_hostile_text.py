"""No command shows a control, bidi or zero-width character of a tool, a server, a model or a file as it is."""

import ast
import json
import sys
from pathlib import Path

import pytest

import toolmason.cli
from house.source import parse_tree

MARK = "PWNED"
HOSTILE = f"\x1b]0;{MARK}\x07\x1b[2J\x9b31m\u202e\u2066\u200b"
RAW = ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\u2066", "\u200b")
SERVER = """
import json, sys

case = sys.argv[1]
HOSTILE = HOSTILE_TEXT
schema = {"type": "object", "properties": {}}
tools = [{"name": "echo", "description": "Echo.", "inputSchema": schema}]
if case == "stderr":
    sys.stderr.write(HOSTILE + "\\n")
    sys.exit(3)
if case == "definition":
    tools += [{"name": "x" + HOSTILE, "inputSchema": schema},
              {"name": "y", "description": HOSTILE, "inputSchema": schema},
              {"name": "z", "inputSchema": {"type": HOSTILE}}, {"name": HOSTILE, "inputSchema": 5}]
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method = request["method"]
    answer = {"result": {}}
    if method == "server/discover":
        answer = {"error": {"code": -32601, "message": "no"}}
    elif method == "initialize":
        info = {"name": "raw" + HOSTILE, "version": HOSTILE, "title": HOSTILE}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info,
                             "instructions": HOSTILE}}
        if case == "initialize":
            answer = {"error": {"code": -32000, "message": HOSTILE}}
    elif method == "tools/list":
        answer = {"result": {"tools": tools}}
        if case == "list":
            answer = {"error": {"code": -32000, "message": HOSTILE}}
    elif method == "tools/call":
        token = request["params"].get("_meta", {}).get("progressToken")
        if token is not None:
            note = {"progressToken": token, "progress": 1, "message": HOSTILE}
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": note}), flush=True)
        note = {"level": "error", "logger": HOSTILE, "data": HOSTILE}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": note}), flush=True)
        content = [{"type": "text", "text": HOSTILE}]
        answer = {"result": {"content": content, "isError": case == "fails"}}
        if case == "error":
            answer = {"error": {"code": -32000, "message": HOSTILE, "data": HOSTILE}}
        if case == "unknown":
            answer = {"result": {"content": [{"type": HOSTILE, "text": HOSTILE}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""
TOOLS = '''
import logging
import warnings
from typing import Annotated

from toolmason import Toolbox, ToolContext, ToolError, tool
from toolmason.testing import ScriptedModel

HOSTILE = HOSTILE_TEXT


@tool(description="Shout. " + HOSTILE)
def shout(word: Annotated[str, "A word. " + HOSTILE] = "") -> str:
    return HOSTILE


@tool
def mapped() -> dict:
    """Give an object."""
    return {HOSTILE: [HOSTILE]}


@tool
def boom() -> str:
    """Raise."""
    raise ValueError(HOSTILE)


@tool
def refuse() -> str:
    """Refuse."""
    raise ToolError(HOSTILE)


@tool
def noisy(ctx: ToolContext) -> str:
    """Log and warn."""
    ctx.progress(1, 2, HOSTILE)
    ctx.log.error("failed: %s", HOSTILE)
    logging.getLogger("another").error(HOSTILE)
    warnings.warn(HOSTILE)
    return HOSTILE


@tool(approval=True, preview=lambda arguments: HOSTILE)
def ask(word: str = HOSTILE) -> str:
    """Ask first."""
    return "asked"


box = Toolbox(shout, mapped, boom, refuse, noisy, ask)
'''


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """A folder with tools, a server, a lock file and a program whose texts are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, text in (("server.py", SERVER), ("hostile.py", TOOLS)):
        (folder / name).write_text(text.replace("HOSTILE_TEXT", repr(HOSTILE)), "utf-8")
    (folder / "broken.py").write_text(f"raise RuntimeError({HOSTILE!r})\n", "utf-8")
    entry = {"description": HOSTILE, "input_schema": {"type": "object", "properties": {f"a{HOSTILE}": {}}}}
    listing = [{"name": f"t{HOSTILE}", **entry}, {"name": "shout", **entry}]
    (folder / "tools.json").write_text(json.dumps(listing), "utf-8")
    (folder / "bad.lock").write_text(json.dumps({"format": HOSTILE}), "utf-8")
    (folder / "bad.toml").write_text(f'[mcp_1]\nname = "{MARK}\\u001b]0;\\u202e"\n', "utf-8")
    return folder


SERVER_CASES = ("stderr", "definition", "initialize", "list", "fails", "error", "unknown", "plain")
SERVER_COMMANDS = (("list",), ("health",), ("call", "echo"), ("lock",))
COMMANDS = [
    *(
        ("mcp", *words, f"--stdio={sys.executable} server.py {case}")
        for words in SERVER_COMMANDS
        for case in SERVER_CASES
    ),
    ("list", "hostile:box"),
    ("list", "hostile:box", "shout"),
    ("list", "broken"),
    *(("call", "hostile:box", name) for name in ("shout", "mapped", "boom", "refuse", "noisy", "ask")),
    ("call", "hostile:box", "ask", "--dry-run"),
    ("call", "hostile:box", f"nothing{HOSTILE}"),
    ("call", "hostile:box", "shout", f"nothing{HOSTILE}=1"),
    ("chat", "hostile:box", "Shout", "--model", "offline"),
    ("run", "hostile:box", f"Shout {HOSTILE}", "--model", "offline", "--durable", "runs.db", "--run", f"r{HOSTILE}"),
    ("runs", "list", "runs.db"),
    ("runs", "show", "runs.db"),
    ("doctor", "hostile:box"),
    ("check", "hostile:box"),
    ("check", "hostile.py"),
    ("diff", "tools.json", "hostile:box"),
    ("lock", "hostile:box", "--file", "new.lock"),
    ("lock", "hostile:box", "--file", "bad.lock", "--check"),
    ("mcp", "list", "--config", "bad.toml"),
    ("build", "broken"),
    (f"no{HOSTILE}",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(map(ascii, words))[:70])
def test_no_command_shows_what_would_steer_a_terminal(terminal, hostile, words):
    shell = terminal(*words, cwd=hostile)
    if "ask" in words and "--dry-run" not in words:
        shell.expect("Allow this call?")
        shell.type("n")

    shell.end()

    assert [character for character in RAW if character in shell.shown] == []


@pytest.mark.parametrize("case", ["stderr", "list", "definition"])
def test_the_text_of_a_server_is_still_shown_escaped(terminal, hostile, case):
    shell = terminal(
        "mcp", "health" if case == "stderr" else "list", f"--stdio={sys.executable} server.py {case}", cwd=hostile
    )

    shell.end()

    assert MARK in shell.text or "U+001B" in shell.text


def test_only_one_module_of_the_command_prints():
    folder = Path(toolmason.cli.__file__).parent
    printing = {"echo", "secho", "print", "write"}
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        for node in ast.walk(parse_tree(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and (
            (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in printing
                and ast.unparse(node.func.value) in ("click", "sys.stdout", "sys.stderr")
            )
            or (isinstance(node.func, ast.Name) and node.func.id == "print")
        )
    }

    # `check` styles parts of a line, each of which it escapes.
    assert found == {"output.py", "commands/check_tools/check.py"}
