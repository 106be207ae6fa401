"""Run the flows of OAuth: those of the SDK, with stored tokens, a sign-in by a person, and proofs of a key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import extract_field_from_www_auth, issuers_match, union_scopes
from mcp.shared._httpx_utils import RedirectAwareAuth
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl, ValidationError
from pydantic_core import from_json, to_json
from typing_extensions import override

from toolmason._text import clip, split_url
from toolmason.mcp_client.auth.loopback import SIGN_IN_SECONDS, LoopbackCallback
from toolmason.mcp_client.auth.oauth import OAuth
from toolmason.mcp_client.auth.proofs import Proofs
from toolmason.mcp_client.auth.token_files import FileTokens

MAX_NONCE_REPEATS: Final = 2
"""Repeats of one request because its server wants a nonce."""
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
MAX_DEVICE_SECONDS: Final = 900.0
"""Time for the user to sign in on another device."""
MIN_POLL_SECONDS: float = 1.0
MAX_POLL_SECONDS: Final = 60.0
Show = Callable[[str, str], Awaitable[None]]
"""Shows the user an address to visit, and the code to enter there; the code is empty if none is needed."""


class DrivenFlow(RedirectAwareAuth):
    """Part of a provider that sees each request of the SDK's flow: it adds proofs, and may send others in between."""

    storage: FileTokens
    proofs: Proofs | None = None
    """Key of the tokens, if they are bound to one."""
    _has_loaded: bool = False

    @property
    def issuer(self) -> str | None:
        """Authorization server set by the developer, so that the MCP server need not be asked."""
        return getattr(self, "_issuer", None)

    @override
    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        await self._load_key()
        flow = super()._auth_flow(request)  # type: ignore[safe-super]  # the provider beside this class has it
        repeats, restarted, has_lock = 0, False, False
        try:
            sent = await anext(flow)
            has_lock = True  # the flow has the lock of the provider from here on
            while True:
                self._prove(sent)
                response = yield sent
                wants_nonce = self.proofs is not None and self.proofs.note_nonce(sent, response)
                if wants_nonce and repeats < MAX_NONCE_REPEATS:
                    repeats += 1
                    continue
                if sent is request and not restarted and self._may_renew(request, response):
                    restarted, has_lock = True, False
                    await flow.aclose()
                    flow = super()._auth_flow(request)  # type: ignore[safe-super]  # as above
                    sent = await anext(flow)
                    has_lock = True
                    continue
                if (following := await self._follow(request, sent, response)) is not None:
                    sent = following
                    continue
                repeats = 0
                sent = await flow.asend(self._accept_token(response) if _is_form(sent) else response)
        except StopAsyncIteration:
            return
        finally:
            if has_lock:
                self._end()  # not that of another request, which waits for its user
            await flow.aclose()

    def _may_renew(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        """Return True if the request shall be sent again, with another token than the one that was rejected."""
        del request, response
        return False

    async def _follow(
        self, request: httpx2.Request, sent: httpx2.Request, response: httpx2.Response
    ) -> httpx2.Request | None:
        """Return a request to send before the flow goes on with its response, or None."""
        del request, sent, response
        return None

    def _end(self) -> None:
        """Release what the flow holds."""

    # --- proofs ------------------------------------------------------------------------------------

    async def _load_key(self) -> None:
        """Use the key of the stored tokens, or store the new one."""
        if self._has_loaded:
            return
        self._has_loaded = True
        if (pem := self.storage.load("proof_key")) is not None:
            self.proofs = Proofs(pem)
        elif self.proofs is not None:
            await self.storage.save(proof_key=self.proofs.pem)

    def _prove(self, sent: httpx2.Request) -> None:
        scheme, _, token = sent.headers.get("Authorization", "").partition(" ")
        if self.proofs is None:
            return
        if scheme in ("Bearer", "DPoP"):
            sent.headers["Authorization"] = f"DPoP {token}"
            self.proofs.sign(sent, token)
        elif _is_form(sent):
            self.proofs.sign(sent)

    def _accept_token(self, response: httpx2.Response) -> httpx2.Response:
        """Return a token response as the SDK reads it, which knows bearer tokens only.

        Raises:
            OAuthFlowError: the token is not bound to the key, though it was requested with a proof.
        """
        data = _parse_object(response) if self.proofs is not None and response.is_success else {}
        if "access_token" not in data:
            return response
        if str(data.get("token_type")).lower() != "dpop":
            raise OAuthFlowError("the authorization server did not bind the token to the key of this client (DPoP)")
        body = to_json({**data, "token_type": "Bearer"})
        return httpx2.Response(response.status_code, content=body, request=response.request)


def _is_form(request: httpx2.Request) -> bool:
    return request.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded")


def _parse_object(response: httpx2.Response) -> dict[str, Any]:
    try:
        data = from_json(response.content)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


# --- services ----------------------------------------------------------------------------------


class SecretLogin(DrivenFlow, ClientCredentialsOAuthProvider):
    """Login of a service with a secret."""


class KeyLogin(DrivenFlow, PrivateKeyJWTOAuthProvider):
    """Login of a service with a signed assertion."""


class AssertionLogin(DrivenFlow, IdentityAssertionOAuthProvider):
    """Login with a signed statement about a workload or a user (RFC 7523), which another issuer has signed."""

    is_public: bool = False
    """True if the client has no secret."""

    @override
    def _build_token_request(self, scope: str | None, assertion: str) -> httpx2.Request:
        request = super()._build_token_request(scope, assertion)
        if not self.is_public:
            return request
        form = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": assertion, "resource": self._resource}
        form |= {"client_id": self._client.client_id or ""} | ({"scope": scope} if scope else {})
        return httpx2.Request("POST", request.url, data=form)


# --- people ------------------------------------------------------------------------------------


class SignIn(DrivenFlow, OAuthClientProvider):
    """Sign-in by a person, whose tokens are stored and refreshed."""

    def __init__(self, url: str, options: OAuth, storage: FileTokens, show: Show | None) -> None:
        grants = ["authorization_code", "refresh_token", *([DEVICE_GRANT] if options.device else [])]
        metadata = OAuthClientMetadata(
            client_name="Toolmason",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{options.port}/callback")],
            grant_types=grants,
            response_types=["code"],
            token_endpoint_auth_method="none",  # noqa: S106 - the name of a method: a program on a desktop has no secret
        )
        super().__init__(url, metadata, storage, self._visit, self._wait, options.client_metadata_url)
        self.storage, self._options, self._issuer = storage, options, options.issuer
        self._show = show
        """None if the user cannot be asked."""
        self._is_untried = False
        """True if the server has not answered a request with the new token yet."""
        self._callback: LoopbackCallback | None = None
        self._state = ""
        self._device_endpoint = ""
        self._device: dict[str, Any] = {}
        self._device_ends = 0.0

    @override
    async def _initialize(self) -> None:
        """Load the stored tokens and the server that refreshes them: the SDK would ask the user after each restart."""
        await super()._initialize()
        self.context.token_expiry_time = self.storage.load("expires_at")
        if self.context.oauth_metadata is None and (server := self.storage.load("server")) is not None:
            try:
                metadata = OAuthMetadata.model_validate(server)
            except ValidationError:
                metadata = None
            if metadata is None or (self._issuer and not issuers_match(str(metadata.issuer), self._issuer)):
                self.context.clear_tokens()  # a refresh would send the secret to another server
            else:
                self.context.oauth_metadata = metadata
        if self._options.client_id is not None:
            secret = self._options.client_secret
            self.context.client_info = OAuthClientInformationFull(
                client_id=self._options.client_id,
                client_secret=secret,
                redirect_uris=None,
                token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
                issuer=self._issuer,
            )

    # --- tokens ------------------------------------------------------------------------------------

    @override
    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self._is_untried = True
        if (metadata := self.context.oauth_metadata) is not None:
            await self.storage.save(server=metadata.model_dump(mode="json", exclude_none=True))

    @override
    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        tried = self.context.current_tokens
        if await super()._handle_refresh_response(response):
            return True
        # Another process may have refreshed it: a refresh token is often valid once.
        stored = await self.storage.get_tokens()
        if stored is None or tried is None or stored.access_token == tried.access_token:
            return False
        self.context.current_tokens, self.context.token_expiry_time = stored, self.storage.load("expires_at")
        return True

    @override
    def _may_renew(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        tokens = self.context.current_tokens
        if response.status_code != _UNAUTHORIZED or tokens is None or self._is_untried:
            return False
        if not request.headers.get("Authorization", "").endswith(f" {tokens.access_token}"):
            return True  # another request has got a new one meanwhile
        if not self.context.can_refresh_token() or self.context.oauth_metadata is None:
            return False
        self.context.token_expiry_time = 1.0  # it was revoked, or its time was not said
        return True

    # --- the user ----------------------------------------------------------------------------------

    @override
    async def _follow(
        self, request: httpx2.Request, sent: httpx2.Request, response: httpx2.Response
    ) -> httpx2.Request | None:
        if sent is request:
            self._prepare_sign_in(response)
        elif sent.method == "GET" and response.is_success:
            self._device_endpoint = str(_parse_object(response).get("device_authorization_endpoint") or "")
        elif self._device_endpoint and str(sent.url) == self._device_endpoint:
            return await self._start_polling(response)
        elif self._device and response.status_code >= 400:  # noqa: PLR2004 - an error
            return await self._poll_again(response)
        return None

    def _prepare_sign_in(self, response: httpx2.Response) -> None:
        """Open the callback if the server wants a sign-in.

        Raises:
            OAuthFlowError: the user cannot be asked.
        """
        if response.status_code == _UNAUTHORIZED and self._is_untried:
            raise OAuthFlowError("the server rejects the token that its authorization server has just issued")
        self._is_untried = False
        error = extract_field_from_www_auth(response, "error")
        is_step_up = response.status_code == _FORBIDDEN and error == "insufficient_scope"
        if response.status_code != _UNAUTHORIZED and not is_step_up:
            return
        if self._show is None:
            command = f"toolmason mcp login {clip(self.context.server_url, 200)}"
            if is_step_up:
                scope = clip(extract_field_from_www_auth(response, "scope") or "")
                raise OAuthFlowError(f"the tokens lack the scope {scope!r}. Run `{command}`")
            raise OAuthFlowError(f"you are not signed in. Run `{command}`")
        if self._options.device or self._callback is not None:
            return
        client = self.context.client_info
        known = client.redirect_uris[0].port if client is not None and client.redirect_uris else None
        try:
            self._callback = LoopbackCallback(self._options.port or known or 0)
        except OSError:
            self._callback = LoopbackCallback(self._options.port)
        if known is not None and known != self._callback.port:
            self.context.client_info = None  # it was registered with a port that is in use now
        self.context.client_metadata.redirect_uris = [AnyUrl(self._callback.address)]

    @override
    async def _perform_authorization(self) -> httpx2.Request:
        metadata, client_metadata = self.context.oauth_metadata, self.context.client_metadata
        client_metadata.scope = union_scopes(client_metadata.scope, " ".join(self._options.scopes) or None)
        if self._options.device:
            return self._make_device_request()
        methods = None if metadata is None else metadata.code_challenge_methods_supported
        if metadata is not None and "S256" not in (methods or ()):
            raise OAuthFlowError("the authorization server does not offer PKCE with S256, so a code could be stolen")
        return await super()._perform_authorization()

    async def _visit(self, address: str) -> None:
        parts = split_url(address)
        if parts.scheme not in ("http", "https") or self._show is None:
            raise OAuthFlowError(f"the authorization server names no web address to sign in: {clip(address)}")
        self._state = parse_qs(parts.query)["state"][-1]
        await self._show(address, "")

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._callback is not None  # noqa: S101 - opened before the flow gets here
        try:
            found = await self._callback.wait(self._state)
        except TimeoutError:
            raise OAuthFlowError(f"the sign-in was not finished within {SIGN_IN_SECONDS:g} s") from None
        if "code" not in found:
            raise OAuthFlowError(f"the sign-in was refused: {clip(found.get('error', 'no code'))}")
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    @override
    def _end(self) -> None:
        if self._callback is not None:
            self._callback.close()
        self._callback, self._device = None, {}

    # --- another device (RFC 8628) -----------------------------------------------------------------

    def _make_device_request(self) -> httpx2.Request:
        if split_url(self._device_endpoint).scheme not in ("http", "https"):
            raise OAuthFlowError("the authorization server offers no sign-in on another device")
        scope = self.context.client_metadata.scope
        return self._make_form(self._device_endpoint, {"scope": scope} if scope else {})

    def _make_form(self, url: str, fields: dict[str, str]) -> httpx2.Request:
        client = self.context.client_info
        data = {**fields, "client_id": "" if client is None else client.client_id or ""}
        data["resource"] = self.context.get_resource_url()
        data, headers = self.context.prepare_token_auth(data, {})
        return httpx2.Request("POST", url, data=data, headers=headers)

    async def _start_polling(self, response: httpx2.Response) -> httpx2.Request:
        found = _parse_object(response)
        address = found.get("verification_uri_complete") or found.get("verification_uri")
        code, show = found.get("user_code"), self._show
        if not isinstance(address, str) or not isinstance(code, str) or not found.get("device_code") or show is None:
            raise OAuthFlowError(f"the authorization server gave no code for a device (HTTP {response.status_code})")
        if split_url(address).scheme not in ("http", "https"):
            raise OAuthFlowError(f"the authorization server names no web address to sign in: {clip(address)}")
        self._device = found
        self._device_ends = time.monotonic() + min(_get_seconds(found, "expires_in", 600.0), MAX_DEVICE_SECONDS)
        await show(address, clip(code))
        return await self._poll()

    async def _poll_again(self, response: httpx2.Response) -> httpx2.Request | None:
        error = _parse_object(response).get("error")
        if error == "slow_down":
            self._device["interval"] = _get_seconds(self._device, "interval", 5.0) + 5
        elif error != "authorization_pending":
            return None
        if time.monotonic() > self._device_ends:
            raise OAuthFlowError("the sign-in was not finished before its code expired")
        return await self._poll()

    async def _poll(self) -> httpx2.Request:
        seconds = _get_seconds(self._device, "interval", 5.0)
        await asyncio.sleep(min(max(seconds, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
        fields = {"grant_type": DEVICE_GRANT, "device_code": str(self._device["device_code"])}
        return self._make_form(self._get_token_endpoint(), fields)


def _get_seconds(data: dict[str, Any], name: str, default: float) -> float:
    seconds = data.get(name)
    return float(seconds) if isinstance(seconds, int | float) and seconds >= 0 else default
