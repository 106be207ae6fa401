"""Log in to MCP servers with OAuth: as a person, or as a service."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.run.execute import call_user_function
from toolmason._core.values.policy import EngineSettings
from toolmason._secrets import remember_secrets
from toolmason._text import is_safe_endpoint, split_url
from toolmason.errors import ConfigError
from toolmason.mcp_client.auth.token_files import FileTokens, MemoryTokens, import_sdk

if TYPE_CHECKING:
    import httpx2

MAX_EXCHANGE_BYTES: Final = 256 * 1024
EXCHANGE_SECONDS: Final = 30.0
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Sign-in of a person for `McpServer.http(..., auth=OAuth(...))`; `auth="oauth"` is `OAuth()`.

    Tokens come from the file of `toolmason mcp login`, and are refreshed. Without `sign_in`, a server that has none is
    unavailable, and its error names the command.
    """

    sign_in: bool | Callable[[str, str], Any] = False
    """True to open the browser, or print the address, if no token is stored. A function gets the address and the code
    to enter there, which is empty without `device`."""
    device: bool = False
    """True to sign in on another device, with a code, if the authorization server offers it."""
    scopes: Sequence[str] = ()
    """Scopes to ask for, besides those that the server names."""
    client_id: str | None = None
    """ID of a client that is registered already. Without it, the client registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    """Secret of this client, which needs `issuer`."""
    issuer: str | None = None
    """Authorization server of `client_id`. Its secret is sent only there."""
    client_metadata_url: str | None = None
    """https address of a client ID metadata document, for authorization servers that take one as the client ID."""
    port: int = 0
    """Port of the callback on this machine; 0 picks a free one."""
    tokens: FileTokens | None = None
    """Storage of the tokens; by default the file that all programs of the user share."""
    dpop: bool = False
    """True to bind the tokens to a key of this client (RFC 9449), so that a stolen one is of no use."""

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise ConfigError(f"OAuth(scopes={self.scopes!r}): must be a list of strings.")
        if self.client_secret is not None and (self.client_id is None or self.issuer is None):
            raise ConfigError("OAuth(client_secret=...) needs client_id= and issuer=: the secret is sent only there.")
        if type(self.port) is not int or not 0 <= self.port <= 65535:  # noqa: PLR2004 - the valid ports
            raise ConfigError(f"OAuth(port={self.port!r}): must be an integer from 0 to 65535.")
        remember_secrets({"client_secret": self.client_secret or ""})

    def make_provider(self, url: str) -> Any:
        """Return the `httpx2.Auth` for a server.

        Raises:
            ImportError: the MCP SDK is not installed.
        """
        show = self.sign_in if callable(self.sign_in) else show_address
        storage = self.tokens or FileTokens(None, url)
        provider = _import_flows().SignIn(url, self, storage, _make_async(show) if self.sign_in else None)
        return _add_proofs(provider, dpop=self.dpop)


def show_address(address: str, code: str) -> None:
    """Print an address on standard error, and open it in a browser if there is a screen."""
    enter = f" and enter the code {code}" if code else ""
    print(f"To sign in, open {address}{enter}", file=sys.stderr, flush=True)  # noqa: T201 - the user has to see it
    # On a machine without a screen, a browser for terminals would take over this one.
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in names):
        webbrowser.open(address)


def _make_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function of the application as an async one. A sync one runs in a thread."""

    async def call(*arguments: Any) -> Any:
        return await call_user_function(function, *arguments, settings=EngineSettings())

    return call


def _import_flows(*addresses: str) -> Any:
    if (wrong := next((address for address in addresses if not split_url(address).hostname), None)) is not None:
        raise ConfigError(f"{wrong!r} is not an http or https URL.")
    import_sdk("client.auth")
    return import_module("toolmason.mcp_client.auth.flows")


def _add_proofs(provider: Any, *, dpop: bool) -> Any:
    if dpop:
        provider.proofs = import_module("toolmason.mcp_client.auth.proofs").Proofs()
    return provider


# --- services ----------------------------------------------------------------------------------


