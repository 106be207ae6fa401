"""What a server sends as the result of a call, kind by kind, and what it asks of a model."""

import pytest

from adversaries.raw_http import served
from toolmason import Audio, EmbeddedResource, Image, McpServer, ResourceLink, Text, Toolbox, ToolContext, tool
from toolmason.errors import ConfigError, DefinitionError
from toolmason.mcp_client.auth.token_files import FileTokens
from toolmason.mcp_client.lists.pins import read_approved

IMAGE = {"type": "image", "data": "AAEC", "mimeType": "image/png"}


async def called(result):
    with served("content") as server:
        server.states = [result]
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            return await box.call("echo", {"text": "x"})


@pytest.mark.row("AJ-10")
@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "hello"}, Text("hello")),
        (IMAGE, Image(b"\x00\x01\x02", "image/png")),
        ({**IMAGE, "type": "audio", "mimeType": "audio/wav"}, Audio(b"\x00\x01\x02", "audio/wav")),
        ({**IMAGE, "data": "%%%"}, Text("[image: image/png, not valid base64]")),
        ({"type": "resource_link", "uri": "a://b", "name": "b"}, ResourceLink("a://b", "b")),
        (
            {"type": "resource", "resource": {"uri": "a://b", "text": "words", "mimeType": "text/plain"}},
            EmbeddedResource("a://b", "words", None, "text/plain"),
        ),
        (
            {"type": "resource", "resource": {"uri": "a://b", "blob": "AAEC"}},
            EmbeddedResource("a://b", None, b"\x00\x01\x02", None),
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else None,
)
async def test_every_kind_of_content_arrives(block, part):
    result = await called({"content": [block]})

    assert result.content == (part,)


async def test_a_kind_that_nobody_knows_is_kept_as_its_json():
    result = await called({"content": [{"type": "hologram", "data": "x"}, {"type": "text", "text": "hello"}]})

    assert result.text == '{"type":"hologram","data":"x"}\nhello'


@pytest.mark.parametrize("content", ["x", [7], [{"type": 7}], [{"type": "image"}]])
async def test_content_that_is_none_fails_its_call(content):
    result = await called({"content": content})

    assert result.error.code == "remote_error"
    assert "does not match the protocol" in result.error.reason


@pytest.mark.parametrize("policy", ["message", "redact"])
async def test_a_failure_keeps_its_pictures_and_its_data(policy):
    said = {"content": [{"type": "text", "text": "no"}, IMAGE], "structuredContent": {"why": "x"}, "_meta": {"a": 1}}
    with served("content") as server:
        server.states = [{**said, "isError": True}]
        async with Toolbox(McpServer.http("raw", server.url), on_error=policy) as box:
            result = await box.call("echo", {"text": "x"})

    assert result.error.code == "tool_error"
    assert result.error.message == "no\n[image: image/png, 3 bytes]"
    assert result.content == (Text(result.text), Image(b"\x00\x01\x02", "image/png"))
    assert result.structured == {"why": "x"}
    assert result.meta == {"a": 1}


async def test_a_failure_of_words_alone_has_no_other_content():
    result = await called({"content": [{"type": "text", "text": "no"}], "isError": True})

    assert result.content == (Text(result.text),)
    assert result.structured is None


async def test_a_failure_that_is_told_in_data_alone_says_it():
    result = await called({"content": [], "structuredContent": {"why": "x"}, "isError": True})

    assert result.error.message == '{"why":"x"}'


async def test_structured_content_alone_is_its_text_too():
    result = await called({"content": [], "structuredContent": {"n": 1}, "_meta": {"a": 1}})

    assert (result.text, result.value, result.structured) == ('{"n":1}', {"n": 1}, {"n": 1})
    assert result.meta["a"] == 1


