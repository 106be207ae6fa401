"""Turns with a provider that others wrote: `@copilotkit/aimock`, which speaks every format, plain and streaming."""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from providers.samples import CHATS, get_weather
from toolmason import Audio, Chat, EmbeddedResource, Image, Message, ResourceLink, Toolbox, model
from toolmason.errors import ModelError
from toolmason.models import Finished, ModelRequest

pytestmark = pytest.mark.live
PROGRAM = Path(__file__).parents[2] / ".venv" / "judges" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
REASONS = {
    "openai": "incomplete",  # the simulator gives no details
    "openai-chat": "length",
    "anthropic": "max_tokens",
    "gemini": "MAX_TOKENS",
}
FILTERED = {
    "openai-chat": ("filter",),
    "anthropic": ("refusal", "error"),  # the API has no filter apart from refusals
    "gemini": ("filter",),
}
BASES = {"openai": "/v1", "openai-chat": "/v1", "anthropic": "", "gemini": "/v1beta"}
FIXTURES = {
    "fixtures": [
        {
            "match": {"userMessage": "weather in Oslo", "hasToolResult": False},
            "response": {"toolCalls": [{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "C"}}]},
        },
        {"match": {"userMessage": "weather in Oslo"}, "response": {"content": "It is 21 degrees in Oslo."}},
        {
            "match": {"userMessage": "Brno and Praha", "hasToolResult": False},
            "response": {
                "toolCalls": [
                    {"name": "get_weather", "arguments": {"city": "Brno", "unit": "C"}},
                    {"name": "get_weather", "arguments": {"city": "Praha", "unit": "F"}},
                ]
            },
        },
        {"match": {"userMessage": "Brno and Praha"}, "response": {"content": "Both are sunny."}},
        {"match": {"userMessage": "a long story"}, "response": {"content": "Once upon a ti", "finishReason": "length"}},
        {"match": {"userMessage": "cut off"}, "response": {"content": "me there was tea."}},
        {"match": {"userMessage": "a bad word"}, "response": {"content": "", "finishReason": "content_filter"}},
        {"match": {"userMessage": "say nothing"}, "response": {"content": ""}},
        {"match": {"userMessage": "look at this"}, "response": {"content": "I see it."}},
    ]
}


def started(folder, *flags):
    node = shutil.which("node")
    assert node, "node is not here; make test-providers needs it"
    assert PROGRAM.is_file(), "aimock is not here; run make test-providers"
    (folder / "fixtures.json").write_text(json.dumps(FIXTURES))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        node,
        str(PROGRAM),
        "-p",
        str(port),
        "-f",
        str(folder / "fixtures.json"),
        "--log-level",
        "silent",
        *flags,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}"
    process.kill()
    pytest.fail("aimock did not start")


@pytest.fixture(scope="module")
def simulator(tmp_path_factory):
    process, url = started(tmp_path_factory.mktemp("aimock"))
    yield url
    process.kill()
    process.wait()


async def turn(made, request, *, streaming):
    if not streaming:
        return await made.respond(request)
    events = [event async for event in made.stream(request)]
    assert isinstance(events[-1], Finished)
    return events[-1].reply


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_a_conversation_with_a_call(kind, streaming, simulator):
    box = Toolbox(get_weather)
    async with model(f"{kind}:m", base_url=simulator + BASES[kind], api_key="k") as made:
        history = [Message("user", "weather in Oslo")]
        first = await turn(made, ModelRequest(history, box), streaming=streaming)
        results = await box.call_all(first.calls)
        history += [first.message, Message("tool", results=results)]
        second = await turn(made, ModelRequest(history, box), streaming=streaming)

    assert [call.name for call in first.calls] == ["get_weather"]
    assert first.finish == "calls"
    assert results[0].text == "21 C in Oslo"
    assert second.text == "It is 21 degrees in Oslo."
    assert second.finish == "stop"


async def sent(made, prompt, *, streaming, **options):
    chat = Chat(made, **options)
    if not streaming:
        return await chat.send(prompt)
    return [event async for event in chat.stream(prompt)][-1].reply


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_endings_are_told_apart(kind, streaming, simulator):
    async with model(f"{kind}:m", base_url=simulator + BASES[kind], api_key="k") as made:
        story = await sent(made, "Tell me a long story.", streaming=streaming)
        whole = await sent(made, "Tell me a long story.", streaming=streaming, on_length="continue")
        if kind == "openai":  # the simulator reports a failed response, where the API has an incomplete one
            with pytest.raises(ModelError, match="the response failed"):
                await sent(made, "Say a bad word.", streaming=streaming)
        else:
            word = await sent(made, "Say a bad word.", streaming=streaming)
            assert word.finish in FILTERED[kind]
            assert word.problem
        empty = await sent(made, "Please say nothing.", streaming=streaming)

    assert (story.finish, story.text) == ("length", "Once upon a ti")
    assert story.finish_reason == REASONS[kind]
    assert (whole.finish, whole.text) == ("stop", "Once upon a time there was tea.")
    assert (empty.finish, empty.text) == ("error", "")
    assert empty.problem


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_every_kind_of_content_is_accepted(kind, streaming, simulator):
    parts = [
        Image(b"img", "image/png"),
        Audio(b"wav", "audio/wav"),
        EmbeddedResource("a.pdf", data=b"pdf", mime_type="application/pdf"),
        ResourceLink("https://x.example/a.png"),
        ResourceLink("https://x.example/a.pdf"),
        ResourceLink(f"{'openai' if kind == 'openai-chat' else kind}:file-1", mime_type="application/pdf"),
        ResourceLink("elsewhere:file-1", mime_type="application/pdf"),
    ]
    async with model(f"{kind}:m", base_url=simulator + BASES[kind], api_key="k") as made:
        replies = [await sent(made, ["Please look at this.", part], streaming=streaming) for part in parts]

    assert [(reply.finish, reply.text) for reply in replies] == [("stop", "I see it.")] * len(parts)


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize(
    ("flag", "status"),
    [("--chaos-ratelimit", 429), ("--chaos-drop", 500), ("--chaos-disconnect", None), ("--chaos-malformed", None)],
    ids=["429", "500", "cut", "malformed"],
)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_trouble_is_told(kind, flag, status, streaming, tmp_path):
    process, url = started(tmp_path, flag, "1")
    try:
        async with model(f"{kind}:m", base_url=url + BASES[kind], api_key="k", max_retries=0) as made:
            with pytest.raises(ModelError) as caught:
                await turn(made, ModelRequest("weather in Oslo"), streaming=streaming)
    finally:
        process.kill()
        process.wait()

    assert caught.value.status == status or status is None
    assert caught.value.retryable is (flag != "--chaos-malformed")
