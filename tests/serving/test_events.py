"""Streams that broke, and are taken up again."""

from typing import Any

import pytest

from toolwright.serving import events
from toolwright.serving.events import Events


async def replayed(store: Events, after: str) -> tuple[str | None, list[Any]]:
    found: list[Any] = []

    async def take(event: Any) -> None:
        found.append(event.message)

    return await store.replay_events_after(after, take), found


async def test_what_came_after_an_event_is_sent_again():
    store = Events()
    first = await store.store_event("one", "a")
    await store.store_event("two", "of another stream")
    await store.store_event("one", None)
    await store.store_event("one", "b")

    assert await replayed(store, first) == ("one", ["b"])


async def test_an_event_that_nobody_knows_is_of_no_stream():
    assert await replayed(Events(), "guessed") == (None, [])


async def test_t18_the_oldest_events_and_streams_go_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "EVENTS", 2)
    monkeypatch.setattr(events, "STREAMS", 2)
    store = Events()
    gone, *_ = [await store.store_event("a", number) for number in range(3)]
    kept = await store.store_event("b", 1)
    await store.store_event("c", 1)

    assert await replayed(store, gone) == (None, [])
    assert await replayed(store, kept) == ("b", [])
