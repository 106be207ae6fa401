"""Write the spans of requests to servers, and keep the SDK from writing its own, and from logging their content.

The SDK's spans hold the messages of errors, which may contain data of a call, and exist for some transports only. Its
log at DEBUG has whole messages and URLs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, TypeVar

from mcp.shared import jsonrpc_dispatcher
from opentelemetry.trace import INVALID_SPAN

from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import get_error_type, open_span
from toolmason._text import split_url
from toolmason.mcp_client.server_options import ServerSpec
from toolmason.mcp_client.specification import get_server_error

_T = TypeVar("_T")
_dispatcher: Any = jsonrpc_dispatcher  # has the function without exporting it
IS_OWN_REQUEST: Final[ContextVar[bool]] = ContextVar("toolmason_own_request", default=False)
"""True if a request that the SDK sends now has a span of this package, or needs none."""
_METHODS: Final = {
    "call": "tools/call",
    "complete": "completion/complete",
    "health": "ping",
    "list": "tools/list",
    "prompt": "prompts/get",
    "read": "resources/read",
    "subscribe": "resources/subscribe",
}
"""Methods of the protocol by the phases of a connection."""


@contextmanager
def _join_span(*args: Any, make: Any = _dispatcher.otel_span, **options: Any) -> Generator[Any]:
    """Stand in for the SDK's span of a request: none for one of this package, its own for others."""
    if IS_OWN_REQUEST.get():
        yield INVALID_SPAN  # the current span stays that of this package, so the SDK sends its context
    else:
        with make(*args, **options) as span:
            yield span


def _drop_content(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG or not IS_OWN_REQUEST.get()


_dispatcher.otel_span = _join_span
for _name in [name for name in logging.Logger.manager.loggerDict if name.startswith("mcp.")]:
    logging.getLogger(_name).addFilter(_drop_content)


async def trace_request(server: ServerSpec, phase: str, target: str, run: Callable[[], Awaitable[_T]]) -> _T:
    """Send a request to a server in a span, and measure it. `target` is the name of the tool or prompt, if any."""
    method = _METHODS[phase]
    labels: dict[str, Any] = {"mcp.method.name": method, "toolmason.server": server.name}
    # Not the operation `execute_tool`: the span of the call around this one has it, and dashboards count by it.
    if phase in ("call", "prompt"):
        labels["gen_ai.tool.name" if phase == "call" else "gen_ai.prompt.name"] = target
    started, outcome = perf_counter(), {}
    with open_span(f"{method} {target}".rstrip(), labels | _describe_address(server), "client") as span:
        try:
            found = await run()
            if getattr(found, "is_error", False):
                outcome = {"error.type": "tool_error"}
                if span is not None:
                    span.fail("tool_error")
        except BaseException as error:
            outcome = {"error.type": get_error_type(error)}
            if span is not None and (answer := get_server_error(error.__cause__)) is not None:
                span.set({"rpc.response.status_code": str(answer.code)})
            raise
        finally:
            measure("mcp.client.operation.duration", perf_counter() - started, labels | outcome)
    return found


def _describe_address(server: ServerSpec) -> dict[str, Any]:
    """Return the transport and the host of a server. Path, query and user of its URL may be secret."""
    if server.kind != "http":
        return {"network.transport": "pipe"} if server.kind == "stdio" else {}
    url = split_url(server.url or "")
    port = {} if url.port is None else {"server.port": url.port}
    return {"network.transport": "tcp", "server.address": url.hostname or "", **port}
