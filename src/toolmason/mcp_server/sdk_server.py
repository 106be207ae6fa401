"""Build the SDK server object of a toolbox, which every transport runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import ListenHandler
from mcp_types import NotificationParams, RequestParams, SetLevelRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from typing_extensions import override

from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.mcp_server.call_tool import CallHandler
from toolmason.mcp_server.handlers import TTL_MS, Handlers
from toolmason.mcp_server.lists import PAGE_SIZE, ToolboxLists
from toolmason.mcp_server.signed_state import StateSigner
from toolmason.mcp_server.subscriptions import Subscriptions
from toolmason.mcp_server.tasks import EXTENSION_ID


class _AnyParams(RequestParams):
    model_config = ConfigDict(extra="allow")


class ToolboxServer(Server[Any]):
    """The SDK's server for one toolbox."""

    call_handler: CallHandler
    subscriptions: Subscriptions
    listen_handler: ListenHandler

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
    signer = StateSigner() if key is None else StateSigner(key)
    handlers = Handlers(CallHandler(box, lists, signer, redact=redact), Subscriptions(lists))
    hint = CacheHint(ttl_ms=TTL_MS, scope="private" if private else "public")
    listen_handler = ListenHandler(handlers.subscriptions.bus)
    server = ToolboxServer(
        get_state(box).policy.name or "toolmason",
        version=_get_version(),
        cache_hints={
            "tools/list": hint,
            "prompts/list": hint,
            "resources/list": hint,
            "resources/templates/list": hint,
            "server/discover": hint,
            "resources/read": CacheHint(ttl_ms=0, scope="private"),
        },
        get_tool_input_schema=handlers.get_header_schema,
        on_list_tools=_add_result_type(handlers.list_tools),
        on_call_tool=_add_result_type(handlers.call_tool),
        on_list_prompts=_add_result_type(handlers.list_prompts),
        on_get_prompt=_add_result_type(handlers.get_prompt),
        on_list_resources=_add_result_type(handlers.list_resources),
        on_list_resource_templates=_add_result_type(handlers.list_templates),
        on_read_resource=_add_result_type(handlers.read_resource),
        on_subscribe_resource=_add_result_type(handlers.subscribe),
        on_unsubscribe_resource=_add_result_type(handlers.unsubscribe),
        on_subscriptions_listen=handlers.make_listener(listen_handler),
        on_completion=_add_result_type(handlers.complete),
    )
    server.call_handler = handlers.call_handler
    server.subscriptions = handlers.subscriptions
    server.listen_handler = listen_handler
    server.extensions[EXTENSION_ID] = {}
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, _add_result_type(handlers.set_level))
    server.add_notification_handler("notifications/initialized", NotificationParams, handlers.on_initialized)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        server.add_request_handler(method, _AnyParams, _add_result_type(handlers.handle_task))
    return server


def _add_result_type(handler: Any) -> Any:
    """Add `resultType` to results of the stateless era."""

    async def handle(ctx: Any, params: Any) -> Any:
        result: dict[str, Any] = await handler(ctx, params)
        return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

    return handle


def _get_version() -> str:
    return version("toolmason")
