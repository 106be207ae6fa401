"""Each provider that has a name is asked as its API wants it, by a server that refuses what the real one refuses."""

import asyncio
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Thread

import pytest

from chat.simulated_replies import reply as body_of
from chat.simulated_replies import stream as stream_of
from providers.recordings import sse
from toolmason import Chat, Message, Tool, Toolbox, ToolCall, ToolResult, model, tool
from toolmason._services import SERVICES
from toolmason.chat import Done, TextDelta
from toolmason.errors import ConfigError, ModelError, UnsupportedProvider
from toolmason.models import ModelRequest

CHAT = [name for name, service in SERVICES.items() if service.format == "openai-chat"]
BASE_FIELDS = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "response_format"}
SAMPLING = {"temperature", "top_p", "stop"}
FIELDS = {
    "openai-chat": {"max_tokens", "max_completion_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort"}
    | {"service_tier", "parallel_tool_calls"},
    "azure": {"max_completion_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort", "service_tier"}
    | {"parallel_tool_calls"},
    "mistral": {"max_tokens", "random_seed", "reasoning_effort", "parallel_tool_calls"},
    "groq": {"max_completion_tokens", "seed", "reasoning_effort", "service_tier", "parallel_tool_calls"},
    "deepseek": {"max_tokens", "logprobs", "top_logprobs", "reasoning_effort"},
    "cerebras": {"max_completion_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort"},
    "openrouter": {"max_tokens", "seed", "logprobs", "top_logprobs", "reasoning", "top_k", "parallel_tool_calls"},
    "xai": {"max_completion_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort", "parallel_tool_calls"},
    "together": {"max_tokens", "seed", "reasoning_effort", "top_k"},
    "fireworks": {"max_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort", "top_k"},
    "ollama": {"max_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort"},
    "lmstudio": {"max_tokens", "seed", "top_k"},
    "vllm": {"max_tokens", "seed", "logprobs", "top_logprobs", "reasoning_effort", "top_k", "parallel_tool_calls"},
}
"""Fields that each API accepts, as its documentation or a public report of a refusal says."""


