"""Measure the cost of tracing: of a call that is not traced, against one without the check, and of one that is."""

import asyncio
import inspect
import textwrap
from types import MethodType
from typing import Any

from measure import Call, Contender, Row, Table, race, verdict
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from samples import TWO_INTS

from toolmason import Toolbox, tool
from toolmason._core.run.tracing import TraceApi

CHECK = "if route.hooks or (OTEL._TRACER_PROVIDER and TRACE_API in LOADED_MODULES):"
OFF_LIMIT, ON_LIMIT = 1.01, 60.0
"""Maximum ratio of a call that is not traced, and maximum µs that spans and metrics add to one that is."""


def table(rounds: int, *, with_peers: bool) -> list[Table]:
    """Compare the same call in one run: without the check, without OpenTelemetry, not traced, traced, measured."""
    del with_peers
    rows = asyncio.run(race(contenders(), TWO_INTS.text, rounds))
    base = rows[0].figures[0] or 0.0
    traced = [_judge(row, (row.figures[0] or 0.0) - base) for row in rows[3:]]
    note = "The providers are those of the SDK, with a processor and a reader that keep nothing: exporting costs extra."
    return [Table("Tracing: 2 ints", ("cpu µs", "wall µs (best)", "x without"), [*rows[:3], *traced], [note])]


def _judge(row: Row, added: float) -> Row:
    return Row(row.name, row.figures, f"≤ +{ON_LIMIT:g} µs", verdict(added, ON_LIMIT))


def contenders() -> list[Contender]:
    """Return the contenders. Each sets the providers of the process before its call."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    meter = MeterProvider(shutdown_on_exit=False)
    # One toolbox for all: the interpreter specializes the code of a call for the functions that it calls.
    box = Toolbox(tool(TWO_INTS.on_loop))
    absent = CHECK.replace("OTEL", "NOT_LOADED").replace("TRACE_API", "'not.loaded'")
    return [
        Contender("without the check", _call(_compile("if route.hooks:", box), None, None)),
        Contender("not loaded", _call(_compile(absent, box), None, None), OFF_LIMIT),
        Contender("with the API loaded and no provider", _call(_compile(CHECK, box), None, None), OFF_LIMIT),
        Contender("with spans", _call(_compile(CHECK, box), provider, None)),
        Contender("with spans and metrics", _call(_compile(CHECK, box), provider, meter)),
    ]


def _compile(check: str, box: Toolbox) -> Any:
    """Return `Toolbox.call` of a toolbox, compiled with this check: both sides of the comparison in the same way."""
    source = textwrap.dedent(inspect.getsource(Toolbox.call))
    assert CHECK in source, "the check in Toolbox.call has changed: change it here as well"  # noqa: S101 - see the text
    namespace = {**Toolbox.call.__globals__, "NOT_LOADED": TraceApi()}
    exec(source.replace(CHECK, check), namespace)  # noqa: S102 - the package's own source
    return MethodType(namespace["call"], box)


def _call(run: Any, provider: Any, meter: Any) -> Call:
    name = TWO_INTS.on_loop.__name__

    async def call(text: str) -> str:
        trace._TRACER_PROVIDER = provider  # noqa: SLF001 - a provider can be set once only
        metrics._METER_PROVIDER = meter  # noqa: SLF001 - as above
        return (await run(name, text)).text

    # Code of its own: the interpreter specializes the place of a call for what was called there before.
    call.__code__ = call.__code__.replace(co_name=f"call_{id(call)}")
    return call
