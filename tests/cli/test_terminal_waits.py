"""Ctrl-C at each kind of wait, other sizes of the window, and plain text, for every command in a real terminal."""

import json
import socket
import sys
from contextlib import contextmanager

import pytest

from toolmason.cli.main import COMMANDS

SILENT = "import sys, time; sys.stdin.read(); time.sleep(600)"
"""A server that starts, and never answers."""


@contextmanager
def silent_address():
    """Yield the port of a server that accepts connections and never answers, and a function that waits for one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        kept = []
        yield listener.getsockname()[1], lambda: kept.append(listener.accept())
        for connection, _ in kept:
            connection.close()


def assert_ended_well(shell, code):
    assert code == 130, shell.text
    assert "Traceback" not in shell.text
    assert "Exception ignored" not in shell.text


# --- Ctrl-C ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("chat", "office:box", "Hi"), ("run", "office:box", "Hi")], ids=lambda words: words[0]
)
def test_ctrl_c_ends_a_single_run_that_waits_for_the_model(terminal, words):
    with silent_address() as (port, wait):
        shell = terminal(*words, "--model", "ollama:m", "--base-url", f"http://127.0.0.1:{port}/v1")
        wait()

        assert_ended_well(shell, shell.interrupt())


def test_ctrl_c_ends_a_resumed_run_which_can_be_resumed_again(terminal, office):
    with silent_address() as (port, wait):
        server = ("--model", "ollama:m", "--base-url", f"http://127.0.0.1:{port}/v1")
        first = terminal("run", "office:box", "Hi", "--durable", "waits.db", *server)
        wait()
        assert_ended_well(first, first.interrupt())

        for _ in range(2):
            shell = terminal("runs", "resume", "waits.db")
            wait()

            assert_ended_well(shell, shell.interrupt())
    (office / "waits.db").unlink()


def test_ctrl_c_cancels_a_run_that_waits_for_the_model_and_the_chat_goes_on(terminal):
    with silent_address() as (port, wait):
        shell = terminal("chat", "office:box", "--model", "ollama:m", "--base-url", f"http://127.0.0.1:{port}/v1")
        shell.expect("> ")
        shell.type("Hi")
        wait()
        shell.interrupt_until("Cancelled. Send another message, or /quit.")
        shell.type("/quit")

        assert shell.end() == 0
    assert "Traceback" not in shell.text


@pytest.mark.parametrize(
    "words", [("list",), ("health",), ("call", "echo", "text=a"), ("lock",)], ids=lambda words: words[0]
)
def test_ctrl_c_ends_a_command_that_connects_to_a_server(terminal, words):
    with silent_address() as (port, wait):
        shell = terminal("mcp", *words, "--url", f"http://127.0.0.1:{port}/mcp")
        wait()

        assert_ended_well(shell, shell.interrupt())


def test_ctrl_c_ends_a_command_that_waits_for_the_start_of_a_server(terminal, tmp_path):
    program = f"print('up', file=sys.stderr, flush=True); {SILENT}"
    code = f"import sys; open({str(tmp_path / 'up')!r}, 'w').close(); {program}"
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"late": {"command": sys.executable, "args": ["-c", code]}}})
    )
    shell = terminal("list", "mcp.json", cwd=tmp_path)
    shell.wait_for(tmp_path / "up")

    assert_ended_well(shell, shell.interrupt())


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("serve", "office:box"), "Press Ctrl-C to stop."),
        (("serve", "office:box", "--transport", "http", "--port", "0"), "Serving 10 tools on http://127.0.0.1:"),
        (("ui", "office:box"), "The page of 10 tools: http://127.0.0.1:"),
    ],
    ids=["stdio", "http", "page"],
)
def test_ctrl_c_ends_a_server(terminal, words, shown):
    shell = terminal(*words)
    shell.expect(shown)

    assert shell.interrupt() in (0, 130)
    assert "Traceback" not in shell.text


def test_ctrl_c_ends_the_doctor(terminal):
    shell = terminal("doctor", "office:box")
    shell.expect("Running faults against ")

    assert_ended_well(shell, shell.interrupt())


def test_ctrl_c_at_the_arguments_that_are_edited_runs_nothing(terminal):
    shell = terminal("call", "office:box", "wipe", "folder=a")
    shell.expect("Allow this call?")
    shell.type("edit")
    shell.expect("Arguments, as a JSON object")

    assert_ended_well(shell, shell.interrupt())
    assert "wiped" not in shell.text


# --- the size of the window --------------------------------------------------------------------------


def test_a_chat_draws_tables_for_the_window_as_it_is_now(terminal):
    shell = terminal("chat", "office:box", "--model", "offline", COLUMNS="", LINES="")
    shell.resize(120)
    shell.expect("> ")
    shell.type("/tools")
    shell.expect("> ")
    shell.resize(50)
    shell.shown = ""
    shell.type("/tools")
    shell.expect("wipe")
    shell.type("/quit")

    assert shell.end() == 0
    rows = [line for line in shell.text.splitlines() if "get_weather" in line]
    assert rows
    assert all(len(row.rstrip()) <= 50 for row in rows)


def test_a_bar_of_progress_survives_a_smaller_window(terminal):
    shell = terminal("call", "office:box", "work", "steps=4", COLUMNS="", LINES="")
    shell.resize(100)
    shell.expect("counting")
    shell.resize(20, 5)

    assert shell.end() == 0
    assert "Traceback" not in shell.text
    assert shell.text.rstrip().endswith("worked")


# --- plain text --------------------------------------------------------------------------------------

SHOWN = {
    "list": ("list", "office:box"),
    "call": ("call", "office:box", "record"),
    "check": ("check", "office.py"),
    "chat": ("chat", "office:box", "get weather in the city 'Oslo'", "--model", "offline"),
    "run": ("run", "office:box", "get weather in the city 'Oslo'", "--model", "offline"),
    "diff": ("diff", "office:box", "office:box"),
    "doctor": ("doctor", "office:box"),
    "new": ("new", "fresh"),
    "lock": ("lock", "office:box", "--file", "new.lock"),
    "build": ("build", "--help"),
    "mcp": ("mcp", "list", "--help"),
    "runs": ("runs", "--help"),
    "serve": ("serve", "--help"),
    "worker": ("worker", "--help"),
    "ui": ("ui", "--help"),
    "dev": ("dev", "--help"),
    "install": ("install", "--help"),
    "uninstall": ("uninstall", "--help"),
}
"""A use of every command that ends by itself."""


def test_every_command_is_driven_here():
    assert SHOWN.keys() == COMMANDS.keys()


@pytest.fixture
def copied(office, tmp_path):
    """The office in a folder that a command may write to."""
    (tmp_path / "office.py").write_text((office / "office.py").read_text("utf-8"), "utf-8")
    return tmp_path


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
@pytest.mark.parametrize("name", SHOWN)
def test_a_terminal_that_asks_for_it_gets_plain_text(terminal, copied, name, plain):
    shell = terminal(*SHOWN[name], cwd=copied, **plain)

    assert shell.end() in (0, 1)
    assert shell.text.strip()
    assert "\x1b[" not in shell.shown
    assert "Traceback" not in shell.text


@pytest.mark.parametrize("name", SHOWN)
def test_without_a_terminal_there_are_no_escape_sequences(run, copied, name):
    done = run(*SHOWN[name], cwd=copied)

    assert done.returncode in (0, 1), done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", SHOWN)
def test_the_help_of_a_command_fits_80_columns(terminal, name):
    shell = terminal(name, "--help", COLUMNS="80")

    assert shell.end() == 0
    assert max(map(len, shell.text.splitlines())) <= 80