@pytest.mark.parametrize(
    ("text", "structured", "told"),
    [
        ('{"n": 1}', {"n": 1}, '{"n": 1}'),
        ("1", {"result": 1}, "1"),
        ("Found one row.", {"rows": [1]}, 'Found one row.\n{"rows":[1]}'),
    ],
)
async def test_text_and_data_are_both_told_where_they_differ(text, structured, told):
    result = await called({"content": [{"type": "text", "text": text}], "structuredContent": structured})

    assert (result.text, result.structured) == (told, structured)
    assert len(result.content) == 1


async def test_a_result_of_nothing_says_so():
    assert (await called({"content": []})).text == "(no output)"
    assert (await called({"content": [], "isError": True})).error.message == "the tool failed without a message"


@pytest.mark.parametrize("code", [-32000, -32001, -32099, 7])
async def test_a_server_may_use_any_code_for_its_own_errors(code):
    with served("error") as server:
        server.states = [{"code": code, "message": "no disk"}]
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            result = await box.call("echo", {"text": "x"})

    assert result.error.reason == "no disk"


@tool
async def places(ctx: ToolContext) -> list[str]:
    """Ask where we may work."""
    return await ctx.client.roots()


async def test_a_server_is_told_where_it_may_work(tmp_path):
    async with Toolbox(McpServer.of("s", Toolbox(places)), roots=[tmp_path, "file:///srv"]) as box:
        result = await box.call("places")

    assert result.structured == {"result": [tmp_path.as_uri(), "file:///srv"]}
    with pytest.raises(DefinitionError, match="is not a folder"):
        Toolbox(roots=["https://example.com"])


@tool
async def summarise(ctx: ToolContext) -> str:
    """Ask a model."""
    return await ctx.client.sample("Say hello.", max_tokens=9)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda question: f"{question.max_tokens} hello", "9 hello"),
        (
            lambda _: {"role": "assistant", "content": {"type": "text", "text": "raw"}, "model": "m"},
            "raw",
        ),
    ],
    ids=["text", "wire"],
)
async def test_what_a_server_asks_a_model_is_answered_by_the_toolbox(answer, text):
    async with Toolbox(McpServer.of("s", Toolbox(summarise)), on_sample=answer) as box:
        result = await box.call("summarise")

    assert result.text == text


async def test_an_answer_that_fails_is_a_failure_for_the_server_without_its_words(caplog):
    def breaks(_):
        raise RuntimeError("secret")

    async with Toolbox(McpServer.of("s", Toolbox(summarise)), on_sample=breaks) as box:
        result = await box.call("summarise")

    assert not result.ok
    assert "secret" not in result.text + caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "neither a manifest nor a lock"),
        ("{", "not valid JSON"),
        ('{"servers": {"s": {"tools": {}}}}', "neither a manifest nor a lock"),
        ('{"format": "toolmason-lock", "version": 1, "servers": 7}', "'servers'"),
        ('{"format": "toolmason-lock", "version": 1, "servers": {"s": {"tools": {"a": 7}}}}', "'a'"),
        ("\udcff", "not valid JSON"),
    ],
    ids=["a list", "half", "no format", "servers", "a tool", "not UTF-8"],
)
def test_what_is_no_lock_is_said(text, reason, tmp_path):
    lock = tmp_path / "toolmason.lock"
    lock.write_text(text, "utf-8", "surrogateescape")

    with pytest.raises(ConfigError, match=reason):
        read_approved(McpServer.stdio("s", "program", lock=lock))


def test_a_lock_that_does_not_exist_approves_nothing(tmp_path):
    assert read_approved(McpServer.stdio("s", "program", lock=tmp_path / "none")) == {}


async def test_tokens_can_be_forgotten(tmp_path):
    store = FileTokens(tmp_path / "tokens.json", "crm")
    (tmp_path / "tokens.json").write_text('{"crm": {"tokens": {"access_token": "t", "token_type": "Bearer"}}}')
    (tmp_path / "tokens.json").chmod(0o600)

    before = await store.get_tokens()
    store.forget()

    assert before is not None
    assert await store.get_tokens() is None
    assert await store.get_client_info() is None
