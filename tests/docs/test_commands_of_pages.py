"""Every command that a page shows has the name and the options of a real one, also where the page does not run it.

A page shows commands in units, workflows and sentences, which no test can run.
"""

import re
from pathlib import Path

import click
import pytest

from house.source import ROOT
from toolmason.cli.main import cli

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in {".md", ".py", ".yml", ".yaml"}),
]
SHOWN = re.compile(r"(?<![\w/.-])toolmason (?P<words>[a-z][^`\n|&;]*)")
OPTION = re.compile(r"(?<![^\s\[(])(?P<name>--?[a-zA-Z][\w-]*)")
GROUP = click.Context(cli)


def find_unknown(line: str) -> list[str]:
    """Return the options of the commands in a line that do not exist."""
    unknown = []
    for shown in SHOWN.finditer(line):
        words = shown["words"].split()
        command: click.Command | None = cli.get_command(GROUP, words.pop(0))
        while isinstance(command, click.Group) and words:
            command = command.get_command(click.Context(command), words.pop(0))
        if command is None:
            continue  # a sentence, such as "toolmason is a command"
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        own, _, _ = shown["words"].partition(" -- ")  # what follows is the command of a server
        unknown += [found["name"] for found in OPTION.finditer(own) if found["name"] not in {*known, "--help"}]
    return unknown


def join_lines(text: str) -> list[str]:
    """Return the lines of a page; one that ends in a backslash goes on in the next."""
    return text.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path):
    wrong = {line.strip(): unknown for line in join_lines(page.read_text("utf-8")) if (unknown := find_unknown(line))}

    assert not wrong


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("ExecStart=toolmason serve app.py --allow-host a", ["--allow-host"]),
        ("ExecStart=toolmason serve app.py --allowed-host a", []),
        ("run `toolmason runs resume a.db -x`, or `toolmason list --json`", ["-x"]),
        ("toolmason is a command with --no-option of its own", []),
        ("toolmason mcp inspect -- npx -y server", []),
    ],
)
def test_an_option_that_does_not_exist_is_seen(line, unknown):
    assert find_unknown(line) == unknown
