"""Build the SDK server of a toolbox, which carries sessions and streams, and calls the table of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
from mcp.server import Server
from mcp.server import subscriptions as events
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value, x_mcp_header_map
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCResponse,
    NotificationParams,
    RequestParams,
    ResourcesCapability,
    ServerCapabilities,
    SubscriptionsListenRequestParams,
)
from mcp_types.jsonrpc import jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, ValidationError
from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.run.tracing import is_observed
from toolmason.mcp_client.sdk_spans import IS_OWN_REQUEST
from toolmason.mcp_client.specification import LOG_LEVEL_META_KEY, TASKS_EXTENSION, RpcError
from toolmason.mcp_server.call_tool import Request, make_replica_error
from toolmason.mcp_server.client_requests import ORIGIN_KEY, ClientStream, Origin
from toolmason.mcp_server.handlers import Handler, Handlers, trace_handler
from toolmason.mcp_server.subscriptions import Subscriptions

_LIST_METHODS: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover")

Receive = Callable[[], Awaitable[tuple[Any, Origin]]]
"""Function that waits for the next message of a client."""
SendLine = Callable[[bytes | None, int | str | None], Awaitable[None]]
"""Function of a line, or None if it cannot be written, and the id of the request that it answers."""


class _PlainParams(RequestParams):
    """Parameters that a handler reads as plain data; the SDK has checked them for the protocol version before."""

    model_config = ConfigDict(extra="allow")


class ToolboxServer(Server[Any]):
    """The SDK's server for one toolbox."""

    handlers: Handlers
    listen_handler: events.ListenHandler

    async def listen(self, ctx: Any, params: SubscriptionsListenRequestParams) -> Any:
        """Handle `subscriptions/listen`."""
        if self.handlers.replicated:
            error = make_replica_error("subscriptions/listen is")
            raise MCPError(error.code, error.message)
        subscriptions = self.handlers.subscriptions
        subscriptions.open()
        async with subscriptions.listen(params.notifications.resource_subscriptions or ()):
            return await self.listen_handler(ctx, params)

    async def on_initialized(self, ctx: Any, params: NotificationParams) -> None:
        """Handle `notifications/initialized`."""
        del params
        if self.handlers.replicated:
            return
        request = _make_request(ctx, _get_origin(ctx), self.handlers.subscriptions)
        self.handlers.subscriptions.add_session(request.session_id, request.notify)

    def write_without_arguments(self, message: Mapping[str, Any]) -> bytes:
        """Return a call as JSON text without its arguments, except for those that the SDK compares with headers."""
        params = message["params"]
        name, arguments = params.get("name"), params["arguments"]
        kept: dict[str, Any] = {}
        schema = self.handlers.get_header_schema(name) if isinstance(name, str) else None
        for path in {} if schema is None else x_mcp_header_map(schema):
            source, target = arguments, kept
            for key in path[:-1]:
                source = source.get(key) if isinstance(source, Mapping) else None
                target = target.setdefault(key, {})
            if isinstance(source, Mapping) and path[-1] in source:
                value = source[path[-1]]
                target[path[-1]] = value if not isinstance(value, Mapping | list) else []
        return to_json({**message, "params": {**params, "arguments": kept}})

    async def serve_stream(self, receive: Receive, refuse: Callable[[Any], None], send: SendLine) -> None:
        """Carry the messages of one client over stdio until cancelled. `refuse` gets those that are not valid."""
        to_sdk, sdk_input = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sdk_output, from_sdk = anyio.create_memory_object_stream[SessionMessage](0)
        async with to_sdk, sdk_input, sdk_output, from_sdk, anyio.create_task_group() as group:
            group.start_soon(_pass_to_sdk, receive, refuse, to_sdk)
            group.start_soon(_pass_from_sdk, from_sdk, send)
            try:
                await self.run(sdk_input, sdk_output, self.create_initialization_options())
            finally:
                group.cancel_scope.cancel()

    @override
    def create_initialization_options(self, *args: Any, **kwargs: Any) -> Any:
        # The SDK's HTTP transport passes no options, and would advertise lists that never change.
        if not args and "notification_options" not in kwargs:
            changes = not self.handlers.replicated
            kwargs["notification_options"] = NotificationOptions(
                prompts_changed=changes, resources_changed=changes, tools_changed=changes
            )
        return super().create_initialization_options(*args, **kwargs)

    @override
    def get_capabilities(self, *args: Any, **kwargs: Any) -> ServerCapabilities:
        found = super().get_capabilities(*args, **kwargs)
        if self.handlers.replicated:
            # The SDK derives them from the methods that have a handler, also if it refuses.
            found.logging, found.extensions = None, None
            found.resources = ResourcesCapability(subscribe=False, list_changed=False)
        return found


