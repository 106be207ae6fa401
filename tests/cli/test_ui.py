"""`toolmason ui`: its address, its token, and the models that it offers."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/#token=([\w-]+)")


def fetch(address, path, token=""):
    request = urllib.request.Request(f"{address}/api/{path}", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - of this test
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        return json.load(answer)


def start(terminal, *words, **options):
    shell = terminal("ui", *words, **options)
    shell.expect("Press Ctrl-C to stop.")
    found = ADDRESS.search(shell.text)
    return shell, found[1], found[2]


def test_the_printed_address_has_the_token_that_the_page_needs(terminal):
    shell, address, token = start(terminal, "office:box", COLUMNS="200")

    state = fetch(address, "state", token)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(address, "state")

    assert state["target"] == "office:box"
    assert len(fetch(address, "tools", token)["tools"]) == 10
    assert refused.value.code == 401
    refused.value.close()
    assert shell.interrupt() in (0, 130)


def test_the_page_offers_the_models_of_the_command_and_of_the_keys(terminal):
    shell, address, token = start(
        terminal, "office:box", "--model", "ollama:llama3", OPENAI_API_KEY="sk-of-a-test", COLUMNS="200"
    )

    models = {model["name"]: model["note"] for model in fetch(address, "state", token)["models"]}

    assert models["ollama:llama3"] == "--model"
    assert models["openai:gpt-5"] == "OPENAI_API_KEY is set"
    assert list(models)[-1] == "offline"
    shell.interrupt()


def test_the_command_line_of_the_browser_does_not_have_the_token(terminal, tmp_path):
    """Other users of the machine can read it."""
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "opened $1 now"\n', "utf-8")
    browser.chmod(0o700)
    shell, address, token = start(terminal, "office:box", "--open", BROWSER=f"{browser} %s", COLUMNS="300")

    shell.expect(" now")
    opened = Path(re.search(r"opened file://(\S+) now", shell.text)[1])

    assert token not in opened.name
    assert f"{address}/#token={token}" in opened.read_text("utf-8")
    assert opened.stat().st_mode & 0o077 == 0
    shell.interrupt()


def test_a_chat_is_a_target_of_every_command(run, tmp_path):
    source = """
from toolmason import tool
from toolmason.chat import Chat

@tool
def greet(name: str) -> str:
    'Greet a person.'
    return f"Hello, {name}."

chat = Chat("offline", greet)
"""
    (tmp_path / "talk.py").write_text(source, "utf-8")

    assert "greet(name: string)" in run("list", "talk.py:chat", cwd=tmp_path).stdout
    assert run("call", "talk.py:chat", "greet", "name=Ada", cwd=tmp_path).stdout == "Hello, Ada.\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("ui", "nothing.py"), 3, "nothing.py"),
        (("ui", "office:nothing"), 3, "has no 'nothing'"),
        (("ui", "office:box", "--model", "nobody:x"), 2, "nobody:x"),
    ],
    ids=["no file", "no object", "no model"],
)
def test_what_does_not_exist_ends_the_command_with_a_reason(run, words, code, text):
    done = run(*words)

    assert done.returncode == code
    assert text in done.stderr
