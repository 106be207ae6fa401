"""A server that cannot be had is down, with a reason: it is said once, and nobody waits for it again."""

import asyncio

import pytest

from toolwright import McpServer, Toolbox, tool
from toolwright.errors import RemoteError
from toolwright.mcp.offer import Offer

pytestmark = pytest.mark.timeout(30)


@tool
def local() -> str:
    """Stay here."""
    return "here"


def raises(context):
    raise LookupError("no token")


def called_off(context):
    raise asyncio.CancelledError


def web(auth, **words):
    return McpServer.http("web", "http://127.0.0.1:9/mcp", auth=auth, **words)


@pytest.mark.parametrize(
    ("auth", "reason"),
    [
        (lambda _: 5, "auth= returned int. Return a token or headers"),
        (raises, "auth= failed: LookupError"),
        (called_off, "the work was called off before it was done"),
    ],
    ids=["neither a token nor headers", "raises", "calls itself off"],
)
async def test_an_auth_that_is_wrong_is_a_server_that_is_down_with_the_reason(auth, reason, caplog):
    box = Toolbox(local, web(auth))

    listed = await box.list()
    await box.aclose()

    assert [tool.name for tool in listed] == ["local"]
    assert reason in caplog.text


@pytest.mark.parametrize("auth", [lambda _: 5, raises], ids=["neither a token nor headers", "raises"])
async def test_an_auth_that_is_wrong_for_a_required_server_is_raised(auth):
    with pytest.raises(RemoteError, match="Server 'web', authorize: auth= "):
        async with Toolbox(web(auth, required=True)):
            pass


async def test_a_lock_that_cannot_be_read_is_a_server_that_is_down_with_the_reason(tmp_path, caplog):
    lock = tmp_path / "toolwright.lock"
    lock.write_text("not json", "utf-8")
    box = Toolbox(McpServer.of("shop", Toolbox(local), pin="lock", lock=lock))

    listed = await box.list()
    await box.aclose()

    assert listed == []
    assert "is not a lock. Write it again with `toolwright lock`." in caplog.text


async def test_a_lock_that_cannot_be_read_is_raised_for_a_required_server(tmp_path):
    lock = tmp_path / "toolwright.lock"
    lock.write_text("not json", "utf-8")

    with pytest.raises(RemoteError, match=r"Server 'shop', list: .* is not a lock"):
        async with Toolbox(McpServer.of("shop", Toolbox(local), pin="lock", lock=lock, required=True)):
            pass


async def test_work_that_is_called_off_again_and_again_is_an_error():
    async def fetch():
        raise asyncio.CancelledError

    offer = Offer(McpServer.of("shop", Toolbox(local)), fetch, lambda: None)

    with pytest.raises(RemoteError, match="called off before it was done"):
        await offer.fetch()
