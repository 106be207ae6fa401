"""Write spans with the OpenTelemetry API, if the program has set a tracer provider.

This module imports OpenTelemetry only if the program has, and reads one attribute of it for each call otherwise. Spans
never hold the message of an error: it may contain data of the call, so the log has it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from time import perf_counter
from typing import Any, Final, Literal, Self

from pydantic_core import to_json

from toolmason._core.run.call_log import describe_shape, show_content
from toolmason._core.run.conventions import SCHEMA_URL
from toolmason._core.run.metrics import is_metering, measure
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.policy import TraceOptions
from toolmason._core.values.results import Arguments, ToolCall, ToolResult
from toolmason._text import to_line
from toolmason.errors import ModelError, ToolCallError, clip

LOADED_MODULES: Final = sys.modules
TRACE_API: Final = "opentelemetry.trace"
"""Name of the API's module. If it is not among the loaded modules, no call is traced."""
PROVIDER: Final = "_TRACER_PROVIDER"
"""Attribute of that module with the tracer provider, or None if the program has set none."""

_TRACEPARENT: Final = r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
_MAX_CARRIER_CHARS: Final = 8192
"""Maximum length of a trace header of a client, as W3C Baggage has it."""


class TraceApi:
    """The variables of the API's module, for the check of each call: one look-up instead of two.

    Until `is_tracing` has seen the module, the provider is a stand-in that passes the check.
    """

    def __init__(self) -> None:
        self._TRACER_PROVIDER: Any = True


OTEL: Final[Any] = TraceApi()


def is_tracing() -> bool:
    """Return True if the program has set a tracer provider."""
    if (module := LOADED_MODULES.get(TRACE_API)) is not None:
        OTEL.__dict__ = vars(module)
    return getattr(module, PROVIDER, None) is not None


def is_observed() -> bool:
    """Return True if the program has set a tracer provider or a meter provider."""
    return is_tracing() or is_metering()


# --- spans ---------------------------------------------------------------------------------------


@cache
def _get_version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms at start-up, needed only to trace

    return version("toolmason")


class _Otel:
    """Functions of the OpenTelemetry API for one tracer provider."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - optional, and loaded already

        self.provider = provider
        self.start = trace.get_tracer("toolmason", _get_version(), provider, SCHEMA_URL).start_span
        self.kinds = {kind.name.lower(): kind for kind in trace.SpanKind}
        self.error = trace.StatusCode.ERROR
        self.to_context, self.get_current = trace.set_span_in_context, trace.get_current_span
        self.attach, self.detach = context.attach, context.detach


_current: list[_Otel] = []
"""Functions for the tracer provider that was used last. A program has one; tests have several."""


def _get_otel() -> _Otel:
    provider = getattr(LOADED_MODULES.get(TRACE_API), PROVIDER, None)
    if not _current or _current[0].provider is not provider:
        _current[:] = [_Otel(provider)]
    return _current[0]


class ActiveSpan:
    """A span that is current inside its block. An exception that leaves the block marks it as failed."""

    __slots__ = ("_otel", "_span", "_token", "started")

    def __init__(
        self,
        name: str,
        attributes: Mapping[str, Any],
        kind: Literal["internal", "client", "server"] = "internal",
        parent: Any = None,
        *,
        is_current: bool = True,
    ) -> None:
        self.started = perf_counter()
        self._otel = otel = _get_otel()
        # A generator may be closed in another context than it was started in, so its span is not current.
        self._span: Any = otel.start(name, parent, otel.kinds[kind], attributes)
        self._token = otel.attach(otel.to_context(self._span)) if is_current else None

    @property
    def traceparent(self) -> str:
        """The span as a W3C trace header."""
        return _format_traceparent(self._span)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return perf_counter() - self.started

    @property
    def is_recording(self) -> bool:
        """True if the attributes are kept."""
        return bool(self._span.is_recording())

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes."""
        self._span.set_attributes(attributes)

    def link(self, traceparent: str) -> None:
        """Link another span, given as a W3C trace header. Other text is ignored."""
        _add_link(self._span, traceparent)

    def fail(self, error: BaseException | str) -> str:
        """Mark the span as failed. Return the type of the error, which is its code if it has one."""
        self._span.set_status(self._otel.error)
        error_type = error if isinstance(error, str) else get_error_type(error)
        self._span.set_attribute("error.type", error_type)
        if error_id := getattr(error, "log_id", ""):
            self._span.set_attribute("toolmason.error.id", error_id)
        return error_type

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def end(self) -> None:
        """End the span."""
        if self._token is not None:
            self._otel.detach(self._token)
        self._span.end()


def _format_traceparent(span: Any) -> str:
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}" if found.is_valid else ""


def _add_link(span: Any, traceparent: str) -> None:
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - as above

    if (found := re.fullmatch(_TRACEPARENT, traceparent)) is not None:
        trace_id, span_id, flags = (int(part, 16) for part in found.groups())
        context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        if context.is_valid and context.span_id != span.get_span_context().span_id:
            span.add_link(context)


def open_span(
    name: str, attributes: Mapping[str, Any], kind: Literal["internal", "client", "server"] = "internal"
) -> AbstractContextManager[ActiveSpan | None]:
    """Return a span for a block, or None in its place if the program has set no tracer provider."""
    return ActiveSpan(name, attributes, kind) if is_tracing() else nullcontext()


def get_error_type(error: BaseException) -> str:
    """Return the code of an error of a call or a model, else the name of its class."""
    if isinstance(error, ToolCallError):
        return error.code
    # The code of a provider is text from outside; its status is not.
    status = error.status if isinstance(error, ModelError) else None
    return type(error).__qualname__ if status is None else str(status)


