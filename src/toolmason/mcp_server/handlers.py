"""Handle the methods of the protocol for a served toolbox."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from time import perf_counter
from typing import Any, Final, TypeAlias

from toolmason._core.define.context import ToolContext
from toolmason._core.load.reload import Reloader
from toolmason._core.remote.gateway import Gateway
from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import ActiveSpan, extract_context, get_error_type, get_traceparent, is_tracing
from toolmason._core.toolbox.options import make_ledger
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.content import EmbeddedResource, encode_contents
from toolmason.errors import Abort, InvalidArguments, RemoteError, ToolmasonError
from toolmason.mcp_client import specification as spec
from toolmason.mcp_client.specification import RpcError, get_server_error
from toolmason.mcp_server.call_tool import ROUND_PARAMS, CallHandler, Request, make_replica_error
from toolmason.mcp_server.client_requests import MissingCapability, NeedsInput, make_capability_error
from toolmason.mcp_server.encode import encode_messages, without_hop_fields
from toolmason.mcp_server.lists import MAX_COMPLETIONS, ToolboxLists, find_completions
from toolmason.mcp_server.signed_state import StateSigner
from toolmason.mcp_server.subscriptions import Subscriptions
from toolmason.mcp_server.tasks import ServedTask

_log = logging.getLogger("toolmason.mcp_server")

Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Any]]
CAPABILITIES: Final[Mapping[str, Any]] = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}
"""Capabilities of a served toolbox, as the SDK derives them from the table of handlers."""
STATEFUL_METHODS: Final = (
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
)
"""Methods whose later requests depend on an earlier one, which another replica may have answered."""
_TTL_MS: Final = 60_000
_LEGACY_NOT_FOUND: Final = -32002
"""Error code of a missing resource before protocol version 2026-07-28."""

_HOUSEKEEPING: Final = frozenset({"server/discover", "ping", "logging/setLevel"})
"""Methods without a span: clients send them outside of any work, so that each would be a trace of its own."""


class Handlers:
    """One handler per protocol method of a served toolbox. Each takes a request as plain data and returns its result.

    `private`: the lists may depend on the caller. `key`: signs the state that clients carry between rounds.
    `redact`: redact error messages, unless a tool sets its own `on_error`. `replicated`: other processes answer the
    next requests of a client, so that nothing is kept between them.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        private: bool = False,
        key: bytes | None = None,
        redact: bool = False,
        replicated: bool = False,
    ) -> None:
        if find_spec("mcp") is None:
            raise ImportError("Serving needs the SDK: pip install 'toolmason[serve]'")
        state = get_state(box)
        Gateway(state.remotes).forward_server_requests()
        self.box, self.lists = box, ToolboxLists(box)
        signer = StateSigner() if key is None else StateSigner(key, make_ledger(state.policy))
        self.call_handler = CallHandler(box, self.lists, signer, redact=redact, replicated=replicated)
        self.replicated = replicated
        self.subscriptions = Subscriptions(self.lists)
        self.info: Mapping[str, str] = {"name": state.policy.name or "toolmason", "version": version("toolmason")}
        """Name and version that clients see."""
        scope = "private" if private or state.is_conditional else "public"
        self.cache_hint: dict[str, Any] = {"ttlMs": _TTL_MS, "cacheScope": scope}
        """Time and scope for which a client may keep a list."""
        self.reloader: Reloader[Toolbox] | None = None
        self.table: Mapping[str, Handler] = {
            "server/discover": self.discover,
            "ping": self.ping,
            "tools/list": partial(self.list_entries, "tools"),
            "tools/call": self.call_handler.call,
            "prompts/list": partial(self.list_entries, "prompts"),
            "prompts/get": self.get_prompt,
            "completion/complete": self.complete,
            "resources/list": partial(self.list_entries, "resources"),
            "resources/templates/list": partial(self.list_entries, "resourceTemplates"),
            "resources/read": self.read_resource,
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "logging/setLevel": self.set_level,
            "tasks/get": self.handle_task,
            "tasks/update": self.handle_task,
            "tasks/cancel": self.handle_task,
        }
        if replicated:
            self.table = {**self.table, **dict.fromkeys(STATEFUL_METHODS, refuse_in_replica)}

    def reload_with(self, reloader: Reloader[Toolbox]) -> None:
        """Run a reloader while the toolbox is served, which calls `replace`. Clients then keep no list."""
        self.reloader = reloader
        self.cache_hint.update(ttlMs=0, cacheScope="private")

    async def replace(self, box: Toolbox) -> None:
        """Serve another toolbox. Calls in progress end in the one from before, whose servers are closed."""
        old = get_state(self.box)
        Gateway(get_state(box).remotes).forward_server_requests()
        self.box = self.lists.box = self.call_handler.box = box
        await self.subscriptions.follow()
        await old.remotes.aclose()

    async def close(self) -> None:
        """Stop watching the toolbox, and cancel all running tasks."""
        self.subscriptions.close()
        await self.call_handler.tasks.close()

    # --- the server --------------------------------------------------------------------------------

    async def discover(self, _: Request) -> dict[str, Any]:
        """Handle `server/discover`."""
        capabilities = {**CAPABILITIES, "extensions": {spec.TASKS_EXTENSION: {}}}
        if self.replicated:
            capabilities = {name: {} for name in CAPABILITIES}
        return {"supportedVersions": [spec.MODERN_VERSION], "capabilities": capabilities}

    async def ping(self, _: Request) -> dict[str, Any]:
        """Handle `ping`."""
        return {}

    # --- tools and lists ---------------------------------------------------------------------------

    async def list_entries(self, kind: str, request: Request) -> dict[str, Any]:
        """Handle the list request of a kind of entries."""
        if kind == "tools" and get_state(self.box).is_conditional:
            return await self.lists.fetch_tools(request.params.get("cursor"), request.make_context())
        return await self.lists.fetch_page(kind, request.params.get("cursor"))

    def get_header_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool that mirrors parameters in headers, or None."""
        traits = self.lists.get_traits(name)
        return traits.schema if traits is not None and traits.mirrors_headers else None

    # --- prompts and completions -------------------------------------------------------------------

    async def get_prompt(self, request: Request) -> dict[str, Any]:
        """Handle `prompts/get`."""
        name, arguments = request.params["name"], dict(request.params.get("arguments") or {})
        if not ROUND_PARAMS.isdisjoint(request.params):
            self.call_handler.restore_answers(request, name, arguments)
        prompt = next((item for item in self.box.prompts if item.name == name), None)
        if prompt is None:
            raise RpcError(spec.INVALID_PARAMS, f"Unknown prompt {name!r}.")
        try:
            found = await self.box.prompt(name, arguments, context=request.make_context())
        except NeedsInput:
            return self.call_handler.make_input_required(request, name, arguments)
        except Exception as error:  # noqa: BLE001 - a prompt is user code
            raise _make_error(error, f"The prompt {name!r}") from None
        if (reply := request.open_client().upstream_reply) is not None and prompt.entry is not None:
            return without_hop_fields(reply[2])
        return {"description": prompt.description, "messages": encode_messages(found)}

    async def complete(self, request: Request) -> dict[str, Any]:
        """Handle `completion/complete`."""
        ref, argument = request.params["ref"], request.params["argument"]
        found: list[Any]
        if ref["type"] == "ref/prompt":
            found = [item for item in self.box.prompts if item.name == ref["name"] and item.entry is None]
        else:
            found = [item for item in get_state(self.box).catalog.resources.values() if item.uri == ref["uri"]]
        if not found and (upstream_result := await self._complete_upstream(request)) is not None:
            return upstream_result
        values = find_completions(found[0].input_schema, argument["name"], argument["value"]) if found else []
        has_more = len(values) > MAX_COMPLETIONS
        return {"completion": {"values": values[:MAX_COMPLETIONS], "total": len(values), "hasMore": has_more}}

    async def _complete_upstream(self, request: Request) -> dict[str, Any] | None:
        params = {key: value for key, value in request.params.items() if key != "_meta"}
        context = ToolContext[Any](**request.make_context())
        try:
            found = await Gateway(get_state(self.box).remotes).complete(params, context)
        except RemoteError as error:
            raise _make_error(error, "The completion") from None
        return None if found is None else without_hop_fields(found)

    # --- resources ---------------------------------------------------------------------------------

    async def read_resource(self, request: Request) -> dict[str, Any]:
        """Handle `resources/read`."""
        uri = request.params["uri"]
        if not ROUND_PARAMS.isdisjoint(request.params):
            self.call_handler.restore_answers(request, uri, {})
        try:
            found = await self.box.read(uri, context=request.make_context())
        except NeedsInput:
            return self.call_handler.make_input_required(request, uri, {})
        except (KeyError, RemoteError) as error:
            _raise_upstream_error(error, excluded_codes=(spec.INVALID_PARAMS, _LEGACY_NOT_FOUND))
            code = spec.INVALID_PARAMS if request.modern else _LEGACY_NOT_FOUND
            raise RpcError(code, "Resource not found.", {"uri": uri}) from None
        except Exception as error:  # noqa: BLE001 - a resource is user code
            raise _make_error(error, f"The resource {uri!r}") from None
        reply = request.open_client().upstream_reply
        if reply is not None and reply[:2] == ("resources/read", uri):
            own_resources = get_state(self.box).catalog.resources.values()
            if all(item.match_uri(uri) is None for item in own_resources):
                return without_hop_fields(reply[2])
        return {"contents": [encode_contents(part) for part in found if isinstance(part, EmbeddedResource)]}

    async def subscribe(self, request: Request) -> dict[str, Any]:
        """Handle `resources/subscribe`."""
        uri = request.params["uri"]
        if not self.subscriptions.subscribe(uri, request.session_id, request.notify, request.identity.owner):
            raise RpcError(spec.INTERNAL_ERROR, "Too many subscriptions. Try again later.")
        await self.subscriptions.sync_upstream()
        return {}

    async def unsubscribe(self, request: Request) -> dict[str, Any]:
        """Handle `resources/unsubscribe`."""
        self.subscriptions.unsubscribe(request.params["uri"], request.session_id)
        await self.subscriptions.sync_upstream()
        return {}

    # --- sessions ----------------------------------------------------------------------------------

    async def set_level(self, request: Request) -> dict[str, Any]:
        """Handle `logging/setLevel`."""
        log_levels = self.subscriptions.log_levels
        log_levels[request.session_id] = request.params["level"]
        while len(log_levels) > 10 * len(self.subscriptions.sessions) + 100:
            log_levels.popitem(last=False)
        return {}

    # --- tasks -------------------------------------------------------------------------------------

    async def handle_task(self, request: Request) -> dict[str, Any]:
        """Handle `tasks/get`, `tasks/update` and `tasks/cancel`."""
        if not request.modern:
            raise RpcError(spec.METHOD_NOT_FOUND, "Method not found", request.method)
        task = self._find_task(request)
        if request.method == "tasks/cancel":
            self.call_handler.tasks.cancel(task)
            return {}
        if request.method == "tasks/update":
            answers = request.params.get("inputResponses")
            if not isinstance(answers, Mapping):
                raise RpcError(spec.INVALID_PARAMS, "tasks/update: inputResponses must be an object.")
            task.add_answers(answers)
            return {}
        return task.to_dict()

    def _find_task(self, request: Request) -> ServedTask:
        if spec.TASKS_EXTENSION not in (request.capabilities.get("extensions") or {}):
            message = f"The client does not offer {spec.TASKS_EXTENSION!r}."
            raise make_capability_error(message, {"extensions": {spec.TASKS_EXTENSION: {}}})
        task_id = request.params.get("taskId")
        if request.headers is not None and request.headers["mcp-name"] != task_id:
            raise RpcError(spec.HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")
        task = self.call_handler.tasks.find(task_id, request.identity.owner)
        if task is None:
            raise RpcError(spec.INVALID_PARAMS, "Task not found.", {"taskId": task_id})
        return task


async def refuse_in_replica(request: Request) -> dict[str, Any]:
    """Refuse a request that needs the memory of one process."""
    raise make_replica_error(f"{request.method} is")


def _raise_upstream_error(error: Exception, excluded_codes: tuple[int, ...] = ()) -> None:
    """Raise the error that an upstream server sent, unless its code differs between eras (`excluded_codes`)."""
    cause = get_server_error(error.__cause__)
    if cause is not None and cause.code not in excluded_codes:
        raise cause


def _make_error(error: Exception, subject: str) -> RpcError:
    _raise_upstream_error(error)
    if isinstance(error, MissingCapability):
        return make_capability_error(str(error), {error.capability: {}})
    if isinstance(error, InvalidArguments):
        return RpcError(spec.INVALID_PARAMS, str(error))
    if isinstance(error, Abort):
        return RpcError(spec.INTERNAL_ERROR, str(error))
    detail = "" if isinstance(error, ToolmasonError) else f" ({type(error).__name__})"
    _log.error("a prompt or resource failed: %s%s", subject, detail)
    return RpcError(spec.INTERNAL_ERROR, f"{subject} failed because of an internal error.")


# --- spans -----------------------------------------------------------------------------------------


async def trace_handler(handler: Handler, request: Request) -> Any:
    """Handle a request in a span whose parent is the span that the client sent in `_meta`."""
    labels = _describe_labels(request)
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


def _describe_labels(request: Request) -> dict[str, Any]:
    """Return the facts that spans and metrics share. A name is that of a tool or prompt only if the toolbox has it."""
    labels: dict[str, Any] = {"mcp.method.name": request.method}
    if request.method == "tools/call":
        labels["gen_ai.tool.name"] = request.params["name"] if request.traits is not None else "_OTHER"
    return labels


def _open_span(request: Request, labels: Mapping[str, Any]) -> ActiveSpan:
    attributes = {**labels, "jsonrpc.request.id": str(request.id)}
    if request.modern:
        attributes["mcp.protocol.version"] = spec.MODERN_VERSION
    target = labels.get("gen_ai.tool.name", "")
    name = request.method if target in ("", "_OTHER") else f"{request.method} {target}"
    meta, ambient = request.params.get("_meta") or {}, get_traceparent()
    parent = extract_context(meta)
    span = ActiveSpan(name, attributes, "server", parent)
    if parent is not None and ambient != meta.get("traceparent"):
        span.link(ambient)  # such as the span of the HTTP server
    return span
