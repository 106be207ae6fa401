"""An authorization server for tests: its keys, its tokens, and a real HTTP server for what it answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://login.example.com/", "https://tools.example.com/mcp"
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OKP_KEY = ed25519.Ed25519PrivateKey.generate()
PAST, FUTURE = 1_000_000_000, 4_000_000_000
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": FUTURE, "scope": "orders:read orders:write"}


def public(key: Any, kid: str | None, **members: Any) -> dict[str, Any]:
    """Return the public part of a key as an entry of a key set."""
    kinds = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm: Any = next((found for kind, found in kinds.items() if isinstance(key, kind)), OKPAlgorithm)
    named = {} if kid is None else {"kid": kid}
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **named, **members}


KEYS = {"keys": [public(RSA_KEY, "rsa"), public(EC_KEY, "ec"), public(OKP_KEY, "okp")]}


def make_token(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", **changes: Any) -> str:
    """Return a token that is valid but for the changes of its claims; None removes one, `headers` adds headers."""
    headers = {**({} if kid is None else {"kid": kid}), **changes.pop("headers", {})}
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers=headers)


class Answers:
    """What the server answers, as status and body, and the requests that it got."""

    def __init__(self, body: Any, status: int = 200) -> None:
        self.body, self.status, self.location = body, status, ""
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.url = ""


@contextmanager
def answering(body: Any, status: int = 200) -> Iterator[Answers]:
    """Serve answers on this machine."""
    answers = Answers(body, status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            answers.requests.append((self.path, headers, content))
            body = answers.body if isinstance(answers.body, bytes) else json.dumps(answers.body).encode()
            self.send_response(answers.status)
            if answers.location:
                self.send_header("location", answers.location)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name that the base class looks up

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    answers.url = f"http://127.0.0.1:{server.server_port}/keys?p=one"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
