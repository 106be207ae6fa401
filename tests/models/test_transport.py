"""Requests reach a provider, are sent again where that helps, and fail with the provider's words and never a key."""

import gzip
import json
import logging
import zlib
from functools import cache

import pytest

from models.server import HANG_UP, answer, provider, stream
from providers.recordings import STREAMS
from providers.samples import CHATS, box
from toolmason import Message, model
from toolmason.errors import ModelError
from toolmason.models import Finished, ModelRequest, TextDelta
from toolmason.models.http import transport
from toolmason.models.http.endpoints import make_endpoint
from toolmason.models.http.remote import RemoteModel
from toolmason.models.http.transport import Transport
from toolmason.providers import codec

KEY = "sk-very-secret"
CHAT = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}]}
ANSWERS = {
    "openai": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}],
    },
    "openai-chat": CHAT,
    "anthropic": {"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"},
    "gemini": {"candidates": [{"content": {"parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]},
}
BUSY = {"error": {"message": "too many", "code": "rate_limit_exceeded"}}


class Clock:
    """Takes the place of sleeping, and remembers for how long."""

    def __init__(self):
        self.waits = []

    async def __call__(self, seconds):
        self.waits.append(seconds)


MADE = []


@pytest.fixture(autouse=True)
async def connections_are_closed():
    yield
    while MADE:
        await MADE.pop().aclose()


def asking(kind, url, clock=None, retries=2):
    endpoint = make_endpoint(kind, "m", base_url=url, api_key=KEY)
    sender = Transport(endpoint, max_retries=retries, sleep=clock or Clock(), timeout=5)
    MADE.append(RemoteModel(f"{kind}:m", lambda: codec(kind), lambda: sender, endpoint.service))
    return MADE[-1]


async def all_of(events):
    return [event async for event in events]


@pytest.mark.parametrize("kind", CHATS)
async def test_a_plain_turn(kind):
    with provider(answer(ANSWERS[kind])) as server:
        made = model(f"{kind}:m", base_url=server.url, api_key=KEY)

        reply = await made.respond(ModelRequest("hi", box()))
        await made.aclose()

    assert (reply.text, reply.finish) == ("Hello.", "stop")
    path, headers, body = server.requests[0]
    assert (
        path
        == {
            "openai": "/responses",
            "openai-chat": "/chat/completions",
            "anthropic": "/v1/messages",
            "gemini": "/models/m:generateContent",
        }[kind]
    )
    assert KEY in {
        headers.get("Authorization", "").removeprefix("Bearer "),
        headers.get("x-api-key"),
        headers.get("x-goog-api-key"),
    }
    assert body["tools"]


@pytest.mark.parametrize("kind", CHATS)
async def test_a_streamed_turn(kind):
    with provider(stream(STREAMS[kind])) as server:
        made = asking(kind, server.url)

        events = await all_of(made.stream(ModelRequest("hi", box())))
        await made.aclose()

    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Let me look. ☀"
    assert isinstance(events[-1], Finished)
    assert [call.name for call in events[-1].reply.calls] == ["get_weather", "now"]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_failure_that_may_go_away_is_tried_again(status):
    clock = Clock()
    with provider(answer(BUSY, status), answer(BUSY, status), answer(CHAT)) as server:
        reply = await asking("openai-chat", server.url, clock).respond(ModelRequest("hi"))

    assert reply.text == "Hello."
    assert len(server.requests) == 3
    assert 0.375 <= clock.waits[0] <= 0.5 < clock.waits[1] <= 1.0


async def test_a_wait_that_the_provider_asks_for_is_kept_to():
    clock = Clock()
    with provider(answer(BUSY, 429, retry_after="7"), answer(CHAT)) as server:
        await asking("openai-chat", server.url, clock).respond(ModelRequest("hi"))

    assert clock.waits == [7.0]


async def test_a_wait_of_an_hour_is_for_the_caller_to_decide():
    clock = Clock()
    with provider(answer(BUSY, 429, retry_after="3600")) as server, pytest.raises(ModelError) as caught:
        await asking("openai-chat", server.url, clock).respond(ModelRequest("hi"))

    assert (caught.value.status, caught.value.retry_after, caught.value.retryable) == (429, 3600.0, True)
    assert caught.value.code == "rate_limit_exceeded"
    assert clock.waits == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_failure_that_stays_is_not_tried_again(status):
    told = answer({"error": {"message": "no such model", "type": "bad"}}, status)
    words = f"openai-chat answered {status}: no such model"
    with provider(told) as server, pytest.raises(ModelError, match=words) as caught:
        await asking("openai-chat", server.url).respond(ModelRequest("hi"))

    assert len(server.requests) == 1
    assert not caught.value.retryable


async def test_attempts_come_to_an_end():
    with provider(answer(BUSY, 500)) as server, pytest.raises(ModelError, match="too many"):
        await asking("openai-chat", server.url, retries=3).respond(ModelRequest("hi"))

    assert len(server.requests) == 4


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_a_connection_that_is_cut_before_the_first_word_is_tried_again(streaming):
    good = stream(STREAMS["openai-chat"]) if streaming else answer(CHAT)
    with provider(HANG_UP, good) as server:
        made = asking("openai-chat", server.url)
        request = ModelRequest("hi")
        text = (await all_of(made.stream(request)))[-1].reply.text if streaming else (await made.respond(request)).text

    assert text
    assert len(server.requests) == 2


START = b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {}}}\n\n'
OVERLOADED = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
WORD = (
    b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}\n\n'
    b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}\n\n'
)


