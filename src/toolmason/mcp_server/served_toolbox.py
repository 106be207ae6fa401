"""Hold the handlers and the identity of a served toolbox, and make the SDK's server for it when a request needs it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.options import make_ledger
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.mcp_server.call_tool import CallHandler
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.lists import ToolboxLists
from toolmason.mcp_server.signed_state import StateSigner
from toolmason.mcp_server.subscriptions import Subscriptions

if TYPE_CHECKING:
    from toolmason.mcp_server.sdk_server import ToolboxServer

_TTL_MS: Final = 60_000


class ServedToolbox:
    """A toolbox with its handlers.

    `private`: the lists may depend on the caller. `key`: signs the state that clients carry between rounds.
    `redact`: redact error messages, unless a tool sets its own `on_error`.
    """

    def __init__(self, box: Toolbox, *, private: bool = False, key: bytes | None = None, redact: bool = False) -> None:
        if find_spec("mcp") is None:
            raise ImportError("Serving needs the SDK: pip install 'toolmason[serve]'")
        state = get_state(box)
        Gateway(state.remotes).forward_server_requests()
        lists = ToolboxLists(box)
        signer = StateSigner() if key is None else StateSigner(key, make_ledger(state.policy))
        self.handlers = Handlers(CallHandler(box, lists, signer, redact=redact), Subscriptions(lists))
        self.info: Mapping[str, str] = {"name": state.policy.name or "toolmason", "version": version("toolmason")}
        """Name and version that clients see."""
        scope = "private" if private or state.is_conditional else "public"
        self.cache_hint: Mapping[str, Any] = {"ttlMs": _TTL_MS, "cacheScope": scope}
        """Time and scope for which a client may keep a list."""

    @cached_property
    def sdk(self) -> ToolboxServer:
        """The SDK's server, which carries sessions and streams. Loading the SDK takes most of a second."""
        from toolmason.mcp_server.sdk_server import make_server  # noqa: PLC0415 - few clients over stdio need it

        return make_server(self.handlers, self.info, self.cache_hint)

    def close_listeners(self) -> None:
        """End the requests of clients that only listen."""
        if "sdk" in self.__dict__:
            self.sdk.listen_handler.close()
