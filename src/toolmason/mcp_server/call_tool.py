"""Run a `tools/call` request: earlier answers, the call, approval by the client's user, tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.arguments.bind import LargeArguments
from toolmason._core.call.approval import Allow, ApprovalRequest
from toolmason._core.call.failures import make_error_result as make_redacted_result
from toolmason._core.call.long_results import reset_result_owner, set_result_owner
from toolmason._core.define.context import CLIENT_CALL_KEYS, CLIENT_KEY, SESSION_KEY
from toolmason._core.define.tool import compile_tool
from toolmason._core.run.progress import OnProgress, ProgressReport
from toolmason._core.run.tracing import open_span
from toolmason._core.toolbox.approvals import format_arguments
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import ToolResult
from toolmason._http.caller import ANONYMOUS, Identity
from toolmason._text import escape_hidden
from toolmason.errors import Abort, ApprovalDenied, ApprovalRequired, ToolCallError, ToolError, UnknownTool
from toolmason.mcp_client import specification as spec
from toolmason.mcp_client.specification import RpcError, get_server_error
from toolmason.mcp_server.client_requests import (
    ClientProxy,
    ClientStream,
    ContinuesAsTask,
    MissingCapability,
    NeedsInput,
    make_capability_error,
)
from toolmason.mcp_server.encode import (
    encode_result,
    get_remote_name,
    make_error_result,
    passthrough,
    write_result,
)
from toolmason.mcp_server.lists import ToolboxLists, ToolTraits
from toolmason.mcp_server.signed_state import StateSigner, make_binding
from toolmason.mcp_server.tasks import ServedTask, TaskStore

_log = logging.getLogger("toolmason.mcp_server")

APPROVAL_KEY: Final = "approval"
"""Key of the approval question."""
ROUND_PARAMS: Final = frozenset({"inputResponses", "requestState"})
"""Parameters of a request that continues an earlier round."""
_META_KEYS: Final = {key: key for key in ("traceparent", "tracestate", "baggage")} | CLIENT_CALL_KEYS
"""Keys of `_meta` that become context values, each with the key of its value."""


@dataclass(eq=False, repr=False)
class Request:
    """A request to a served toolbox as plain data, whatever carries its answer.

    The fields that few requests need are set later: each parameter costs time in every request.
    """

    method: str
    params: Mapping[str, Any]
    id: int | str | None = None
    modern: bool = True
    """True in the stateless era, False in a session."""
    identity: Identity = field(default_factory=lambda: ANONYMOUS)
    """Context values from authentication, and the owner of the tasks and results that the request creates."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Capabilities of the client."""
    traits: ToolTraits | None = None
    """Traits of the called tool, if they are known already."""
    session_id: str = field(default="", init=False)
    """Session of the request; empty if there is none, and over stdio, which has a single one."""
    notify: Any = field(default=None, init=False)
    """Function that notifies the session of changes; None if the request is answered directly."""
    headers: Mapping[str, str | None] | None = field(default=None, init=False)
    """Decoded HTTP headers; None if the request is answered directly, and over stdio."""
    stream: ClientStream | None = field(default=None, init=False)
    """Stream for notifications and questions. In a session it is made when something needs it."""
    log_level: str | None = field(default=None, init=False)
    """Lowest log level that the client wants."""
    wants_progress: bool = field(default=False, init=False)
    is_direct: bool = field(default=False, init=False)
    """True if the result may be JSON text, because nothing but the response is made of it."""
    client: ClientProxy | None = field(default=None, init=False)
    """The client as the tool sees it; None until something needs it."""

    def open_stream(self) -> ClientStream | None:
        """Return the stream, or None if the client gets only the response."""
        if self.stream is None and not self.modern:
            self.stream = ClientStream(can_ask=True)
        return self.stream

    def open_client(self) -> ClientProxy:
        """Return the client as the tool sees it."""
        if self.client is None:
            stream, params = self.open_stream(), self.params
            self.client = ClientProxy(
                self.capabilities,
                send_questions=stream.ask if stream is not None and stream.can_ask else None,
                send_notification=None if stream is None else stream.notify,
                log_level=self.log_level,
                logger=str(params.get("name") or params.get("uri") or self.method),
                close_stream=None if stream is None else stream.close,
            )
        return self.client

    def get_values(self) -> Mapping[str, Any]:
        """Return the context values of the caller: its identity, the trace of the request, and its run and key."""
        meta = self.params.get("_meta")
        if not meta or _META_KEYS.keys().isdisjoint(meta):
            return self.identity
        values = {name: meta[key] for key, name in _META_KEYS.items() if isinstance(meta.get(key), str)}
        return {**values, **self.identity}

    def make_context(self) -> dict[str, Any]:
        """Return the context values of a call that may use the client."""
        context = {**self.get_values(), CLIENT_KEY: self.open_client()}
        if self.session_id:
            context[SESSION_KEY] = self.session_id
        return context


