"""The command in a real terminal: colour, prompts, editing, progress, Ctrl-C."""

import json
import stat
import sys
from pathlib import Path

import pytest

from cli.sample_tools import OFFICE

CTRL_D = 4
RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")


def test_a_list_is_a_table_in_colour(terminal):
    shell = terminal("list", "office:box")

    assert shell.end() == 0
    assert "\x1b[" in shell.shown
    assert "Parameters" in shell.text
    assert "get_weather" in shell.text
    assert "tokens" not in shell.text


def test_no_color_is_respected(terminal):
    shell = terminal("list", "office:box", NO_COLOR="1")

    assert shell.end() == 0
    assert "Parameters" in shell.shown
    assert "\x1b[" not in shell.shown


def test_a_dumb_terminal_gets_plain_text(terminal):
    shell = terminal("list", "office:box", TERM="dumb")

    assert shell.end() == 0
    assert "\x1b[3" not in shell.shown


def test_an_object_is_shown_as_json_in_colour(terminal):
    shell = terminal("call", "office:box", "record")

    assert shell.end() == 0
    assert "\x1b[" in shell.shown
    assert json.loads(shell.text) == {"name": "Ada", "ids": [1, 2]}


def test_a_tool_cannot_steer_the_terminal(terminal):
    shell = terminal("call", "office:box", "painted")

    assert shell.end() == 0
    assert "\x1b[31m" not in shell.shown
    assert "\x07" not in shell.shown
    assert "[bold]plain[/bold]" in shell.text
    assert ":smile:" in shell.text


def test_a_long_line_is_not_broken_by_words(terminal):
    shell = terminal("call", "office:box", "get_weather", "city=" + "x" * 300)

    assert shell.end() == 0
    assert "x" * 300 in shell.text


def test_a_table_fits_80_columns_with_one_line_for_each_tool(terminal, tmp_path):
    (tmp_path / "wide.py").write_text(
        "from toolmason import tool\n\n\n@tool\ndef send_mail(to: str, subject: str, body: str, urgent: bool = False, "
        'attachments: tuple[str, ...] = ()) -> None:\n    """Send a mail to a lot of people who did not ask for it, '
        'and wait until all of them have sent an answer."""\n'
    )
    shell = terminal("list", "wide.py", cwd=tmp_path, COLUMNS="80")

    assert shell.end() == 0
    heading, row = shell.text.rstrip().splitlines()
    assert row.startswith("send_mail ")
    assert row.count("…") == 2
    assert max(len(heading), len(row)) <= 80


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("list",), "get_weather(city: string"),
        (("call", "record"), '"Ada"'),
        (("call", "work", "steps=1"), "worked"),
        (("chat", "work", "--model", "offline"), "worked"),
    ],
    ids=str,
)
def test_a_terminal_without_rich_gets_plain_text(terminal, tmp_path, words, shown):
    # click comes with other packages, such as uvicorn; rich does not.
    (tmp_path / "plain.py").write_text(
        "import sys\n\n"
        "sys.modules.update({name: None for name in ['rich', *sys.modules] if name.split('.')[0] == 'rich'})\n"
        f"{OFFICE}"
    )
    shell = terminal(words[0], "plain.py", *words[1:], cwd=tmp_path)

    assert shell.end() == 0
    assert shown in shell.text
    assert "Traceback" not in shell.text


# --- approval ----------------------------------------------------------------------------------


def test_a_call_is_asked_about_with_its_preview_and_runs_when_allowed(terminal):
    shell = terminal("call", "office:box", "drop", "table=orders")

    shell.expect("Allow this call?")
    assert "Would drop orders." in shell.text
    assert "destructive" in shell.text
    shell.type("y")

    assert shell.end() == 0
    assert '"dropped": "orders"' in shell.text


def test_what_would_hide_in_the_question_is_shown(terminal):
    shell = terminal("call", "office:box", "wipe", f"folder={'a' * 2000}\u202egpj.exe\u200b")

    shell.expect("Allow this call?")
    assert "characters left out" in shell.text
    assert "\\u202egpj.exe\\u200b" in shell.text
    shell.type("n")

    assert shell.end() == 1


def test_a_call_that_is_refused_does_not_run(terminal):
    shell = terminal("call", "office:box", "drop", "table=orders")

    shell.expect("Allow this call?")
    shell.type("n")

    assert shell.end() == 1
    assert "refused in the terminal" in shell.text
    assert '"dropped"' not in shell.text