async def _pass_to_sdk(receive: Receive, refuse: Callable[[Any], None], to_sdk: Any) -> None:
    while True:
        message, origin = await receive()
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            refuse(message)
        else:
            await to_sdk.send(SessionMessage(parsed, ServerMessageMetadata(request_context=origin)))


async def _pass_from_sdk(from_sdk: Any, send: SendLine) -> None:
    async for item in from_sdk:
        message = item.message
        try:
            line = message.model_dump_json(by_alias=True, exclude_none=True).encode()
        except (ValueError, UnicodeEncodeError):
            line = None
        await send(line, message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None)


def make_server(handlers: Handlers) -> ToolboxServer:
    """Return the SDK server object with these handlers."""
    hint = CacheHint(ttl_ms=handlers.cache_hint["ttlMs"], scope=handlers.cache_hint["cacheScope"])
    server = ToolboxServer(
        handlers.info["name"],
        version=handlers.info["version"],
        cache_hints={**dict.fromkeys(_LIST_METHODS, hint), "resources/read": CacheHint(ttl_ms=0, scope="private")},
        get_tool_input_schema=handlers.get_header_schema,
    )
    server.middleware.clear()  # its only one writes spans, as `trace_handler` does
    bus = events.InMemorySubscriptionBus()

    async def publish(kind: str, uri: str | None) -> None:
        list_changed = getattr(events, f"{kind.capitalize()}ListChanged")
        await bus.publish(list_changed() if uri is None else events.ResourceUpdated(uri=uri))

    handlers.subscriptions.publish = publish
    server.handlers = handlers
    server.listen_handler = events.ListenHandler(bus)
    server.extensions[TASKS_EXTENSION] = {}
    for method, handler in handlers.table.items():
        server.add_request_handler(method, _PlainParams, _carry(method, handler, handlers))
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, server.listen)
    server.add_notification_handler("notifications/initialized", NotificationParams, server.on_initialized)
    return server


def _carry(method: str, handler: Handler, handlers: Handlers) -> Any:
    """Return the SDK's handler of a method: it runs the handler of the table, or finishes a call that is running."""

    async def handle(ctx: Any, params: Any) -> dict[str, Any]:
        del params
        origin, token = _get_origin(ctx), IS_OWN_REQUEST.set(True)
        try:
            if origin.running is not None:
                result = await origin.running.finish(ctx)
            else:
                request = _make_request(ctx, origin, handlers.subscriptions)
                if is_observed():
                    name = request.params.get("name") if method == "tools/call" else None
                    request.traits = handlers.lists.get_traits(name) if isinstance(name, str) else None
                    result = await trace_handler(handler, request)
                else:
                    result = await handler(request)
        except RpcError as error:
            raise MCPError(error.code, error.message, error.data) from None
        finally:
            IS_OWN_REQUEST.reset(token)
        if method == "tools/call":
            result = handlers.call_handler.check_serializable(ctx.params["name"], result)
        return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handle


async def _notify(session: Any, kind: str, uri: str | None) -> None:
    await (getattr(session, f"send_{kind[:-1]}_list_changed")() if uri is None else session.send_resource_updated(uri))


def _get_origin(ctx: Any) -> Origin:
    """Return the origin of a request: over stdio it is the SDK's request itself, over HTTP it is in the ASGI scope."""
    if isinstance(ctx.request, Origin):
        return ctx.request
    origin: Origin = getattr(ctx.request, "scope", {}).get(ORIGIN_KEY) or Origin()
    return origin


def _make_request(ctx: Any, origin: Origin, subscriptions: Subscriptions) -> Request:
    params = ctx.params or {}
    if origin.arguments is not None:
        params = {**params, "arguments": origin.arguments}
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
    request.session_id, request.notify, request.stream = session_id, partial(_notify, ctx.session), stream
    request.headers = None if headers is None else {"mcp-name": decode_header_value(headers.get("mcp-name"))}
    request.log_level = meta.get(LOG_LEVEL_META_KEY) if modern else subscriptions.log_levels.get(session_id, "info")
    request.wants_progress = True
    return request
