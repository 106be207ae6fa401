"""No error of a model shows the key, whatever the provider, or a proxy before it, writes back."""

import traceback

import pytest

from models.server import answer, provider, stream
from models.test_transport import all_of
from toolmason import model
from toolmason._secrets import mask_values
from toolmason.errors import ModelError
from toolmason.models import ModelRequest
from toolmason.models.http.redaction import find_secrets, redact_error

KEY = "sk-SECRET-0123456789abcdef"
FAILED = {
    "openai": f'{{"type":"response.failed","response":{{"error":{{"code":"{KEY}","message":"bad {KEY}"}}}}}}',
    "openai-chat": f'{{"error":{{"message":"bad {KEY}","code":"{KEY}"}}}}',
    "anthropic": f'{{"type":"error","error":{{"type":"{KEY}","message":"bad {KEY}"}}}}',
    "gemini": f'{{"error":{{"message":"bad {KEY}","status":"{KEY}"}}}}',
}
KINDS = list(FAILED)
PLAIN = [
    answer(f"<html>you sent {KEY}</html>".encode()),
    answer({"error": {"message": f"bad key {KEY}", "code": KEY}}),
    answer({"error": {"message": f"bad key {KEY}", "code": KEY}}, 401),
    answer({"error": f"bad key {KEY}"}, 400),
    answer(b"x" * 280 + KEY.encode(), 401),
    answer(b"x" * 185 + KEY.encode()),
    answer({"x": "y" * 180 + KEY}),
    answer({"choices": KEY, "output": KEY, "content": KEY, "candidates": KEY}),
    answer([KEY]),
]


def all_in(error):
    shown = "".join(traceback.format_exception(error)) + repr(vars(error))
    while error is not None:
        shown += f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
    return shown


async def failure_of(made, *, streamed):
    with pytest.raises(ModelError) as caught:
        await (all_of(made.stream(ModelRequest("hi"))) if streamed else made.respond(ModelRequest("hi")))
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_no_body_shows_the_key(kind, streamed):
    with provider(*PLAIN) as server:
        async with model(f"{kind}:m", base_url=server.url, api_key=KEY) as made:
            errors = [await failure_of(made, streamed=streamed) for _ in PLAIN]

    assert [error for error in errors if KEY[:12] in all_in(error)] == []


@pytest.mark.parametrize("kind", KINDS)
async def test_no_stream_shows_the_key(kind):
    events = [FAILED[kind], "{" + KEY, '{"type": "' + KEY]
    with provider(*(stream(f"data: {data}\n\n".encode()) for data in events)) as server:
        async with model(f"{kind}:m", base_url=server.url, api_key=KEY) as made:
            errors = [await failure_of(made, streamed=True) for _ in events]

    assert [error for error in errors if KEY[:12] in all_in(error)] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [200, 401])
async def test_an_sdks_client_does_not_show_its_key(kind, streamed, status):
    import anthropic
    import openai
    from google import genai

    with provider(answer({"error": {"message": f"bad key {KEY}", "code": 401, "status": KEY}}, status)) as server:
        if kind == "gemini":
            client = genai.Client(api_key=KEY, http_options={"base_url": server.url, "api_version": "v1beta"})
            close = client.aio.aclose
        else:
            maker = anthropic.AsyncAnthropic if kind == "anthropic" else openai.AsyncOpenAI
            client = maker(api_key=KEY, base_url=server.url, max_retries=0)
            close = client.close
        error = await failure_of(model(f"{kind}:m", client=client), streamed=streamed)
        await close()

    assert KEY not in all_in(error)


def test_what_stands_in_an_address_or_a_header_is_secret_too():
    found = find_secrets("https://me:pass%21word@host/v1?api-key=abcdefgh&alt=sse", {"X-Api-Key": "one", "Accept": "x"})

    assert set(found) == {"pass%21word", "pass!word", "abcdefgh", "one"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a {KEY} b", "a … b"),
        (f"a {KEY[:15]}", "a …"),
        (f"a {KEY[:9]}…", "a ……"),
        ("a sk- b", "a sk- b"),
    ],
)
def test_a_key_that_was_cut_is_struck_out_too(text, left):
    assert mask_values(text, [KEY, "a", ""]) == left


def test_a_cause_that_shows_nothing_is_kept():
    error, cause = ModelError("x", "y"), ValueError("z")
    error.__cause__ = cause

    redact_error(error, [KEY])

    assert error.__cause__ is cause
