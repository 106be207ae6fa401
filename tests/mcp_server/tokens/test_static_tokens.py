"""Tokens in environment variables, and the rate of the requests of their users."""

import logging
from typing import Any

import pytest

from mcp_server.sample_server import running
from toolmason import Rate, Toolbox, ToolContext, tool
from toolmason._secrets import scrub
from toolmason._store.sqlite_store import SqliteStore
from toolmason.errors import ConfigError
from toolmason.mcp import Bearer, tokens_from_env

ADA, BOB = "a-long-secret-of-ada", "a-long-secret-of-bob"


@tool
def whoami(ctx: ToolContext) -> str:
    """Return the user."""
    return f"{ctx['user']} {ctx['scopes']}"


@pytest.fixture
def check(monkeypatch):
    monkeypatch.setenv("ADA_TOKEN", ADA)
    monkeypatch.setenv("BOB_TOKEN", BOB)
    return tokens_from_env({"ADA_TOKEN": "ada", "BOB_TOKEN": {"user": "bob", "scopes": ["notes:read"]}})


def test_each_token_has_its_user_and_scopes(check):
    with running(Toolbox(whoami), auth=check) as server:
        found = [
            server.call("whoami", headers={"authorization": f"Bearer {token}"})["content"][0]["text"]
            for token in (ADA, BOB)
        ]

    assert found == ["ada ()", "bob ['notes:read']"]


@pytest.mark.parametrize("token", ["", "x" * 20, ADA[:-1], ADA + "x", ADA.upper(), "\ud800" + ADA], ids=repr)
def test_no_other_token_is_accepted(check, token: str):
    assert check(token) is None


def test_every_token_is_compared_in_constant_time(check, monkeypatch):
    import hmac

    compared: list[bytes] = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))

    assert check(ADA) == "ada"
    assert compared == [ADA.encode(), BOB.encode()]


def test_tokens_are_masked_everywhere(check, caplog):
    with caplog.at_level(logging.DEBUG), running(Toolbox(whoami), auth=check) as server:
        server.call("whoami", headers={"authorization": f"Bearer {ADA}"})
        refused = server.ask("tools/list", headers={"authorization": f"Bearer {ADA}x"})

    assert refused.status == 401
    assert ADA not in caplog.text + repr(check) + str(refused) + scrub(f"failed with {ADA}")


@pytest.mark.parametrize(
    ("variables", "users", "words"),
    [
        ({}, {"ADA_TOKEN": "ada"}, "the variable 'ADA_TOKEN' is not set"),
        ({"ADA_TOKEN": "short"}, {"ADA_TOKEN": "ada"}, "The token in 'ADA_TOKEN' has 5 characters"),
        ({"A": ADA, "B": ADA}, {"A": "ada", "B": "bob"}, "the same token as another variable"),
        ({"A": ADA}, {"A": ""}, "has no user"),
        ({}, {}, "no variables"),
    ],
    ids=["not set", "short", "twice", "no user", "nothing"],
)
def test_a_wrong_table_is_refused_without_its_secret(monkeypatch, variables: Any, users: Any, words: str):
    for name in ("ADA_TOKEN", "A", "B"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match=words) as caught:
        tokens_from_env(users)

    assert ADA not in str(caught.value)


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "store"])
def test_requests_beyond_the_rate_of_a_user_get_429(check, tmp_path, shared: bool):
    words = {"store": SqliteStore(tmp_path / "shared.db")} if shared else {}
    with running(Toolbox(whoami, **words), auth=Bearer(check, rate=Rate(2, per=60))) as server:
        statuses = [
            server.ask("tools/list", headers={"authorization": f"Bearer {token}"}) for token in (ADA, ADA, ADA, BOB)
        ]

    assert [answer.status for answer in statuses] == [200, 200, 429, 200]
    assert 1 <= int(statuses[2].headers["retry-after"]) <= 60
    assert "rate of 2 calls per 60 s has been reached" in statuses[2].json["error"]["message"]


def test_wrong_tokens_do_not_use_up_the_rate_of_a_user(check):
    with running(Toolbox(whoami), auth=Bearer(check, rate=Rate(1, per=60))) as server:
        wrong = server.ask("tools/list", headers={"authorization": f"Bearer {ADA}x"})
        right = server.ask("tools/list", headers={"authorization": f"Bearer {ADA}"})

    assert (wrong.status, right.status) == (401, 200)
