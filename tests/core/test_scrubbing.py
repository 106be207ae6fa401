"""No exception text brings a secret to a model, a client or a log; no text of others forges a record of the log."""

import ast
import io
import logging
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolmason
from house.source import parse_tree
from toolmason import Chat, Config, McpServer, Toolbox, ToolContext, tool
from toolmason._secrets import (
    MASK,
    MAX_FIELDS,
    MAX_KNOWN,
    MAX_SCRUBBED_CHARS,
    MAX_SECRETS,
    _known,
    make_record_safe,
    mask_values,
    remember_secrets,
    scrub,
)
from toolmason.errors import ExecutionError, RemoteError
from toolmason.models import ScriptedModel

WORD = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)
AROUND = st.text(max_size=20).filter(lambda text: not any(map(str.isalnum, text)))
HOSTILE = "x\n2026-01-01 00:00:00 CRITICAL:root:FAKE\x1b[31m\x07\u202e\u200b\x85\u2028"
FORMS = [
    "sk-{}",
    "Authorization: Bearer {}",
    "Basic {}==",
    "ghp_{}",
    "github_pat_{}",
    "xoxb-{}",
    "postgres://user:{}@db.example:5432/shop",
    "cannot open amqp://:{}@host",
    "GET https://api.example/v1?api_key={}&page=2",
    "password={}",
    "{{'token': '{}1'}}",
    '{{"client_secret": "{}1"}}',
    "eyJhbGciOiJI.{}.c2ln",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
]


@given(word=WORD, form=st.sampled_from(FORMS), before=AROUND, after=AROUND)
def test_what_is_shaped_like_a_secret_is_masked_wherever_it_stands(word, form, before, after):
    assert word not in scrub(f"{before} {form.format(word)} {after}")


@pytest.mark.parametrize(
    "text",
    ["", "no user 'ada'", "the token is missing", "password: too short", "https://example.com:8080/a@b", "key 5: 7"],
)
def test_ordinary_text_stays(text):
    assert scrub(text) == text


@pytest.mark.parametrize("name", ["STRIPE_KEY", "DB_PASSWORD", "GITHUB_TOKEN", "app.client-secret", "SENTRY_DSN"])
def test_the_values_of_the_environment_and_of_settings_are_masked(name, monkeypatch):
    monkeypatch.setenv(name, "plain words here")
    Config({f"x.{name}": "other plain words"}, environ={})

    assert scrub("it said plain words here and other plain words") == "it said … and …"


