"""Rates that count the calls of each user apart."""

from contextlib import closing
from typing import Any

import pytest

from toolmason import McpServer, Rate, Toolbox, tool
from toolmason._core.call import limits
from toolmason._core.call.limits import RateLimiter, make_caller_key
from toolmason._store.sqlite_store import SqliteStore
from toolmason.errors import DefinitionError, LimitExceeded


@tool(rate=Rate(2, per=60, by="user"))
async def search(text: str) -> str:
    """Search the notes."""
    return f"found {text}"


async def count(box: Toolbox, *users: Any) -> list[bool]:
    return [(await box.call("search", {"text": str(n)}, context=user)).ok for n, user in enumerate(users)]


ADA, BOB = {"user": "ada"}, {"user": "bob"}


@pytest.fixture(params=["memory", "store"])
def box(request, tmp_path):
    if request.param == "memory":
        yield Toolbox(search)
        return
    store = SqliteStore(tmp_path / "shared.db")
    yield Toolbox(search, store=store)
    store.close()


async def test_each_user_has_a_rate_of_its_own(box):
    assert await count(box, ADA, ADA, ADA, BOB, BOB, BOB) == [True, True, False, True, True, False]


async def test_the_error_says_when_to_try_again(box):
    await count(box, ADA, ADA)

    result = await box.call("search", {"text": "x"}, context=ADA)

    assert 0 < result.error.retry_after <= 60
    assert result.error.retryable
    assert "the rate of 2 calls per 60 s for each user has been reached. Try again in" in result.text


async def test_callers_without_a_user_share_one_rate(box):
    assert await count(box, None, {}, {"tenant": "a"}, {"user": None}) == [True, True, False, False]


async def test_users_of_other_types_are_other_users(box):
    assert await count(box, {"user": 1}, {"user": 1}, {"user": "1"}, {"user": ["ada"]}) == [True] * 4


async def test_two_toolboxes_with_one_store_count_together(tmp_path):
    with_store = [Toolbox(search, store=SqliteStore(tmp_path / "shared.db")) for _ in range(2)]

    first = await count(with_store[0], ADA, ADA)
    second = await count(with_store[1], ADA, BOB)

    assert (first, second) == ([True, True], [False, True])


async def test_tenants_may_have_users_of_one_name():
    @tool(rate=Rate(1, per=60, by=("tenant", "user")))
    def look() -> str:
        """Look."""
        return "seen"

    box = Toolbox(look)
    contexts = [{"tenant": "a", **ADA}, {"tenant": "b", **ADA}, {"tenant": "a", **ADA}]

    assert [(await box.call("look", context=context)).ok for context in contexts] == [True, True, False]


async def test_the_rate_of_a_server_is_typed_for_its_client():
    @tool(rate=Rate(1, per=60))
    def look() -> str:
        """Look."""
        return "seen"

    async with Toolbox(McpServer.of("inner", Toolbox(look))) as box:
        await box.call("look")
        result = await box.call("look")

    assert isinstance(result.error, LimitExceeded)
    assert 0 < result.error.retry_after <= 60


def test_callers_beyond_the_bound_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(limits, "MAX_RATED_CALLERS", 3)
    limiter = RateLimiter(Rate(1, per=1000, by="user"))

    for caller in ("a", "b", "c", "d"):
        limiter.count("look", caller)

    limiter.count("look", "a")
    with pytest.raises(LimitExceeded):
        limiter.count("look", "d")


def test_the_key_of_a_caller_does_not_show_the_user():
    key = make_caller_key(Rate(1, by="user"), {"user": "ada@example.com"})

    assert "ada" not in key
    assert make_caller_key(Rate(1), {"user": "ada"}) == ""


def test_calls_of_users_who_do_not_come_back_are_deleted(tmp_path, monkeypatch):
    import asyncio
    import sqlite3

    from toolmason._core.toolbox.stored_state import StoredRates

    store, now = SqliteStore(tmp_path / "rates.db"), [1000.0]
    monkeypatch.setattr(type(store), "get_time", lambda self, db: now[0])
    rates, rate = StoredRates(store), Rate(5, per=10, by="user")

    async def work():
        for user in ("ada", "bob"):
            await rates.count("look", rate, make_caller_key(rate, {"user": user}))
        now[0] = 2000.0
        await StoredRates(store).count("look", rate, make_caller_key(rate, {"user": "eve"}))

    asyncio.run(work())
    store.close()
    with closing(sqlite3.connect(tmp_path / "rates.db")) as db:
        assert db.execute("SELECT count(*) FROM rates").fetchone() == (1,)


@pytest.mark.parametrize("by", [7, ["user"], ("user", 7), ("",)], ids=repr)
def test_a_wrong_key_is_refused(by: Any):
    with pytest.raises(DefinitionError, match=r"Rate\(by=|must be"):
        Rate(1, by=by)
