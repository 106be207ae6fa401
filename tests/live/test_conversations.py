"""One conversation in every format, with programs that others wrote: the same results, and a history that all take."""

import pytest

from live.test_llama import BASES as LLAMA
from live.test_llama import server  # noqa: F401 - a fixture
from live.test_simulator import BASES, simulator  # noqa: F401 - a fixture
from providers.body_checks import check_body
from providers.judges import objections
from providers.samples import CHATS, get_weather
from toolmason import Chat, SqliteMemory, Toolbox, model
from toolmason.models import ModelRequest
from toolmason.providers import check_conversation, codec
from toolmason.providers.content_parts import get_arguments_object

pytestmark = pytest.mark.live
QUESTIONS = ("weather in Oslo", "Brno and Praha")
EXPECTED = [
    ("user", "weather in Oslo", [], []),
    ("assistant", "", [("get_weather", {"city": "Oslo", "unit": "C"})], []),
    ("tool", "", [], ["21 C in Oslo"]),
    ("assistant", "It is 21 degrees in Oslo.", [], []),
    ("user", "Brno and Praha", [], []),
    (
        "assistant",
        "",
        [("get_weather", {"city": "Brno", "unit": "C"}), ("get_weather", {"city": "Praha", "unit": "F"})],
        [],
    ),
    ("tool", "", [], ["21 C in Brno", "21 F in Praha"]),
    ("assistant", "Both are sunny.", [], []),
]


def told(messages):
    return [
        (
            message.role,
            message.text,
            [(call.name, arguments_of(call)) for call in message.calls],
            [result.text for result in message.results],
        )
        for message in messages
    ]


def arguments_of(call):
    return get_arguments_object(call)


def flaws(messages):
    """What any provider, and the judges of each, object to."""
    found = list(check_conversation(messages))
    for provider in CHATS:
        body = codec(provider).encode(ModelRequest(messages, Toolbox(get_weather)), "m")
        found += check_body(provider, body)
        # The simulator's own items, which go back as they came, lack a field that OpenAI's document asks for.
        if provider not in {(message.provider_state or {}).get("provider") for message in messages}:
            found += objections(provider, body)
    return found


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_a_conversation_comes_to_the_same_in_every_format(kind, streaming, simulator, tmp_path):  # noqa: F811 - a fixture
    memory = SqliteMemory(tmp_path / "chat.db", 100)
    async with model(f"{kind}:m", base_url=simulator + BASES[kind], api_key="k") as made:
        chat = Chat(made, Toolbox(get_weather), memory=memory)
        for question in QUESTIONS:
            if streaming:
                *_, _last = [event async for event in chat.stream(question, conversation="c")]
            else:
                await chat.send(question, conversation="c")

    said = await memory.load("c")
    memory.close()
    assert told(said) == EXPECTED
    assert flaws(said) == []


@pytest.mark.parametrize("first", CHATS)
@pytest.mark.parametrize("second", CHATS)
async def test_the_provider_may_change_in_the_middle(first, second, simulator, tmp_path):  # noqa: F811 - a fixture
    memory = SqliteMemory(tmp_path / "chat.db", 100)
    for kind, question in zip((first, second), QUESTIONS, strict=True):
        async with model(f"{kind}:m", base_url=simulator + BASES[kind], api_key="k") as made:
            await Chat(made, Toolbox(get_weather), memory=memory).send(question, conversation="c")

    said = await memory.load("c")
    memory.close()
    assert told(said) == EXPECTED
    assert flaws(said) == []


@pytest.mark.parametrize("kind", LLAMA)
async def test_a_server_with_real_tokens_goes_on_with_it(kind, server, simulator, tmp_path):  # noqa: F811 - fixtures
    memory = SqliteMemory(tmp_path / "chat.db", 100)
    async with model("gemini:m", base_url=simulator + BASES["gemini"], api_key="k") as made:
        await Chat(made, Toolbox(get_weather), memory=memory).send(QUESTIONS[0], conversation="c")
    options = {"max_tokens": 20}
    async with model(f"{kind}:m", base_url=server + LLAMA[kind], api_key="k", options=options) as made:
        reply = await Chat(made, Toolbox(get_weather), memory=memory).send("And now?", conversation="c")

    said = await memory.load("c")
    memory.close()
    assert told(said)[:4] == EXPECTED[:4]
    assert reply.usage.output_tokens > 0
    assert flaws(said) == []
