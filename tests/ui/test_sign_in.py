"""A sign-in to an MCP server with OAuth, on the page."""

import asyncio
from urllib.parse import parse_qsl, urlsplit

import pytest

from chat.asgi_client import request
from toolmason.mcp import McpServer
from ui.oauth_server import signing_in
from ui.sample_page import ask, make_app


@pytest.fixture
def server():
    with signing_in() as started:
        yield started


async def test_a_server_is_used_after_its_sign_in(server):
    app = make_app(McpServer.http("mail", f"{server.address}/mcp"))
    app.page.start()
    changes = app.page.follow()
    await anext(changes)
    [before] = (await ask(app, "servers")).json["servers"]

    address = (await ask(app, "servers/mail/sign-in", {}, host="127.0.0.1:5")).json["address"]
    query = dict(parse_qsl(urlsplit(address).query))
    back = f"code=c1&state={query['state']}&iss={server.address}"
    done = await request(app, None, "GET", query=back.encode(), path="/signed-in")

    while (await asyncio.wait_for(anext(changes), 20))["type"] != "tools" or "read_mail" not in app.page.box:
        pass
    assert before["needs_auth"] is True
    assert query["redirect_uri"] == "http://127.0.0.1:5/signed-in"
    assert done.body == b"You are signed in. You can close this tab."
    assert (await app.page.box.call("read_mail")).text == "one letter"
    await app.page.box.aclose()


@pytest.mark.parametrize("query", [b"", b"code=c1&state=guessed"], ids=["nothing", "a guessed state"])
async def test_a_code_without_its_sign_in_is_refused(query):
    answer = await request(make_app(), None, "GET", query=query, path="/signed-in")

    assert answer.body.startswith(b"This sign-in is unknown")


async def test_a_server_without_http_has_no_sign_in():
    app = make_app(McpServer.stdio("local", "program"))

    answer = await ask(app, "servers/local/sign-in", {})

    assert answer.status == 400
    assert "no sign-in to start" in answer.json["error"]["message"]
