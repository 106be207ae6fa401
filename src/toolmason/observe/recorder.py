"""Record the spans of a block of code with the SDK of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from typing_extensions import override

from toolmason.errors import ConfigError
from toolmason.observe.span_record import SpanRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_RECORDED: Final = 10_000
"""Maximum number of spans that a recorder keeps; the first ones."""


class TraceRecorder:
    """The spans that ended while a block ran, in the order in which they ended."""

    def __init__(self) -> None:
        self.spans: list[SpanRecord] = []

    def select(self, run: Any) -> list[SpanRecord]:
        """Return the spans of the trace of a reply, or of a W3C trace header."""
        parts = str(getattr(run, "trace", run)).split("-")
        return [span for span in self.spans if span.trace in parts[1:2]]


_recorders: WeakKeyDictionary[Any, list[TraceRecorder]] = WeakKeyDictionary()
"""Recorders at work, for each tracer provider. The SDK cannot remove a processor, so each provider has one."""


@contextmanager
def record() -> Generator[TraceRecorder]:
    """Record every span that ends in a block.

    If the program has set no tracer provider, this sets one, which stays: a program has one only.

    Raises:
        ImportError: the SDK of OpenTelemetry is not installed.
        ConfigError: the program's tracer provider takes no further processors.
    """
    recorders = _get_recorders()
    recorder = TraceRecorder()
    recorders.append(recorder)
    try:
        yield recorder
    finally:
        recorders.remove(recorder)


def _get_recorders() -> list[TraceRecorder]:
    """Return the recorders of the current tracer provider, which gets a processor with the first one."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider  # noqa: PLC0415 - as above
    except ImportError as missing:
        raise ImportError("Recording spans needs the SDK: pip install 'toolmason[otel]'") from missing
    provider: Any = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    if (known := _recorders.get(provider)) is not None:
        return known
    if not hasattr(provider, "add_span_processor"):
        raise ConfigError(f"The tracer provider {type(provider).__name__} takes no processors. Use one of the SDK.")
    recorders: list[TraceRecorder] = []

    class Processor(SpanProcessor):
        @override
        def on_end(self, span: ReadableSpan) -> None:
            for recorder in recorders:
                if len(recorder.spans) < MAX_RECORDED:
                    recorder.spans.append(_to_record(span))

    provider.add_span_processor(Processor())
    _recorders[provider] = recorders
    return recorders


def _to_record(span: ReadableSpan) -> SpanRecord:
    context: Any = span.get_span_context()
    links: Iterable[Any] = span.links
    return SpanRecord(
        span.name,
        f"{context.span_id:016x}",
        None if span.parent is None else f"{span.parent.span_id:016x}",
        span.start_time or 0,
        span.end_time or 0,
        dict(span.attributes or {}),
        f"{context.trace_id:032x}",
        tuple(f"{link.context.span_id:016x}" for link in links),
        failed=not (span.status.is_ok or span.status.is_unset),
        kind=span.kind.name.lower(),
    )
