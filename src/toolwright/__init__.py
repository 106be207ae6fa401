"""Toolwright: write a tool once, as a typed Python function; use it with any model, anywhere, under one policy."""

from toolwright import errors
from toolwright._core.approve import Allow, Deny, Edit
from toolwright._core.config import Config
from toolwright._core.context import Inject, ProjectDir, ToolContext
from toolwright._core.declare import Param, prompt, tool
from toolwright._core.definition import ToolDefinition, ToolOptions
from toolwright._core.discovery import tools_from
from toolwright._core.messages import Message
from toolwright._core.policy import Limits, Parallel, Rate, Retry, Sequential
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
from toolwright.errors import Abort, ToolError

__all__ = [
    "Abort",
    "Allow",
    "Audio",
    "Config",
    "Deny",
    "Edit",
    "EmbeddedResource",
    "Image",
    "Inject",
    "Limits",
    "Message",
    "Parallel",
    "Param",
    "ProjectDir",
    "Rate",
    "ResourceLink",
    "Retry",
    "Sequential",
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
    "errors",
    "prompt",
    "tool",
    "tools_from",
]
