"""Models of other distributions, found through the entry-point group `toolmason.models`."""

import pytest

from toolmason import Chat, Toolbox, model, tool
from toolmason.errors import UnsupportedProvider
from toolmason.models import Finished, Model, ModelRequest, TextDelta


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_model_of_another_distribution_is_used_by_its_prefix():
    made = model("echo:Simon says")

    reply = await Chat(made, Toolbox(add)).send("jump")

    assert isinstance(made, Model)
    assert (made.name, reply.text) == ("echo:Simon says", "Simon says jump")


async def test_its_stream_has_the_text_word_by_word_and_ends_with_the_reply():
    events = [event async for event in model("echo").stream(ModelRequest("one two"))]

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["one ", "two"]
    assert isinstance(events[-1], Finished)


def test_the_options_of_model_reach_the_factory(monkeypatch):
    received = {}

    class Point:
        name = "My_Spy"

        def load(self):
            return lambda name, **options: received.update(name=name, **options)

    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [Point()] if group == "toolmason.models" else []
    )

    model("my-spy:large:v2", timeout=3.0, options={"temperature": 0})

    assert received == {"name": "large:v2", "timeout": 3.0, "options": {"temperature": 0}}


def test_an_unknown_prefix_is_refused_with_those_of_plugins():
    with pytest.raises(UnsupportedProvider) as caught:
        model("nothing:x")

    assert {"openai", "local", "echo"} <= set(caught.value.known)
