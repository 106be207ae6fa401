"""A sign-in to an MCP server with OAuth, on the page."""

import asyncio

import httpx2
import pytest

from toolmason.mcp import McpServer
from ui.oauth_server import signing_in
from ui.sample_page import ask, make_app


@pytest.fixture
def server():
    with signing_in() as started:
        yield started


async def visit(address):
    """Return the text that the user sees in the end."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return (await browser.get(address)).text


async def test_a_server_is_used_after_its_sign_in(server):
    app = make_app(McpServer.http("mail", f"{server.address}/mcp"))
    app.page.start()
    changes = app.page.follow()
    await anext(changes)
    [before] = (await ask(app, "servers")).json["servers"]

    address = (await ask(app, "servers/mail/sign-in", {})).json["address"]
    visited = await visit(address)

    while (await asyncio.wait_for(anext(changes), 20))["type"] != "tools" or "read_mail" not in app.page.box:
        pass
    assert before["needs_auth"] is True
    assert visited == "You are signed in. You can close this tab."
    assert (await app.page.box.call("read_mail")).text == "one letter"
    await app.page.box.aclose()


async def test_a_user_may_take_longer_than_a_server_to_connect(server):
    app = make_app(McpServer.http("mail", f"{server.address}/mcp", connect_timeout=0.5))
    app.page.start()
    address = (await ask(app, "servers/mail/sign-in", {})).json["address"]
    await asyncio.wait(app.page.sign_ins)
    changes = app.page.follow()

    visited = await visit(address)

    assert visited == "You are signed in. You can close this tab."
    while "read_mail" not in app.page.box:
        await asyncio.wait_for(anext(changes), 20)
    await app.page.box.aclose()


async def test_a_server_without_http_has_no_sign_in():
    app = make_app(McpServer.stdio("local", "program"))

    answer = await ask(app, "servers/local/sign-in", {})

    assert answer.status == 400
    assert "no sign-in to start" in answer.json["error"]["message"]
