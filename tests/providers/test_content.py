"""Images, audio and files by bytes, path, URL or the id of a provider, in each format; sources in the reply."""

import json

import pytest

from providers.judges import objections
from providers.samples import CHATS
from toolmason import Audio, Chat, Image, Message, ResourceLink, Text
from toolmason._core.values.content import EmbeddedResource
from toolmason.chat import Citation, Reply, SqliteMemory
from toolmason.models import ModelReply, ModelRequest, ScriptedModel
from toolmason.providers import codec

MODELS = {"openai": "gpt-5", "openai-chat": "gpt-5", "anthropic": "claude-opus-5", "gemini": "gemini-2.5-pro"}
PNG, PDF = "image/png", "application/pdf"
UPLOADED = "https://generativelanguage.googleapis.com/v1beta/files/f1"
IMAGE, PAPER = "https://x.example/a.png", "https://x.example/a.pdf"


def sent(kind, *parts):
    """Return the parts of a user message in a format, after the message was stored as JSON."""
    message = Message.from_dict(json.loads(json.dumps(Message("user", parts).to_dict())))
    body = codec(kind).encode(ModelRequest([message]), MODELS[kind])
    assert objections(kind, body) == []
    if kind == "gemini":
        return body["contents"][0]["parts"]
    return (body["input"] if kind == "openai" else body["messages"])[0]["content"]


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("openai", {"type": "input_image", "image_url": IMAGE, "detail": "auto"}),
        ("openai-chat", {"type": "image_url", "image_url": {"url": IMAGE}}),
        ("anthropic", {"type": "image", "source": {"type": "url", "url": IMAGE}}),
        ("gemini", {"fileData": {"fileUri": IMAGE, "mimeType": PNG}}),
    ],
)
@pytest.mark.parametrize("mime_type", [PNG, None], ids=["typed", "by suffix"])
def test_an_image_may_be_an_address(kind, part, mime_type):
    assert part in sent(kind, "What is this?", ResourceLink(IMAGE, mime_type=mime_type))


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("openai", {"type": "input_file", "file_url": PAPER}),
        ("openai-chat", None),
        ("anthropic", {"type": "document", "source": {"type": "url", "url": PAPER}}),
        ("gemini", {"fileData": {"fileUri": PAPER, "mimeType": PDF}}),
    ],
)
def test_a_file_may_be_an_address(kind, part):
    found = sent(kind, "Read it.", ResourceLink(PAPER))

    assert part in found if part is not None else PAPER in found


