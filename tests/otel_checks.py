"""Check everything that the package writes with OpenTelemetry, in every test: names, types, and one trace."""

from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics._internal import instrument
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolmason._core.run.conventions import ATTRIBUTES
from toolmason._core.run.metrics import METRICS

SCOPE = "toolmason"
SPAN_NAMES = (
    *("invoke_agent", "chat", "execute_tool", "retry", "approve", "wait_for_slot", "wait_for_process"),
    *(
        "run_in_process",
        "run_on_ray",
        "run_on_executor",
        "effect",
        "connect",
        "POST",
        "tools/call",
        "tools/list",
        "prompts/list",
        "prompts/get",
    ),
    *("resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"),
    *("completion/complete", "ping", "tasks/get", "tasks/update", "tasks/cancel"),
)
"""First words of the names of spans."""


def find_problems(attributes: Mapping[str, object] | None) -> list[str]:
    """Return what is wrong with the attributes of a span or a metric."""
    problems = []
    for name, value in (attributes or {}).items():
        if name not in ATTRIBUTES:
            problems.append(f"{name} is not in the table")
        elif not isinstance(value, ATTRIBUTES[name].type) or (isinstance(value, bool) and ATTRIBUTES[name].type is int):
            problems.append(f"{name}={value!r} is not of type {ATTRIBUTES[name].type.__name__}")
    return problems


class Validator(SpanProcessor):
    """Collects what is wrong with the spans and metrics of the package."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.spans = self.values = 0

    def on_end(self, span):
        if span.instrumentation_scope is None or span.instrumentation_scope.name != SCOPE:
            return
        self.spans += 1
        self.problems += [f"span {span.name!r}: {problem}" for problem in find_problems(span.attributes)]
        if span.name.partition(" ")[0] not in SPAN_NAMES:
            self.problems.append(f"span {span.name!r}: its name is not in the list")
        if span.events or span.status.description:
            self.problems.append(f"span {span.name!r}: events and descriptions may hold the text of an error")

    def on_measurement(self, measured, attributes):
        if measured.instrumentation_scope.name != SCOPE:
            return
        self.values += 1
        self.problems += [f"metric {measured.name!r}: {problem}" for problem in find_problems(attributes)]
        if measured.name not in METRICS:
            self.problems.append(f"metric {measured.name!r} is not in the table")

    def take(self) -> list[str]:
        """Return the problems so far, and forget them."""
        found, self.problems = self.problems, []
        return found


def install(validator: Validator) -> None:
    """Add the validator to every tracer provider, and to every instrument, that any test makes."""

    def make_provider(self, *args, make=TracerProvider.__init__, **options):
        make(self, *args, **options)
        self.add_span_processor(validator)

    TracerProvider.__init__ = make_provider
    for name, method in (("_Counter", "add"), ("_UpDownCounter", "add"), ("_Histogram", "record"), ("_Gauge", "set")):
        cls = getattr(instrument, name)
        setattr(cls, method, _watch(getattr(cls, method), validator))


def _watch(write, validator):
    def write_and_check(self, amount, attributes=None, *args, **options):
        validator.on_measurement(self, attributes)
        write(self, amount, attributes, *args, **options)

    return write_and_check


class Spans(Sequence):
    """The spans that the package has ended so far, the first that ended first."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter

    @property
    def all(self):
        """Spans of every library."""
        return self.exporter.get_finished_spans()

    @property
    def own(self):
        """Spans of the package."""
        return [span for span in self.all if span.instrumentation_scope.name == SCOPE]

    def __len__(self):
        return len(self.own)

    def __getitem__(self, index):
        return self.own[index]

    def named(self, name):
        """Return the spans of a name, the first that started first."""
        return sorted((span for span in self.all if span.name == name), key=lambda span: span.start_time)

    def one(self, name):
        [span] = self.named(name)
        return span

    def tree(self):
        """Return one line for each span, indented by its depth; siblings in the order in which they started."""
        known = {span.context.span_id for span in self.all}
        children = {}
        for span in self.all:
            parent = span.parent.span_id if span.parent is not None and span.parent.span_id in known else None
            children.setdefault(parent, []).append(span)

        def walk(parent, depth):
            for span in sorted(children.get(parent, ()), key=lambda span: span.start_time):
                yield f"{'  ' * depth}{span.name}"
                yield from walk(span.context.span_id, depth + 1)

        return list(walk(None, 0))

    def parent_of(self, span):
        return next(other for other in self.all if other.context.span_id == span.parent.span_id)


def record_spans(monkeypatch) -> Spans:
    """Set a tracer provider for one test, and return its spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return Spans(exporter)


def record_metrics(monkeypatch):
    """Set a meter provider for one test. Return a function of a name that returns its points: attributes and value."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics_api, "_METER_PROVIDER", MeterProvider([reader], shutdown_on_exit=False))
    latest = {}

    def read(name):
        data = reader.get_metrics_data()
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                latest.update(
                    {metric.name: metric.data.data_points for metric in scope.metrics if scope.scope.name == SCOPE}
                )
        return [
            (dict(point.attributes), getattr(point, "count", getattr(point, "value", None)))
            for point in latest.get(name, ())
        ]

    return read