def client_credentials(  # noqa: PLR0913 - one parameter for each option
    url: str,
    client_id: str,
    client_secret: str | None = None,
    *,
    issuer: str,
    private_key: str | None = None,
    algorithm: str = "ES256",
    scope: str | None = None,
    store: FileTokens | None = None,
    dpop: bool = False,
) -> httpx2.Auth:
    """Return an `auth=` for a service that logs in without a user or a browser.

    The service has a secret, or a private key in PEM format, with which it signs an assertion (`private_key_jwt`).
    `issuer` is the authorization server that registered the client. The secret is sent only there, whatever the MCP
    server says.

    Raises:
        ConfigError: neither a secret nor a key is given, or both are, or an address is not a URL.
        ImportError: the MCP SDK is not installed.
    """
    if (client_secret is None) == (private_key is None):
        raise ConfigError("client_credentials: pass either client_secret= or private_key=.")
    remember_secrets({"client_secret": client_secret or "", "private_key": private_key or ""})
    flows, storage = _import_flows(url, issuer), store or MemoryTokens()
    if client_secret is not None:
        provider = flows.SecretLogin(url, storage, client_id, client_secret, scope=scope, issuer=issuer)
    else:
        signer = import_sdk("client.auth.extensions.client_credentials").SignedJWTParameters(
            issuer=client_id, subject=client_id, signing_key=private_key, signing_algorithm=algorithm
        )
        assertion = signer.create_assertion_provider()
        provider = flows.KeyLogin(url, storage, client_id, assertion, scope=scope, issuer=issuer)
    provider.storage = storage
    return _add_proofs(provider, dpop=dpop)  # type: ignore[no-any-return]


def workload_identity(
    url: str,
    client_id: str,
    token: str | Path | Callable[[str], Any],
    *,
    issuer: str,
    scope: str | None = None,
    store: FileTokens | None = None,
) -> httpx2.Auth:
    """Return an `auth=` for a workload whose platform signs a token about it (RFC 7523), so that it needs no secret.

    `token` is the path of the file that the platform writes, which is read for each login, or a function of the
    audience. It is sent to `issuer` only.

    Raises:
        ConfigError: an address is not a URL.
        ImportError: the MCP SDK is not installed.
    """

    async def get_assertion(audience: str, resource: str) -> str:
        del resource
        if callable(token):
            return str(await _make_async(token)(audience))
        return (await asyncio.to_thread(Path(token).read_text, "utf-8")).strip()

    storage = store or MemoryTokens()
    flows = _import_flows(url, issuer)
    provider = flows.AssertionLogin(url, storage, client_id, "none", issuer, get_assertion, scope)
    provider.is_public, provider.storage = True, storage
    return provider  # type: ignore[no-any-return]


def enterprise_identity(  # noqa: PLR0913 - one parameter for each option
    url: str,
    client_id: str,
    client_secret: str,
    *,
    issuer: str,
    id_token: Callable[[], Any],
    idp_token_endpoint: str,
    idp_client_id: str,
    idp_client_secret: str | None = None,
    scope: str | None = None,
    store: FileTokens | None = None,
) -> httpx2.Auth:
    """Return an `auth=` for a user whose company manages access to MCP servers (enterprise-managed authorization).

    `id_token` returns the identity token that the identity provider of the company gave to this application. It is
    exchanged there, at `idp_token_endpoint`, for a grant, which `issuer` exchanges for an access token.

    Raises:
        ConfigError: the endpoint is not an https address, or another address is not a URL.
        ImportError: the MCP SDK is not installed.
    """
    if not is_safe_endpoint(split_url(idp_token_endpoint)):
        raise ConfigError(f"idp_token_endpoint={idp_token_endpoint!r}: must be an https address.")
    remember_secrets([{"client_secret": client_secret}, {"client_secret": idp_client_secret or ""}])

    async def get_grant(audience: str, resource: str) -> str:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": _ID_JAG,
            "subject_token": str(await _make_async(id_token)()),
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": idp_client_id,
            **({"client_secret": idp_client_secret} if idp_client_secret else {}),
            **({"scope": scope} if scope else {}),
        }
        answer = await _exchange(idp_token_endpoint, form)
        if answer.get("issued_token_type") != _ID_JAG or not isinstance(answer.get("access_token"), str):
            raise import_sdk("client.auth").OAuthFlowError("the identity provider did not give a grant (ID-JAG)")
        return str(answer["access_token"])

    storage = store or MemoryTokens()
    method = "client_secret_basic"
    provider = _import_flows(url, issuer).AssertionLogin(
        url, storage, client_id, client_secret, issuer, get_grant, scope, token_endpoint_auth_method=method
    )
    provider.storage = storage
    return provider  # type: ignore[no-any-return]


async def _exchange(url: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer of an identity provider to a form. Its address is set by the developer."""
    import httpx2  # noqa: PLC0415 - comes with the SDK
    from pydantic_core import from_json  # noqa: PLC0415 - as above

    body = b""
    async with (
        httpx2.AsyncClient(timeout=EXCHANGE_SECONDS, follow_redirects=False) as client,
        client.stream("POST", url, data=dict(form)) as response,
    ):
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MAX_EXCHANGE_BYTES:
                break
    try:
        data = from_json(body) if len(body) <= MAX_EXCHANGE_BYTES else None
    except ValueError:
        data = None
    if response.status_code != 200 or not isinstance(data, dict):  # noqa: PLR2004 - success
        error = data.get("error") if isinstance(data, dict) else None
        reason = f"the identity provider refused the exchange (HTTP {response.status_code}, {error})"
        raise import_sdk("client.auth").OAuthFlowError(reason)
    return data
