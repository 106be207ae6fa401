"""Services that log in without a browser: a secret, a key, the token of a platform, the grant of a company, DPoP."""

import base64
import hashlib
import json
from typing import Any
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm

from mcp_client.authorization_server import serving
from toolmason import McpServer, Toolbox, ToolContext, tool
from toolmason.errors import ConfigError
from toolmason.mcp import Bearer, FileTokens, asgi_app, client_credentials, enterprise_identity, workload_identity

SECRET = "a-secret-of-a-service"  # noqa: S105 - of a test
TOKEN = "access-token-of-the-service"  # noqa: S105 - of a test
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
KEY = ec.generate_private_key(ec.SECP256R1())
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@tool
def whoami(ctx: ToolContext) -> str:
    """Return the user."""
    return str(ctx["user"])


class Server:
    """An MCP server and its authorization server at one address, which records the token requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.issuer, self.token_type, self.status = address, "Bearer", 200
        self.nonces: list[str] = []
        self.used: set[str] = set()
        self.thumbprint = ""
        self.app = asgi_app(Toolbox(whoami), auth=Bearer(self.verify, f"{address}/mcp", [address]))

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    @property
    def forms(self) -> list[dict[str, str]]:
        return [form for path, form, _ in self.requests if path == "/token"]

    def verify(self, token: str) -> str | None:
        return "service" if token == TOKEN else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", ())}
        if path in {"/token", "/idp"}:
            body = (await receive())["body"].decode()
            self.requests.append((path, dict(parse_qsl(body)), headers))
            await self.answer_token(path, headers, send)
        elif path.startswith("/.well-known/oauth-authorization-server"):
            await answer(
                send,
                200,
                {
                    "issuer": self.issuer,
                    "authorization_endpoint": f"{self.issuer}/authorize",
                    "token_endpoint": f"{self.issuer}/token",
                },
            )
        elif path == "/mcp" and headers.get("authorization", "").startswith("DPoP "):
            await self.answer_bound(headers, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def answer_token(self, path: str, headers: dict[str, str], send: Any) -> None:
        if path == "/idp":
            kind = "urn:ietf:params:oauth:token-type:id-jag"
            data = {"access_token": "the-grant", "issued_token_type": kind, "token_type": "N_A"}
            await answer(send, self.status, data if self.status == 200 else {"error": "invalid_grant"})
            return
        if self.nonces and self.read(headers, "POST", f"{self.address}/token").get("nonce") != self.nonces[0]:
            await answer(send, 400, {"error": "use_dpop_nonce"}, {"DPoP-Nonce": self.nonces[0]})
            return
        await answer(send, self.status, {"access_token": TOKEN, "token_type": self.token_type, "expires_in": 3600})

    def read(self, headers: dict[str, str], method: str, url: str) -> dict[str, Any]:
        """Check a proof as RFC 9449, section 4.3 says, and return its claims."""
        header = jwt.get_unverified_header(headers["dpop"])
        assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
        assert "d" not in header["jwk"]
        claims = jwt.decode(headers["dpop"], ECAlgorithm.from_jwk(json.dumps(header["jwk"])), ["ES256"])
        assert (claims["htm"], claims["htu"]) == (method, url)
        assert claims["jti"] not in self.used
        self.used.add(claims["jti"])
        self.thumbprint = self.thumbprint or header["jwk"]["x"]
        assert header["jwk"]["x"] == self.thumbprint
        return claims

    async def answer_bound(self, headers: dict[str, str], scope: Any, receive: Any, send: Any) -> None:
        claims = self.read(headers, "POST", self.url)
        digest = base64.urlsafe_b64encode(hashlib.sha256(TOKEN.encode()).digest()).decode().rstrip("=")
        assert claims["ath"] == digest
        if len(self.nonces) > 1 and claims.get("nonce") != self.nonces[1]:
            challenge = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": self.nonces[1]}
            await answer(send, 401, {"error": "use_dpop_nonce"}, challenge)
            return
        changed = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
        bearer = (b"authorization", f"Bearer {TOKEN}".encode())
        await self.app({**scope, "headers": [*changed, bearer]}, receive, send)


async def answer(send: Any, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
    body = json.dumps(data).encode()
    given = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    pairs = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def server():
    made: list[Server] = []

    def make(address: str) -> Server:
        made.append(Server(address))
        return made[0]

    with serving(make):
        yield made[0]


async def use(server: Server, auth: Any) -> tuple[str, str]:
    """Return the result of a call, and the error of the server."""
    async with Toolbox(McpServer.http("svc", server.url, auth=auth, connect_timeout=20)) as box:
        await box.list()
        return (await box.call("whoami")).text, str((await box.health())["svc"].error)


@pytest.mark.parametrize("words", [{"url": "http://[::1/"}, {"issuer": "https://\u2100.com"}, {"issuer": "x"}], ids=str)
def test_an_address_that_is_none_is_refused_when_it_is_given(words):
    addresses = {"url": "https://tools.test/mcp", "issuer": "https://login.test", **words}

    with pytest.raises(ConfigError, match="is not an http or https URL"):
        client_credentials(**addresses, client_id="id", client_secret=SECRET)
    with pytest.raises(ConfigError, match="is not an http or https URL"):
        workload_identity(**addresses, client_id="id", token="file")  # noqa: S106 - a path
    with pytest.raises(ConfigError, match=r"must be the public URL of this server"):
        Bearer(verify=lambda token: None, resource="http://[::1/")


async def test_a_service_with_a_secret(server):
    auth = client_credentials(server.url, "id", SECRET, issuer=server.address)

    text, _ = await use(server, auth)

    [(_, form, headers)] = server.requests
    assert text == "service"
    assert form["grant_type"] == "client_credentials"
    assert headers["authorization"] == "Basic " + base64.b64encode(f"id:{SECRET}".encode()).decode()
    assert SECRET not in repr(auth)


async def test_a_service_with_a_key_sends_an_assertion_for_its_issuer(server):
    text, _ = await use(server, client_credentials(server.url, "id", issuer=server.address, private_key=PEM))

    [form] = server.forms
    claims = jwt.decode(form["client_assertion"], KEY.public_key(), ["ES256"], audience=server.address)
    assert text == "service"
    assert (claims["iss"], claims["sub"]) == ("id", "id")
    assert "client_secret" not in form


async def test_a_workload_sends_the_token_of_its_platform(server, tmp_path):
    path = tmp_path / "token"
    path.write_text("signed-by-the-platform\n", "utf-8")

    text, _ = await use(server, workload_identity(server.url, "id", path, issuer=server.address))

    [form] = server.forms
    assert text == "service"
    assert (form["grant_type"], form["assertion"]) == (JWT_BEARER, "signed-by-the-platform")
    assert (form["client_id"], form["resource"]) == ("id", server.url)
    assert "client_secret" not in form


async def test_the_token_of_a_platform_is_made_for_the_issuer(server):
    audiences = []

    def get_token(audience: str) -> str:
        audiences.append(audience)
        return "signed"

    await use(server, workload_identity(server.url, "id", get_token, issuer=server.address))

    assert audiences == [server.address]


async def test_a_workload_that_is_refused_is_not_tried_again_with_another_grant(server):
    server.status = 400

    text, error = await use(server, workload_identity(server.url, "id", lambda _: "signed", issuer=server.address))

    assert "unknown_tool" in text
    assert "authorization" in error
    assert {form["grant_type"] for form in server.forms} == {JWT_BEARER}


def company(server: Server, **changes: Any) -> Any:
    options = {"issuer": server.address, "id_token": lambda: "identity-token", **changes}
    idp = {"idp_token_endpoint": f"{server.address}/idp", "idp_client_id": "app"}
    return enterprise_identity(server.url, "id", SECRET, **{**idp, **options})


async def test_the_identity_of_a_company_becomes_a_grant_and_then_a_token(server):
    text, _ = await use(server, company(server))

    (first, exchange, _), (second, form, headers) = server.requests
    assert text == "service"
    assert (first, second) == ("/idp", "/token")
    assert exchange["subject_token"] == "identity-token"  # noqa: S105 - of a test
    assert (exchange["audience"], exchange["resource"]) == (server.address, server.url)
    assert (form["grant_type"], form["assertion"]) == (JWT_BEARER, "the-grant")
    assert headers["authorization"].startswith("Basic ")
    assert "identity-token" not in str(form)


async def test_an_identity_provider_that_refuses_ends_the_login(server):
    server.status = 400

    _, error = await use(server, company(server))

    assert "the identity provider refused the exchange (HTTP 400, invalid_grant)" in error
    assert server.forms == []


def test_an_identity_provider_on_this_machine_needs_no_https(server):
    assert company(server, idp_token_endpoint="http://[::1]:9/token")  # noqa: S106 - an address


def test_an_identity_provider_without_https_is_refused(server):
    with pytest.raises(ConfigError, match="must be an https address"):
        company(server, idp_token_endpoint="http://idp.example.com/token")  # noqa: S106 - an address


@pytest.mark.parametrize("keys", [{}, {"client_secret": SECRET, "private_key": PEM}], ids=["none", "both"])
def test_a_service_has_a_secret_or_a_key(keys):
    with pytest.raises(ConfigError, match="pass either client_secret= or private_key="):
        client_credentials("https://mcp.example.com/mcp", "id", issuer="https://login.example.com", **keys)


LOGINS = {
    "secret": lambda server, issuer: client_credentials(server.url, "id", SECRET, issuer=issuer),
    "key": lambda server, issuer: client_credentials(server.url, "id", issuer=issuer, private_key=PEM),
    "workload": lambda server, issuer: workload_identity(server.url, "id", lambda _: "signed", issuer=issuer),
    "company": lambda server, issuer: company(server, issuer=issuer),
}


@pytest.mark.parametrize("kind", LOGINS)
async def test_no_credential_is_sent_to_an_authorization_server_that_the_mcp_server_names(server, kind):
    """Mix-up: the MCP server says that its own address is the authorization server of the service."""
    _, error = await use(server, LOGINS[kind](server, "https://login.invalid"))

    assert "authorization" in error or "login.invalid" in error
    assert server.forms == []


# --- DPoP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonces", [[], ["as-nonce"], ["as-nonce", "rs-nonce"]], ids=["none", "token", "both"])
async def test_each_request_has_a_fresh_proof_for_its_token(server, nonces):
    server.token_type, server.nonces = "DPoP", nonces

    text, _ = await use(server, client_credentials(server.url, "id", SECRET, issuer=server.address, dpop=True))

    assert text == "service"
    assert len(server.used) > 3


async def test_stored_tokens_are_used_with_their_key(server, tmp_path):
    server.token_type, store = "DPoP", FileTokens(tmp_path / "tokens.json", server.url)
    options = {"issuer": server.address, "store": store}
    await use(server, client_credentials(server.url, "id", SECRET, dpop=True, **options))

    text, _ = await use(server, client_credentials(server.url, "id", SECRET, **options))

    assert text == "service"
    assert len(server.forms) == 1


async def test_a_token_that_is_not_bound_is_refused(server):
    """Downgrade: the authorization server ignores the proof."""
    _, error = await use(server, client_credentials(server.url, "id", SECRET, issuer=server.address, dpop=True))

    assert "did not bind the token to the key of this client (DPoP)" in error


async def test_a_server_that_asks_for_nonces_without_end_is_given_up(server):
    class Endless(list[str]):
        def __getitem__(self, index: Any) -> Any:
            return f"nonce-{len(server.requests)}"

    server.token_type, server.nonces = "DPoP", Endless(["x"])

    _, error = await use(server, client_credentials(server.url, "id", SECRET, issuer=server.address, dpop=True))

    assert "authorization" in error
    assert len(server.forms) <= 3 * 4
