"""An official SDK's client can take the place of our own connection."""

import json

import pytest

from chat.simulated_replies import NATIVE, reply
from models.server import answer, provider, stream
from models.test_transport import ANSWERS, BUSY, all_of
from providers.recordings import STREAMS
from providers.samples import CHATS, box
from toolmason import Chat, RemoteMcp, model
from toolmason.errors import ConfigError, ModelError
from toolmason.models import ModelRequest
from toolmason.models.scripted import ScriptedModel

CLIENTS = []


@pytest.fixture(autouse=True)
async def clients_are_closed():
    yield
    while CLIENTS:
        client = CLIENTS.pop()
        await (client.aio.aclose() if hasattr(client, "aio") else client.close())


def client_for(kind, url):
    # Each takes about a second to import, and most test processes need none of them.
    if kind == "gemini":
        from google import genai

        made = genai.Client(api_key="k", http_options={"base_url": url, "api_version": "v1beta"})
    elif kind == "anthropic":
        import anthropic

        made = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
    else:
        import openai

        made = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0)
    CLIENTS.append(made)
    return made


@pytest.mark.parametrize("kind", CHATS)
async def test_a_plain_turn(kind):
    with provider(answer(ANSWERS[kind])) as server:
        made = model(f"{kind}:m", client=client_for(kind, server.url))

        reply = await made.respond(ModelRequest("hi", box()))

    assert reply.text == "Hello."
    assert server.requests[0][2]["tools"]


@pytest.mark.parametrize("kind", CHATS)
async def test_a_typed_answer(kind):
    with provider(answer(reply(kind, '{"answer": 3}'))) as server:
        made = model(f"{kind}:{NATIVE[kind]}", client=client_for(kind, server.url))

        got = await Chat(made, output=int).send("How many?")

    assert (got.output, got.answer.mode) == (3, "native")
    assert '"answer"' in json.dumps(server.requests[0][2])


@pytest.mark.parametrize("kind", CHATS)
async def test_a_streamed_turn(kind):
    with provider(stream(STREAMS[kind])) as server:
        made = model(f"{kind}:m", client=client_for(kind, server.url))

        events = await all_of(made.stream(ModelRequest("hi", box())))

    assert [call.name for call in events[-1].reply.calls] == ["get_weather", "now"]


@pytest.mark.parametrize("kind", ["openai", "openai-chat", "anthropic"])
async def test_an_error_of_the_sdk_is_ours(kind):
    with provider(answer(BUSY, 429)) as server, pytest.raises(ModelError) as caught:
        await model(f"{kind}:m", client=client_for(kind, server.url)).respond(ModelRequest("hi"))

    assert (caught.value.status, caught.value.retryable) == (429, True)


FAILING = {
    "openai": {"error": {"type": "server_error", "code": "oops", "message": "it broke"}},
    "openai-chat": {"error": {"type": "requests", "code": "rate_limit_exceeded", "message": "it broke"}},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "it broke"}},
}


@pytest.mark.parametrize("through_a_client", [True, False], ids=["client", "own"])
@pytest.mark.parametrize("kind", FAILING)
async def test_an_error_at_the_start_of_a_stream_is_one_that_may_go_away(kind, through_a_client):
    event = f"event: error\ndata: {json.dumps(FAILING[kind])}\n\n".encode()
    with provider(stream(event)) as server:
        own = {"api_key": "k", "base_url": server.url, "max_retries": 0}
        made = model(f"{kind}:m", **({"client": client_for(kind, server.url)} if through_a_client else own))

        with pytest.raises(ModelError, match="it broke") as caught:
            await all_of(made.stream(ModelRequest("hi")))
        chat = Chat([made, ScriptedModel(["from the second"])])
        events = [event async for event in chat.stream("x")]

    assert (caught.value.status, caught.value.retryable) == (None, True)
    assert events[-1].reply.text == "from the second"


@pytest.mark.row("L4-28")
async def test_azure_has_the_deployment_in_the_address():
    import openai

    with provider(answer(ANSWERS["openai-chat"])) as server:
        client = openai.AsyncAzureOpenAI(api_key="k", azure_endpoint=server.url, api_version="2024-10-21")
        reply = await model("openai-chat:gpt-5", client=client).respond(ModelRequest("hi"))
        await client.close()

    assert reply.text == "Hello."
    assert server.requests[0][0].startswith("/openai/deployments/gpt-5/chat/completions")


async def test_a_client_has_the_differences_of_its_host():
    """Review D9: a deployment has any name, so the field of its limit cannot depend on it."""
    import openai

    client = openai.AsyncAzureOpenAI(api_key="k", azure_endpoint="https://r.openai.azure.com", api_version="2024-10-21")
    made = model("openai-chat:my-dep", client=client)
    await client.close()

    assert made.service.name == "azure"
    assert made.codec.encode(ModelRequest("hi", options={"max_tokens": 9}), "my-dep")["max_completion_tokens"] == 9


@pytest.mark.parametrize("kind", ["openai", "openai-chat", "anthropic", "gemini"])
async def test_headers_go_through_a_client(kind):
    with provider(answer(ANSWERS[kind])) as server:
        made = model(f"{kind}:m", client=client_for(kind, server.url), headers={"X-Team": "tea"})
        await made.respond(ModelRequest("hi"))

    assert {name.lower(): value for name, value in server.requests[0][1].items()}["x-team"] == "tea"


@pytest.mark.parametrize(("kind", "counted"), [("openai", "input_tokens"), ("anthropic", "input_tokens")])
async def test_tokens_are_counted_through_a_client(kind, counted):
    with provider(answer({counted: 42})) as server:
        made = model(f"{kind}:m", client=client_for(kind, server.url))
        count = await made.count_tokens(ModelRequest("hi"))

    assert count == 42
    assert "tokens" in server.requests[0][0]


async def test_a_beta_is_asked_for_where_the_body_needs_it():
    with provider(answer(ANSWERS["anthropic"])) as server:
        made = model("anthropic:m", client=client_for("anthropic", server.url))
        await made.respond(ModelRequest("hi", [RemoteMcp("crm", "https://crm.example")]))

    assert "mcp-client" in server.requests[0][1]["anthropic-beta"]


async def test_a_sync_client_is_an_error():
    import openai

    with pytest.raises(ConfigError, match="Pass AsyncOpenAI"):
        model("openai:m", client=openai.OpenAI(api_key="k"))


async def test_a_client_of_a_class_of_ones_own_is_taken():
    import openai

    class Mine(openai.AsyncOpenAI):
        """A client as applications make them: with their own way to sign in."""

    with provider(stream(STREAMS["openai"])) as server:
        CLIENTS.append(Mine(api_key="k", base_url=server.url, max_retries=0))
        events = await all_of(model("openai:m", client=CLIENTS[-1]).stream(ModelRequest("hi", box())))

    assert [call.name for call in events[-1].reply.calls] == ["get_weather", "now"]


async def test_the_async_side_of_googles_client_is_taken():
    with provider(answer(ANSWERS["gemini"])) as server:
        client = client_for("gemini", server.url)
        reply = await model("gemini:m", client=client.aio).respond(ModelRequest("hi"))

    assert reply.text == "Hello."


async def test_the_wait_that_a_provider_asks_for_is_told():
    with provider(answer(BUSY, 429, retry_after="7")) as server, pytest.raises(ModelError) as caught:
        await model("openai:m", client=client_for("openai", server.url)).respond(ModelRequest("hi"))

    assert caught.value.retry_after == 7
