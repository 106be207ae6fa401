"""Write a span for each call with the OpenTelemetry API, if the program has set a tracer provider.

This module imports OpenTelemetry only if the program has, and reads one attribute of it for each call otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.run.call_log import show_content
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.policy import TraceOptions
from toolmason._core.values.results import Arguments, ToolCall, ToolResult
from toolmason.errors import ToolCallError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

LOADED_MODULES: Final = sys.modules
TRACE_API: Final = "opentelemetry.trace"
"""Name of the API's module. If it is not among the loaded modules, no call is traced."""
PROVIDER: Final = "_TRACER_PROVIDER"
"""Attribute of that module with the tracer provider, or None if the program has set none. The fastest check."""


def is_tracing() -> bool:
    """Return True if the program has set a tracer provider."""
    return getattr(LOADED_MODULES.get(TRACE_API), PROVIDER, None) is not None


def get_tracer() -> Tracer:
    """Return the tracer of this package."""
    from opentelemetry.trace import get_tracer as get  # noqa: PLC0415 - optional, and loaded already

    return get("toolmason")


async def trace_call(
    definition: ToolDefinition,
    call: ToolCall,
    options: TraceOptions,
    run: Callable[[], Coroutine[Any, Any, ToolResult]],
) -> ToolResult:
    """Run a call in a span that is current while it runs."""
    attributes = _describe_call(definition, call, options)
    tracer = get_tracer()
    with tracer.start_as_current_span(
        f"execute_tool {definition.name}", attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            result = await run()
        except BaseException as error:
            _mark_failed(span, error)
            raise
        _describe_result(span, result, options)
    return result


def trace_refused(call: ToolCall, result: ToolResult) -> None:
    """Write the span of a call that has no tool."""
    definition = ToolDefinition(call.name or "unknown", "", {"type": "object"})
    options = TraceOptions()
    with get_tracer().start_as_current_span(
        f"execute_tool {definition.name}", attributes=_describe_call(definition, call, options)
    ) as span:
        _describe_result(span, result, options)


def _describe_call(definition: ToolDefinition, call: ToolCall, options: TraceOptions) -> dict[str, str]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": definition.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": definition.description,
    }
    if options.has_spring_names:
        attributes |= {
            "spring.ai.kind": "tool_call",
            "spring.ai.tool.type": "function",
            "spring.ai.tool.call.id": call.id,
            "spring.ai.tool.definition.name": definition.name,
            "spring.ai.tool.definition.description": definition.description,
            "spring.ai.tool.definition.schema": show_content(definition.input_schema),
        }
    return attributes | _describe_content("arguments", call.arguments, options)


def _describe_content(name: str, content: Arguments, options: TraceOptions) -> dict[str, str]:
    if not options.has_content:
        return {}
    text = show_content({} if content is None else content)
    spring = {f"spring.ai.tool.call.{name}": text} if options.has_spring_names else {}
    return {f"gen_ai.tool.call.{name}": text, **spring}


def _describe_result(span: Span, result: ToolResult, options: TraceOptions) -> None:
    span.set_attributes(_describe_content("result", result.text, options) if span.is_recording() else {})
    if result.attempts > 1:
        span.set_attribute("toolmason.attempts", result.attempts)
    if result.error is not None:
        _mark_failed(span, result.error)


def _mark_failed(span: Span, error: BaseException) -> None:
    """Mark a span as failed. The message of the error may hold data of the call, so the log has it."""
    from opentelemetry.trace import StatusCode  # noqa: PLC0415 - as above

    span.set_status(StatusCode.ERROR)
    if not isinstance(error, ToolCallError):
        span.set_attribute("error.type", type(error).__qualname__)
        return
    span.set_attribute("error.type", error.code)
    if error.log_id:
        span.set_attribute("toolmason.error.id", error.log_id)
