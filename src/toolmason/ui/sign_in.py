"""Sign in to an MCP server with OAuth: the browser visits the authorization server, and comes back with a code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import ConfigError
from toolmason.mcp_client.auth.token_files import MemoryTokens
from toolmason.ui.page import Page
from toolmason.ui.server_entries import find_server

SIGNED_IN: Final = "/signed-in"
"""Path to which the authorization server sends the browser."""
START_SECONDS: Final = 30.0
"""Wait for the address of a sign-in."""
SIGN_IN_SECONDS: Final = 300.0
"""Time for the user to sign in."""
MAX_SIGN_INS: Final = 16
"""Sign-ins in progress."""


@dataclass(eq=False, slots=True, repr=False)
class _SignIn:
    """One sign-in: the address to visit, then the parameters with which the browser comes back."""

    address: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    answer: asyncio.Future[Mapping[str, str]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def redirect(self, address: str) -> None:
        if not self.address.done():
            self.address.set_result(address)

    async def wait(self) -> Any:
        async with asyncio.timeout(SIGN_IN_SECONDS):
            answer = await self.answer
        result: Any = import_module("mcp.client.auth").AuthorizationCodeResult
        return result(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))


class SignIns:
    """The sign-ins of a page, by their unguessable `state`. Tokens stay in the memory of the process."""

    def __init__(self) -> None:
        self._open: dict[str, _SignIn] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    async def start(self, page: Page, name: str, back: str) -> str:
        """Connect a server with OAuth. Return the address to visit, or an empty string if none is needed.

        Raises:
            KeyError: the toolbox has no such server.
            ConfigError: the server is not reached over HTTP, or offers no sign-in.
            RemoteError: the server does not answer.
        """
        server = find_server(page.box, name)
        if server.kind != "http" or len(self._open) >= MAX_SIGN_INS:
            raise ConfigError(
                f"Server {name!r} has no sign-in to start: it is not reached over HTTP, or many are open."
            )
        sign_in = _SignIn()
        remotes = get_state(page.box).remotes
        source = replace(server, auth=_make_provider(server.url, back, sign_in)).__remote__(remotes.handlers)
        task = asyncio.ensure_future(source.prepare())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait((task, sign_in.address), timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not sign_in.address.done():
            if not task.done():
                task.cancel()
                raise ConfigError(f"Server {name!r} did not name a place to sign in within {START_SECONDS:g} s.")
            task.result()
        await remotes.replace(source)
        task.add_done_callback(lambda ended: _report(page, ended))
        if not sign_in.address.done():
            return ""
        address = sign_in.address.result()
        state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        self._open[state] = sign_in
        task.add_done_callback(lambda _: self._open.pop(state, None))
        return address

    def finish(self, parameters: Mapping[str, str]) -> str:
        """Pass the code of a sign-in on. Return the text for the browser."""
        sign_in = self._open.pop(parameters.get("state", ""), None)
        if sign_in is None or sign_in.answer.done():
            return "This sign-in is unknown, or has ended. Start it again on the page."
        if "code" not in parameters:
            sign_in.answer.set_exception(ConfigError("The sign-in was refused."))
            return "The sign-in was refused. You can close this tab."
        sign_in.answer.set_result(dict(parameters))
        return "You are signed in. You can close this tab."


def _report(page: Page, ended: asyncio.Future[None]) -> None:
    """Show the tools after a sign-in. The health of a server that failed has its error."""
    if not ended.cancelled():
        ended.exception()  # retrieved, so that asyncio does not log it
        page.notify("tools")


def _make_provider(url: str | None, back: str, sign_in: _SignIn) -> Any:
    auth: Any = import_module("mcp.client.auth")
    metadata = import_module("mcp.shared.auth").OAuthClientMetadata(
        client_name="Toolmason",
        redirect_uris=[back],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",  # noqa: S106 - the name of a method: a program on a desktop has no secret
    )
    return auth.OAuthClientProvider(url, metadata, MemoryTokens(), sign_in.redirect, sign_in.wait)
