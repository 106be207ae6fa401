"""Receive the answer of a sign-in on this machine (RFC 8252, section 7.3)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from toolmason._text import split_url

PATH: Final = "/callback"
MAX_REQUEST_BYTES: Final = 16 * 1024
REQUEST_SECONDS: Final = 10.0
"""Time for a browser to send its request."""
SIGN_IN_SECONDS: Final = 300.0
"""Time for the user to sign in."""
_DONE: Final = "You are signed in. You can close this tab."
_REFUSED: Final = "The sign-in was refused. You can close this tab."
_UNKNOWN: Final = "This sign-in is unknown, or has ended."


class LoopbackCallback:
    """The address to which the authorization server sends the browser, on a port of this machine."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen()  # a browser may be back before this program waits for it
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """Address of the callback."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def close(self) -> None:
        """Release the port."""
        self._socket.close()

    async def wait(self, state: str) -> Mapping[str, str]:
        """Return the parameters with which the browser comes back for this `state`. Other requests are refused.

        Raises:
            TimeoutError: it did not come within `SIGN_IN_SECONDS`.
        """
        answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            text, status = _UNKNOWN, "400 Bad Request"
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                parameters = self._parse(head)
                # A page that guesses must not end the sign-in of the user.
                if parameters.get("state") == state and not answer.done():
                    answer.set_result(parameters)
                    text, status = (_DONE if "code" in parameters else _REFUSED), "200 OK"
            with contextlib.suppress(OSError):
                writer.write(_make_response(status, text))
                await writer.drain()
                writer.close()

        server = await asyncio.start_server(handle, sock=self._socket, limit=MAX_REQUEST_BYTES)
        try:
            async with asyncio.timeout(SIGN_IN_SECONDS):
                found = await answer
            await asyncio.sleep(0)  # lets the response go out before the port closes
            return found
        finally:
            server.close()

    def _parse(self, head: str) -> Mapping[str, str]:
        """Return the parameters of a request, or none if it is not for the callback."""
        line, *headers = head.split("\r\n")
        method, target, _ = line.split(" ")
        hosts = [value.strip() for name, _, value in (h.partition(":") for h in headers) if name.lower() == "host"]
        parts = split_url(target)
        if method != "GET" or parts.path != PATH or parts.netloc or hosts != [f"127.0.0.1:{self.port}"]:
            return {}
        pairs = parse_qsl(parts.query)
        # A repeated parameter may mean one thing to the browser and another to this program.
        return dict(pairs) if len({name for name, _ in pairs}) == len(pairs) else {}


def _make_response(status: str, text: str) -> bytes:
    """Return a page without scripts, links and parts of the request."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return (head + text).encode()
