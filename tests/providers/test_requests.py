"""Conversations become request bodies that the providers' own types take, whatever is in them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.body_checks import check_body
from providers.judges import objections
from providers.samples import CHATS, LINK, PDF, PNG, WAV, box, get_weather, transcript
from toolmason import EmbeddedResource, Message, ResourceLink, Text, Toolbox, ToolCall, ToolResult
from toolmason.errors import ConfigError, ToolError
from toolmason.models import ModelRequest, ToolChoice
from toolmason.providers import codec, repair


def encoded(provider, messages, tools=(), choice=None, *, stream=False, model="m", **options):
    return codec(provider).encode(ModelRequest(messages, tools, choice, options), model, stream=stream)


def refused(provider, body):
    return objections(provider, body) + [str(flaw) for flaw in check_body(provider, body)]


@pytest.mark.parametrize("provider", CHATS)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    "choice",
    [
        None,
        "auto",
        "none",
        "required",
        "get_weather",
        ToolChoice("auto", ("get_weather", "shop.find it")),
        ToolChoice("required", ("now", "shop.find it")),
    ],
    ids=["nothing", "auto", "none", "required", "one", "some", "one of some"],
)
def test_every_choice_of_tools_passes_the_judges(provider, stream, choice):
    parallel = {} if provider == "gemini" else {"parallel": False}
    body = encoded(provider, transcript(), box(), choice, stream=stream, max_tokens=100, **parallel)

    assert refused(provider, body) == []


@pytest.mark.parametrize("provider", CHATS)
def test_base64_never_lands_in_text(provider):
    body = encoded(provider, transcript(), box())

    texts = []

    def walk(node, key=""):
        if isinstance(node, dict):
            for name, part in node.items():
                walk(part, name)
        elif isinstance(node, list):
            for part in node:
                walk(part, key)
        elif key in ("text", "content", "output"):
            texts.append(str(node))

    walk(body)

    assert texts
    assert not any("iVBORw" in text or "JVBER" in text for text in texts)


def test_errors_set_the_flag_of_providers_that_have_one():
    result = ToolResult("c", "t", error=ToolError("closed"))

    assert codec("anthropic").result(result)["is_error"] is True
    assert set(codec("gemini").result(result)["functionResponse"]["response"]) == {"error"}
    assert "closed" in codec("openai").result(result)["output"]
    assert "closed" in codec("openai-chat").result(result)["content"]


def test_an_image_in_a_result_goes_to_the_slot_that_each_provider_has():
    result = ToolResult("c", "t", content=(Text("here"), PNG))
    message = Message("tool", results=[result])
    calls = Message("assistant", (), [ToolCall("c", "t", "{}")])

    chat = encoded("openai-chat", [Message("user", "x"), calls, message])["messages"]

    assert codec("openai").result(result)["output"][1]["type"] == "input_image"
    assert codec("anthropic").result(result)["content"][1]["type"] == "image"
    assert codec("gemini").result(result)["functionResponse"]["parts"][0]["inlineData"]["mimeType"] == "image/png"
    assert [m["role"] for m in chat] == ["user", "assistant", "tool", "user"]
    assert chat[3]["content"][1]["type"] == "image_url"


PHOTO = ResourceLink("https://shop.example/tea.png", "tea", "image/png")


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("openai", {"type": "input_image", "image_url": PHOTO.uri, "detail": "auto"}),
        ("openai-chat", {"type": "image_url", "image_url": {"url": PHOTO.uri}}),
        ("anthropic", {"type": "image", "source": {"type": "url", "url": PHOTO.uri}}),
        ("gemini", {"fileData": {"fileUri": PHOTO.uri, "mimeType": PHOTO.mime_type}}),
    ],
)
def test_the_address_of_an_image_is_an_image_if_the_user_sends_it(provider, expected):
    """review/peers.md §3, 14: it was sent as text. In a result it still is, because a tool chose the address."""
    link = ResourceLink("http://shop.example/tea.png", "plain", "image/png")
    calls = [
        Message("assistant", (), [ToolCall("c", "t", "{}")]),
        Message("tool", results=[ToolResult("c", "t", content=(PHOTO,))]),
    ]

    body = encoded(provider, [Message("user", [PHOTO]), Message("user", [link]), *calls])

    text = json.dumps(body)
    assert text.count(json.dumps(expected)) == 1
    assert text.count(f"[resource tea: {PHOTO.uri}]") == 1
    assert text.count("[resource plain: http://") == 1
    assert objections(provider, body) == check_body(provider, body) == []


@pytest.mark.parametrize(
    ("model", "within", "after"),
    [
        ("gemini-3-pro", ["image/png", "application/pdf"], ["audio/wav"]),
        ("gemini-2.5-flash", [], ["image/png", "audio/wav", "application/pdf"]),
    ],
)
def test_what_gemini_takes_in_no_result_is_handed_over_by_the_user(model, within, after):
    """`function_response.parts` is refused by Gemini 2 (google-gemini/gemini-cli#19436)."""
    odd = EmbeddedResource("file:///a.zip", data=b"PK", mime_type="application/zip")
    result = ToolResult("c", "t", content=(Text("here"), PNG, WAV, PDF, odd))
    said = [Message("user", ["x", odd]), Message("assistant", (), [ToolCall("c", "t", "{}")])]
    request = ModelRequest([*said, Message("tool", results=[result]), Message("user", "And?")])

    body = codec("gemini").encode(request, model)

    first, _, answer, more = body["contents"]
    assert first["parts"][1] == {"text": "[resource file:///a.zip: application/zip, 2 bytes]"}
    (told,) = answer["parts"]
    assert [part["inlineData"]["mimeType"] for part in told["functionResponse"].get("parts", [])] == within
    assert [part["inlineData"]["mimeType"] for part in more["parts"][1:-1]] == after
    assert [more["parts"][n]["text"] for n in (0, -1)] == ["Content returned by t:", "And?"]
    assert objections("gemini", body) == check_body("gemini", body) == []


def test_anthropic_gets_all_results_of_a_turn_first_in_one_message():
    body = encoded("anthropic", transcript())

    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert [b["type"] for b in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]


def test_the_parallel_switch_is_each_providers_own():
    asked = {"tools": box(), "parallel": False}

    assert encoded("openai", "x", **asked)["parallel_tool_calls"] is False
    assert encoded("openai-chat", "x", **asked)["parallel_tool_calls"] is False
    assert encoded("anthropic", "x", **asked)["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_a_choice_among_tools_that_anthropic_cannot_say_offers_those_alone():
    body = encoded("anthropic", "x", box(), ToolChoice("required", ("now", "get_weather")))

    assert [tool["name"] for tool in body["tools"]] == ["get_weather", "now"]
    assert body["tool_choice"] == {"type": "any"}


def test_strict_is_a_mode_of_the_whole_request_for_gemini():
    body = encoded("gemini", "x", Toolbox(get_weather), strict=True)

    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}


def test_what_only_one_provider_knows_goes_into_the_body_as_it_is():
    body = encoded("openai", "x", body={"reasoning": {"effort": "low"}, "store": True})

    assert body["reasoning"] == {"effort": "low"}
    assert body["store"] is True


@pytest.mark.parametrize(
    ("provider", "options"), [("anthropic", {"temperature": 0}), ("openai", {"stop": ["x"]})], ids=["heat", "stop"]
)
def test_an_option_that_a_provider_does_not_have_is_an_error(provider, options):
    with pytest.raises(ConfigError, match=f"{provider} does not support"):
        encoded(provider, "x", **options)


@pytest.mark.parametrize(
    ("tools", "choice", "words"),
    [((), "required", "needs at least one tool"), (box, "serch", "which is not offered")],
    ids=["none", "unknown"],
)
def test_a_choice_that_cannot_be_met_is_an_error(tools, choice, words):
    with pytest.raises(ConfigError, match=words):
        encoded("openai", "x", tools() if callable(tools) else tools, choice)


def test_an_unknown_option_and_an_unknown_mode_are_errors():
    with pytest.raises(ConfigError, match="Unknown model option 'temprature'"):
        ModelRequest("x", (), None, {"temprature": 1})
    with pytest.raises(ConfigError, match="tool_choice='maybe'"):
        ToolChoice("maybe")


@pytest.mark.parametrize("provider", CHATS)
async def test_an_integer_with_too_many_digits_can_be_sent_again(provider):
    def grow(n: int) -> int:
        """Grow."""
        return 10**5000

    call = ToolCall("c1", "grow", {"n": 10**5000})
    result = await Toolbox(grow).call(call)
    messages = [Message("user", "x"), Message("assistant", "", [call]), Message("tool", results=[result])]

    assert json.dumps(encoded(provider, messages)).count("1" + "0" * 5000) == 2


@pytest.mark.parametrize("provider", CHATS)
@pytest.mark.parametrize(
    "arguments",
    ['{"city": "Os', "[1]", "", None, b'{"a": 1}', '{"x": 1e999}', {"x": float("nan")}, '"\\ud800"', "\ud800"],
)
def test_arguments_that_are_not_an_object_can_be_sent_again(provider, arguments):
    calls = Message("assistant", (), [ToolCall("c", "get_weather", arguments)])
    body = encoded(
        provider, [Message("user", "x"), calls, Message("tool", results=[ToolResult("c", "get_weather", text="21")])]
    )

    assert refused(provider, body) == []
    assert "Infinity" not in json.dumps(body, allow_nan=True)
    json.dumps(body, ensure_ascii=False).encode()


# --- any transcript, for every provider -----------------------------------------------------------

WORDS = st.text(max_size=12)
PARTS = st.one_of(
    WORDS.map(Text),
    st.sampled_from(
        [PNG, WAV, PDF, LINK, PHOTO, EmbeddedResource("file:///a", text="t"), EmbeddedResource("file:///b")]
    ),
)
IDS = st.one_of(st.sampled_from(["a", "b", "call_1", "toolu_1", ""]), st.text(max_size=80))
NAMES = st.one_of(st.sampled_from(["get_weather", "shop.find it", "gone", "näme"]), st.text(min_size=1, max_size=80))
ARGUMENTS = st.one_of(
    st.none(),
    WORDS,
    st.dictionaries(WORDS, st.one_of(WORDS, st.integers(), st.floats(), st.none())),
    st.binary(max_size=8),
)
CALLS = st.builds(ToolCall, IDS, NAMES, ARGUMENTS)
RESULTS = st.one_of(
    st.builds(lambda i, n, c: ToolResult(i, n, content=tuple(c)), IDS, NAMES, st.lists(PARTS, max_size=3)),
    st.builds(lambda i, n, w: ToolResult(i, n, error=ToolError(w)), IDS, NAMES, WORDS),
)
STATES = st.sampled_from(
    [
        None,
        {"provider": "openai", "items": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}]},
        {"provider": "anthropic", "items": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]},
        {"provider": "gemini", "items": [{"text": "hm", "thought": True, "thoughtSignature": "c2ln"}]},
        {"provider": "elsewhere", "items": [{"type": "odd"}]},
        {"provider": "openai", "items": "broken"},
    ]
)
MESSAGES = st.one_of(
    st.builds(Message, st.sampled_from(["system", "user"]), st.lists(PARTS, max_size=3)),
    st.builds(
        Message,
        st.just("assistant"),
        st.lists(WORDS.map(Text), max_size=2),
        st.lists(CALLS, max_size=3),
        st.just(()),
        STATES,
    ),
    st.builds(lambda results: Message("tool", results=results), st.lists(RESULTS, max_size=3)),
)


@given(st.lists(MESSAGES, max_size=6))
def test_any_transcript_becomes_a_valid_request_for_every_provider(messages):
    tools = box()

    found = {provider: refused(provider, encoded(provider, messages, tools)) for provider in CHATS}

    assert found == {provider: [] for provider in CHATS}


@given(st.lists(MESSAGES, max_size=8))
def test_a_repaired_transcript_stays_as_it_is_when_it_is_repaired_again(messages):
    once = repair(messages)

    assert repair(once) == once


@pytest.mark.parametrize(
    ("text", "structured", "sent"),
    [
        ('{"rows":[1]}', {"rows": [1]}, {"rows": [1]}),
        ("3", {"result": 3}, {"result": 3}),
        ("Found one row.", {"rows": [1]}, "Found one row."),
    ],
)
def test_data_goes_in_place_of_a_text_that_says_the_same(text, structured, sent):
    result = ToolResult("a", "look", text=text, structured=structured, value=structured)

    made = codec("gemini").result(result)

    assert made["functionResponse"]["response"] == {"output": sent}
