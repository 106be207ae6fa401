"""Toolmason: write a tool once, as a typed Python function; use it with any model, anywhere, under one policy.

The public names, each loaded when it is first used, so that `toolmason --help` costs no more than Python itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolmason import errors
    from toolmason._core.approve import Allow, Deny, Edit
    from toolmason._core.config import Config
    from toolmason._core.context import Inject, ProjectDir, ToolContext
    from toolmason._core.declare import Param, prompt, resource, tool
    from toolmason._core.definition import ToolDefinition, ToolOptions
    from toolmason._core.discovery import tools_from
    from toolmason._core.gather import discover, scan
    from toolmason._core.messages import Message
    from toolmason._core.native import RemoteMcp, WebSearch
    from toolmason._core.policy import Limits, Parallel, Rate, Retry, Sequential
    from toolmason._core.support import supported_for
    from toolmason._core.tool import Tool
    from toolmason._core.toolbox import Toolbox
    from toolmason._core.values import (
        Audio,
        EmbeddedResource,
        Image,
        ResourceLink,
        Text,
        ToolCall,
        ToolResult,
        ToolReturn,
    )
    from toolmason.chat.chat import Chat
    from toolmason.chat.memory import SqliteMemory, WindowMemory
    from toolmason.errors import Abort, ToolError
    from toolmason.mcp.source import McpServer
    from toolmason.models.named import model
    from toolmason.serving.app import asgi_app
    from toolmason.serving.run import serve

__all__ = [
    "Abort",
    "Allow",
    "Audio",
    "Chat",
    "Config",
    "Deny",
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

_HOMES = {
    "Abort": "toolmason.errors",
    "Allow": "toolmason._core.approve",
    "Audio": "toolmason._core.values",
    "Chat": "toolmason.chat.chat",
    "Config": "toolmason._core.config",
    "Deny": "toolmason._core.approve",
    "Edit": "toolmason._core.approve",
    "EmbeddedResource": "toolmason._core.values",
    "Image": "toolmason._core.values",
    "Inject": "toolmason._core.context",
    "Limits": "toolmason._core.policy",
    "McpServer": "toolmason.mcp.source",
    "Message": "toolmason._core.messages",
    "Parallel": "toolmason._core.policy",
    "Param": "toolmason._core.declare",
    "ProjectDir": "toolmason._core.context",
    "Rate": "toolmason._core.policy",
    "RemoteMcp": "toolmason._core.native",
    "ResourceLink": "toolmason._core.values",
    "Retry": "toolmason._core.policy",
    "Sequential": "toolmason._core.policy",
    "SqliteMemory": "toolmason.chat.memory",
    "Text": "toolmason._core.values",
    "Tool": "toolmason._core.tool",
    "ToolCall": "toolmason._core.values",
    "ToolContext": "toolmason._core.context",
    "ToolDefinition": "toolmason._core.definition",
    "ToolError": "toolmason.errors",
    "ToolOptions": "toolmason._core.definition",
    "ToolResult": "toolmason._core.values",
    "ToolReturn": "toolmason._core.values",
    "Toolbox": "toolmason._core.toolbox",
    "WebSearch": "toolmason._core.native",
    "WindowMemory": "toolmason.chat.memory",
    "asgi_app": "toolmason.serving.app",
    "discover": "toolmason._core.gather",
    "model": "toolmason.models.named",
    "prompt": "toolmason._core.declare",
    "resource": "toolmason._core.declare",
    "scan": "toolmason._core.gather",
    "serve": "toolmason.serving.run",
    "supported_for": "toolmason._core.support",
    "tool": "toolmason._core.declare",
    "tools_from": "toolmason._core.discovery",
}
"""Name → the module that has it."""
_MODULES = ("clients", "converters", "errors", "experimental", "lowlevel", "models", "providers", "resolvers")
"""Public modules; `errors` is a root name as well."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"toolmason.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'toolmason' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # so that the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