def refuse_vertex(body):
    """Return why Vertex AI refuses a body, or None."""
    unknown = body.keys() - {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    if unknown:
        return f'Invalid JSON payload received. Unknown name "{min(unknown)}"'
    parts = [part for content in body["contents"] for part in content["parts"]]
    if {"text": ""} in parts:
        return "Unable to submit request because it has an empty text parameter."
    if any("functionCall" in part and "thoughtSignature" not in part for part in parts):
        return "Function call is missing a thought_signature in functionCall parts."
    if len([1 for part in parts if "functionCall" in part]) != len([1 for part in parts if "functionResponse" in part]):
        return "Please ensure that the number of function response parts is equal to that of function call parts."
    return None


def refuse(name, body):
    """Return why the API of a name refuses a body, or None. Written from reports, not from the table of services."""
    if name == "vertex":
        return refuse_vertex(body)
    unknown = body.keys() - BASE_FIELDS - SAMPLING - FIELDS[name]
    if unknown:
        return f"extra_forbidden: {sorted(unknown)}"
    roles = [message["role"] for message in body["messages"]]
    stricts = {tool["function"].get("strict") for tool in body.get("tools", ())}
    ids = re.findall(r'"(?:tool_call_id|id)": "([^"]*)"', json.dumps(body["messages"]))
    if name == "mistral" and "stream_options" in body:
        return "extra_forbidden: stream_options"
    if name == "mistral" and any(not re.fullmatch("[a-zA-Z0-9]{9}", each) for each in ids):
        return "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9."
    if name == "mistral" and ("tool", "user") in pairwise(roles):
        return "Unexpected role 'user' after role 'tool'"
    if name == "cerebras" and len(stricts) > 1:
        return "Tools with mixed values for 'strict' are not allowed."
    if name in ("deepseek", "ollama", "lmstudio") and stricts - {None}:
        return "strict is not supported"
    thoughts = [m for m in body["messages"] if m["role"] == "assistant" and "tool_calls" in m]
    if name == "deepseek" and any("reasoning_content" not in each for each in thoughts):
        return "The reasoning_content in the thinking mode must be passed back to the API."
    if name in ("groq", "mistral", "cerebras") and any("reasoning_content" in each for each in thoughts):
        return "property 'reasoning_content' is unsupported"
    return None


@contextmanager
def api(name, *replies):
    """Start a server with the API of a name; it records the requests, and refuses wrong ones with 400."""
    requests, answers = [], list(replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append((self.path, dict(self.headers), body))
            wrong = refuse(name, body)
            given = 400 if wrong else answers.pop(0) if len(answers) > 1 else answers[0]
            status = given if isinstance(given, int) else 200
            if isinstance(given, int):
                given = {"error": {"code": status, "message": wrong or "Slow down."}}
            content = given if isinstance(given, bytes) else json.dumps(given).encode()
            self.send_response(status)
            kind = "text/event-stream" if isinstance(given, bytes) else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for service in SERVICES.values():
        for variable in (*service.key_variables, service.url_variable):
            if variable:
                monkeypatch.delenv(variable, raising=False)


@tool
def find_tea(name: str, cold: bool = False) -> str:
    """Find a tea."""
    return f"{name}: 4 euros"


ANY = Tool.from_schema(
    "store", "Store anything.", {"type": "object", "properties": {"x": {}}}, lambda arguments, _: "ok"
)
CALL = ("find_tea", {"name": "Assam", "cold": False})


def asked(name, body):
    """Return a call as the API of a name sends it: Mistral has short ids, DeepSeek its thoughts."""
    message = body["choices"][0]["message"]
    if name == "mistral":
        message["tool_calls"][0]["id"] = "aB3dE6gH9"
    if name in ("deepseek", "groq", "mistral", "cerebras"):
        message["reasoning_content"] = "Hm."
    return {**body, "model": "m"}


@pytest.mark.parametrize("name", CHAT)
async def test_a_tool_turn_passes_the_api_of_each_name(name):
    called, said = asked(name, body_of("openai-chat", call=CALL)), body_of("openai-chat", "4 euros.")
    with api(name, called, said) as (url, requests):
        async with model(f"{name}:m", base_url=url, api_key="sk-test") as made:
            reply = await Chat(made, Toolbox(find_tea, ANY)).send("What is Assam?")

    assert (reply.finish, reply.text) == ("stop", "4 euros.")
    assert [result.ok for result in reply.results] == [True]
    path, headers, _ = requests[0]
    assert path == "/v1/chat/completions"
    key = {"api-key": "sk-test"} if name == "azure" else {"Authorization": "Bearer sk-test"}
    assert key.items() <= headers.items()


@pytest.mark.parametrize("name", CHAT)
async def test_a_stream_passes_the_api_of_each_name(name):
    with api(name, stream_of("openai-chat", "4 euros.")) as (url, requests):
        async with model(f"{name}:m", base_url=url) as made:
            events = [event async for event in Chat(made, Toolbox(find_tea, ANY)).stream("What is Assam?")]

    assert isinstance(events[-1], Done)
    assert events[-1].reply.text == "4 euros."
    assert ("stream_options" in requests[0][2]) == (name != "mistral")


@pytest.mark.parametrize("name", CHAT)
async def test_every_option_of_a_name_passes_its_api(name):
    values = {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop": "END", "seed": 7}
    values |= {"reasoning": "high", "service_tier": "flex", "logprobs": 3, "cache": True, "parallel": False}
    given = {option: value for option, value in values.items() if option in SERVICES[name].options}
    with api(name, body_of("openai-chat", "Yes.")) as (url, requests):
        async with model(f"{name}:m", base_url=url, options=given) as made:
            await made.respond(ModelRequest("Hi", Toolbox(find_tea)))

    sent = requests[0][2]
    assert {path.partition(".")[0] for path in SERVICES[name].options.values() if path} <= sent.keys()


@pytest.mark.parametrize("name", CHAT)
async def test_an_error_names_the_provider(name):
    with api(name, 429) as (url, _):
        async with model(f"{name}:m", base_url=url, max_retries=0) as made:
            with pytest.raises(ModelError, match=f"^{name} answered 429: Slow down") as caught:
                await made.respond(ModelRequest("Hi"))

    assert caught.value.retryable


async def test_a_conversation_of_another_provider_goes_on_at_mistral():
    picture = ToolResult("toolu_01VpEm654HvfMoRcrE3Hgdc6", "find_tea", text="4 euros")
    messages = [
        Message("user", "What is Assam?"),
        Message("assistant", (), [ToolCall(picture.call_id, *CALL)]),
        Message("tool", results=[picture]),
    ]
    with api("mistral", body_of("openai-chat", "4 euros.")) as (url, requests):
        async with model("mistral:m", base_url=url) as made:
            reply = await made.respond(ModelRequest(messages, Toolbox(find_tea)))

    _, called, answered = requests[0][2]["messages"]
    assert called["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert reply.text == "4 euros."


async def test_the_thoughts_of_mistral_are_not_its_answer():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Tea."}]
    plain = {"choices": [{"index": 0, "message": {"role": "assistant", "content": parts}, "finish_reason": "stop"}]}
    chunks = [{"choices": [{"index": 0, "delta": {"content": [part]}, "finish_reason": None}]} for part in parts]
    chunks.append({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]})
    lines = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    with api("mistral", plain, lines) as (url, _):
        async with model("mistral:m", base_url=url) as made:
            first = await made.respond(ModelRequest("Hi"))
            events = [event async for event in made.stream(ModelRequest("Hi"))]

    assert first.text == events[-1].reply.text == "Tea."


@pytest.mark.parametrize("place", ["body", "choice"])
async def test_an_error_in_a_success_is_one(place):
    """Review D6: OpenRouter reports failures of the model's server in a response with the status 200."""
    error = {"code": 429, "message": "Provider returned error", "metadata": {"raw": "model is overloaded"}}
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "error", "error": error}
    body = {"error": error} if place == "body" else {"choices": [choice]}
    with api("openrouter", body) as (url, _):
        async with model("openrouter:m", base_url=url, max_retries=0) as made:
            with pytest.raises(ModelError, match="model is overloaded") as caught:
                await made.respond(ModelRequest("Hi"))

    assert (caught.value.status, caught.value.retryable) == (429, True)


@pytest.mark.parametrize("place", ["body", "choice"])
async def test_an_error_in_a_success_is_tried_again(place):
    failed = {"error": {"code": 502, "message": "Bad gateway"}}
    if place == "choice":
        failed = {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, **failed}]}
    with api("openrouter", failed, body_of("openai-chat", "Yes.")) as (url, requests):
        async with model("openrouter:m", base_url=url) as made:
            reply = await asyncio.wait_for(made.respond(ModelRequest("Hi")), 20)

    assert (reply.text, len(requests)) == ("Yes.", 2)