def test_a_tool_of_a_file_is_asked_about_until_the_answer_is_always(terminal, tmp_path):
    entry = {"command": sys.executable, "args": [RAW, "plain"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))
    words = ("chat", "mcp.json", "Echo the text 'hello'", "--model", "offline")

    first = terminal(*words, cwd=tmp_path)
    first.expect("Allow this call? [y/n/edit/always]")
    assert "Server 'raw' comes from a configuration file" in " ".join(first.text.split())
    first.type("maybe")
    first.expect("Answer always to allow it, and to add the tool to the lock file.")
    first.type("always")
    assert first.end() == 0
    second = terminal(*words, cwd=tmp_path)

    assert second.end() == 0
    assert "Locked echo of server raw in toolmason.lock." in first.text
    assert "Allow this call?" not in second.text
    assert list(json.loads((tmp_path / "toolmason.lock").read_text())["servers"]["raw"]["tools"]) == ["echo"]


def test_a_lock_file_that_cannot_be_changed_is_told_and_the_call_runs(terminal, tmp_path):
    entry = {"command": sys.executable, "args": [RAW, "plain"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))
    (tmp_path / "toolmason.lock").write_text("{}")

    shell = terminal("chat", "mcp.json", "Echo the text 'hello'", "--model", "offline", cwd=tmp_path)
    shell.expect("Allow this call? [y/n/edit/always]")
    shell.type("always")

    assert shell.end() == 0
    assert "is neither a manifest nor a lock" in " ".join(shell.text.split())


def test_an_answer_that_is_none_is_asked_again(terminal):
    shell = terminal("call", "office:box", "wipe", "folder=a")

    shell.expect("Allow this call?")
    shell.type("perhaps")
    shell.expect("Answer y to allow it")
    shell.type("yes")

    assert shell.end() == 0
    assert "wiped a 1" in shell.text


def test_arguments_can_be_edited_on_the_next_line_and_are_shown_again(terminal):
    shell = terminal("call", "office:box", "wipe", "folder=a")

    shell.expect("Allow this call?")
    shell.type("edit")
    shell.expect("Arguments, as a JSON object")
    shell.type('{"folder": "b", "depth": "2"}')
    shell.expect('wipe {"depth": 2, "folder": "b"}')
    shell.type("y")

    assert shell.end() == 0
    assert "wiped b 2" in shell.text


def test_edited_arguments_that_do_not_fit_are_told_and_asked_again(terminal):
    shell = terminal("call", "office:box", "wipe", "folder=a")

    shell.expect("Allow this call?")
    for text, problem in [
        ("{", "not valid JSON: the JSON was truncated"),
        ("[1]", "must be a JSON object"),
        ('{"depth": 1}', "folder"),
    ]:
        shell.type("e")
        shell.expect("Arguments, as a JSON object")
        shell.shown = ""
        shell.type(text)
        shell.expect(problem)
        shell.expect("Allow this call?")
        shell.shown = ""
    shell.type("n")

    assert shell.end() == 1
    assert "wiped" not in shell.text