def get_traceparent() -> str:
    """Return the current span as a W3C trace header, or an empty string."""
    return _format_traceparent(_get_otel().get_current()) if is_tracing() else ""


def describe_current(attributes: Mapping[str, Any]) -> None:
    """Set attributes of the current span."""
    if is_tracing():
        _get_otel().get_current().set_attributes(attributes)


def link_current(traceparent: str) -> None:
    """Link another span to the current one, given as a W3C trace header."""
    if traceparent and is_tracing():
        _add_link(_get_otel().get_current(), traceparent)


# --- trace context -------------------------------------------------------------------------------


def inject_context(carrier: dict[str, Any]) -> dict[str, Any]:
    """Add the current trace to a carrier, such as `_meta` of MCP, with the program's propagators."""
    if is_tracing():
        from opentelemetry.propagate import inject  # noqa: PLC0415 - as above

        inject(carrier)
    return carrier


def extract_context(carrier: Mapping[str, Any]) -> Any:
    """Return the OpenTelemetry context of a carrier of another process, or None if it has no valid trace."""
    from opentelemetry.propagate import extract  # noqa: PLC0415 - as above
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - as above

    texts = {key: value for key, value in carrier.items() if type(value) is str and len(value) <= _MAX_CARRIER_CHARS}
    found = extract(texts)
    return found if get_current_span(found).get_span_context().is_valid else None


@contextmanager
def use_context(carrier: Mapping[str, Any]) -> Generator[None]:
    """Make the trace of a carrier the current one, so that the spans of a worker process belong to it."""
    found = extract_context(carrier) if carrier else None
    if found is None:
        yield
        return
    from opentelemetry.context import attach, detach  # noqa: PLC0415 - as above

    token = attach(found)
    try:
        yield
    finally:
        detach(token)


# --- calls ---------------------------------------------------------------------------------------


async def trace_call(
    definition: ToolDefinition,
    call: ToolCall,
    options: TraceOptions,
    run: Callable[[], Coroutine[Any, Any, ToolResult]],
) -> ToolResult:
    """Run a call in a span that is current while it runs, and measure it."""
    started = perf_counter()
    name, outcome = definition.name, {}
    try:
        if not is_tracing():
            result = await run()
        else:
            with ActiveSpan(f"execute_tool {name}", _describe_call(definition, call, options)) as span:
                result = await run()
                _describe_result(span, result, options)
        outcome = {} if result.error is None else {"error.type": result.error.code}
        if result.repairs:
            measure("toolmason.tool.repairs", len(result.repairs), {"gen_ai.tool.name": name})
    except BaseException as error:
        outcome = {"error.type": get_error_type(error)}
        raise
    finally:
        measure("toolmason.tool.duration", perf_counter() - started, {"gen_ai.tool.name": name, **outcome})
    return result


def trace_refused(call: ToolCall, result: ToolResult) -> None:
    """Write the span of a call that has no tool. Its name came from the model, so no metric has it."""
    definition, options = ToolDefinition("unknown", "", {"type": "object"}), TraceOptions()
    if is_tracing():
        attributes = _describe_call(definition, call, options) | {"gen_ai.tool.name": to_line(clip(call.name))}
        with ActiveSpan("execute_tool", attributes) as span:
            _describe_result(span, result, options)
    code = "" if result.error is None else result.error.code
    measure("toolmason.tool.duration", result.duration, {"gen_ai.tool.name": "_OTHER", "error.type": code})


def _describe_call(definition: ToolDefinition, call: ToolCall, options: TraceOptions) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": definition.name,
        "gen_ai.tool.call.id": to_line(call.id),
        "gen_ai.tool.type": "function",
    }
    if definition.description:
        attributes["gen_ai.tool.description"] = definition.description
    if options.has_spring_names:
        attributes |= {
            "spring.ai.kind": "tool_call",
            "spring.ai.tool.type": "function",
            "spring.ai.tool.call.id": call.id,
            "spring.ai.tool.definition.name": definition.name,
            "spring.ai.tool.definition.description": definition.description,
            "spring.ai.tool.definition.schema": show_content(definition.input_schema),
        }
    return attributes | _describe_content("arguments", call.raw, options)


def _describe_content(
    name: Literal["arguments", "result"], content: Arguments, options: TraceOptions
) -> dict[str, Any]:
    """Return what a span says about arguments or a result: the content, its shape, its size or nothing."""
    if options.content == "none":
        return {}
    attributes: dict[str, Any] = {}
    if isinstance(content, str | bytes):
        attributes[f"toolmason.{name}.size"] = len(content)
    elif type(content) is dict:  # not a large one, which has a type of its own
        with suppress(ValueError, RecursionError):  # an application may pass values that JSON does not have
            attributes[f"toolmason.{name}.size"] = len(to_json(content, serialize_unknown=True))
    if options.content == "shape":
        attributes[f"toolmason.{name}.shape"] = describe_shape(content)
    elif options.content == "full":
        text = show_content({} if content is None else content, options.secret_names)
        attributes[f"gen_ai.tool.call.{name}"] = text
        if options.has_spring_names:
            attributes[f"spring.ai.tool.call.{name}"] = text
    return attributes


def _describe_result(span: ActiveSpan, result: ToolResult, options: TraceOptions) -> None:
    if span.is_recording:
        attributes = _describe_content("result", result.text, options)
        if result.attempts > 1:
            attributes["toolmason.attempts"] = result.attempts
        if result.repairs:
            attributes["toolmason.repairs"] = len(result.repairs)
        span.set(attributes)
    if result.error is not None:
        span.fail(result.error)
