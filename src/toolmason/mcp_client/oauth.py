"""Tokens for servers that want them: kept in a file, and had with a client's own credentials.

Lives here: what goes with the SDK's OAuth providers, which do the protocol. No browser is opened by anything here.
Not here: tokens of each call's own (`auth=` with a function), or sending them (`http`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from toolmason.errors import ConfigError


class FileTokens:
    """Keeps the tokens of one server in a file that only its owner can read. A token storage of the SDK."""

    def __init__(self, path: str | Path, server: str) -> None:
        self.path, self.server = Path(path), server

    def __repr__(self) -> str:
        return f"FileTokens({str(self.path)!r}, {self.server!r})"

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, where there are any."""
        stored = self._read_server().get("tokens")
        return None if stored is None else OAuthToken.model_validate(stored)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        await asyncio.to_thread(self._write_key, "tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return how we are registered, where we are."""
        stored = self._read_server().get("client")
        return None if stored is None else OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep how we are registered."""
        await asyncio.to_thread(self._write_key, "client", client_info.model_dump(mode="json", exclude_none=True))

    def forget(self) -> None:
        """Forget the tokens of the server."""
        self._write_key("tokens", None)

    def _read_file(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            reason = f"{type(error).__name__}. Delete the file, and log in again."
            raise ConfigError(f"The tokens in {str(self.path)!r} cannot be read: {reason}") from None
        return data if isinstance(data, dict) else {}

    def _read_server(self) -> dict[str, Any]:
        entry = self._read_file().get(self.server)
        return entry if isinstance(entry, dict) else {}

    def _write_key(self, key: str, value: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The servers of a file share it, and so do processes: what another one has just written must be read first.
        with _WRITE_LOCK, _lock_file(self.path.with_name(f"{self.path.name}.lock")):
            data = self._read_file()
            entry = data.get(self.server)
            data[self.server] = {**(entry if isinstance(entry, dict) else {}), key: value}
            self._replace_file(data)

    def _replace_file(self, data: dict[str, Any]) -> None:
        # Written beside and moved over, so that a reader never sees half of it; made for its owner alone.
        descriptor, temp_path = tempfile.mkstemp(dir=self.path.parent, prefix=".tokens")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(data, file)
            Path(temp_path).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temp_path).unlink()
            raise


_WRITE_LOCK: Final = threading.Lock()
"""One writer of this process at a time; between processes a file is locked."""


@contextlib.contextmanager
def _lock_file(path: Path) -> Generator[None]:
    """Keep other processes out for as long as the block lasts, by a lock on a file that stays."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - there is none elsewhere

            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - there is none on Windows

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which gives the lock back


class _MemoryTokens:
    """Tokens for as long as the process lives."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class _FixedIssuerProvider(ClientCredentialsOAuthProvider):
    @property
    def issuer(self) -> str | None:
        """Where the developer says that tokens are had; a server need not be asked about it."""
        return self._issuer


def client_credentials(
    url: str,
    client_id: str,
    client_secret: str,
    *,
    issuer: str,
    scope: str | None = None,
    store: FileTokens | None = None,
) -> httpx2.Auth:
    """Return an `auth=` for a service that logs in by itself: no user, no browser.

    `issuer` is the authorization server that knows the client; the secret goes to no other, whatever a server says.
    """
    return _FixedIssuerProvider(url, store or _MemoryTokens(), client_id, client_secret, scope=scope, issuer=issuer)
