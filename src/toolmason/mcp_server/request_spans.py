"""Write the spans of requests to a served toolbox, in the trace of the client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter
from typing import Any, Final

from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import ActiveSpan, extract_context, get_error_type, get_traceparent, is_tracing
from toolmason.mcp_client.specification import MODERN_VERSION, RpcError
from toolmason.mcp_server.call_tool import Request

_HOUSEKEEPING: Final = frozenset({"server/discover", "ping", "logging/setLevel"})
"""Methods without a span: clients send them outside of any work, so that each would be a trace of its own."""


async def trace_handler(handler: Callable[[Request], Coroutine[Any, Any, Any]], request: Request) -> Any:
    """Handle a request in a span whose parent is the span that the client sent in `_meta`."""
    labels = _describe_request(request)
    started, outcome = perf_counter(), {}
    try:
        if not is_tracing() or request.method in _HOUSEKEEPING:
            return await handler(request)
        with _open_span(request, labels) as span:
            try:
                result = await handler(request)
            except RpcError as error:
                span.set({"rpc.response.status_code": str(error.code)})
                raise
            if isinstance(result, Mapping) and result.get("isError"):
                outcome = {"error.type": span.fail("tool_error")}
        return result
    except BaseException as error:
        outcome = {"error.type": str(error.code) if isinstance(error, RpcError) else get_error_type(error)}
        raise
    finally:
        measure("mcp.server.operation.duration", perf_counter() - started, labels | outcome)


def _describe_request(request: Request) -> dict[str, Any]:
    """Return the facts that spans and metrics share. A name is that of a tool or prompt only if the toolbox has it."""
    labels: dict[str, Any] = {"mcp.method.name": request.method}
    if request.method == "tools/call":
        labels["gen_ai.tool.name"] = request.params["name"] if request.traits is not None else "_OTHER"
    return labels


def _open_span(request: Request, labels: Mapping[str, Any]) -> ActiveSpan:
    attributes = {**labels, "jsonrpc.request.id": str(request.id)}
    if request.modern:
        attributes["mcp.protocol.version"] = MODERN_VERSION
    target = labels.get("gen_ai.tool.name", "")
    name = request.method if target in ("", "_OTHER") else f"{request.method} {target}"
    meta, ambient = request.params.get("_meta") or {}, get_traceparent()
    parent = extract_context(meta)
    span = ActiveSpan(name, attributes, "server", parent)
    if parent is not None and ambient != meta.get("traceparent"):
        span.link(ambient)  # such as the span of the HTTP server
    return span
