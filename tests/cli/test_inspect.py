"""Prompts and resources on the command line, and `mcp inspect` for a whole server."""

import json
import sys

import pytest

NOTES = '''
from toolmason import EmbeddedResource, Toolbox, prompt, resource, tool

@tool(read_only=True)
def count(text: str) -> int:
    """Count words."""
    return len(text.split())

@prompt
def review(text: str, words: int = 10) -> str:
    """Ask for a review."""
    return f"Review in {words} words: {text}"

@prompt(name="count")
def count_prompt() -> str:
    """Ask for a count."""
    return "Count them."

@resource("notes://{day}")
def note(day: str) -> str:
    """The note of a day."""
    return f"Nothing on {day}."

@resource("pictures://logo", mime_type="image/png")
def logo() -> bytes:
    """A picture."""
    return b"\\x89PNG"

box = Toolbox(count, review, count_prompt, note, logo, name="notes")
'''
SERVE = "from notes import box\nfrom toolmason.mcp import serve\nserve(box)\n"


@pytest.fixture
def notes(tmp_path):
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")
    (tmp_path / "server.py").write_text(SERVE, "utf-8")
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"notes": {"command": sys.executable, "args": [str(tmp_path / "server.py")]}}})
    )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("review", "text=Hello", "words=3"), "Review in 3 words: Hello\n"),
        (("review", "--arguments", '{"text": "a"}'), "Review in 10 words: a\n"),
        (("count", "--prompt"), "Count them.\n"),
        (("count", "text=a b"), "2\n"),
        (("notes://monday",), "Nothing on monday.\n"),
        (("notes://a=b",), "Nothing on a=b.\n"),
    ],
    ids=["prompt", "prompt of JSON", "prompt like a tool", "tool", "resource", "resource with an equals sign"],
)
@pytest.mark.parametrize("source", ["target", "server"])
def test_a_prompt_or_resource_is_printed(run, notes, words, shown, source):
    start = ("call", "notes.py:box") if source == "target" else ("mcp", "call")
    end = () if source == "target" else ("--config", "mcp.json")

    done = run(*start, *words, *end, cwd=notes)

    assert (done.stdout, done.returncode) == (shown, 0), done.stderr


def test_the_parts_are_json_if_wanted(run, notes):
    messages = run("call", "notes.py:box", "review", "text=x", "--json", cwd=notes)
    picture = run("call", "notes.py:box", "pictures://logo", "--json", cwd=notes)

    assert json.loads(messages.stdout)[0]["role"] == "user"
    assert json.loads(picture.stdout) == [{"uri": "pictures://logo", "mimeType": "image/png", "blob": "iVBORw=="}]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("review",), 2, "text"),
        (("revue", "--prompt"), 3, "Available: "),
        (("memo://x",), 3, "memo://x"),
        (("revue",), 3, "revue"),
    ],
    ids=["no argument", "no prompt", "no resource", "no tool"],
)
def test_what_is_missing_is_named(run, notes, words, code, text):
    done = run("call", "notes.py:box", *words, cwd=notes)

    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["name", "command"])
def test_a_server_is_described_as_a_whole(run, notes, word):
    words = ("notes", "--config", "mcp.json") if word == "name" else (f"{sys.executable} server.py",)

    done = run("mcp", "inspect", *words, cwd=notes)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("notes: notes " if word == "name" else "server: notes ")
    assert lines[1].startswith("protocol 2026-07-28, stateless era")
    assert "tools (listChanged)" in lines[2]
    assert "  count(text: string)  read-only  Count words." in lines
    for entry in ("review  Ask for a review.", "pictures://logo  A picture.", "notes://{day}  The note of a day."):
        assert f"  {entry}" in lines


def test_the_description_is_json_if_wanted(run, notes):
    [found] = json.loads(run("mcp", "inspect", "notes", "--config", "mcp.json", "--json", cwd=notes).stdout)

    assert found["server"]["name"] == "notes"
    assert found["era"] == "stateless"
    assert found["tokens"] == sum(tool["tokens"] for tool in found["tools"])
    assert [len(found[kind]) for kind in ("tools", "prompts", "resources", "templates")] == [1, 2, 1, 1]
    assert {"findings", "held_back", "instructions", "capabilities", "latency"} <= found.keys()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("nothing",), 3, "'nothing' is not a configured server, a URL or a command. Configured: none."),
        (("note", "--config", "mcp.json"), 3, "Configured: notes."),
        (("http://127.0.0.1:9/mcp",), 1, "cannot be used"),
        (("http://127.0.0.1:9/mcp", "--stdio", "x"), 2, "cannot be combined"),
    ],
    ids=["no server", "no name", "no answer", "two servers"],
)
def test_a_server_that_cannot_be_described_is_named(run, notes, words, code, text):
    done = run("mcp", "inspect", *words, cwd=notes)

    assert done.returncode == code
    assert text in " ".join(done.stderr.split())


@pytest.mark.parametrize("key", ["mcpServers", "servers", "mcp_servers"])
def test_each_key_of_a_server_table_makes_a_file_a_target(run, notes, key):
    path = notes / "mcp.json"
    path.write_text(path.read_text("utf-8").replace("mcpServers", key), "utf-8")

    done = run("list", "mcp.json", cwd=notes)

    assert (done.returncode, "review" in done.stdout) == (0, True), done.stderr


def test_a_server_table_with_a_misspelt_key_is_explained(run, notes):
    path = notes / "mcp.json"
    path.write_text(path.read_text("utf-8").replace("mcpServers", "mcpServrs"), "utf-8")

    done = run("list", "mcp.json", cwd=notes)

    assert 'An MCP configuration has its servers under "mcpServers"' in " ".join(done.stderr.split())


@pytest.mark.parametrize("line", ["@tool(readonly=True)", "@tool(timeout=-1)"])
def test_a_wrong_option_names_the_line_of_the_file(run, tmp_path, line):
    (tmp_path / "plans.py").write_text(f"from toolmason import tool\n\n{line}\ndef plan() -> None: ...\n", "utf-8")

    done = run("list", "plans.py", cwd=tmp_path)

    assert "plans.py:3)" in done.stderr
    assert ("Did you mean 'read_only'?" in done.stderr) == ("readonly" in line)
