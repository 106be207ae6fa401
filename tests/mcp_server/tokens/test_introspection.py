"""Tokens that only the authorization server can judge."""

from base64 import b64encode
from typing import Any
from urllib.parse import parse_qs

import pytest

from mcp_server.sample_server import running
from mcp_server.tokens.issuer import AUDIENCE, FUTURE, PAST, answering
from toolmason.errors import ConfigError, RemoteError
from toolmason.mcp import Introspection
from toolmason.mcp_server.tokens.introspection import MAX_CACHED_TOKENS
from toolmason.mcp_server.tokens.jwt_check import MAX_TOKEN_CHARS

ACTIVE = {"active": True, "sub": "ada", "aud": AUDIENCE, "scope": "b a", "exp": FUTURE}


def check(url: str = "https://login.example.com/introspect", **options: Any) -> Introspection:
    return Introspection(url, "tools:1", "s p", **{"audience": AUDIENCE, **options})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [2_000_000_000.0]
    monkeypatch.setattr("toolmason.mcp_server.tokens.introspection.time.time", lambda: now[0])
    return now


async def test_an_active_token_is_the_user_with_the_scopes():
    with answering(ACTIVE) as issuer:
        found = await check(issuer.url)("opaque&token=other")

    [(_, headers, content)] = issuer.requests
    assert found == {"user": "ada", "scopes": ("a", "b")}
    assert headers["authorization"] == f"Basic {b64encode(b'tools%3A1:s%20p').decode()}"
    assert parse_qs(content) == {"token": ["opaque&token=other"], "token_type_hint": ["access_token"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"active": False},
        {"aud": "https://other.example"},
        {"aud": None},
        {"aud": {AUDIENCE: 1}},
        {"exp": PAST},
        {"exp": "never"},
        {"nbf": FUTURE},
        {"sub": None},
        {"sub": ["ada"]},
    ],
    ids=lambda changes: str(changes)[:40],
)
async def test_an_answer_for_another_token_is_rejected(changes: dict[str, Any]):
    with answering({**ACTIVE, **changes}) as issuer:
        assert await check(issuer.url)("token") is None


async def test_an_answer_is_used_again_until_it_is_too_old(clock: list[float]):
    with answering(ACTIVE) as issuer:
        introspect = check(issuer.url)
        await introspect("token")
        issuer.body = {"active": False}
        cached = await introspect("token")
        clock[0] += 30
        revoked = await introspect("token")

    assert cached is not None
    assert revoked is None
    assert len(issuer.requests) == 2


async def test_a_cached_answer_does_not_outlive_the_token(clock: list[float]):
    with answering({**ACTIVE, "exp": clock[0] + 5}) as issuer:
        introspect = check(issuer.url)
        before = await introspect("token")
        clock[0] += 5
        after = await introspect("token")

    assert before is not None
    assert after is None


async def test_the_cache_forgets_the_oldest_token(clock: list[float], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolmason.mcp_server.tokens.introspection.MAX_CACHED_TOKENS", 2)
    with answering(ACTIVE) as issuer:
        introspect = check(issuer.url)
        for token in ("one", "two", "three", "three", "one"):
            await introspect(token)

    assert [parse_qs(content)["token"][0] for _, _, content in issuer.requests] == ["one", "two", "three", "one"]
    assert MAX_CACHED_TOKENS > 2


@pytest.mark.parametrize("token", ["x" * (MAX_TOKEN_CHARS + 1), "é"], ids=["oversized", "not ASCII"])
async def test_a_token_that_cannot_be_one_is_not_sent(token: str):
    with answering(ACTIVE) as issuer:
        assert await check(issuer.url)(token) is None

    assert issuer.requests == []


@pytest.mark.parametrize(
    ("body", "status"),
    [(ACTIVE, 401), (b"<html>", 200), ([], 200), ({"active": "true"}, 200), (b"[" * 10_000, 200)],
    ids=["wrong credentials", "page", "list", "text as active", "deep"],
)
async def test_an_answer_that_says_nothing_is_an_error_that_passes(body: Any, status: int):
    with answering(body, status) as issuer:
        introspect = check(issuer.url)
        for _ in range(2):
            with pytest.raises(RemoteError) as caught:
                await introspect("the-token")

    assert len(issuer.requests) == 2
    assert "the-token" not in str(caught.value)
    assert "s p" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"audience": ""}, "none may be empty"),
        ({"audience": []}, "none may be empty"),
        ({"cache": -1}, "from 0 to 300"),
        ({"cache": 1e6}, "from 0 to 300"),
        ({"claims": ["scopes"]}, "must not name user"),
        ({"url": "http://login.example.com"}, "must be an https address"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], text: str):
    with pytest.raises(ConfigError, match=text):
        check(**options)


def test_a_server_asks_for_each_token_and_shows_no_secret():
    with answering(ACTIVE) as issuer, running(auth=check(issuer.url)) as server:
        headers = {"authorization": "Bearer opaque"}
        answer = server.ask("tools/call", {"name": "who", "arguments": {}}, headers=headers)

    assert answer.json["result"]["content"][0]["text"] == "ada"
    assert "s p" not in repr(check())