# --- addresses and keys ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CHAT if SERVICES[name].needs_key and SERVICES[name].base_url])
def test_a_missing_key_names_its_variable(name, monkeypatch):
    variable = SERVICES[name].key_variables[0]

    with pytest.raises(ConfigError, match=f"No API key for {name}. Set {variable}"):
        model(f"{name}:m")

    monkeypatch.setenv(variable, "k")
    assert model(f"{name}:m").name == f"{name}:m"


@pytest.mark.parametrize("name", ["ollama", "lmstudio", "vllm"])
def test_a_local_server_needs_neither_key_nor_address(name):
    assert model(f"{name}:m").name == f"{name}:m"


def test_a_wrong_name_suggests_the_nearest_one():
    with pytest.raises(UnsupportedProvider, match=r"Did you mean 'mistral'\?.*openai-chat:large.*base_url="):
        model("mistrall:large")


@pytest.mark.parametrize("name", ["ofline", "Offlin", "olama"])
def test_a_misspelt_provider_is_not_taken_for_a_model_of_openai(name):
    with pytest.raises(UnsupportedProvider, match=r"Did you mean '(offline|ollama)'\?") as caught:
        model(name)

    assert "openai:" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("gemini-3", "gemini:gemini-3"),
        ("claude", "anthropic:NAME"),
    ],
)
def test_a_name_without_provider_says_what_to_write(name, written):
    with pytest.raises(UnsupportedProvider, match=re.escape(f'Write model("{written}")')):
        model(name)


