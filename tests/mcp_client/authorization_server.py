"""An MCP server, and the SDK's own authorization server for it at another address.

The user says yes on a page with a button. The SDK has no sign-in on another device, so that part is added here.
"""

import base64
import json
import secrets
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.routing import Route

from toolmason import Toolbox, ToolContext, tool
from toolmason.mcp import Bearer, asgi_app
from toolmason.mcp_server.http.http_server import make_http_server

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@tool
def whoami(ctx: ToolContext) -> str:
    """Return the user."""
    return str(ctx["user"])


@tool(scopes=["notes:write"])
def write(text: str) -> str:
    """Write a note."""
    return f"wrote {text}"


class Provider:
    """Clients, codes and tokens in memory. A refresh token is valid once."""

    def __init__(self) -> None:
        self.address = ""
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, Any] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}
        self.visits: dict[str, Any] = {}
        self.devices: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.expires_in = 3600
        self.metadata: dict[str, Any] = {}
        """Changes of the metadata; None removes a field."""

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        visit = secrets.token_urlsafe(8)
        self.visits[visit] = client, params
        return f"{self.address}/consent?{urlencode({'visit': visit})}"

    def grant(self, visit: str, **changes: str | None) -> str:
        """Return where the browser goes after the user has said yes."""
        client, params = self.visits[visit]
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
            subject="ada",
        )
        self.codes[code.code] = code
        answer = {"code": code.code, "state": params.state, "iss": self.address, **changes}
        return construct_redirect_uri(str(params.redirect_uri), **answer)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    def issue(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.tokens[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, resource=resource, subject="ada"
        )
        self.refresh_tokens[refresh] = RefreshToken(
            token=refresh, client_id=client_id, scopes=scopes, resource=resource, subject="ada"
        )
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.expires_in, scope=" ".join(scopes) or None
        )

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh_tokens.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh_tokens[refresh_token.token]
        return self.issue(client.client_id, refresh_token.scopes, refresh_token.resource)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token):
        self.tokens.pop(token.token, None)

    def verify(self, token: str) -> dict[str, Any] | None:
        """Check a token for the MCP server."""
        found = self.tokens.get(token)
        return None if found is None else {"user": found.subject, "scopes": found.scopes}


def make_app(provider: Provider) -> Any:
    """Return the application of the authorization server."""
    options = ClientRegistrationOptions(
        enabled=True, valid_scopes=["notes:read", "notes:write"], default_scopes=["notes:read", "notes:write"]
    )
    routes = create_auth_routes(provider, AnyHttpUrl(provider.address), client_registration_options=options)

    async def consent(request):
        visit = request.query_params["visit"]
        if request.method == "POST":
            return RedirectResponse(provider.grant(visit), 302)
        return HTMLResponse('<h1>Sign in as Ada?</h1><form method="post"><button>Yes</button></form>')

    async def start_device(request):
        form = dict(await request.form())
        if provider.clients.get(form.get("client_id")) is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        code = secrets.token_urlsafe(8)
        provider.devices[code] = {"client_id": form["client_id"], "polls": 0}
        data = {"device_code": code, "user_code": "ABCD-EFGH", "verification_uri": f"{provider.address}/device"}
        return JSONResponse({**data, "expires_in": 60, "interval": 0})

    inner = Starlette(
        routes=[
            *routes,
            Route("/consent", consent, methods=["GET", "POST"]),
            Route("/device_authorization", start_device, methods=["POST"]),
        ]
    )

    async def app(scope, receive, send):
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        body = (await receive()).get("body", b"") if scope["method"] == "POST" else b""
        form = {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
        credentials = dict(scope["headers"]).get(b"authorization", b"").removeprefix(b"Basic ")
        known = {"authorization": base64.b64decode(credentials).decode()} if credentials else {}
        provider.requests.append((scope["path"], {**form, **known}))
        if scope["path"].startswith("/.well-known/oauth-authorization-server"):
            await JSONResponse(make_metadata(provider))(scope, receive, send)
        elif scope["path"] == "/token" and form.get("grant_type") == DEVICE_GRANT:
            await poll(provider, form)(scope, receive, send)
        else:

            async def replay():
                return {"type": "http.request", "body": body, "more_body": False}

            await inner(scope, replay, send)

    return app


def make_metadata(provider: Provider) -> dict[str, Any]:
    """Return the metadata of the SDK's server, with the sign-in on another device."""
    address = provider.address
    names = {"authorization": "authorize", "token": "token", "registration": "register"}
    found = {
        "issuer": address,
        **{f"{name}_endpoint": f"{address}/{path}" for name, path in names.items()},
        "device_authorization_endpoint": f"{address}/device_authorization",
        "code_challenge_methods_supported": ["S256"],
        "response_types_supported": ["code"],
        "authorization_response_iss_parameter_supported": True,
        **provider.metadata,
    }
    return {name: value for name, value in found.items() if value is not None}


def poll(provider: Provider, form: dict[str, str]) -> JSONResponse:
    """Answer a poll: the user says yes between the second and the third."""
    device = provider.devices.get(form.get("device_code", ""))
    if device is None or device["client_id"] != form.get("client_id"):
        return JSONResponse({"error": "invalid_grant"}, 400)
    device["polls"] += 1
    if device.get("denied"):
        return JSONResponse({"error": "access_denied"}, 400)
    if device["polls"] < 3:
        return JSONResponse({"error": "authorization_pending"}, 400)
    tokens = provider.issue(form["client_id"], ["notes:read"], form.get("resource"))
    return JSONResponse(json.loads(tokens.model_dump_json(exclude_none=True)))


class Servers:
    """An MCP server that wants a sign-in, and its authorization server."""

    def __init__(self, provider: Provider, url: str) -> None:
        self.provider, self.url = provider, url
        self.shown: list[tuple[str, str]] = []

    async def say_yes(self, address: str, code: str) -> None:
        """Visit an address as a user who says yes at once."""
        self.visit(address, code)

    def visit(self, address: str, code: str, **changes: str | None) -> None:
        """Visit an address in a thread, as a browser does. `changes` are those of an attacker to the answer."""
        self.shown.append((address, code))
        if not code:
            threading.Thread(target=self._browse, args=(address, changes), daemon=True).start()

    def _browse(self, address: str, changes: dict[str, str | None]) -> None:
        import httpx2

        with httpx2.Client(timeout=20) as client:
            consent = client.get(address, follow_redirects=False).headers["location"]
            visit = dict(parse_qsl(consent.partition("?")[2])).get("visit")
            client.get(consent if visit is None else self.provider.grant(visit, **changes))


@contextmanager
def serving(app_of: Any):
    """Serve the application that a function makes of its address, in a thread."""
    from ui.oauth_server import find_port

    port, started = find_port(), threading.Event()
    app = app_of(f"http://127.0.0.1:{port}")
    server = make_http_server(app, "127.0.0.1", port, 1, lambda _: started.set())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def protected():
    """Serve both."""
    provider = Provider()
    with ExitStack() as stack:

        def make_authorization(address: str) -> Any:
            provider.address = address
            return make_app(provider)

        issuer = stack.enter_context(serving(make_authorization))

        def make_mcp(address: str) -> Any:
            bearer = Bearer(provider.verify, resource=f"{address}/mcp", authorization_servers=[issuer])
            return asgi_app(Toolbox(whoami, write), auth=bearer)

        yield Servers(provider, f"{stack.enter_context(serving(make_mcp))}/mcp")
