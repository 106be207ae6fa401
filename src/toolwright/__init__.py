"""Toolwright: write a tool once, as a typed Python function; use it with any model, anywhere, under one policy.

The public names, each loaded when it is first used, so that `toolwright --help` costs no more than Python itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwright import errors
    from toolwright._core.approve import Allow, Deny, Edit
    from toolwright._core.config import Config
    from toolwright._core.context import Inject, ProjectDir, ToolContext
    from toolwright._core.declare import Param, prompt, resource, tool
    from toolwright._core.definition import ToolDefinition, ToolOptions
    from toolwright._core.discovery import tools_from
    from toolwright._core.gather import discover, scan
    from toolwright._core.messages import Message
    from toolwright._core.native import RemoteMcp, WebSearch
    from toolwright._core.policy import Limits, Parallel, Rate, Retry, Sequential
    from toolwright._core.support import supported_for
    from toolwright._core.tool import Tool
    from toolwright._core.toolbox import Toolbox
    from toolwright._core.values import (
        Audio,
        EmbeddedResource,
        Image,
        ResourceLink,
        Text,
        ToolCall,
        ToolResult,
        ToolReturn,
    )
    from toolwright.chat.chat import Chat
    from toolwright.chat.memory import SqliteMemory, WindowMemory
    from toolwright.errors import Abort, ToolError
    from toolwright.mcp.source import McpServer
    from toolwright.models.named import model
    from toolwright.serving.app import asgi_app
    from toolwright.serving.run import serve

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
    "Abort": "toolwright.errors",
    "Allow": "toolwright._core.approve",
    "Audio": "toolwright._core.values",
    "Chat": "toolwright.chat.chat",
    "Config": "toolwright._core.config",
    "Deny": "toolwright._core.approve",
    "Edit": "toolwright._core.approve",
    "EmbeddedResource": "toolwright._core.values",
    "Image": "toolwright._core.values",
    "Inject": "toolwright._core.context",
    "Limits": "toolwright._core.policy",
    "McpServer": "toolwright.mcp.source",
    "Message": "toolwright._core.messages",
    "Parallel": "toolwright._core.policy",
    "Param": "toolwright._core.declare",
    "ProjectDir": "toolwright._core.context",
    "Rate": "toolwright._core.policy",
    "RemoteMcp": "toolwright._core.native",
    "ResourceLink": "toolwright._core.values",
    "Retry": "toolwright._core.policy",
    "Sequential": "toolwright._core.policy",
    "SqliteMemory": "toolwright.chat.memory",
    "Text": "toolwright._core.values",
    "Tool": "toolwright._core.tool",
    "ToolCall": "toolwright._core.values",
    "ToolContext": "toolwright._core.context",
    "ToolDefinition": "toolwright._core.definition",
    "ToolError": "toolwright.errors",
    "ToolOptions": "toolwright._core.definition",
    "ToolResult": "toolwright._core.values",
    "ToolReturn": "toolwright._core.values",
    "Toolbox": "toolwright._core.toolbox",
    "WebSearch": "toolwright._core.native",
    "WindowMemory": "toolwright.chat.memory",
    "asgi_app": "toolwright.serving.app",
    "discover": "toolwright._core.gather",
    "model": "toolwright.models.named",
    "prompt": "toolwright._core.declare",
    "resource": "toolwright._core.declare",
    "scan": "toolwright._core.gather",
    "serve": "toolwright.serving.run",
    "supported_for": "toolwright._core.support",
    "tool": "toolwright._core.declare",
    "tools_from": "toolwright._core.discovery",
}
"""Name → the module that has it."""
_MODULES = ("clients", "converters", "errors", "experimental", "lowlevel", "models", "providers", "resolvers")
"""Public modules; `errors` is a root name as well."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"toolwright.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'toolwright' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # so that the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
