"""Sign the state of a call that needs input, so that the client can carry it to the next round."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.call.approval import TokenLedger, UsedTokens
from toolmason._core.values.definition import canonicalize
from toolmason.mcp_client.specification import INVALID_PARAMS, RpcError

_log = logging.getLogger("toolmason.mcp_server")

MAX_AGE_SECONDS: Final = 600.0
"""Seconds for which a state is valid."""


@dataclass(frozen=True, slots=True)
class StateSigner:
    """Signer of states. Another process verifies them if it has the same key; the default key is random."""

    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    ledger: TokenLedger | None = None
    """Record of what other processes with this key have used; None if no other process has it."""
    _used: UsedTokens = field(default_factory=UsedTokens)

    def sign(self, data: Mapping[str, Any], binding: str) -> str:
        """Return signed data, bound to one request. The client can read it, but not change it."""
        expires = time.time() + MAX_AGE_SECONDS
        body = to_json({"data": dict(data), "bound": binding, "expires": expires, "nonce": os.urandom(12).hex()})
        text = base64.urlsafe_b64encode(body).decode("ascii")
        return f"{text}.{self._make_mac(text)}"

    def verify(self, text: str, binding: str) -> dict[str, Any]:
        """Return the data of a state.

        Raises:
            RpcError: the state is forged, expired, or bound to another request.
        """
        encoded_body, _, mac = text.partition(".")
        # The text itself is signed, so that no other text of the same data is a second state to use.
        if not hmac.compare_digest(self._make_mac(encoded_body).encode(), mac.encode("utf-8", "replace")):
            raise _make_error("it was changed, or issued by a server with another state_key")
        payload = from_json(base64.urlsafe_b64decode(encoded_body))
        if payload["bound"] != binding:
            raise _make_error("it belongs to another request")
        if time.time() > payload["expires"]:
            raise _make_error("it has expired")
        data: dict[str, Any] = payload["data"]
        return data

    async def use(self, text: str) -> None:
        """Mark a verified state as used.

        Raises:
            RpcError: it was used before.
        """
        encoded_body, _, token = text.partition(".")
        expires = from_json(base64.urlsafe_b64decode(encoded_body))["expires"]
        try:
            found = await self._used.use(token, expires - MAX_AGE_SECONDS, expires, self.ledger)
        except OSError as error:
            _log.error("the use of an approval cannot be recorded: %s", error)
            raise _make_error("its use cannot be recorded") from None
        if found is not None:
            raise _make_error("it was already used")

    def _make_mac(self, text: str) -> str:
        return hmac.new(self.key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _make_error(reason: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Invalid requestState: {reason}.")


def make_binding(method: str, name: str, arguments: Any, owner: str) -> str:
    """Return a digest that binds a state to a request and its owner."""
    return hashlib.sha256(to_json([method, name, canonicalize(arguments or {}), owner])).hexdigest()
