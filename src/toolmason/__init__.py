"""Toolmason: write a tool once, as a typed Python function; use it with any model, anywhere, under one policy."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason import errors
    from toolmason._core.call.approval import Allow, Deny, Edit
    from toolmason._core.catalog.discovery import tools_from
    from toolmason._core.config.config import Config
    from toolmason._core.define.context import Depends, Inject, ProjectDir, ToolContext
    from toolmason._core.define.decorators import Param, prompt, resource, tool
    from toolmason._core.define.tool import Tool
    from toolmason._core.load.supported_for import supported_for
    from toolmason._core.toolbox.discover import discover, scan
    from toolmason._core.toolbox.toolbox import Toolbox
    from toolmason._core.values.content import Audio, EmbeddedResource, Image, ResourceLink, Text
    from toolmason._core.values.definition import ToolDefinition, ToolOptions
    from toolmason._core.values.messages import Message
    from toolmason._core.values.policy import Limits, Parallel, Rate, Retry, Sequential
    from toolmason._core.values.provider_tools import RemoteMcp, WebSearch
    from toolmason._core.values.results import ToolCall, ToolResult, ToolReturn
    from toolmason.chat.chat import Chat
    from toolmason.chat.memory import SqliteMemory, WindowMemory
    from toolmason.errors import Abort, ToolError
    from toolmason.mcp_client.source import McpServer
    from toolmason.mcp_server.http.app import asgi_app
    from toolmason.mcp_server.serve import serve
    from toolmason.models.by_name import model

__all__ = [
    "Abort",
    "Allow",
    "Audio",
    "Chat",
    "Config",
    "Deny",
    "Depends",
    "Edit",
    "EmbeddedResource",
    "Image",
    "Inject",
    "Limits",
    "McpServer",
    "Message",
    "Parallel",
    "Param",
    "ProjectDir",
    "Rate",
    "RemoteMcp",
    "ResourceLink",
    "Retry",
    "Sequential",
    "SqliteMemory",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolOptions",
    "ToolResult",
    "ToolReturn",
    "Toolbox",
    "WebSearch",
    "WindowMemory",
    "asgi_app",
    "discover",
    "errors",
    "model",
    "prompt",
    "resource",
    "scan",
    "serve",
    "supported_for",
    "tool",
    "tools_from",
]

_PACKAGES = ("chat", "converters", "errors", "extend", "mcp", "models", "providers", "testing")
"""Public packages; `errors` is a root name as well."""

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{f"toolmason.{name}": (name,) for name in _PACKAGES},
        "toolmason.errors": ("Abort", "ToolError", "errors"),
        "toolmason._core.call.approval": ("Allow", "Deny", "Edit"),
        "toolmason._core.catalog.discovery": ("tools_from",),
        "toolmason._core.config.config": ("Config",),
        "toolmason._core.define.context": ("Depends", "Inject", "ProjectDir", "ToolContext"),
        "toolmason._core.define.decorators": ("Param", "prompt", "resource", "tool"),
        "toolmason._core.define.tool": ("Tool",),
        "toolmason._core.load.supported_for": ("supported_for",),
        "toolmason._core.toolbox.discover": ("discover", "scan"),
        "toolmason._core.toolbox.toolbox": ("Toolbox",),
        "toolmason._core.values.content": ("Audio", "EmbeddedResource", "Image", "ResourceLink", "Text"),
        "toolmason._core.values.definition": ("ToolDefinition", "ToolOptions"),
        "toolmason._core.values.messages": ("Message",),
        "toolmason._core.values.policy": ("Limits", "Parallel", "Rate", "Retry", "Sequential"),
        "toolmason._core.values.provider_tools": ("RemoteMcp", "WebSearch"),
        "toolmason._core.values.results": ("ToolCall", "ToolResult", "ToolReturn"),
        "toolmason.chat.chat": ("Chat",),
        "toolmason.chat.memory": ("SqliteMemory", "WindowMemory"),
        "toolmason.mcp_client.source": ("McpServer",),
        "toolmason.mcp_server.http.app": ("asgi_app",),
        "toolmason.mcp_server.serve": ("serve",),
        "toolmason.models.by_name": ("model",),
    },
)
