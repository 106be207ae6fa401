"""Turn the result of `auth=` into headers, and headers into a key per identity."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason._core.run.execute import call_user_function
from toolmason._core.values.policy import EngineSettings
from toolmason.errors import RemoteError
from toolmason.mcp_client.server_options import ServerSpec


def has_identities(server: ServerSpec) -> bool:
    """Return True if the server distinguishes callers, that is, if `auth=` is a function of the context."""
    auth = server.auth
    return callable(auth) and not hasattr(auth, "auth_flow") and not hasattr(auth, "async_auth_flow")


async def make_auth_headers(server: ServerSpec, context: ToolContext[Any]) -> Mapping[str, str]:
    """Return the headers for the context's identity.

    Raises:
        RemoteError: `auth=` failed, or returned neither a token nor headers.
    """
    deadline = asyncio.timeout(server.connect_timeout)
    try:
        async with deadline:
            credentials = await call_user_function(server.auth, context, settings=EngineSettings())
    except Exception as error:
        timed_out = isinstance(error, TimeoutError) and deadline.expired()
        timeout_reason = f"no response within connect_timeout={server.connect_timeout:g} s"
        reason = f"auth= failed: {timeout_reason if timed_out else type(error).__name__}"
        raise RemoteError(server.name, "authorize", reason) from error
    if credentials is None:
        return {}
    if isinstance(credentials, str):
        return {"Authorization": credentials if " " in credentials else f"Bearer {credentials}"}
    if isinstance(credentials, Mapping):
        return {str(name): str(value) for name, value in credentials.items()}
    reason = f"auth= returned {type(credentials).__name__}. Return a token or headers"
    raise RemoteError(server.name, "authorize", reason)


def make_identity_key(headers: Mapping[str, str]) -> str:
    """Return a key that identifies the headers without storing their secrets."""
    if not headers:
        return ""
    text = "\n".join(f"{name.lower()}:{value}" for name, value in sorted(headers.items()))
    return hashlib.sha256(text.encode()).hexdigest()
