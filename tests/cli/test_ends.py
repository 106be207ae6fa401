"""How a run that came to no answer is told of, whatever drove it."""

import asyncio
from typing import Any

import click
import pytest

from toolmason import Chat, Limits, Toolbox, tool
from toolmason.cli.commands.ask_model.chat import print_reply, send_and_show
from toolmason.testing import ScriptedModel


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing at {place}"


@pytest.mark.parametrize(
    ("limits", "told"), [(Limits(steps=1), "limit of 1 steps"), (Limits(calls=0), "limit of 0 calls")]
)
def test_a_run_that_ends_at_a_limit_says_which_and_fails(limits: Limits, told: str, capsys: pytest.CaptureFixture[Any]):
    chat = Chat(ScriptedModel([[("look", {"place": "a"})], [("look", {"place": "b"})]]), Toolbox(look), limits=limits)
    reply = asyncio.run(send_and_show(chat, "Look.", yes=False, quiet=True))

    with pytest.raises(click.exceptions.Exit) as ended:
        print_reply(reply, as_json=False)

    assert ended.value.exit_code == 1
    assert f"reached its limits before the model answered: {told}." in capsys.readouterr().err
