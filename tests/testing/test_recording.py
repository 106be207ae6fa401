"""Runs that were recorded come again without model and without tools; what does not fit names the field."""

import json

import pytest

from toolmason import Chat, Toolbox, tool
from toolmason.chat.events import Done
from toolmason.errors import Abort, ConfigError
from toolmason.models.scripted import ScriptedModel
from toolmason.testing import Recording
from toolmason.testing.recording import find_differences

RAN: list[str] = []


@tool(read_only=True)
def weather(city: str, api_key: str = "") -> str:
    """Current weather."""
    RAN.append(city)
    return f"sunny in {city}; key sk-abcdefgh12345678"


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()


SCRIPT = [[("weather", {"city": "Oslo", "api_key": "hush"}), ("weather", {"city": "Brno"})], "Sunny."]


def chat_with(recording, script=SCRIPT, box=None):
    box = box or Toolbox(weather)
    box.use(recording.hook)
    return Chat(recording.model(ScriptedModel(script)), box)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.json"


@pytest.fixture
async def recorded(path):
    await chat_with(Recording(path)).send("The weather? Bearer abcdefghijkl")
    RAN.clear()
    return path


async def test_a_replay_asks_no_model_and_runs_no_tool(recorded):
    recording = Recording(recorded)

    reply = await chat_with(recording, []).send("The weather? Bearer abcdefghijkl")

    assert (reply.text, RAN, recording.unused) == ("Sunny.", [], 0)
    assert [result.text for result in reply.results] == [
        "sunny in Oslo; key [redacted]",
        "sunny in Brno; key [redacted]",
    ]


async def test_a_replay_streams(recorded):
    recording = Recording(recorded, "replay")

    events = [event async for event in chat_with(recording, []).stream("The weather? Bearer abcdefghijkl")]

    assert isinstance(events[-1], Done)
    assert events[-1].reply.text == "Sunny."


async def test_a_stream_is_recorded(path):
    chat = chat_with(Recording(path, "record"))

    text = [event async for event in chat.stream("The weather?")][-1].reply.text
    again = await chat_with(Recording(path), []).send("The weather?")

    assert text == again.text == "Sunny."


async def test_secrets_are_not_in_the_file(recorded):
    text = recorded.read_text()

    assert "hush" not in text
    assert "sk-abcdefgh" not in text
    assert "abcdefghijkl" not in text
    assert "[redacted]" in text


async def test_secrets_in_the_text_of_a_result_are_not_in_the_file_either(path):
    @tool
    def log_in() -> dict[str, str]:
        """Log in."""
        return {"user": "ada", "password": "hunter2", "client_secret": "hush-hush"}

    box = Toolbox(log_in)

    await chat_with(Recording(path), [[("log_in", {})], "Done."], box).send("Log in.")

    text = path.read_text("utf-8")
    assert "ada" in text
    assert "hunter2" not in text
    assert "hush-hush" not in text


async def test_a_replay_gives_the_same_value(path):
    @tool
    def count() -> int:
        """Count."""
        return 3

    first = await chat_with(Recording(path), [[("count", {})], "Three."], Toolbox(count)).send("Count.")
    again = await chat_with(Recording(path), [[("count", {})], "Three."], Toolbox(count)).send("Count.")

    assert [reply.results[0].value for reply in (first, again)] == [3, 3]
    assert first.results[0].structured == again.results[0].structured == {"result": 3}


async def test_what_is_redacted_may_be_another_secret_in_the_replay(recorded):
    reply = await chat_with(Recording(recorded), []).send("The weather? Bearer zyxwvutsrqpo")

    assert reply.text == "Sunny."


async def test_patterns_of_ones_own_are_redacted(path):
    await chat_with(Recording(path, redact=[r"card \d+"])).send("Pay with card 4111111111111111")

    assert "4111" not in path.read_text()


async def test_a_miss_names_the_field_that_changed(recorded):
    with pytest.raises(Abort, match=r"turn 1 of the model: \$\.messages\[0\]\.content\[0\]\.text was 'The weather\?"):
        await chat_with(Recording(recorded), []).send("The time?")


async def test_a_tool_that_changed_is_a_miss(recorded):
    @tool(read_only=True, name="weather")
    def other(city: str, api_key: str = "") -> str:
        """Weather of today."""
        return city

    with pytest.raises(Abort, match=r"\$\.tools\[0\]\.description was 'Current weather\.', now 'Weather of today\.'"):
        await chat_with(Recording(recorded), [], Toolbox(other)).send("The weather? Bearer abcdefghijkl")


async def test_fields_that_may_change_are_named(recorded):
    recording = Recording(recorded, ignore=["$.messages[*].content"])

    reply = await chat_with(recording, []).send("The time?")

    assert reply.text == "Sunny."


async def test_a_call_that_changed_is_a_miss(recorded):
    data = json.loads(recorded.read_text())
    data["turns"][0]["reply"]["message"]["calls"][1]["arguments"]["city"] = "Praha"
    recorded.write_text(json.dumps(data))

    with pytest.raises(Abort, match=r"does not match the call of weather: \$\.arguments\.city was 'Brno', now 'Praha'"):
        await chat_with(Recording(recorded), []).send("The weather? Bearer abcdefghijkl")


async def test_more_than_was_recorded_is_a_miss(recorded):
    recording = Recording(recorded)
    chat = chat_with(recording, [])
    await chat.send("The weather? Bearer abcdefghijkl")

    with pytest.raises(Abort, match="has no match left for turn 3 of the model"):
        await chat.send("More?")
    with pytest.raises(Abort, match="has no match left for the call of weather"):
        await chat.box.call("weather", {"city": "Oslo"})


async def test_less_than_was_recorded_is_told(recorded):
    assert Recording(recorded).unused == 4


async def test_a_replay_needs_no_key_and_no_package(recorded):
    model = Recording(recorded).model("openai:gpt-5")

    assert model.name == "openai:gpt-5"


async def test_a_named_model_is_made_when_it_is_recorded(path):
    recording = Recording(path, "record")

    reply = await Chat(recording.model("offline"), Toolbox(weather)).send("Weather in Oslo?")

    assert reply.text.startswith("weather: sunny in Oslo")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "not a recording of this version"),
        ('{"format": "toolmason-recording", "version": 9}', "not a recording of this version"),
    ],
)
def test_what_is_no_recording_is_said(path, text, told):
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match=told):
        Recording(path, "replay")


def test_a_mode_that_is_none_is_said(path):
    with pytest.raises(ConfigError, match="mode='play'"):
        Recording(path, "play")


def test_a_pattern_that_is_none_is_said(path):
    with pytest.raises(ConfigError, match="not a regular expression"):
        Recording(path, redact=["("])


def test_every_difference_has_its_path():
    found = list(find_differences({"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 4}, 5], "d": 6}))

    assert found == [("$.a[1].b", 2, 4), ("$.a[2]", None, 5), ("$.c", 3, None), ("$.d", None, 6)]


async def test_arguments_as_bytes_are_recorded(path):
    box = Toolbox(weather)
    recording = Recording(path)
    box.use(recording.hook)

    await box.call("weather", b'{"city": "Oslo"}')

    assert json.loads(path.read_text())["calls"][0]["name"] == "weather"