@pytest.mark.parametrize(
    "first",
    [stream(START), stream(START + WORD, cut=len(START)), stream(START + OVERLOADED)],
    ids=["ended", "cut", "overloaded"],
)
async def test_a_stream_that_failed_before_the_first_word_is_asked_for_again(first):
    clock = Clock()
    with provider(first, stream(STREAMS["anthropic"])) as server:
        events = await all_of(asking("anthropic", server.url, clock).stream(ModelRequest("hi")))

    assert events[-1].reply.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert len(server.requests) == 2
    assert len(clock.waits) == 1


async def test_an_error_after_the_first_word_is_told_and_not_tried_again():
    with provider(stream(START + WORD + OVERLOADED)) as server, pytest.raises(ModelError, match="busy") as caught:
        await all_of(asking("anthropic", server.url).stream(ModelRequest("hi")))

    assert caught.value.retryable
    assert len(server.requests) == 1


async def test_a_stream_that_keeps_failing_comes_to_an_end():
    clock = Clock()
    with provider(stream(START + OVERLOADED)) as server, pytest.raises(ModelError, match="busy"):
        await all_of(asking("anthropic", server.url, clock).stream(ModelRequest("hi")))

    assert len(server.requests) == 3
    assert len(clock.waits) == 2


async def test_a_stream_that_is_cut_after_the_first_word_is_an_error_and_not_said_twice():
    with provider(stream(STREAMS["openai-chat"], cut=900)) as server:
        events = asking("openai-chat", server.url).stream(ModelRequest("hi"))
        first = await anext(events)
        with pytest.raises(ModelError) as caught:
            await all_of(events)

    assert isinstance(first, TextDelta)
    assert len(server.requests) == 1
    assert caught.value.retryable


async def test_a_server_that_is_not_there_is_told_as_such():
    with provider(answer(CHAT)) as server:
        url = server.url

    with pytest.raises(ModelError, match=f"no response from {url} .ConnectError") as caught:
        await asking("openai-chat", url, retries=0).respond(ModelRequest("hi"))

    assert caught.value.code == "connection"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (answer(b"<html>gateway</html>"), "not JSON"),
        (answer(b"<html>gateway</html>", 404), "gateway"),
        (answer([{"error": {"message": "in a list"}}], 400), "in a list"),
        (answer({"error": {"message": "hidden in a success"}}), "hidden in a success"),
        (answer({"detail": "odd"}, 400), "odd"),
        (answer(b"", 500), "no message"),
    ],
    ids=["html", "html error", "list", "error in a success", "odd", "empty"],
)
async def test_whatever_comes_back_is_an_error_with_its_words(told, words):
    with provider(told) as server, pytest.raises(ModelError, match=words):
        await asking("openai-chat", server.url, retries=0).respond(ModelRequest("hi"))


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_an_answer_that_points_elsewhere_is_told_and_not_followed(streaming):
    with provider(answer(b"", 308, location="https://elsewhere.example/v1")) as server:
        made = asking("openai-chat", server.url)
        with pytest.raises(ModelError, match=r"308: redirect to 'https://elsewhere.example/v1'") as caught:
            await (all_of(made.stream(ModelRequest("hi"))) if streaming else made.respond(ModelRequest("hi")))

    assert len(server.requests) == 1
    assert not caught.value.retryable


