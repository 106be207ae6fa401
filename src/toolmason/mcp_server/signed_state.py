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

from toolmason._core.values.definition import canonicalize

MAX_AGE_SECONDS: Final = 600.0
"""How long an answer may take."""


class InvalidState(Exception):
    """A state that we did not write, or not for this request, or too long ago."""


@dataclass(frozen=True, slots=True)
class StateSigner:
    """Signs states with a key; another process needs the same key to read them."""

    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)

    def sign(self, data: Mapping[str, Any], binding: str) -> str:
        """Return data as a text that only we can have written, for one request."""
        body = to_json({"data": dict(data), "bound": binding, "expires": time.time() + MAX_AGE_SECONDS})
        return f"{_encode(body)}.{_encode(self._make_mac(body))}"

    def verify(self, text: str, binding: str) -> dict[str, Any]:
        """Return the data of a state.

        Raises:
            BadState: it is not ours, not for this request, or too old.
        """
        body, _, mac = text.partition(".")
        try:
            raw, given_mac = _decode(body), _decode(mac)
        except (binascii.Error, ValueError):
            raise InvalidState("it cannot be read") from None
        if not hmac.compare_digest(self._make_mac(raw), given_mac):
            raise InvalidState("it was changed, or was not made here")
        payload = from_json(raw)
        if payload["bound"] != binding:
            raise InvalidState("it belongs to another request")
        if time.time() > payload["expires"]:
            raise InvalidState("it has expired")
        data: dict[str, Any] = payload["data"]
        return data

    def _make_mac(self, body: bytes) -> bytes:
        return hmac.new(self.key, body, hashlib.sha256).digest()


def make_binding(method: str, name: str, arguments: Any, owner: str) -> str:
    """Return what binds a state to a request."""
    return hashlib.sha256(to_json([method, name, canonicalize(arguments or {}), owner])).hexdigest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    # Strict: what we did not write character by character is not ours.
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encode(data) != text:
        raise binascii.Error
    return data
