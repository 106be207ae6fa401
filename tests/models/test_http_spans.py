"""Requests to a provider have a span for each attempt, which shows the host and the status, and never a key."""

import pytest

from models.server import answer, provider, stream
from models.test_transport import ANSWERS, BUSY, KEY, asking
from providers.recordings import STREAMS
from providers.samples import box
from toolmason import Chat, Message
from toolmason.errors import ModelError
from toolmason.models import Finished, ModelRequest

REQUEST = ModelRequest([Message("user", "Hi")], box())


async def test_each_attempt_has_a_span_below_the_turn(spans):
    with provider(answer(BUSY, 429), answer(ANSWERS["openai"])) as known:
        reply = await Chat(asking("openai", known.url)).send("Hi")

    assert reply.text == "Hello."
    assert spans.tree() == ["invoke_agent", "  chat m", "    POST", "    POST"]
    first, second = spans.named("POST")
    assert (first.attributes["http.response.status_code"], first.attributes["error.type"]) == (429, "429")
    assert (second.attributes["http.response.status_code"], second.status.is_ok) == (200, True)
    assert second.attributes["http.request.resend_count"] == 1
    assert second.attributes["server.address"] == "127.0.0.1"


async def test_a_stream_has_a_span_until_its_end(spans):
    with provider(stream(STREAMS["openai-chat"])) as known:
        events = [event async for event in asking("openai-chat", known.url).stream(REQUEST)]

    assert isinstance(events[-1], Finished)
    assert (spans.one("POST").attributes["http.response.status_code"], len(spans)) == (200, 1)


@pytest.mark.parametrize("kind", sorted(ANSWERS))
async def test_no_span_holds_the_key(kind, spans):
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": KEY}}
    with provider(answer(echo, 401)) as known, pytest.raises(ModelError):
        await asking(kind, known.url).respond(REQUEST)

    assert spans.one("POST").attributes["error.type"] == "401"
    assert not any(KEY in span.to_json() for span in spans)


async def test_a_server_that_is_not_there_is_named_by_the_kind_of_failure(spans):
    with pytest.raises(ModelError):
        await asking("openai", "http://127.0.0.1:1/v1", retries=0).respond(REQUEST)

    assert spans.one("POST").attributes["error.type"] == "ConnectError"