@dataclass(slots=True, eq=False, repr=False)
class CallHandler:
    """Handler of the calls to one served toolbox."""

    box: Toolbox
    lists: ToolboxLists
    state_signer: StateSigner = field(default_factory=StateSigner)
    tasks: TaskStore = field(default_factory=TaskStore)
    redact: bool = False
    """True to redact error messages, unless the tool sets its own `on_error`."""
    replicated: bool = False
    """True if other processes answer the next requests of a client, so that no task can be kept."""

    async def call(self, request: Request) -> Any:
        """Return the result of a call as MCP data, or as the JSON text of its fields.

        Raises:
            RpcError: the request itself is invalid: unknown tool, invalid state.
        """
        params = request.params
        name, arguments = params["name"], params.get("arguments") or {}
        traits = request.traits or self.lists.get_traits(name)
        if not ROUND_PARAMS.isdisjoint(params):
            await self._continue_round(request, name, arguments)
        if traits is not None and traits.task is not None and self._runs_as_task(traits, request):
            return self._start_task(request, traits)
        is_plain = traits is not None and traits.plain and request.client is None
        context = (request.get_values() or None) if is_plain else request.make_context()
        progress = _make_progress_callback(request.open_client()) if request.wants_progress else None
        scope = set_result_owner(request.identity.owner or request.session_id)
        try:
            work = self.box.call(name, arguments, context=context, on_progress=progress)
            result = await (work if type(arguments) is not LargeArguments else self._call_large(name, arguments, work))
            if isinstance(result.error, ApprovalRequired):
                result = await self._ask_approval(result, request, progress)
        except NeedsInput:
            return self.make_input_required(request, name, arguments)
        except ContinuesAsTask:
            return self._start_task(request, traits)
        except (Abort, ToolCallError) as raised:
            return _encode_raised(request, raised)
        finally:
            reset_result_owner(scope)
            if request.client is not None and request.client.has_notified:
                await request.client.flush()
        client = request.client
        if client is not None and client.pending_questions and client.send_questions is None:
            return self.make_input_required(request, name, arguments)
        is_large = type(arguments) is LargeArguments
        encode = self._encode
        encoded = (
            await asyncio.to_thread(encode, result, request, traits) if is_large else encode(result, request, traits)
        )
        if client is None or client.upstream_reply is None:
            return encoded
        return self._pass_reply_through(name, encoded, client.upstream_reply, result)

    def _encode(self, result: ToolResult, request: Request, traits: ToolTraits | None) -> Any:
        if result.error is not None:
            return self._encode_error(result, traits)
        is_structured = traits is not None and traits.structured
        if is_structured and request.is_direct and request.client is None:
            return write_result(result) or encode_result(result, self.box, structured=True)
        return encode_result(result, self.box, structured=is_structured)

    async def _call_large(
        self, name: str, arguments: LargeArguments, work: Coroutine[Any, Any, ToolResult]
    ) -> ToolResult:
        """Bind large arguments off the event loop, then run the call."""
        try:
            if name in self.box:
                inputs = compile_tool(self.box[name]).inputs
                await asyncio.to_thread(arguments.bind, inputs, name, EngineSettings())
        except BaseException:
            work.close()
            raise
        return await work

    # --- input rounds ------------------------------------------------------------------------------

    async def _continue_round(self, request: Request, name: str, arguments: Any) -> None:
        self.restore_answers(request, name, arguments)
        if APPROVAL_KEY in request.open_client().answers:
            # One approval is one call, and a refusal is final.
            await self.state_signer.use(request.params["requestState"])

    def restore_answers(self, request: Request, name: str, arguments: Any) -> None:
        """Restore the answers of earlier rounds.

        Raises:
            RpcError: the state is forged, expired, or belongs to another request.
        """
        params = request.params
        answers, state, client = params.get("inputResponses"), params.get("requestState"), request.open_client()
        if not isinstance(answers, Mapping):
            answers = {}
        if isinstance(state, str):
            binding = make_binding(request.method, name, arguments, request.identity.owner)
            restored = self.state_signer.verify(state, binding)
            client.answers.update(restored["answers"])
            client.upstream_state = restored["kept"]
            client.has_signed_state = True
            answers = {key: value for key, value in answers.items() if key in restored["asked"]}
        else:
            # Without a state, nothing binds an approval to these arguments.
            answers = {key: value for key, value in answers.items() if key != APPROVAL_KEY}
        client.answers.update({key: value for key, value in answers.items() if isinstance(value, Mapping)})

    def make_input_required(self, request: Request, name: str, arguments: Any) -> dict[str, Any]:
        """Return the result that asks the client for input."""
        client = request.open_client()
        data = {"answers": client.answers, "asked": list(client.pending_questions), "kept": client.upstream_state}
        state = self.state_signer.sign(data, make_binding(request.method, name, arguments, request.identity.owner))
        return {"resultType": "input_required", "inputRequests": dict(client.pending_questions), "requestState": state}

    # --- results -----------------------------------------------------------------------------------

    def _pass_reply_through(
        self, name: str, encoded: dict[str, Any], reply: tuple[str, str, Mapping[str, Any]], result: ToolResult
    ) -> dict[str, Any]:
        # An upstream request made by a local tool is not the result of that tool.
        if name not in self.box or reply[:2] != ("tools/call", get_remote_name(self.box[name])):
            return encoded
        return passthrough(encoded, reply[2], result)

    def check_serializable(self, name: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result, or an error result if it cannot be encoded as JSON."""
        try:
            to_json(result)
        except ValueError:  # a lone surrogate, for example
            return self.make_unwritable_result(name)
        return result

    def make_unwritable_result(self, name: str) -> dict[str, Any]:
        """Return the result of a call whose value cannot be encoded as JSON."""
        _log.warning("%s returned a value that cannot be encoded as JSON", name)
        return make_error_result(f"{name} returned a value that cannot be encoded as JSON. Retrying will not help.")

    def _encode_error(self, result: ToolResult, traits: ToolTraits | None) -> dict[str, Any]:
        """Return a failed result as MCP data.

        Raises:
            RpcError: the tool is unknown, or the upstream server rejected the request.
        """
        error: Any = result.error
        if (upstream_error := get_server_error(error.__cause__)) is not None:
            raise upstream_error  # the upstream server rejected the request itself
        is_unknown = isinstance(error, UnknownTool) and result.attempts == 0
        if is_unknown and (error.is_disabled or error.name not in self.box):
            raise RpcError(spec.INVALID_PARAMS, str(error))
        if self.redact and (traits is None or not traits.sets_on_error):
            return make_error_result(make_redacted_result(error, "redact").text, error, result.attempts)
        return make_error_result(result.text, error, result.attempts)

    async def _ask_approval(self, result: ToolResult, request: Request, progress: OnProgress | None) -> ToolResult:
        """Ask the client's user for approval, if the client supports it. Otherwise the call stays refused."""
        approval: Any = getattr(result.error, "request", None)
        client = request.open_client()
        if not isinstance(approval, ApprovalRequest) or not client.supports("elicitation"):
            return result
        with open_span(f"approve {approval.tool}", {"gen_ai.tool.name": approval.tool}) as span:
            reason = "the user declined"
            try:
                answer = await client.elicit(_format_question(approval), _APPROVAL_SCHEMA, key=APPROVAL_KEY)
                agreed = bool(answer) and answer.content.get("approve") is True
            except ToolError as error:
                agreed, reason = False, f"the client did not send a valid answer: {error}"
            if span is not None:
                span.set({"toolmason.approval.verdict": "allow" if agreed else "deny"})
        # An approval is valid for one call: the next one asks again.
        approval_answer = client.answers.pop(APPROVAL_KEY, None)
        if not agreed:
            denied = ApprovalDenied(approval.tool, reason)
            return ToolResult(result.call_id, result.name, attempts=0, error=denied)
        decision = self.box.approvals.decide(approval, Allow())
        try:
            return await self.box.approvals.resume(decision, context=request.make_context(), on_progress=progress)
        except (NeedsInput, ContinuesAsTask):
            # The same call continues in another round, with the same approval.
            client.answers[APPROVAL_KEY] = approval_answer
            raise

    # --- tasks -------------------------------------------------------------------------------------

    def _runs_as_task(self, traits: ToolTraits, request: Request) -> bool:
        extensions = request.capabilities.get("extensions")
        supports_tasks = request.modern and isinstance(extensions, Mapping) and spec.TASKS_EXTENSION in extensions
        if self.replicated:
            if traits.task == "required":
                raise make_replica_error("This tool runs as a task, and tasks are")
            return False
        if traits.task == "required" and not supports_tasks:
            message = f"This tool runs as a task, but the client does not offer {spec.TASKS_EXTENSION!r}."
            raise make_capability_error(message, {"extensions": {spec.TASKS_EXTENSION: {}}})
        return supports_tasks and (traits.task != "after_input" or bool(request.params.get("inputResponses")))

    def _start_task(self, request: Request, traits: ToolTraits | None) -> dict[str, Any]:
        if self.replicated:
            raise make_replica_error("The other server continues this call as a task, and tasks are")
        task = self.tasks.create(request.identity.owner)
        original = request.open_client()
        client = ClientProxy(
            original.capabilities,
            dict(original.answers),
            send_questions=task.ask,
            upstream_state=original.upstream_state,
            has_signed_state=original.has_signed_state,
        )
        params = {key: value for key, value in request.params.items() if key not in ROUND_PARAMS}
        task_traits = None if traits is None else replace(traits, task=None)
        task_request = Request(request.method, params, None, True, request.identity, client.capabilities, task_traits)  # noqa: FBT003 - the fields by position
        task_request.client = client
        self.tasks.start(task, self._finish(task, task_request))
        return {"resultType": "task", **task.to_dict()}

    async def _finish(self, task: ServedTask, request: Request) -> None:
        name = request.params["name"]
        try:
            result = self.check_serializable(name, await self.call(request))
        except RpcError as error:
            task.set_status("failed", error={"code": error.code, "message": error.message})
        except Exception as error:  # noqa: BLE001 - the polling client must learn that the task ended
            _log.error("%s failed while running as a task: %s", name, type(error).__name__)
            task.set_status("failed", error={"code": spec.INTERNAL_ERROR, "message": "The task failed."})
        else:
            self.tasks.complete(task, {"resultType": "complete", **result})


def make_replica_error(subject: str) -> RpcError:
    """Return the error for a request that needs the memory of one process."""
    reason = "this server runs as replicas, which keep no sessions, tasks or subscriptions"
    return RpcError(spec.METHOD_NOT_FOUND, f"{subject} not available: {reason}.")


def _encode_raised(request: Request, raised: Abort | ToolCallError) -> dict[str, Any]:
    """Return the redacted result of a call that raised an error, which no caller in this process can catch.

    Raises:
        RpcError: the tool aborted the run, or the client lacks a capability.
    """
    if isinstance(raised, ToolCallError):
        return make_error_result(make_redacted_result(raised, "redact").text, raised)
    if not isinstance(raised, MissingCapability):
        raise RpcError(spec.INTERNAL_ERROR, str(raised) or "The tool stopped the run.") from None
    if not request.modern:
        return make_error_result(str(raised))
    raise make_capability_error(str(raised), {raised.capability: {}}) from None


_APPROVAL_SCHEMA: Final = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "description": "Allow this call to run."}},
    "required": ["approve"],
}


def _format_question(request: ApprovalRequest) -> str:
    effects = f" ({', '.join(request.effects)})" if request.effects else ""
    question = f"Allow {request.tool}{effects} to run? {format_arguments(request.arguments)}"
    return f"{question}\n{escape_hidden(request.preview)}" if request.preview else question


def _make_progress_callback(client: ClientProxy) -> OnProgress:
    def report(progress: ProgressReport) -> None:
        fields = {"progress": progress.done, "total": progress.total, "message": progress.message}
        client.queue_notification(
            "notifications/progress", {key: value for key, value in fields.items() if value is not None}
        )

    return report
