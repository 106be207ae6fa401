"""A toolbox → a server object of the SDK, which every transport runs.

Lives here: the handlers of the protocol's methods. Not here: calls (`calls`), bytes (`stdio`, `app`).
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import ListenHandler
from mcp_types import (
    NotificationParams,
    RequestParams,
    SetLevelRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from typing_extensions import override

from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.mcp_server.call_tool import Engine
from toolmason.mcp_server.handlers import TTL_MS, _Handlers
from toolmason.mcp_server.lists import PAGE, Lists
from toolmason.mcp_server.signed_state import Seal
from toolmason.mcp_server.subscriptions import Changes
from toolmason.mcp_server.tasks import EXTENSION


class _AnyParams(RequestParams):
    model_config = ConfigDict(extra="allow")


class ToolboxServer(Server[Any]):
    """The SDK's server for one toolbox."""

    engine: Engine
    changes: Changes
    listening: ListenHandler

    @override
    def create_initialization_options(self, *given: Any, **more: Any) -> Any:
        # The SDK's HTTP side asks without options, and would say that lists never change.
        if not given and "notification_options" not in more:
            more["notification_options"] = NotificationOptions(
                prompts_changed=True, resources_changed=True, tools_changed=True
            )
        return super().create_initialization_options(*given, **more)


def server_of(
    box: Toolbox, *, private: bool = False, key: bytes | None = None, page: int = PAGE, redact: bool = False
) -> ToolboxServer:
    """Return the server object of a toolbox.

    `private`: what is listed may depend on who asks. `key`: signs what clients keep for us between two rounds.
    `redact`: failures lose their words, where a tool does not say otherwise.
    """
    box.__behind__().forward()
    lists = Lists(box, page)
    handlers = _Handlers(Engine(box, lists, Seal() if key is None else Seal(key), redact=redact), Changes(lists))
    hint = CacheHint(ttl_ms=TTL_MS, scope="private" if private else "public")
    listening = ListenHandler(handlers.changes.bus)
    server = ToolboxServer(
        box.name or "toolmason",
        version=_version(),
        cache_hints={
            "tools/list": hint,
            "prompts/list": hint,
            "resources/list": hint,
            "resources/templates/list": hint,
            "server/discover": hint,
            "resources/read": CacheHint(ttl_ms=0, scope="private"),
        },
        get_tool_input_schema=handlers.schema_of,
        on_list_tools=_typed(handlers.list_tools),
        on_call_tool=_typed(handlers.call_tool),
        on_list_prompts=_typed(handlers.list_prompts),
        on_get_prompt=_typed(handlers.get_prompt),
        on_list_resources=_typed(handlers.list_resources),
        on_list_resource_templates=_typed(handlers.list_templates),
        on_read_resource=_typed(handlers.read_resource),
        on_subscribe_resource=_typed(handlers.subscribe),
        on_unsubscribe_resource=_typed(handlers.unsubscribe),
        on_subscriptions_listen=handlers.listened_by(listening),
        on_completion=_typed(handlers.complete),
    )
    server.engine, server.changes, server.listening = handlers.engine, handlers.changes, listening
    server.extensions[EXTENSION] = {}
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, _typed(handlers.set_level))
    server.add_notification_handler("notifications/initialized", NotificationParams, handlers.initialized)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        server.add_request_handler(method, _AnyParams, _typed(handlers.task))
    return server


def _typed(handler: Any) -> Any:
    """Say of what type a result is, where the era wants that."""

    async def handle(ctx: Any, params: Any) -> Any:
        found: dict[str, Any] = await handler(ctx, params)
        return {"resultType": "complete", **found} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else found

    return handle


def _version() -> str:
    return version("toolmason")
