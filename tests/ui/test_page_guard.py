"""Who may use the page: those with its token, from this machine, and from no other page."""

import pytest

from chat.asgi_client import request
from toolmason.ui.page_app import STATIC, make_token
from ui.sample_page import TOKEN, make_app

ENDPOINTS = [
    ("GET", "state"),
    ("GET", "events"),
    ("GET", "tools"),
    ("GET", "tools/add"),
    ("POST", "checks"),
    ("POST", "calls"),
    ("POST", "approvals"),
    ("POST", "chat"),
    ("POST", "resumed"),
    ("GET", "servers"),
    ("GET", "runs"),
    ("GET", "nothing"),
]
BEARER = f"Bearer {TOKEN}"


@pytest.mark.parametrize(("method", "path"), ENDPOINTS, ids=lambda word: word)
@pytest.mark.parametrize("headers", [{}, {"authorization": f"Bearer {TOKEN[:-1]}x"}], ids=["no token", "wrong token"])
async def test_every_endpoint_refuses_requests_without_the_token(method, path, headers):
    answer = await request(make_app(), {}, method, path=f"/api/{path}", **headers)

    assert answer.status == 401
    assert "token" in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/api/tools", "/assets/x.js"])
async def test_a_foreign_host_is_refused(path):
    """A site whose name points to 127.0.0.1 must not read the page (DNS rebinding)."""
    answer = await request(make_app(), None, "GET", path=path, host="evil.example", authorization=BEARER)

    assert answer.status == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
async def test_a_foreign_origin_is_refused(origin):
    answer = await request(make_app(), {}, path="/api/calls", origin=origin, authorization=BEARER, host="localhost:80")

    assert answer.status == 403


async def test_the_page_itself_may_call():
    answer = await request(
        make_app(),
        None,
        "GET",
        path="/api/tools",
        origin="http://127.0.0.1:5",
        host="127.0.0.1:5",
        authorization=BEARER,
    )

    assert answer.status == 200


@pytest.mark.parametrize("path", ["/", "/api/tools"])
async def test_every_answer_forbids_inline_scripts_frames_and_sniffing(path):
    answer = await request(make_app(), None, "GET", path=path)

    policy = answer.headers[b"content-security-policy"].decode()
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("path", ["/assets/../page.py", "/assets/%2e%2e/page.py", "/page.py", "/../../etc/passwd"])
async def test_no_other_file_is_served(path):
    answer = await request(make_app(), None, "GET", path=path)

    assert answer.status == 404


async def test_the_built_page_is_served_and_runs_no_inline_script():
    answer = await request(make_app(), None, "GET", path="/")

    page = answer.body.decode()
    assert answer.status == 200
    assert page == (STATIC / "index.html").read_text("utf-8")
    assert "<script>" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


async def test_a_websocket_is_closed():
    sent = []

    async def send(message):
        sent.append(message)

    await make_app()({"type": "websocket", "path": "/api/tools", "headers": []}, None, send)

    assert sent == [{"type": "websocket.close", "code": 1000}]


def test_tokens_are_long_and_differ():
    assert len({make_token() for _ in range(100)}) == 100
    assert all(len(make_token()) >= 32 for _ in range(3))
