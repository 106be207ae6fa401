"""Write metrics with the OpenTelemetry API, if the program has set a meter provider."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from toolmason._core.run.conventions import SCHEMA_URL

METERS: Final = "opentelemetry.metrics._internal"
"""Module of the API that holds the meter provider. If it is not loaded, nothing is measured."""
METER: Final = "_METER_PROVIDER"
"""Attribute of that module with the meter provider, or None if the program has set none."""


class Metric(NamedTuple):
    """One metric, with the method that its instrument is written with."""

    instrument: Literal["histogram", "counter", "up_down_counter", "gauge"]
    unit: str
    meaning: str
    buckets: tuple[float, ...] | None = None


_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
_MODEL_BUCKETS: Final = tuple(0.01 * 2**step for step in range(14))
_TOKEN_BUCKETS: Final = tuple(float(4**step) for step in range(14))

METRICS: Final[Mapping[str, Metric]] = {
    "gen_ai.client.operation.duration": Metric("histogram", "s", "model turns and their duration", _MODEL_BUCKETS),
    "gen_ai.client.token.usage": Metric("histogram", "{token}", "tokens of model turns", _TOKEN_BUCKETS),
    "mcp.client.operation.duration": Metric("histogram", "s", "requests to MCP servers", _BUCKETS),
    "mcp.server.operation.duration": Metric("histogram", "s", "requests of MCP clients", _BUCKETS),
    "toolmason.run.duration": Metric("histogram", "s", "runs by their finish", _BUCKETS),
    "toolmason.run.cost": Metric("counter", "{currency}", "cost of model turns"),
    "toolmason.tool.duration": Metric("histogram", "s", "calls; `error.type` has the code of a failed one", _BUCKETS),
    "toolmason.tool.retries": Metric("counter", "{attempt}", "attempts after the first"),
    "toolmason.tool.repairs": Metric("counter", "{repair}", "repairs of arguments"),
    "toolmason.tool.repeats": Metric("counter", "{call}", "calls that repeat an earlier one of their run"),
    "toolmason.approval.duration": Metric("histogram", "s", "approvals by verdict, with the wait", _BUCKETS),
    "toolmason.queue.depth": Metric("up_down_counter", "{call}", "calls that wait for a slot, a lock or a process"),
    "toolmason.cache.hits": Metric("counter", "{hit}", "outcomes from the journal, and lists of servers from memory"),
    "toolmason.mcp.server.up": Metric("gauge", "1", "1 if the last connection to a server succeeded, else 0"),
}
"""Every metric."""


class _Instruments(dict[str, Callable[..., None]]):
    """Functions that write each metric with one meter provider. An instrument is made when it is first written."""

    def __init__(self, provider: Any) -> None:
        super().__init__()
        self.provider = provider
        self._meter = None if provider is None else provider.get_meter("toolmason", schema_url=SCHEMA_URL)

    def __missing__(self, name: str) -> Callable[..., None]:
        metric = METRICS[name]
        options: dict[str, Any] = {"unit": metric.unit, "description": metric.meaning}
        if metric.buckets is not None:
            options["explicit_bucket_boundaries_advisory"] = metric.buckets
        instrument = getattr(self._meter, f"create_{metric.instrument}")(name, **options)
        method = {"histogram": "record", "gauge": "set"}.get(metric.instrument, "add")
        write: Callable[..., None] = getattr(instrument, method)
        self[name] = write
        return write


_current: list[_Instruments] = [_Instruments(None)]
"""Instruments of the meter provider that was used last. A program has one; tests have several."""


def is_metering() -> bool:
    """Return True if the program has set a meter provider."""
    return getattr(sys.modules.get(METERS), METER, None) is not None


def measure(name: str, value: float, attributes: Mapping[str, Any]) -> None:
    """Write one value of a metric; nothing without a meter provider."""
    provider = getattr(sys.modules.get(METERS), METER, None)
    if provider is None:
        return
    if _current[0].provider is not provider:
        _current[0] = _Instruments(provider)
    _current[0][name](value, attributes)
