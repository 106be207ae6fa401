"""Describe tools, and the results of their calls, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_core import to_jsonable_python

from toolmason._core.define.tool import Tool, get_root
from toolmason._core.load.json_forms import get_effects
from toolmason._core.toolbox.approvals import DryRun
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.content import dump_part, matches_structured
from toolmason._core.values.results import ToolResult
from toolmason.build.check.portability import check_providers
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.errors import ApprovalRequired

_token_counts: WeakKeyDictionary[Tool, int] = WeakKeyDictionary()
"""Estimates for a list of a thousand tools, which is fetched after each change."""


def describe_box(box: Toolbox) -> dict[str, Any]:
    """Return the tools of a toolbox in short, and the tools that it holds back with the reasons."""
    return {
        "tools": [describe_tool(tool) for tool in box.tools],
        "held_back": dict(get_state(box).remotes.held_back),
        "problems": [str(problem) for problem in box.problems],
    }


def describe_tool(tool: Tool) -> dict[str, Any]:
    """Return what the list shows of a tool."""
    if tool not in _token_counts:
        _token_counts[tool] = estimate_tokens(tool.definition)
    return {
        "name": tool.name,
        "title": tool.definition.title,
        "description": tool.description,
        "effects": [name for name, value in get_effects(tool.options).items() if value],
        "source": get_server(tool) or "",
        "tags": sorted(tool.options.tags),
        "tokens": _token_counts[tool],
    }


def get_server(tool: Tool) -> str | None:
    """Return the name of the server that a tool comes from, or None for a tool of the application."""
    server: str | None = getattr(get_root(tool), "server", None)
    return server


def describe_in_full(box: Toolbox, name: str) -> dict[str, Any]:
    """Return everything about a tool: schemas, and how each provider handles it.

    Raises:
        KeyError: the toolbox has no such tool.
    """
    tool = box[name]
    others = [other.name for other in box.tools if other is not tool]
    return {
        **describe_tool(tool),
        "origin": tool.origin.replace(str(Path.cwd() / "_")[:-1], ""),
        "input_schema": tool.definition.input_schema,
        "output_schema": tool.definition.output_schema,
        "providers": [asdict(verdict) for verdict in check_providers(tool.definition, others)],
    }


def describe_plan(plan: DryRun) -> dict[str, Any]:
    """Return the effect that a call would have."""
    return {
        "arguments": dict(plan.arguments),
        "repairs": to_jsonable_python(plan.repairs, fallback=str),
        "preview": plan.preview,
        "needs_approval": plan.needs_approval,
        "error": None if plan.error is None else plan.error.to_model()["error"],
    }


def describe_result(result: ToolResult) -> dict[str, Any]:
    """Return a result with its content; the request if it waits for approval."""
    error = result.error
    structured = result.structured
    if structured is not None and (error is not None or matches_structured(result.text, structured)):
        structured = None  # the text has it; a large result is sent once
    return {
        "call_id": result.call_id,
        "name": result.name,
        "ok": result.ok,
        "content": [] if error is not None else [dump_part(part) for part in result.content],
        "structured": structured,
        "error": None if error is None else error.to_model()["error"],
        "attempts": result.attempts,
        "duration": result.duration,
        "repairs": to_jsonable_python(result.repairs, fallback=str),
        "origin": result.origin,
        "request": describe_request(error) if isinstance(error, ApprovalRequired) else None,
    }


def describe_request(error: ApprovalRequired) -> Mapping[str, Any]:
    """Return a request for approval without its signature, which stays on the server."""
    request = error.request.to_dict()
    return {name: request[name] for name in ("id", "tool", "arguments", "preview", "effects", "reason", "expires")}
