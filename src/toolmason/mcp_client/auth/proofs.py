"""Prove that a token belongs to this client: DPoP (RFC 9449)."""

from __future__ import annotations

import hashlib
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from jwt.algorithms import ECAlgorithm

if TYPE_CHECKING:
    import httpx2

ALGORITHM: Final = "ES256"
MAX_NONCES: Final = 16
"""Servers whose last nonce is kept."""
MAX_NONCE_CHARS: Final = 1024


class Proofs:
    """A key, and the proofs that are signed with it, each for one request."""

    def __init__(self, pem: str | None = None) -> None:
        key: Any = ec.generate_private_key(ec.SECP256R1()) if pem is None else load_pem_private_key(pem.encode(), None)
        self._key = key
        self._public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self._nonces: OrderedDict[str, str] = OrderedDict()

    @property
    def pem(self) -> str:
        """The private key, to be stored with the tokens that are bound to it."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()  # type: ignore[no-any-return]

    def sign(self, request: httpx2.Request, token: str = "") -> None:
        """Add a fresh proof to a request; `token` is the access token that the request sends."""
        claims: dict[str, Any] = {
            "jti": str(uuid4()),
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token:
            claims["ath"] = urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
        if (nonce := self._nonces.get(_get_origin(request))) is not None:
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._public}
        request.headers["DPoP"] = jwt.encode(claims, self._key, ALGORITHM, headers=headers)

    def note_nonce(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        """Keep the nonce of a response for its server. Return True if the request must be repeated with it."""
        nonce = response.headers.get("DPoP-Nonce", "")
        if not nonce or len(nonce) > MAX_NONCE_CHARS:
            return False
        origin = _get_origin(request)
        is_new = self._nonces.get(origin) != nonce
        self._nonces[origin] = nonce
        self._nonces.move_to_end(origin)
        if len(self._nonces) > MAX_NONCES:
            self._nonces.popitem(last=False)
        challenge = response.headers.get("WWW-Authenticate", "") if response.status_code == 401 else response.text  # noqa: PLR2004 - unauthorized
        return is_new and response.status_code in (400, 401) and "use_dpop_nonce" in challenge


def _get_origin(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}"