@pytest.mark.parametrize(
    ("kind", "uri", "mime_type", "part"),
    [
        ("openai", "openai:file-1", PDF, {"type": "input_file", "file_id": "file-1"}),
        ("openai", "openai:file-1", PNG, {"type": "input_image", "file_id": "file-1", "detail": "auto"}),
        ("openai-chat", "openai:file-1", PDF, {"type": "file", "file": {"file_id": "file-1"}}),
        ("anthropic", "anthropic:file_1", PDF, {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        ("anthropic", "anthropic:file_1", PNG, {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        (
            "gemini",
            "gemini:https://generativelanguage.googleapis.com/v1beta/files/f1",
            "audio/mp3",
            {
                "fileData": {
                    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/f1",
                    "mimeType": "audio/mp3",
                }
            },
        ),
        ("gemini", "gs://bucket/a.pdf", PDF, {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": PDF}}),
    ],
)
def test_a_file_may_be_one_that_the_provider_stores(kind, uri, mime_type, part):
    assert part in sent(kind, "Read it.", ResourceLink(uri, mime_type=mime_type))


@pytest.mark.parametrize("kind", CHATS)
def test_a_file_of_another_provider_is_named(kind):
    owner = "anthropic" if kind != "anthropic" else "openai"

    assert f"{owner}:file-1" in json.dumps(sent(kind, ResourceLink(f"{owner}:file-1", "report", PDF)))


@pytest.mark.parametrize("kind", CHATS)
def test_parts_read_from_files_are_sent(kind, tmp_path):
    for name, data in {"a.png": b"img", "a.wav": b"wav", "a.pdf": b"pdf", "a.csv": b"x,1"}.items():
        (tmp_path / name).write_bytes(data)

    parts = [Image(tmp_path / "a.png"), Audio.from_file(tmp_path / "a.wav")]
    parts += [EmbeddedResource.from_file(tmp_path / "a.pdf"), EmbeddedResource.from_file(tmp_path / "a.csv")]
    text = json.dumps(sent(kind, "Look.", *parts))

    assert "aW1n" in text  # the image
    assert "cGRm" in text  # the PDF
    assert "x,1" in text
    assert ("d2F2" in text) == (kind in ("openai-chat", "gemini"))  # the others have no audio


def test_an_address_in_a_result_is_not_fetched():
    """A tool chose it, not the user."""
    from toolmason import ToolCall, ToolResult

    result = ToolResult("c", "t", content=[ResourceLink(IMAGE, mime_type=PNG)])
    said = [Message("user", "x"), Message("assistant", (), [ToolCall("c", "t", {})]), Message("tool", results=[result])]

    for kind in CHATS:
        body = json.dumps(codec(kind).encode(ModelRequest(said), MODELS[kind]))
        assert "image_url" not in body
        assert "fileUri" not in body
        assert '"type": "url"' not in body


# --- sources ---------------------------------------------------------------------------------------

TEXT = "Tea grows in Ässam."
WEB = {"url": "https://tea.example", "title": "Tea"}
BODIES = {
    "openai": {
        "status": "completed",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "Hm. "},
                    {
                        "type": "output_text",
                        "text": TEXT,
                        "annotations": [{"type": "url_citation", **WEB, "start_index": 0, "end_index": 3}],
                    },
                ],
            }
        ],
    },
    "openai-chat": {
        "choices": [
            {
                "finish_reason": "stop",
                "message": {
                    "content": "Hm. " + TEXT,
                    "annotations": [
                        {"type": "url_citation", "url_citation": {**WEB, "start_index": 4, "end_index": 7}}
                    ],
                },
            }
        ]
    },
    "anthropic": {
        "stop_reason": "end_turn",
        "content": [
            {"type": "text", "text": "Hm. "},
            {
                "type": "text",
                "text": "Tea",
                "citations": [{"type": "web_search_result_location", **WEB, "cited_text": "Tea grows."}],
            },
            {"type": "text", "text": TEXT[3:]},
        ],
    },
    "gemini": {
        "candidates": [
            {
                "finishReason": "STOP",
                "content": {"parts": [{"text": "Hm. "}, {"text": TEXT}]},
                "groundingMetadata": {
                    "groundingChunks": [{"web": {"uri": WEB["url"], "title": WEB["title"]}}],
                    "groundingSupports": [{"segment": {"startIndex": 4, "endIndex": 7}, "groundingChunkIndices": [0]}],
                },
            }
        ]
    },
}


@pytest.mark.parametrize("kind", CHATS)
def test_the_sources_of_an_answer_are_in_its_message(kind):
    message = codec(kind).decode(BODIES[kind]).message

    [citation] = message.citations
    assert (citation.url, citation.title) == ("https://tea.example", "Tea")
    assert message.text[citation.start : citation.end] == "Tea"
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


def test_gemini_counts_positions_in_bytes():
    body = json.loads(json.dumps(BODIES["gemini"]))
    segment = body["candidates"][0]["groundingMetadata"]["groundingSupports"][0]["segment"]
    segment.update(startIndex=len(b"Hm. Tea grows in "), endIndex=len("Hm. Tea grows in Ässam".encode()))

    message = codec("gemini").decode(body).message

    [citation] = message.citations
    assert message.text[citation.start : citation.end] == "Ässam"


def test_a_source_that_is_missing_does_not_cost_the_answer():
    body = json.loads(json.dumps(BODIES["gemini"]))
    grounding = body["candidates"][0]["groundingMetadata"]
    grounding["groundingSupports"][0]["groundingChunkIndices"] = [7, -1, 0]

    message = codec("gemini").decode(body).message

    assert [citation.url for citation in message.citations] == ["https://tea.example"]


def test_a_stream_keeps_the_sources():
    made = codec("gemini")
    reader = made.reader(made.no_names)
    for part in ({"text": "Hm. "}, {"text": TEXT}):
        list(reader.feed({"candidates": [{"content": {"parts": [part]}}]}))
    last = {key: value for key, value in BODIES["gemini"]["candidates"][0].items() if key != "content"}
    list(reader.feed({"candidates": [last]}))
    chat = codec("openai-chat")
    chat_reader = chat.reader(chat.no_names)
    message = BODIES["openai-chat"]["choices"][0]["message"]
    list(chat_reader.feed({"choices": [{"delta": message, "finish_reason": "stop"}]}))

    assert [citation.url for citation in reader.end().message.citations] == ["https://tea.example"]
    assert [citation.url for citation in chat_reader.end().message.citations] == ["https://tea.example"]


async def test_a_reply_has_the_sources_in_memory_and_after_saving(tmp_path):
    first = ModelReply(Message("assistant", "One. "), finish="length")
    cited = Message("assistant", "Two.", citations=[Citation("https://a.example", start=0, end=3)])
    memory = SqliteMemory(tmp_path / "m.db")
    chat = Chat(ScriptedModel([first, ModelReply(cited)]), on_length="continue", memory=memory)

    reply = await chat.send("Go.", conversation="c")

    [citation] = reply.citations
    assert reply.text[citation.start : citation.end] == "Two"
    assert Reply.load(json.loads(json.dumps(reply.save()))).citations == reply.citations
    assert (await memory.load("c"))[-1].citations == cited.citations


# --- prompts ---------------------------------------------------------------------------------------


async def test_a_prompt_may_be_a_list_of_parts():
    model = ScriptedModel(["A cat."])

    await Chat(model).send(["What is this?", Image(b"img")])

    assert model.requests[0].messages[-1].content == (Text("What is this?"), Image(b"img"))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_system_message_may_depend_on_the_context(is_async):
    def write(context):
        return f"You help {context['user']}."

    async def write_later(context):
        return write(context)

    model = ScriptedModel(["Hi.", "Hi."])
    chat = Chat(model, system=write_later if is_async else write, context={"user": "Ada"})

    await chat.send("Hello")
    await chat.send("Hello", context={"user": "Bob"})

    assert [request.messages[0].text for request in model.requests] == ["You help Ada.", "You help Bob."]


async def test_a_system_function_may_leave_the_message_out_but_not_return_anything_else():
    from toolmason.errors import ConfigError

    model = ScriptedModel(["Hi."])
    await Chat(model, system=lambda context: None).send("Hello")

    assert [message.role for message in model.requests[0].messages] == ["user"]
    with pytest.raises(ConfigError, match="it returned 5, which is not a string"):
        await Chat(ScriptedModel(["Hi."]), system=lambda context: 5).send("Hello")