def test_arguments_can_be_edited_in_the_editor_of_the_user(terminal, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/orders/customers/" "$1"\n', "utf-8")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    shell = terminal("call", "office:box", "drop", "table=orders", EDITOR=str(editor))

    shell.expect("Allow this call?")
    shell.type("edit")
    shell.expect("Would drop customers.")
    shell.type("y")

    assert shell.end() == 0
    assert '"dropped": "customers"' in shell.text


def test_the_question_does_not_get_into_the_file_that_the_result_is_written_to(terminal, tmp_path):
    shell = terminal("call", "office:box", "wipe", "folder=a", output=tmp_path / "out.txt")

    shell.expect("Allow this call?")
    shell.type("edit")
    shell.expect("Arguments, as a JSON object:")
    shell.type('{"folder": "b"}')
    shell.expect('wipe {"depth": 1, "folder": "b"}')
    shell.type("y")

    assert shell.end() == 0
    assert (tmp_path / "out.txt").read_text("utf-8") == "wiped b 1\n"


def test_a_call_that_needs_no_approval_is_not_asked_about(terminal):
    shell = terminal("call", "office:box", "pay", "amount=5")

    assert shell.end() == 0
    assert "Allow" not in shell.text


def test_ctrl_c_at_the_question_runs_nothing(terminal):
    shell = terminal("call", "office:box", "wipe", "folder=a")

    shell.expect("Allow this call?")

    assert shell.interrupt() == 130
    assert "Traceback" not in shell.text
    assert "wiped" not in shell.text


def test_the_end_of_input_at_the_question_runs_nothing(terminal):
    shell = terminal("call", "office:box", "wipe", "folder=a")

    shell.expect("Allow this call?")
    shell.press(CTRL_D)

    assert shell.end() == 130
    assert "wiped" not in shell.text


# --- progress ----------------------------------------------------------------------------------


def test_progress_is_drawn_and_taken_away(terminal):
    shell = terminal("call", "office:box", "work", "steps=3")

    shell.expect("counting")
    shell.expect("/3")

    assert shell.end() == 0
    assert shell.text.rstrip().endswith("worked")


@pytest.mark.parametrize("kind", ["nan", "text", "huge"])
def test_a_tool_may_report_any_progress(terminal, kind):
    shell = terminal("call", "office:box", "odd", f"kind={kind}")

    assert shell.end() == 0
    assert "Traceback" not in shell.text
    assert shell.text.rstrip().endswith("odd")


def test_a_message_of_a_tool_cannot_steer_the_terminal(terminal):
    shell = terminal("call", "office:box", "work", "steps=2", "message=[red]a\x1b[31mb")

    assert shell.end() == 0
    assert "[red]a\\u001b" in shell.text
    assert "\x1b[31mb" not in shell.shown


def test_ctrl_c_ends_a_call_without_a_traceback(terminal):
    for name in ("slow", "stuck"):
        shell = terminal("call", "office:box", name)
        shell.expect("started")

        assert shell.interrupt() == 130
        assert "Traceback" not in shell.text


# --- Ctrl-C in a conversation --------------------------------------------------------------------

CHAT = ("chat", "office:box", "--model", "offline")


def test_ctrl_c_at_the_prompt_ends_the_conversation(terminal):
    shell = terminal(*CHAT)
    shell.expect("> ")

    assert shell.interrupt() == 130
    assert "Traceback" not in shell.text


def test_the_end_of_input_at_the_prompt_ends_the_conversation_well(terminal):
    shell = terminal(*CHAT)
    shell.expect("> ")
    shell.press(CTRL_D)

    assert shell.end() == 0


def test_ctrl_c_at_a_question_cancels_the_run_and_the_next_line_is_a_message(terminal):
    shell = terminal(*CHAT)
    shell.expect("> ")
    shell.type("wipe the folder 'a'")
    shell.expect("Allow this call? [y/n/edit/always]")
    shell.interrupt_until("Cancelled. Send another message, or /quit.")
    shell.type("get weather in the city 'Oslo'")
    shell.expect("sunny in Oslo")
    shell.type("/quit")

    assert shell.end() == 0
    assert "wiped" not in shell.text


@pytest.mark.parametrize("name", ["slow", "stuck"])
def test_ctrl_c_cancels_each_run_of_a_conversation(terminal, name):
    shell = terminal(*CHAT)
    for _ in range(2):
        shell.expect("> ")
        shell.shown = ""
        shell.type(name)
        shell.expect("started")
        shell.interrupt_until("Cancelled. Send another message, or /quit.")
    shell.expect("> ")

    assert shell.interrupt() == 130


@pytest.mark.parametrize("words", [("chat", "office:box", "slow"), ("run", "office:box", "stuck")], ids=str)
def test_ctrl_c_ends_a_single_run(terminal, words):
    shell = terminal(*words, "--model", "offline")
    shell.expect("started")

    assert shell.interrupt() == 130
    assert "Traceback" not in shell.text


def test_ctrl_c_at_the_question_of_a_single_run_ends_it(terminal):
    shell = terminal("run", "office:box", "wipe the folder 'a'", "--model", "offline")
    shell.expect("Allow this call?")

    assert shell.interrupt() == 130
    assert "Traceback" not in shell.text


# --- a chat --------------------------------------------------------------------------------------


def test_a_chat_draws_the_progress_of_a_tool_and_takes_it_away(terminal):
    shell = terminal("chat", "office:box", "work", "--model", "offline")

    shell.expect("counting")
    shell.expect("/3")

    assert shell.end() == 0
    assert "✓ worked" in shell.text


def test_a_chat_shows_a_failed_call_as_a_sentence(terminal):
    shell = terminal("chat", "office:box", "pay the amount 'much'", "--model", "offline")

    assert shell.end() == 0
    assert "✗ Invalid arguments: " in shell.text
    assert '{"error"' not in shell.text


def test_a_server_on_a_terminal_says_that_it_waits_for_a_client(terminal):
    shell = terminal("serve", "office:box")
    shell.expect("Serving 10 tools over standard input and output")
    shell.expect("--transport http")

    assert shell.interrupt() in (0, 130)
    assert "Traceback" not in shell.text
