"""A model is made from its name; what is missing or wrong is told before anything is sent."""

import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from providers.samples import box
from toolmason import Message, ToolCall, model
from toolmason.errors import ConfigError, ModelError, UnsupportedProvider
from toolmason.models import Finished, Model, ModelReply, ModelRequest, ScriptedModel, TextDelta, ToolChoice
from toolmason.models.http.endpoints import make_endpoint


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude", "ANTHROPIC_API_KEY"), ("Gemini:g", "GEMINI_API_KEY")],
)
def test_a_key_comes_from_the_environment(name, variable, monkeypatch):
    with pytest.raises(ConfigError, match=f"Set .*{variable}"):
        model(name)

    monkeypatch.setenv(variable, "k")
    made = model(name)

    assert isinstance(made, Model)
    assert made.name == name.lower()


def test_a_model_may_wait_as_long_as_it_takes():
    assert model("openai-chat:qwen", base_url="http://127.0.0.1:1/v1", timeout=None).name == "openai-chat:qwen"


@pytest.mark.parametrize("said", [{"role": "user", "content": "x"}, [{"role": "user"}], 5, [None]], ids=repr)
def test_what_is_no_message_is_an_error(said):
    with pytest.raises(ConfigError, match="is not a message"):
        ModelRequest(said)


@pytest.mark.parametrize("choice", [5, {"type": "auto"}, ["now"]], ids=repr)
def test_what_is_no_choice_is_an_error(choice):
    with pytest.raises(ConfigError, match="tool_choice="):
        ModelRequest("x", tool_choice=choice)


def test_one_name_is_a_choice_of_one():
    assert ToolChoice("required", "now").names == ("now",)


def test_a_server_of_ones_own_needs_no_key():
    assert model("openai-chat:qwen", base_url="http://127.0.0.1:1/v1").name == "openai-chat:qwen"


@pytest.mark.parametrize("name", ["mystery:large", "gpt-5", "", None, ":x"])
def test_an_unknown_kind_of_model_is_an_error_that_names_the_known_ones(name):
    with pytest.raises(UnsupportedProvider) as caught:
        model(name)

    assert "openai-chat" in caught.value.known


def test_the_error_for_an_unknown_provider_says_how_to_reach_its_server():
    with pytest.raises(UnsupportedProvider, match=r'write model\("openai-chat:llama3", base_url="http://…/v1"\)'):
        model("mystery:llama3")


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("openai:", {}, "has no model name"),
        ("openai:m", {"api_key": "k", "tool_mode": "json_schema"}, "requires openai-chat"),
        ("openai-chat:m", {"base_url": "x://y", "tool_mode": "native"}, "is not a URL"),
        ("openai-chat:m", {"base_url": "http://[::1/"}, "is not a URL"),
        ("openai-chat:m", {"base_url": "http://y:abc/"}, "is not a URL"),
        ("openai-chat:m", {"base_url": "http://y", "tool_mode": "xml"}, "tool_mode='xml'"),
        ("openai-chat:m", {"base_url": "http://y", "timeout": 0}, "timeout=0"),
        ("openai-chat:m", {"base_url": "http://y", "timeout": "5"}, "timeout='5'"),
        ("openai-chat:m", {"base_url": "http://y", "timeout": float("nan")}, "timeout=nan"),
        ("openai-chat:m", {"base_url": "http://y", "max_retries": 1.5}, "max_retries=1.5"),
        ("openai-chat:m", {"base_url": 5}, "base_url must be a string, not 'int'"),
        (
            "openai-chat:m",
            {"base_url": "http://y", "proxy": "user:secret@proxy:1"},
            "proxy='proxy:1' is not a proxy URL",
        ),
        ("openai-chat:m", {"base_url": "http://y", "options": [1]}, "must be a mapping"),
        ("openai-chat:m", {"base_url": "http://y", "options": {"body": 5}}, "must be a mapping of fields"),
        ("openai-chat:m", {"base_url": "http://y", "max_retries": -1}, "max_retries=-1"),
        ("openai-chat:m", {"base_url": "http://y", "api_key": "k\n"}, "contains invalid characters"),
        ("openai-chat:m", {"base_url": "http://y", "options": {"heat": 1}}, "Unknown model option 'heat'"),
        ("openai:m", {"client": object()}, "does not match 'openai'"),
        ("openai:m", {"client": object(), "api_key": "k"}, "the client has its own"),
    ],
)
def test_what_makes_no_sense_is_an_error(name, words, told):
    with pytest.raises(ConfigError, match=told):
        model(name, **words)


def test_making_a_model_loads_no_sdk_and_no_http():
    script = """
        import sys
        import toolmason, toolmason.models, toolmason.providers
        loaded = {name.partition(".")[0] for name in sys.modules}
        print(sorted(loaded & {"openai", "anthropic", "google", "httpx2", "httpx", "yaml"}))
        toolmason.model("openai-chat:m", base_url="http://127.0.0.1:1")
        loaded = {name.partition(".")[0] for name in sys.modules}
        print(sorted(loaded & {"openai", "anthropic", "google", "httpx2", "yaml"}))
    """

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["[]", "[]"]