async def test_a_plain_answer_where_a_stream_was_asked_for_is_an_error():
    with provider(answer(CHAT)) as server, pytest.raises(ModelError, match="expected a stream"):
        await all_of(asking("openai-chat", server.url, retries=0).stream(ModelRequest("hi")))


async def test_a_key_is_in_no_error_no_repr_and_no_log(caplog):
    caplog.set_level(logging.DEBUG)
    with provider(answer({"error": {"message": f"Incorrect key {KEY} provided"}}, 401)) as server:
        made = asking("gemini", server.url)
        with pytest.raises(ModelError) as caught:
            await made.respond(ModelRequest("hi"))

    shown = f"{caught.value} {caught.value.reason} {made!r} {vars(made)!r}"
    assert "Incorrect key … provided" in shown
    assert KEY not in shown
    assert KEY not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("toolmason"))


@cache
def packed(megabytes):
    squeeze = zlib.compressobj(9, wbits=31)
    return b"".join(squeeze.compress(b" " * 1024 * 1024) for _ in range(megabytes)) + squeeze.flush()


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_unpacks_to_more_than_the_limit_is_not_unpacked_to_its_end(
    kind, status, streamed, monkeypatch
):
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", 4 * 1024 * 1024)
    monkeypatch.setattr(transport, "MAX_STREAM_BYTES", 4 * 1024 * 1024)
    told = {**answer(packed(32), status, content_encoding="gzip"), "type": kind}
    with provider(told) as server:
        made = asking("openai-chat", server.url, retries=0)
        asked = all_of(made.stream(ModelRequest("hi"))) if streamed else made.respond(ModelRequest("hi"))
        with pytest.raises(ModelError, match="the response exceeds 4,194,304 bytes"):
            await asked


async def test_an_answer_that_is_packed_once_is_read():
    with provider(answer(gzip.compress(json.dumps(CHAT).encode()), content_encoding="gzip")) as server:
        reply = await asking("openai-chat", server.url).respond(ModelRequest("hi"))

    assert reply.text == "Hello."


@pytest.mark.parametrize(
    ("coding", "words"),
    [
        ("gzip, gzip", "the encoding 'gzip, gzip'"),
        ("br", "the encoding 'br'"),
        ("gzip", "no response from .* .DecodingError"),
    ],
)
async def test_an_answer_that_is_packed_twice_or_not_at_all_is_an_error(coding, words):
    told = answer(b"x" * 10, content_encoding=coding)
    with provider(told) as server, pytest.raises(ModelError, match=words) as caught:
        await asking("openai-chat", server.url).respond(ModelRequest("hi"))

    assert not caught.value.retryable
    assert len(server.requests) == 1


async def test_the_options_of_a_model_hold_for_every_request():
    with provider(answer(CHAT)) as server:
        made = model("openai-chat:m", base_url=server.url, options={"max_tokens": 7, "body": {"seed": 1}})
        await made.respond(ModelRequest("hi", box(), None, {"body": {"user": "u"}}))
        await made.aclose()

    body = server.requests[0][2]
    assert (body["max_tokens"], body["seed"], body["user"], len(body["tools"])) == (7, 1, "u", 3)


# --- servers without tools ------------------------------------------------------------------------


async def test_a_server_without_tools_is_asked_for_json():
    said = '{"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}'
    told = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": said}}]}
    with provider(answer(told)) as server:
        made = model("openai-chat:m", base_url=server.url, tool_mode="json_schema")
        reply = await made.respond(ModelRequest([Message("system", "Be brief."), Message("user", "hi")], box()))
        await made.aclose()

    body = server.requests[0][2]
    assert "tools" not in body
    assert body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert body["messages"][0]["content"].startswith("Be brief.")
    assert [(call.name, call.arguments) for call in reply.calls] == [("get_weather", {"city": "Oslo"})]
    assert reply.finish == "calls"


async def test_a_server_without_tools_may_stream():
    chunk = {"choices": [{"index": 0, "delta": {"content": '{"answer": "Hello."}'}, "finish_reason": "stop"}]}
    from providers.recordings import sse

    with provider(stream(sse([chunk]))) as server:
        made = model("openai-chat:m", base_url=server.url, tool_mode="json_schema")
        events = await all_of(made.stream(ModelRequest("hi", box())))
        await made.aclose()

    assert events[0] == TextDelta("Hello.")
    assert events[-1].reply.text == "Hello."
