"""Combine the policies of a tool, its toolbox and the settings into one value per tool.

Precedence: call, tool, toolbox, setting.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from toolmason._core.arguments.bind import Bound, make_binder
from toolmason._core.call.long_results import ResultStore, truncate_result
from toolmason._core.call.render import Renderer, make_renderer
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.values.policy import EngineSettings, Inherit, OnError, Retry, RunsOn, Timeout
from toolmason._core.values.results import Arguments, ToolResult


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallPolicy:
    """Toolbox options that apply to each call."""

    settings: EngineSettings
    context: ToolContext[Any]
    timeout: Timeout
    retry: Retry | None
    on_error: OnError
    rethrow: tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Route:
    """One tool of a toolbox, with everything that does not depend on the call."""

    tool: Tool
    name: str
    policy: CallPolicy
    timeout: float | None
    retry: Retry | None
    on_error: OnError
    runs_on: RunsOn
    is_async: bool
    return_direct: bool
    bind: Callable[[Arguments], Bound]
    """Converts raw arguments to values."""
    render: Renderer
    """Converts a return value to the fields of a result."""
    max_text_chars: int
    """Length in characters up to which text is certain to fit in `max_result_bytes`."""
    max_result_bytes: int
    """Maximum size of a result in bytes."""
    truncate: Callable[[dict[str, Any]], dict[str, Any]]
    """Truncates a result that is too long, and stores the full text."""
    cancel_grace: tuple[str, float]
    """Name of the tool, and the seconds it may take to clean up after cancellation."""
    runner: Callable[..., Coroutine[Any, Any, ToolResult]] | None = None
    """Runner for the fast path, or `None` if calls need the full pipeline."""
    plain_function: Callable[..., Any] | None = None
    """Tool function, if it takes the values as they are: no injected parameters, no context."""


def make_route(tool: Tool, policy: CallPolicy, store: ResultStore) -> Route:
    """Return the route of a tool."""
    options = tool.options
    max_bytes = options.max_result_bytes or policy.settings.result_bytes
    timeout = next(
        (t for t in (options.timeout, policy.timeout) if not isinstance(t, Inherit)), policy.settings.call_timeout
    )
    # A toolbox-wide retry must not repeat side effects, such as sending an email twice.
    inherited_retry = policy.retry if options.repeatable else None
    retry = inherited_retry if isinstance(options.retry, Inherit) else options.retry
    on_error = policy.on_error if isinstance(options.on_error, Inherit) else options.on_error
    runs_on = options.runs_on or ("thread" if tool.kind == "sync" else "loop")
    return Route(
        tool=tool,
        name=tool.name,
        policy=policy,
        timeout=cap_timeout(timeout, policy.settings),
        retry=retry,
        on_error=on_error,
        runs_on=runs_on,
        is_async=tool.kind == "async",
        return_direct=options.return_direct,
        bind=make_binder(tool.inputs, tool.name, policy.settings),
        render=make_renderer(tool),
        max_text_chars=max_bytes // 4,
        truncate=lambda fields: truncate_result(fields, max_bytes, store),
        max_result_bytes=max_bytes,
        cancel_grace=(tool.name, policy.settings.cancel_grace),
        plain_function=tool.plain_function,
    )


def cap_timeout(timeout: Timeout, settings: EngineSettings) -> float | None:
    """Return a timeout capped at the hard maximum. None means no timeout."""
    return None if timeout is None or isinstance(timeout, Inherit) else min(timeout, settings.max_timeout)