def test_the_password_in_an_address_of_the_environment_is_masked(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://shop:hunter2@db/shop")

    assert scrub("login failed with hunter2") == "login failed with …"


def test_secrets_of_servers_are_masked():
    McpServer.stdio("s", "x", env={"WEATHER_TOKEN": "rainy-day"})
    McpServer.http("h", "https://example.com", headers={"Authorization": "Custom sunny-day"})

    assert scrub("rainy-day, Custom sunny-day") == "…, …"


@given(st.text("ab", min_size=9, max_size=30), st.text("ab ", max_size=60))
def test_no_beginning_of_a_secret_stays(secret, text):
    assert secret[:8] not in mask_values(text, [secret]).replace(MASK, " ")


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_a_long_secret_of_a_client_costs_no_more_than_its_length(size):
    assert mask_values("a" * 8 + "b" * size, ["a" * size]) == MASK + "b" * size
    assert mask_values("aaaaaaaab" * (size // 9), ["a" * size]) == f"{MASK}b" * (size // 9)


@pytest.mark.parametrize("before", range(0, 60, 7))
@pytest.mark.parametrize(
    "secret", ["postgres://app:hunter2hunter2@db/x", "Bearer abcdefghijklmnop", "env-value-1234567"]
)
def test_long_text_is_cut_where_no_part_of_a_secret_is_left(before, secret, monkeypatch):
    monkeypatch.setenv("APP_TOKEN", "env-value-1234567")
    text = "x " * (MAX_SCRUBBED_CHARS // 2 - 30) + "y" * before + " " + secret + " z" * MAX_SCRUBBED_CHARS
    found = scrub(text)

    assert len(found) < MAX_SCRUBBED_CHARS + 60
    assert not any(part in found for part in ("hunter", "abcdef", "env-value"))
    assert scrub("a" * 4_000_000) == " […4000000 characters…]"


def test_no_more_than_some_values_of_a_call_are_searched():
    assert scrub("no such user", {"items": [{"a": 1}] * MAX_FIELDS}) == MASK
    assert scrub("no such user", {"items": [{"a": 1}] * (MAX_FIELDS // 3)}) == "no such user"


def test_the_number_of_secrets_is_bounded():
    remember_secrets({f"token{number}": f"value-{number}" for number in range(MAX_KNOWN + 50)})

    assert len(_known) == MAX_KNOWN
    assert scrub("x", {f"token{number}": f"{number:06}" for number in range(MAX_SECRETS + 1)}) == "…"


@tool
def connect(ctx: ToolContext) -> str:
    """Connect."""
    raise ConnectionError(f"cannot open postgres://shop:hunter2@db/shop with {ctx['api_key']} and {HOSTILE}")


async def ways_to_fail(box):
    yield (await box.call("connect")).text
    yield str((await box.call("connect")).error)
    yield (await box.call_all([("connect", {})]))[0].text
    reply = await Chat(ScriptedModel([[("connect", {})], "done"]), box).send("hi")
    yield reply.results[0].text
    async with Toolbox(McpServer.of("far", box)) as remote:
        yield (await remote.call("connect")).text


async def test_an_exception_shows_no_secret_to_a_model_or_a_client_and_its_cause_is_whole(caplog):
    caplog.set_level(logging.DEBUG)
    box = Toolbox(connect, context={"api_key": "rosebud-rosebud"})

    texts = [text async for text in ways_to_fail(box)]

    assert len(texts) == 5
    for text in (*texts, caplog.text):
        assert "hunter2" not in text
        assert "rosebud" not in text
    assert "hunter2" in str((await box.call("connect")).error.__cause__)


@pytest.mark.parametrize(
    "error", [ExecutionError("t", ValueError("k=sk-abcdefghijkl")), RemoteError("s", "call", "sk-abcdefghijkl")]
)
def test_an_error_that_holds_the_text_of_others_is_scrubbed(error):
    assert "abcdefghijkl" not in f"{error} {error.message} {error.to_model()}"


def test_the_error_of_a_server_does_not_show_secrets_of_its_last_words():
    error = RemoteError("s", "call", "it died", stderr="token=abcdefgh")

    assert "abcdefgh" not in f"{error} {error.stderr}"


# --- the log -----------------------------------------------------------------------------------


def loggers():
    """Every logger that the package uses."""
    names = set()
    for path in Path(toolmason.__file__).parent.rglob("*.py"):
        for node in ast.walk(parse_tree(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger" and node.args:
                names |= {node.args[0].value} if isinstance(node.args[0], ast.Constant) else set()
    return sorted(names)


def test_every_logger_of_the_package_is_known():
    # That of httpx2 gets the filter, because it logs addresses, which may have a key in their query.
    assert loggers() == ["httpx2", "toolmason", "toolmason.calls", "toolmason.mcp", "toolmason.mcp_server"]


@pytest.mark.parametrize("name", ["toolmason", "toolmason.mcp", "toolmason.mcp_server"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("server %r said: %s", "a", HOSTILE),
        ("%s", ValueError(HOSTILE)),
        ("%(text)s", {"text": HOSTILE}),
        (HOSTILE,),
        ("token=%s", "sk-abcdefghijklmnop"),
    ],
)
def test_a_record_is_one_line_without_control_characters_and_secrets(name, arguments):
    written = io.StringIO()
    handler, logger = logging.StreamHandler(written), logging.getLogger(name)
    logger.addFilter(make_record_safe)
    logger.addHandler(handler)
    try:
        logger.error(*arguments)
    finally:
        logger.removeHandler(handler)

    text = written.getvalue().removesuffix("\n")
    assert text.isprintable()
    assert "abcdefghijklmnop" not in text


@tool
async def noisy(ctx: ToolContext) -> str:
    """Log what it got."""
    ctx.log.warning("got %s", HOSTILE)
    try:
        int(HOSTILE)
    except ValueError:
        ctx.log.exception("failed")
    return "ok"


async def test_the_log_of_a_tool_and_its_stack_forge_no_record(caplog):
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logging.getLogger().addHandler(handler)
    try:
        await Toolbox(noisy).call("noisy")
    finally:
        logging.getLogger().removeHandler(handler)

    lines = written.getvalue().splitlines()
    assert any("FAKE" in line for line in lines)
    assert not any(line.startswith("2026") or not line.isprintable() for line in lines)
