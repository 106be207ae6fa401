"""Store OAuth tokens in a file, and log in with client credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from toolmason.errors import ConfigError

if TYPE_CHECKING:  # imported on first use, so that `help(toolmason.mcp)` works without the SDK
    import httpx2
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


def _import_sdk(module: str) -> Any:
    try:
        return import_module(f"mcp.{module}")
    except ImportError as missing:
        raise ImportError("OAuth needs the MCP SDK: pip install 'toolmason[mcp]'") from missing


class FileTokens:
    """SDK token storage that keeps the tokens of one server in a file only its owner can read."""

    def __init__(self, path: str | Path, server: str) -> None:
        self.path, self.server = Path(path), server

    def __repr__(self) -> str:
        return f"FileTokens({str(self.path)!r}, {self.server!r})"

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens, or None."""
        stored = self._read_server().get("tokens")
        return None if stored is None else _import_sdk("shared.auth").OAuthToken.model_validate(stored)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens."""
        await asyncio.to_thread(self._write_key, "tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored client registration, or None."""
        stored = self._read_server().get("client")
        return None if stored is None else _import_sdk("shared.auth").OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client registration."""
        await asyncio.to_thread(self._write_key, "client", client_info.model_dump(mode="json", exclude_none=True))

    def forget(self) -> None:
        """Delete the tokens of the server."""
        self._write_key("tokens", None)

    def _read_file(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            reason = f"{type(error).__name__}. Delete the file and log in again."
            raise ConfigError(f"Cannot read the tokens in {str(self.path)!r}: {reason}") from None
        return data if isinstance(data, dict) else {}

    def _read_server(self) -> dict[str, Any]:
        entry = self._read_file().get(self.server)
        return entry if isinstance(entry, dict) else {}

    def _write_key(self, key: str, value: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Servers and processes share the file, so read its latest version before writing.
        with _WRITE_LOCK, _lock_file(self.path.with_name(f"{self.path.name}.lock")):
            data = self._read_file()
            entry = data.get(self.server)
            data[self.server] = {**(entry if isinstance(entry, dict) else {}), key: value}
            self._replace_file(data)

    def _replace_file(self, data: dict[str, Any]) -> None:
        # Write a temporary file and rename it: readers never see a partial file, and mkstemp sets mode 0600.
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
"""Serializes writers in this process; a file lock serializes processes."""


@contextlib.contextmanager
def _lock_file(path: Path) -> Generator[None]:
    """Hold an exclusive lock against other processes during the block. The lock file is not deleted."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - Windows only

            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - not on Windows

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # releases the lock


class MemoryTokens(FileTokens):
    """Token storage for the lifetime of the process."""

    def __init__(self) -> None:
        super().__init__("", "")
        self._stored: dict[str, Any] = {}

    @override
    def _read_server(self) -> dict[str, Any]:
        return self._stored

    @override
    def _write_key(self, key: str, value: Any) -> None:
        self._stored[key] = value


def client_credentials(
    url: str,
    client_id: str,
    client_secret: str,
    *,
    issuer: str,
    scope: str | None = None,
    store: FileTokens | None = None,
) -> httpx2.Auth:
    """Return an `auth=` for a service that logs in without a user or a browser.

    `issuer` is the authorization server that registered the client. The secret is sent only there, whatever the MCP
    server says.

    Raises:
        ImportError: the MCP SDK is not installed.
    """
    provider: Any = _import_sdk("client.auth.extensions.client_credentials").ClientCredentialsOAuthProvider

    class FixedIssuerProvider(provider):  # type: ignore[misc]  # a class that is loaded when it is needed
        @property
        def issuer(self) -> str | None:
            """Authorization server set by the developer, so that the MCP server need not be asked."""
            return self._issuer  # type: ignore[no-any-return]

    return FixedIssuerProvider(url, store or MemoryTokens(), client_id, client_secret, scope=scope, issuer=issuer)
