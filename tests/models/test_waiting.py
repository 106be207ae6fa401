"""How long to wait before another attempt, and models for code that is not async."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.server import answer, provider
from toolmason import model
from toolmason._wire import parse_retry_after
from toolmason.models import ModelRequest
from toolmason.models.http.sender import get_retry_delay

CHAT = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}]}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_wait_that_a_provider_asks_for_is_read(headers, seconds):
    assert parse_retry_after(headers) == seconds


@given(st.text(st.sampled_from("0123456789:+-., eE"), max_size=40), st.integers(), st.integers())
def test_whatever_a_server_asks_for_is_a_wait_or_none(text, year, zone):
    for value in (text, f"Mon, 01 Jan {year} 00:00:00 GMT", f"Mon, 01 Jan 2020 00:00:00 {zone:+}"):
        seconds = parse_retry_after({"retry-after": value})

        assert seconds is None or seconds >= 0


def test_waits_grow_up_to_a_bound():
    waits = [get_retry_delay(attempt) for attempt in range(9)]

    assert all(0.375 * 2**n <= wait <= 8 for n, wait in enumerate(waits[:4]))
    assert max(waits) <= 8


def test_one_model_serves_several_event_loops():
    with provider(answer(CHAT)) as server:
        made = model("openai-chat:m", base_url=server.url)

        texts = [made.respond_sync(ModelRequest("hi")).text for _ in range(3)]
        made.close_sync()

    assert texts == ["Hello."] * 3