async def test_azure_has_its_address_in_the_environment(monkeypatch):
    with api("azure", body_of("openai-chat", "Yes.")) as (url, requests):
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", url.removesuffix("/v1") + "/")
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
        async with model("azure:my-dep", options={"max_tokens": 50}) as made:
            await made.respond(ModelRequest("Hi"))

    path, headers, body = requests[0]
    assert (path, headers["api-key"]) == ("/openai/v1/chat/completions", "k")
    assert body["max_completion_tokens"] == 50  # review D9
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT")
    with pytest.raises(ConfigError, match="Set AZURE_OPENAI_ENDPOINT, or pass `base_url=`"):
        model("azure:my-dep")


async def test_ollama_has_its_host_in_the_environment(monkeypatch):
    with api("ollama", body_of("openai-chat", "Yes.")) as (url, requests):
        monkeypatch.setenv("OLLAMA_HOST", url.removeprefix("http://").removesuffix("/v1"))
        async with model("ollama:gpt-oss:20b", options={"max_tokens": 50}) as made:
            await made.respond(ModelRequest("Hi"))

    path, _, body = requests[0]
    assert (path, body["model"], body["max_tokens"]) == ("/v1/chat/completions", "gpt-oss:20b", 50)


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://r.openai.azure.com/openai/v1", "azure"),
        ("https://api.cerebras.ai/v1", "cerebras"),
        ("https://api.openai.com/v1", "openai-chat"),
        ("http://localhost:11434/v1", "openai-chat"),
        ("https://api.mistral.ai.evil.example/v1", "openai-chat"),
    ],
)
def test_a_known_host_has_its_differences_under_any_name(url, service):
    """Review D10: a user who writes `openai-chat:` with the address of Mistral."""
    assert model("openai-chat:m", base_url=url, api_key="k").service is SERVICES[service]


@pytest.mark.parametrize(
    ("kind", "base", "path"),
    [
        ("openai-chat", "/gpt4/?api-version=X", "/gpt4/chat/completions?api-version=X"),
        ("openai-chat", "/v1/", "/v1/chat/completions"),
        ("anthropic", "/v1?a=b", "/v1/messages?a=b"),
    ],
)
async def test_a_query_of_the_address_stays_at_its_end(kind, base, path):
    """Review D8."""
    with api("openai-chat", body_of(kind, "Yes.")) as (url, requests):
        async with model(f"{kind}:m", base_url=url.removesuffix("/v1") + base) as made:
            await made.respond(ModelRequest("Hi"))

    assert requests[0][0] == path


# --- Vertex AI, through the client of its SDK ----------------------------------------------------------


@contextmanager
def vertex(*replies, **options):
    """Start a server with the API of Vertex AI, and yield the model that uses it, with the recorded requests."""
    with api("vertex", *replies) as (url, requests):
        made = model("vertex:gemini-3-pro", base_url=url.removesuffix("/v1"), api_key="k", **options)
        yield made, requests


SIGNED_CALL = {"functionCall": {"name": CALL[0], "args": CALL[1]}, "thoughtSignature": "c2ln"}
"""A call as Vertex AI sends it; the signature must come back with it."""


def events_of(*bodies):
    """Return a stream without comments: Vertex AI sends none, and its SDK cannot read them."""
    return sse(bodies, comment=False)


def test_the_table_has_each_provider_that_is_tested_here():
    assert set(SERVICES) == {*CHAT, "vertex", "openai", "anthropic", "gemini"}


