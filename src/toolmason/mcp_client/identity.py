"""Who is asking → the headers that say so, and what tells one identity from another.

Lives here: the answer of `auth=`, as headers. Not here: how a token is got (`auth`).
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

from toolmason._core.define.context import ToolContext
from toolmason.errors import RemoteError
from toolmason.mcp_client.server_options import Server


def has_identities(server: Server) -> bool:
    """Tell whether a server may know its callers apart: whether `auth=` is a function of the context."""
    ask = server.auth
    return callable(ask) and not hasattr(ask, "auth_flow") and not hasattr(ask, "async_auth_flow")


async def headers_for(server: Server, context: ToolContext[Any]) -> Mapping[str, str]:
    """Return who is asking, as headers.

    Raises:
        RemoteError: `auth=` failed, or returned what is neither a token nor headers.
    """
    ask = server.auth
    if not has_identities(server):
        return {}
    bound = asyncio.timeout(server.connect_timeout)
    try:
        async with bound:
            # A function that is not async may read a file or ask a service, and nobody else is to wait for it.
            told = ask(context) if _is_async(ask) else await asyncio.to_thread(ask, context)
            told = await told if inspect.isawaitable(told) else told
    except Exception as error:
        late = isinstance(error, TimeoutError) and bound.expired()
        limit = f"no answer within connect_timeout of {server.connect_timeout:g} s"
        reason = f"auth= failed: {limit if late else type(error).__name__}"
        raise RemoteError(server.name, "authorize", reason) from error
    if told is None:
        return {}
    if isinstance(told, str):
        return {"Authorization": told if " " in told else f"Bearer {told}"}
    if isinstance(told, Mapping):
        return {str(name): str(value) for name, value in told.items()}
    reason = f"auth= returned {type(told).__name__}. Return a token or headers"
    raise RemoteError(server.name, "authorize", reason)


def _is_async(ask: Any) -> bool:
    return inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(type(ask).__call__)


def key_of(headers: Mapping[str, str]) -> str:
    """Return what tells one identity from another, without keeping its secret."""
    if not headers:
        return ""
    text = "\n".join(f"{name.lower()}:{value}" for name, value in sorted(headers.items()))
    return hashlib.sha256(text.encode()).hexdigest()
