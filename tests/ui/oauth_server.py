"""An MCP server that wants a sign-in, with its authorization server at the same address."""

import json
import socket
import threading
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

from toolmason import Toolbox, tool
from toolmason.mcp import Bearer, asgi_app
from toolmason.mcp_server.http.http_server import make_http_server

ACCESS = "access-token-of-the-test"


@tool(read_only=True)
def read_mail() -> str:
    """Read the mail of the user who signed in."""
    return "one letter"


class SignInServer:
    """Grants every sign-in at once, as a user who says yes; the code must come with it."""

    def __init__(self, address: str) -> None:
        self.address = address
        bearer = Bearer(self.verify, resource=f"{address}/mcp", authorization_servers=[address])
        self.app = asgi_app(Toolbox(read_mail), auth=bearer)

    def verify(self, token: str) -> str | None:
        return "alice" if token == ACCESS else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path.startswith("/.well-known/oauth-authorization-server"):
            names = {"authorization": "authorize", "token": "token", "registration": "register"}
            places = {f"{name}_endpoint": f"{self.address}/{place}" for name, place in names.items()}
            methods = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
            await answer(send, {"issuer": self.address, **places, **methods})
        elif path == "/register":
            body = json.loads((await receive())["body"])
            await answer(send, {**body, "client_id": "page"}, 201)
        elif path == "/authorize":
            query = dict(parse_qsl(scope["query_string"].decode()))
            back = f"{query['redirect_uri']}?{urlencode({'code': 'c1', 'state': query['state'], 'iss': self.address})}"
            await send({"type": "http.response.start", "status": 302, "headers": [(b"location", back.encode())]})
            await send({"type": "http.response.body", "body": b""})
        elif path == "/token":
            form = dict(parse_qsl((await receive())["body"].decode()))
            granted = {"access_token": ACCESS, "token_type": "Bearer", "expires_in": 3600}
            is_right = form.get("code") == "c1" and form.get("code_verifier")
            await answer(send, granted if is_right else {"error": "invalid_grant"}, 200 if is_right else 400)
        else:
            await self.app(scope, receive, send)


async def answer(send: Any, data: Any, status: int = 200) -> None:
    body = json.dumps(data).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def signing_in():
    """Serve it in a thread."""
    port = find_port()
    started = threading.Event()
    app = SignInServer(f"http://127.0.0.1:{port}")
    server = make_http_server(app, "127.0.0.1", port, 1, lambda _: started.set())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(20)
    yield app
    server.should_exit = True
    thread.join(20)