async def test_vertex_goes_through_the_client_of_its_sdk():
    with vertex(body_of("gemini", "Yes."), headers={"x-trace": "t1"}) as (made, requests):
        async with made:
            reply = await made.respond(ModelRequest("Hi", Toolbox(find_tea), options={"max_tokens": 40}))

    path, headers, body = requests[0]
    assert path.endswith("publishers/google/models/gemini-3-pro:generateContent")
    assert body["generationConfig"]["maxOutputTokens"] == 40
    headers = {key.lower(): value for key, value in headers.items()}
    assert (headers["x-trace"], headers["x-goog-api-key"]) == ("t1", "k")
    assert reply.text == "Yes."


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
async def test_a_tool_turn_passes_the_api_of_vertex(streamed):
    called = {"candidates": [{"content": {"role": "model", "parts": [SIGNED_CALL]}, "finishReason": "STOP"}]}
    said = body_of("gemini", "4 euros.")
    # A stream often ends with an empty part, which the API refuses if it comes back (review D4).
    end = {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}]}
    replies = [events_of(called, end), events_of(said)] if streamed else [called, said]
    with vertex(*replies) as (made, requests):
        async with made:
            chat = Chat(made, Toolbox(find_tea, ANY))
            events = [event async for event in chat.stream("What is Assam?")] if streamed else []
            reply = events[-1].reply if streamed else await chat.send("What is Assam?")

    assert (reply.finish, reply.text) == ("stop", "4 euros.")
    assert [result.ok for result in reply.results] == [True]
    assert all(("streamGenerateContent" in path) == streamed for path, _, _ in requests)
    _, again, answered = requests[1][2]["contents"]
    assert again["parts"] == [SIGNED_CALL]
    assert answered["parts"][0]["functionResponse"]["name"] == "find_tea"


async def test_a_stream_of_vertex_has_its_text_in_pieces():
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]} for text in ("4 eu", "ros.")]
    with vertex(events_of(*chunks, body_of("gemini", " Each."))) as (made, requests):
        async with made:
            events = [event async for event in Chat(made).stream("What is Assam?")]

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["4 eu", "ros.", " Each."]
    assert events[-1].reply.text == "4 euros. Each."
    assert requests[0][0].endswith("gemini-3-pro:streamGenerateContent?alt=sse")


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(("status", "retryable"), [(429, True), (403, False)])
async def test_an_error_of_vertex_names_the_provider(streamed, status, retryable):
    with vertex(status, max_retries=0) as (made, requests):
        async with made:
            request = ModelRequest("Hi")
            with pytest.raises(ModelError, match=f"^vertex answered {status}: .*Slow down") as caught:
                _ = [event async for event in made.stream(request)] if streamed else await made.respond(request)

    assert (caught.value.status, caught.value.retryable, len(requests)) == (status, retryable, 1)


def test_vertex_opens_a_connection_for_each_event_loop():
    with vertex(body_of("gemini", "Yes.")) as (made, requests):
        replies = [made.respond_sync(ModelRequest("Hi")) for _ in range(2)]

    assert [reply.text for reply in replies] == ["Yes.", "Yes."]
    assert len(requests) == 2


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"max_retries": -1}], ids=str)
def test_vertex_refuses_a_wrong_option_of_the_connection(wrong):
    with pytest.raises(ConfigError, match="timeout must be positive or None"):
        model("vertex:gemini-3-pro", api_key="k", **wrong)


async def test_vertex_asks_again_as_often_as_it_may():
    with vertex(503, body_of("gemini", "Yes."), max_retries=1) as (made, requests):
        async with made:
            reply = await asyncio.wait_for(made.respond(ModelRequest("Hi")), 20)

    assert (reply.text, len(requests)) == ("Yes.", 2)


def test_vertex_sends_no_key_of_the_environment_elsewhere(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "k")

    with pytest.raises(ConfigError, match="base_url= requires `api_key=`"):
        model("vertex:gemini-3-pro", base_url="https://elsewhere.example")
