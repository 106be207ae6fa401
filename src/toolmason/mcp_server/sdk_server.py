"""Build the SDK server of a toolbox, which carries sessions and streams, and calls the table of handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    LOG_LEVEL_META_KEY,
    NotificationParams,
    RequestParams,
    SubscriptionsListenRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from typing_extensions import override

from toolmason._core.remote.gateway import Gateway
from toolmason._core.run.eager_task import EagerTask
from toolmason._core.toolbox.options import make_ledger
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.mcp_client.calls.tasks import EXTENSION_ID
from toolmason.mcp_server.call_tool import CallHandler, Request
from toolmason.mcp_server.client_requests import ClientStream
from toolmason.mcp_server.handlers import Handler, Handlers
from toolmason.mcp_server.http.owner import ANONYMOUS, Identity, Session
from toolmason.mcp_server.lists import PAGE_SIZE, ToolboxLists
from toolmason.mcp_server.signed_state import StateSigner
from toolmason.mcp_server.subscriptions import Subscriptions

ORIGIN_KEY: Final = "toolmason.origin"
"""Key of the ASGI scope that holds the origin of a request."""
TTL_MS: Final = 60_000


class _PlainParams(RequestParams):
    """Parameters that a handler reads as plain data; the SDK has checked them for the protocol version before."""

    model_config = ConfigDict(extra="allow")


@dataclass(slots=True, eq=False, repr=False)
class RunningCall:
    """A call in a session that was started directly, and waits."""

    task: EagerTask
    stream: ClientStream

    async def finish(self, ctx: Any) -> dict[str, Any]:
        """Open the stream, and return the result of the call."""
        self.stream.open(ctx)
        result: dict[str, Any]
        result, error = await self.task
        if error is None:
            return result
        current = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and current is not None and not current.cancelling():
            raise MCPError(REQUEST_CANCELLED, "Request cancelled")
        raise error

    def abandon(self) -> None:
        """Cancel the call if the SDK has refused the request."""
        if self.stream.context is None:
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts about a request that the SDK carries, which its transport passes through."""

    identity: Identity = field(default_factory=lambda: ANONYMOUS)
    session: Session | None = None
    running: RunningCall | None = None
    """The call, if it was started before the SDK got the request."""


class ToolboxServer(Server[Any]):
    """The SDK's server for one toolbox."""

    handlers: Handlers
    listen_handler: ListenHandler

    async def listen(self, ctx: Any, params: SubscriptionsListenRequestParams) -> Any:
        """Handle `subscriptions/listen`."""
        subscriptions = self.handlers.subscriptions
        subscriptions.open()
        async with subscriptions.listen(params.notifications.resource_subscriptions or ()):
            return await self.listen_handler(ctx, params)

    async def on_initialized(self, ctx: Any, params: NotificationParams) -> None:
        """Handle `notifications/initialized`."""
        del params
        request = _make_request(ctx, _get_origin(ctx), self.handlers.subscriptions)
        self.handlers.subscriptions.add_session(request.session_id, ctx.session)

    async def close(self) -> None:
        """Stop watching the toolbox, and cancel all running tasks."""
        self.handlers.subscriptions.close()
        await self.handlers.call_handler.tasks.close()

    @override
    def create_initialization_options(self, *args: Any, **kwargs: Any) -> Any:
        # The SDK's HTTP transport passes no options, and would advertise lists that never change.
        if not args and "notification_options" not in kwargs:
            kwargs["notification_options"] = NotificationOptions(
                prompts_changed=True, resources_changed=True, tools_changed=True
            )
        return super().create_initialization_options(*args, **kwargs)


def make_server(
    box: Toolbox, *, private: bool = False, key: bytes | None = None, page_size: int = PAGE_SIZE, redact: bool = False
) -> ToolboxServer:
    """Return the SDK server object of a toolbox.

    `private`: the lists may depend on the caller. `key`: signs the state that clients carry between rounds.
    `redact`: redact error messages, unless a tool sets its own `on_error`.
    """
    Gateway(get_state(box).remotes).forward_server_requests()
    lists = ToolboxLists(box, page_size)
    signer = StateSigner() if key is None else StateSigner(key, make_ledger(get_state(box).policy))
    handlers = Handlers(CallHandler(box, lists, signer, redact=redact), Subscriptions(lists))
    hint = CacheHint(ttl_ms=TTL_MS, scope="private" if private or get_state(box).is_conditional else "public")
    server = ToolboxServer(
        get_state(box).policy.name or "toolmason",
        version=version("toolmason"),
        cache_hints={
            "tools/list": hint,
            "prompts/list": hint,
            "resources/list": hint,
            "resources/templates/list": hint,
            "server/discover": hint,
            "resources/read": CacheHint(ttl_ms=0, scope="private"),
        },
        get_tool_input_schema=handlers.get_header_schema,
    )
    server.handlers = handlers
    server.listen_handler = ListenHandler(handlers.subscriptions.bus)
    server.extensions[EXTENSION_ID] = {}
    for method, handler in handlers.table.items():
        server.add_request_handler(method, _PlainParams, _carry(method, handler, handlers))
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, server.listen)
    server.add_notification_handler("notifications/initialized", NotificationParams, server.on_initialized)
    return server


def _carry(method: str, handler: Handler, handlers: Handlers) -> Any:
    """Return the SDK's handler of a method: it runs the handler of the table, or finishes a call that is running."""

    async def handle(ctx: Any, params: Any) -> dict[str, Any]:
        del params
        origin = _get_origin(ctx)
        if origin.running is not None:
            result = await origin.running.finish(ctx)
        else:
            result = await handler(_make_request(ctx, origin, handlers.subscriptions))
        if method == "tools/call":
            result = handlers.call_handler.check_serializable(ctx.params["name"], result)
        return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handle


def _get_origin(ctx: Any) -> Origin:
    """Return the origin of a request: over stdio it is the SDK's request itself, over HTTP it is in the ASGI scope."""
    if isinstance(ctx.request, Origin):
        return ctx.request
    origin: Origin = getattr(ctx.request, "scope", {}).get(ORIGIN_KEY) or Origin()
    return origin


def _make_request(ctx: Any, origin: Origin, subscriptions: Subscriptions) -> Request:
    params = ctx.params or {}
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    declared = ctx.session.client_capabilities
    capabilities = {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)
    headers = getattr(ctx.request, "headers", None)
    session_id = "" if modern or headers is None else headers.get("mcp-session-id", "")
    if origin.session is not None and not modern:
        origin.session.version, origin.session.capabilities = ctx.protocol_version, capabilities
    meta = params.get("_meta") or {}
    stream = ClientStream(can_ask=not modern and ctx.session.can_send_request)
    stream.open(ctx)
    request = Request(ctx.method, params, ctx.request_id, modern, origin.identity, capabilities)
    request.session_id, request.session, request.headers, request.stream = session_id, ctx.session, headers, stream
    request.log_level = meta.get(LOG_LEVEL_META_KEY) if modern else subscriptions.log_levels.get(session_id, "info")
    request.wants_progress = True
    return request
