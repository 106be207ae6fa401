"""Store OAuth tokens in a file that only its owner can read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from toolmason._core.config.layers import get_state_folder
from toolmason.errors import ConfigError

if TYPE_CHECKING:  # imported on first use, so that `help(toolmason.mcp)` works without the SDK
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


def import_sdk(module: str) -> Any:
    """Return a module of the MCP SDK. Raise ImportError with the command that installs it."""
    try:
        return import_module(f"mcp.{module}")
    except ImportError as missing:
        raise ImportError("OAuth needs the MCP SDK: pip install 'toolmason[mcp]'") from missing


def get_token_path() -> Path:
    """Return the path of the file with the tokens of the user."""
    return get_state_folder() / "tokens.json"


class FileTokens:
    """SDK token storage that keeps the tokens of one server in a file only its owner can read.

    Without a path, it is the file of `toolmason mcp login`. `server` is the URL of the server, or any other key.
    """

    def __init__(self, path: str | Path | None, server: str) -> None:
        self.path, self.server = get_token_path() if path is None else Path(path), server

    def __repr__(self) -> str:
        return f"FileTokens({str(self.path)!r}, {self.server!r})"

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens, or None."""
        stored = self._read_server().get("tokens")
        return None if stored is None else import_sdk("shared.auth").OAuthToken.model_validate(stored)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens, and when they expire."""
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        await self.save(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored client registration, or None."""
        stored = self._read_server().get("client")
        return None if stored is None else import_sdk("shared.auth").OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client registration."""
        await self.save(client=client_info.model_dump(mode="json", exclude_none=True))

    def load(self, key: str) -> Any:
        """Return another stored value of the server, such as `expires_at`, or None."""
        return self._read_server().get(key)

    async def save(self, **values: Any) -> None:
        """Store values of the server, in one step."""
        await asyncio.to_thread(self._write, values)

    def forget(self) -> None:
        """Delete the tokens of the server, and its registration of this client."""
        self._write(None)

    def _read_file(self) -> dict[str, Any]:
        try:
            data = json.loads(_read_private(self.path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            reason = str(error) if isinstance(error, PermissionError) else type(error).__name__
            raise ConfigError(
                f"Cannot read the tokens in {str(self.path)!r}: {reason}. Delete the file and log in again."
            ) from None
        return data if isinstance(data, dict) else {}

    def read_all(self) -> dict[str, dict[str, Any]]:
        """Return the values of all servers in the file."""
        return {name: entry for name, entry in self._read_file().items() if isinstance(entry, dict)}

    def _read_server(self) -> dict[str, Any]:
        entry = self._read_file().get(self.server)
        return entry if isinstance(entry, dict) else {}

    def _write(self, values: Mapping[str, Any] | None) -> None:
        """Change the values of the server, or delete all of them."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Servers and processes share the file, so read its latest version before writing.
        with _WRITE_LOCK, _lock_file(self.path.with_name(f"{self.path.name}.lock")):
            data = self._read_file()
            entry = data.pop(self.server, None)
            if values is not None:
                data[self.server] = {**(entry if isinstance(entry, dict) else {}), **values}
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


def list_signed_in() -> dict[str, float | None]:
    """Return the servers with stored tokens, and when their tokens expire."""
    entries = FileTokens(None, "").read_all()
    return {name: entry.get("expires_at") for name, entry in entries.items() if entry.get("tokens")}


def _read_private(path: Path) -> str:
    """Return the text of a file that belongs to this user alone.

    Raises:
        PermissionError: another user may have written it, or can read it.
        OSError: it cannot be read, or it is a link: its target may belong to another user.
    """
    descriptor = os.open(path, os.O_RDONLY | _NO_LINK)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        found = os.fstat(descriptor)
        if sys.platform != "win32" and (found.st_uid != os.getuid() or found.st_mode & 0o077):
            raise PermissionError("other users can read or change the file")
        if found.st_size > MAX_FILE_BYTES:
            raise ValueError("the file with the tokens is too large")
        return file.read(MAX_FILE_BYTES)


_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_WRITE_LOCK: Final = threading.Lock()
"""Serializes writers in this process; a file lock serializes processes."""


@contextlib.contextmanager
def _lock_file(path: Path) -> Generator[None]:
    """Hold an exclusive lock against other processes during the block. The lock file is not deleted."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
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

    @property
    def values(self) -> Mapping[str, Any]:
        """All stored values."""
        return self._stored

    @override
    def _read_server(self) -> dict[str, Any]:
        return self._stored

    @override
    def _write(self, values: Mapping[str, Any] | None) -> None:
        self._stored = {} if values is None else {**self._stored, **values}
