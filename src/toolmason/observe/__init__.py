"""See what a program does: record spans, print them as a tree, write them as a page; the names of spans and metrics."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason._core.run.conventions import ATTRIBUTES, SCHEMA_URL, Attribute
    from toolmason._core.run.metrics import METRICS, Metric
    from toolmason.observe.recorder import TraceRecorder, record
    from toolmason.observe.span_record import SpanRecord
    from toolmason.observe.tree import format_tree, print_tree
    from toolmason.observe.waterfall import to_html

__all__ = [
    "ATTRIBUTES",
    "METRICS",
    "SCHEMA_URL",
    "Attribute",
    "Metric",
    "SpanRecord",
    "TraceRecorder",
    "format_tree",
    "print_tree",
    "record",
    "to_html",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason._core.run.conventions": ("ATTRIBUTES", "SCHEMA_URL", "Attribute"),
        "toolmason._core.run.metrics": ("METRICS", "Metric"),
        "toolmason.observe.recorder": ("TraceRecorder", "record"),
        "toolmason.observe.span_record": ("SpanRecord",),
        "toolmason.observe.tree": ("format_tree", "print_tree"),
        "toolmason.observe.waterfall": ("to_html",),
    },
)
