"""The tables of options and fields name what the code has."""

import inspect
import re
from dataclasses import fields

import pytest

from house.source import ROOT
from toolmason import Chat, Toolbox
from toolmason.chat import Reply

REFERENCE = ROOT / "docs" / "reference"


def read_rows(page: str, title: str) -> set[str]:
    """Return the names in the first column of the table with this title."""
    text = (REFERENCE / page).read_text("utf-8")
    [table] = re.findall(rf"^\| {re.escape(title)} \|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def read_parameters(function) -> set[str]:
    return {*inspect.signature(function).parameters} - {"self", "sources"}


@pytest.mark.parametrize(
    ("page", "title", "function"),
    [
        ("settings.md", "Option of `Toolbox(...)`", Toolbox.__init__),
        ("chat.md", "Option of `Chat(...)`", Chat.__init__),
        ("chat.md", "Option of `send(...)`", Chat.send),
        ("chat.md", "Option of `send(...)`", Chat.stream),
        ("chat.md", "Option of `send(...)`", Chat.step),
    ],
    ids=["Toolbox", "Chat", "send", "stream", "step"],
)
def test_every_option_has_a_row(page, title, function):
    assert read_rows(page, title) == read_parameters(function)


def test_every_field_of_a_reply_has_a_row():
    assert read_rows("chat.md", "Field of `Reply`") == {field.name for field in fields(Reply)} | {
        "text",
        "new",
        "output",
        "problem",
        "citations",
    }