def test_making_a_model_loads_neither_a_loop_nor_what_it_is_asked_with():
    script = """
        import sys, toolmason
        toolmason.model("openai:m", api_key="k")
        print(sorted({"asyncio", "email", "jsonschema", "pydantic_core"} & sys.modules.keys()))
        print([n for n in sys.modules if n.startswith(("toolmason._core", "toolmason.providers"))])
    """

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["[]", "[]"]


def test_options_that_make_no_sense_are_told_when_a_model_is_made():
    with pytest.raises(ConfigError, match="no_such"):
        model("openai:m", api_key="k", options={"no_such": 1})


# --- scripts --------------------------------------------------------------------------------------


async def test_a_script_is_followed_turn_by_turn():
    made = ScriptedModel(
        [
            [("get_weather", {"city": "Oslo"}), ToolCall("x", "now")],
            lambda request: f"{len(request.messages)} messages",
        ]
    )

    first = await made.respond(ModelRequest("hi", box()))
    second = await made.respond(ModelRequest("again"))

    assert [(call.id, call.name) for call in first.calls] == [("call_1_1", "get_weather"), ("x", "now")]
    assert first.finish == "calls"
    assert second.text == "1 messages"
    assert [len(request.tools) for request in made.requests] == [3, 0]
    with pytest.raises(ModelError, match="the script has 2 turns, but this is request 3"):
        await made.respond(ModelRequest("more"))


async def test_a_script_streams_word_by_word():
    events = [event async for event in ScriptedModel(["to be or to be"]).stream(ModelRequest("hi"))]

    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "to be or to be"
    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("suffix", ["yaml", "json"])
async def test_a_script_may_be_a_file(tmp_path, suffix):
    file = tmp_path / f"script.{suffix}"
    file.write_text('[[{"name": "now"}], {"name": "get_weather", "arguments": {"city": "Brno"}}, "Done."]')
    made = model(f"scripted:{file}")

    replies = [await made.respond(ModelRequest("hi")) for _ in range(3)]

    assert [[call.name for call in reply.calls] for reply in replies] == [["now"], ["get_weather"], []]
    assert replies[2].text == "Done."


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("gone.yaml", None, "cannot be read"),
        ("a.json", "{", "is not valid JSON"),
        ("a.yaml", "a: [", "is not valid YAML"),
        ("a.yaml", "a: 1", "is not a list"),
        ("a.yaml", "- 3", "turn 1: expected a string, or calls"),
        ("a.yaml", "- - nam: x", "turn 1: expected a string, or calls"),
    ],
)
def test_a_file_that_is_no_script_is_an_error(tmp_path, name, text, told):
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(ConfigError, match=told):
        model(f"scripted:{tmp_path / name}")


# --- replies --------------------------------------------------------------------------------------


def test_a_reply_takes_calls_by_themselves_or_in_its_message():
    call = ToolCall("a", "now", {})

    apart = ModelReply(Message("assistant"), [call], "calls")
    within = ModelReply(Message("assistant", (), [call]), finish="calls")

    assert apart == within
    assert apart.calls == apart.message.calls == (call,)


def test_a_reply_with_another_message_has_the_calls_of_that_one():
    reply = ModelReply(Message("assistant"), [ToolCall("a", "now", {})], "calls")

    assert replace(reply, message=Message("assistant", "No.")).calls == ()


# --- the key of the environment -------------------------------------------------------------------

OWN = {
    "openai": ("OPENAI_API_KEY", "https://api.openai.com", "https://eu.api.openai.com/v1"),
    "openai-chat": ("OPENAI_API_KEY", "https://api.openai.com/v1", "https://eu.api.openai.com:443/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com", "https://api.anthropic.com/v1"),
    "gemini": (
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1",
        "https://generativelanguage.googleapis.com",
    ),
}
OTHERS = (
    "http://127.0.0.1:1/v1",
    "https://evil.example/{host}",
    "https://{host}.evil.example",
    "https://x{host}",
    "https://{host}@evil.example",
    "https://evil.example#{host}",
    "http://{host}",
)


@pytest.mark.parametrize("kind", OWN)
def test_the_key_of_the_environment_goes_only_to_the_host_of_its_provider(kind, monkeypatch):
    variable, *own = OWN[kind]
    host = own[0].split("/")[2]
    monkeypatch.setenv(variable, "env-key")

    def sent(url, **words):
        return "env-key" in str(make_endpoint(kind, "m", base_url=url, api_key=None, **words).headers)

    assert [url for url in own if not sent(url)] == []
    assert [url for url in OTHERS if sent(url.format(host=host))] == []
    assert "mine" in str(make_endpoint(kind, "m", base_url=OTHERS[0], api_key="mine").headers)
