"""What a call knew when it had to ask → a text that the client keeps for us, and back.

Lives here: signing, and what a state is bound to: the request, who made it, a time. A client can read it and change
nothing. Not here: what is asked (`asking`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.values.definition import canonical

SECONDS: Final = 600.0
"""How long an answer may take."""


class BadState(Exception):
    """A state that we did not write, or not for this request, or too long ago."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Signs states with a key; another process needs the same key to read them."""

    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)

    def sealed(self, data: Mapping[str, Any], bound: str) -> str:
        """Return data as a text that only we can have written, for one request."""
        body = to_json({"data": dict(data), "bound": bound, "expires": time.time() + SECONDS})
        return f"{_text(body)}.{_text(self._mac(body))}"

    def opened(self, text: str, bound: str) -> dict[str, Any]:
        """Return the data of a state.

        Raises:
            BadState: it is not ours, not for this request, or too old.
        """
        body, _, mac = text.partition(".")
        try:
            raw, given = _bytes(body), _bytes(mac)
        except (binascii.Error, ValueError):
            raise BadState("it cannot be read") from None
        if not hmac.compare_digest(self._mac(raw), given):
            raise BadState("it was changed, or was not made here")
        found = from_json(raw)
        if found["bound"] != bound:
            raise BadState("it belongs to another request")
        if time.time() > found["expires"]:
            raise BadState("it has expired")
        data: dict[str, Any] = found["data"]
        return data

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self.key, body, hashlib.sha256).digest()


def bound_to(method: str, name: str, arguments: Any, who: str) -> str:
    """Return what binds a state to a request."""
    return hashlib.sha256(to_json([method, name, canonical(arguments or {}), who])).hexdigest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    # Strict: what we did not write character by character is not ours.
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(data) != text:
        raise binascii.Error
    return data
