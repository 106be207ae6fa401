"""The options of `toolmason chat` that reach the model, and the conversations that it keeps."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from chat.simulated_replies import stream
from fork_server import COMMAND
from models.server import provider
from models.server import stream as streamed
from toolmason.cli.commands.ask_model.chat import MODEL_BY_VARIABLE

ROOT = Path(__file__).parents[2]
SHOP = str(ROOT / "examples" / "shop.py") + ":box"
HELLO = streamed(stream("openai-chat", "Hello."))
CUT = streamed(stream("openai-chat", "Once upon").replace(b'"finish_reason": "stop"', b'"finish_reason": "length"'))
PLAIN = {key: value for key, value in os.environ.items() if key not in MODEL_BY_VARIABLE}


@pytest.fixture
def run(forks, tmp_path):
    def run(*words: str, stdin: str = "", command: str = "chat") -> subprocess.CompletedProcess[str]:
        return forks.run([COMMAND, command, *words], cwd=tmp_path, env=PLAIN, stdin=stdin)

    return run


def test_address_headers_and_options_reach_the_server(run):
    with provider(HELLO) as server:
        url = ("--model", "ollama:m", "--base-url", f"{server.url}/v1")
        more = ("--header", "X-Team=tea", "--option", "max_tokens=50", "--option", "stop=END", "--reasoning", "low")
        done = run(SHOP, "Hi", *url, *more)

    path, headers, body = server.requests[0]
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert (path, headers["X-Team"]) == ("/v1/chat/completions", "tea")
    assert (body["max_tokens"], body["stop"], body["reasoning_effort"]) == (50, ["END"], "low")


def test_with_code_the_model_gets_one_tool_that_runs_programs(run):
    with provider(HELLO) as server:
        done = run(SHOP, "Hi", "--code", "--model", "ollama:m", "--base-url", f"{server.url}/v1")

    body = server.requests[0][2]
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert [tool["function"]["name"] for tool in body["tools"]] == ["run_code"]
    assert "def quote_price(sku: str" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--option", "max_tokens"), "--option 'max_tokens': write NAME=VALUE"),
        (("--header", "=x"), "--header '': write NAME=VALUE"),
        (("--option", "heat=1"), "Unknown model option 'heat'"),
        (("--option", "top_k=5"), "does not support the option 'top_k'"),
        (("--conversation", "c"), "Add --memory FILE"),
    ],
)
def test_options_that_make_no_sense_are_told(run, words, told):
    done = run(SHOP, "Hi", "--model", "ollama:m", *words)

    assert done.returncode != 0
    assert told in done.stderr


def test_a_cut_answer_is_told_and_fails(run):
    with provider(CUT) as server:
        done = run(SHOP, "Hi", "--model", "ollama:m", "--base-url", f"{server.url}/v1")

    assert (done.returncode, done.stdout) == (1, "Once upon\n")
    assert "cut at the token limit (the provider said 'length')" in done.stderr


def test_a_conversation_goes_on_in_another_process(run):
    with provider(HELLO) as server:
        words = ("--model", "ollama:m", "--base-url", f"{server.url}/v1", "--memory", "chats.db")
        run(SHOP, "My name is Ada.", *words, "--conversation", "ada")
        run(SHOP, "Who am I?", *words, "--conversation", "ada")
        run(SHOP, "Who am I?", *words, "--conversation", "other")

    seen = [[message["content"] for message in body["messages"]] for _, _, body in server.requests]
    assert seen == [["My name is Ada."], ["My name is Ada.", "Hello.", "Who am I?"], ["Who am I?"]]


def test_a_durable_run_keeps_address_and_options_but_no_headers(run, tmp_path):
    with provider(HELLO) as server:
        words = ("--model", "ollama:m", "--base-url", f"{server.url}/v1", "--option", "max_tokens=50")
        refused = run(SHOP, "Hi", *words, "--header", "a=b", "--durable", command="run")
        done = run(SHOP, "Hi", *words, "--durable", "runs.db", "--run", "r", command="run")
        shown = run("show", "runs.db", "r", "--json", command="runs")

    assert "--header is not kept in a journal" in refused.stderr
    assert done.returncode == 0
    record = json.loads(shown.stdout)["command"]
    assert (record["base_url"], record["options"]) == (f"{server.url}/v1", {"max_tokens": 50})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--model", "openai:gpt-5"], "No API key for openai. Set OPENAI_API_KEY."),
        (["--model", "azure:d"], "azure has no common address. Set AZURE_OPENAI_ENDPOINT, or pass --base-url."),
        (["--model", "gpt-5"], "Unknown provider 'gpt-5'. Write --model openai:gpt-5. Available: "),
        (["--model", "mistrall:m"], "write --model openai-chat:m --base-url http://…/v1."),
        (["--model", "ollama:m", "--base-url", "foo"], "--base-url 'foo' is not a URL."),
        (["--model", "ollama:m", "--reasoning", "extreme"], "--reasoning 'extreme': must be"),
        (["--model", "ollama:m", "--option", "max_tokens=many"], "--option max_tokens='many': must be"),
        (["--model", "ollama:m", "--option", "top_k=1"], """with --option 'body={"top_k": …}'."""),
        (["--model", "ollama:m", "--base-url", "http://127.0.0.1:9/v1"], "no response from http://127.0.0.1:9 ("),
    ],
    ids=["key", "azure", "no provider", "misspelt", "url", "reasoning", "value", "not supported", "down"],
)
def test_an_error_has_the_words_of_the_command(run, words, error):
    """Review, newcomer 17 and 28: errors named keywords of Python, and no address."""
    done = run(SHOP, "Hi", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr
    assert "`" not in done.stderr
