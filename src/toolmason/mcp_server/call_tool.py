"""Run a `tools/call` request: earlier answers, the call, approval by the client's user, tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

from toolmason._core.call.approval import Allow, ApprovalRequest
from toolmason._core.call.failures import make_error_result as make_redacted_result
from toolmason._core.call.long_results import reset_result_owner, set_result_owner
from toolmason._core.define.context import CLIENT_KEY
from toolmason._core.run.progress import OnProgress, ProgressReport
from toolmason._core.toolbox.approval_text import format_arguments
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.results import ToolResult
from toolmason._text import escape_hidden
from toolmason.errors import Abort, ApprovalDenied, ApprovalRequired, ToolCallError, UnknownTool
from toolmason.mcp_client.remote_errors import is_from_server
from toolmason.mcp_server.client_requests import ClientProxy, ContinuesAsTask, MissingCapability, NeedsInput
from toolmason.mcp_server.encode import (
    encode_call_result,
    get_remote_name,
    is_json_serializable,
    make_error_result,
    passthrough,
    with_structured_content,
)
from toolmason.mcp_server.lists import ToolboxLists, ToolTraits
from toolmason.mcp_server.signed_state import InvalidState, StateSigner, make_binding
from toolmason.mcp_server.tasks import EXTENSION_ID, ServedTask, TaskStore, TooManyTasks

_log = logging.getLogger("toolmason.mcp_server")

APPROVAL_KEY: Final = "approval"
"""Key of the approval question."""
_TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Data of a request besides its parameters."""

    client: ClientProxy
    modern: bool = True
    principal: Mapping[str, Any] = field(default_factory=dict)
    """Context values from authentication."""
    owner: str = ""
    """Owner of the tasks and results that the request creates; empty if anonymous."""
    session_id: str = ""
    """Session of the request; empty if there is none."""
    progress_token: Any = None
    """Progress token, or None if the client does not want progress."""


@dataclass(slots=True, eq=False, repr=False)
class CallHandler:
    """Handler of the calls to one served toolbox."""

    box: Toolbox
    lists: ToolboxLists
    state_signer: StateSigner = field(default_factory=StateSigner)
    tasks: TaskStore = field(default_factory=TaskStore)
    redact: bool = False
    """True to redact error messages, unless the tool sets its own `on_error`."""

    async def call(self, params: Mapping[str, Any], info: RequestInfo) -> dict[str, Any]:
        """Return the result of a call as MCP data.

        Raises:
            MCPError: the request itself is invalid: unknown tool, invalid state.
        """
        name, arguments = params["name"], params.get("arguments") or {}
        traits = self.lists.get_traits(name)
        binding = make_binding("tools/call", name, arguments, info.owner)
        self._restore_answers(params, info, binding)
        if traits is not None and traits.task is not None and self._runs_as_task(traits, params, info):
            return self._start_task(name, arguments, traits, info)
        try:
            return await self._run(name, arguments, traits, info)
        except NeedsInput:
            return self._make_input_required(info.client, binding)
        except ContinuesAsTask:
            return self._start_task(name, arguments, traits, info)
        finally:
            await info.client.flush()

    # --- input rounds ------------------------------------------------------------------------------

    def _restore_answers(self, params: Mapping[str, Any], info: RequestInfo, binding: str) -> None:
        answers, state = params.get("inputResponses"), params.get("requestState")
        client = info.client
        if isinstance(state, str):
            try:
                restored = self.state_signer.verify(state, binding)
            except InvalidState as invalid:
                raise MCPError(INVALID_PARAMS, f"Invalid requestState: {invalid}.") from None
            client.answers.update(restored["answers"])
            client.upstream_state = restored["kept"]
            client.has_signed_state = True
            answers = {key: value for key, value in (answers or {}).items() if key in restored["asked"]}
        elif isinstance(answers, Mapping):
            # Without a state, nothing binds an approval to these arguments.
            answers = {key: value for key, value in answers.items() if key != APPROVAL_KEY}
        client.answers.update({key: value for key, value in (answers or {}).items() if isinstance(value, Mapping)})

    def make_input_required(
        self, client: ClientProxy, method: str, name: str, arguments: Any, owner: str
    ) -> dict[str, Any]:
        """Return the result that asks for input, for a request other than a tool call."""
        return self._make_input_required(client, make_binding(method, name, arguments, owner))

    def restore_answers(
        self, params: Mapping[str, Any], info: RequestInfo, method: str, name: str, arguments: Any
    ) -> None:
        """Restore the answers of earlier rounds, for a request other than a tool call."""
        self._restore_answers(params, info, make_binding(method, name, arguments, info.owner))

    def _make_input_required(self, client: ClientProxy, binding: str) -> dict[str, Any]:
        state = self.state_signer.sign(_dump_state(client), binding)
        return {"resultType": "input_required", "inputRequests": dict(client.pending_questions), "requestState": state}

    # --- the call ----------------------------------------------------------------------------------

    async def _run(self, name: str, arguments: Any, traits: ToolTraits | None, info: RequestInfo) -> dict[str, Any]:
        client = info.client
        context = {**info.principal, CLIENT_KEY: client}
        progress = None if info.progress_token is None else _make_progress_callback(client, info.progress_token)
        scope = set_result_owner(info.owner or info.session_id)
        try:
            result = await self.box.call(name, arguments, context=context, on_progress=progress)
            if isinstance(result.error, ApprovalRequired):
                result = await self._ask_approval(result, info, context, progress)
        except (NeedsInput, ContinuesAsTask):
            raise
        except MissingCapability as missing:
            if not info.modern:
                return make_error_result(str(missing))
            data: dict[str, Any] = {"requiredCapabilities": {missing.capability: {}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(missing), data) from None
        except (Abort, ToolCallError) as raised:
            return self.make_raised_result(raised)
        finally:
            reset_result_owner(scope)
        if client.pending_questions and client.send_questions is None:
            raise NeedsInput("the call is waiting for input")
        encoded = self.encode_checked(result, traits)
        reply = client.upstream_reply
        # An upstream request made by a local tool is not the result of that tool.
        if reply is None or name not in self.box or reply[:2] != ("tools/call", get_remote_name(self.box[name])):
            return encoded
        return passthrough(encoded, reply[2], result)

    def encode_checked(self, result: ToolResult, traits: ToolTraits | None) -> dict[str, Any]:
        """Return a result as MCP data that can be encoded as JSON.

        Raises:
            MCPError: the tool is unknown.
        """
        encoded = self.encode(result, traits)
        if result.error is not None or is_json_serializable(encoded):
            return encoded
        return self.make_unwritable_result(result.name)

    def make_raised_result(self, raised: Abort | ToolCallError) -> dict[str, Any]:
        """Return the redacted result of a call that raised an error, which no caller in this process can catch.

        Raises:
            MCPError: the tool aborted the run.
        """
        if isinstance(raised, ToolCallError):
            return make_error_result(make_redacted_result(raised, "redact").text)
        raise MCPError(INTERNAL_ERROR, str(raised) or "The tool stopped the run.") from None

    def make_unwritable_result(self, name: str) -> dict[str, Any]:
        """Return the result of a call whose value cannot be encoded as JSON."""
        _log.warning("%s returned a value that cannot be encoded as JSON", name)
        return make_error_result(f"{name} returned a value that cannot be encoded as JSON. Retrying will not help.")

    def encode(self, result: ToolResult, traits: ToolTraits | None) -> dict[str, Any]:
        """Return a result as MCP data.

        Raises:
            MCPError: the tool is unknown, or the upstream server rejected the request.
        """
        if result.error is not None:
            if isinstance(upstream_error := result.error.__cause__, MCPError) and is_from_server(upstream_error):
                # The upstream server rejected the request itself.
                raise MCPError(upstream_error.code, upstream_error.message, upstream_error.data)
            if isinstance(result.error, UnknownTool) and result.attempts == 0 and result.error.name not in self.box:
                raise MCPError(INVALID_PARAMS, str(result.error))
            if self.redact and (traits is None or not traits.sets_on_error):
                return make_error_result(make_redacted_result(result.error, "redact").text)
        is_structured = traits is not None and traits.structured
        encoded = encode_call_result(result, structured=is_structured)
        is_missing = is_structured and "structuredContent" not in encoded and not encoded["isError"]
        if is_missing and result.name in self.box:
            return with_structured_content(encoded, self.box[result.name], result)
        return encoded

    async def _ask_approval(
        self, result: ToolResult, info: RequestInfo, context: Mapping[str, Any], progress: OnProgress | None
    ) -> ToolResult:
        """Ask the client's user for approval, if the client supports it. Otherwise the call stays refused."""
        request: Any = getattr(result.error, "request", None)
        if not isinstance(request, ApprovalRequest) or not info.client.supports("elicitation"):
            return result
        answer = await info.client.elicit(_format_question(request), _APPROVAL_SCHEMA, key=APPROVAL_KEY)
        agreed = bool(answer) and answer.content.get("approve") is True
        # An approval is valid for one call: the next one asks again.
        approval_answer = info.client.answers.pop(APPROVAL_KEY, None)
        if not agreed:
            denied = ApprovalDenied(request.tool, "the user declined")
            return ToolResult(result.call_id, result.name, attempts=0, error=denied)
        decision = self.box.approvals.decide(request, Allow())
        try:
            return await self.box.approvals.resume(decision, context=dict(context), on_progress=progress)
        except (NeedsInput, ContinuesAsTask):
            # The same call continues in another round, with the same approval.
            info.client.answers[APPROVAL_KEY] = approval_answer
            raise

    # --- tasks -------------------------------------------------------------------------------------

    def _runs_as_task(self, traits: ToolTraits, params: Mapping[str, Any], info: RequestInfo) -> bool:
        extensions = info.client.capabilities.get("extensions")
        supports_tasks = info.modern and isinstance(extensions, Mapping) and EXTENSION_ID in extensions
        if traits.task == "required" and not supports_tasks:
            message = f"This tool runs as a task, but the client does not offer {EXTENSION_ID!r}."
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION_ID: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, data)
        return supports_tasks and (traits.task != "after_input" or bool(params.get("inputResponses")))

    def _start_task(self, name: str, arguments: Any, traits: ToolTraits | None, info: RequestInfo) -> dict[str, Any]:
        try:
            task = self.tasks.create(info.owner)
        except TooManyTasks:
            raise MCPError(INTERNAL_ERROR, "Too many tasks are running. Try again later.") from None
        original = info.client
        client = ClientProxy(
            original.capabilities,
            dict(original.answers),
            send_questions=task.ask,
            upstream_state=original.upstream_state,
            has_signed_state=original.has_signed_state,
        )
        task_info = RequestInfo(client, modern=True, principal=info.principal, owner=info.owner)
        self.tasks.start(task, self._finish(task, name, arguments, traits, task_info))
        return {"resultType": "task", **task.to_dict()}

    async def _finish(
        self, task: ServedTask, name: str, arguments: Any, traits: ToolTraits | None, info: RequestInfo
    ) -> None:
        try:
            result = await self._run(name, arguments, traits, info)
        except MCPError as error:
            task.set_status("failed", error={"code": error.code, "message": error.message})
        except Exception as error:  # noqa: BLE001 - the polling client must learn that the task ended
            _log.error("%s failed while running as a task: %s", name, type(error).__name__)
            task.set_status("failed", error={"code": INTERNAL_ERROR, "message": "The task failed."})
        else:
            task.set_status("completed", result={"resultType": "complete", **result})


_APPROVAL_SCHEMA: Final = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "description": "Allow this call to run."}},
    "required": ["approve"],
}


def _dump_state(client: ClientProxy) -> dict[str, Any]:
    return {"answers": client.answers, "asked": list(client.pending_questions), "kept": client.upstream_state}


def _format_question(request: ApprovalRequest) -> str:
    effects = f" ({', '.join(request.effects)})" if request.effects else ""
    question = f"Allow {request.tool}{effects} to run? {format_arguments(request.arguments)}"
    return f"{question}\n{escape_hidden(request.preview)}" if request.preview else question


def _make_progress_callback(client: ClientProxy, progress_token: Any) -> OnProgress:
    def report(progress: ProgressReport) -> None:
        params = {"progressToken": progress_token, "progress": progress.done, "total": progress.total}
        fields = {**params, "message": progress.message}
        client.queue_notification(
            "notifications/progress", {key: value for key, value in fields.items() if value is not None}
        )

    return report


def get_trace_context(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace context of a request."""
    return {key: meta[key] for key in _TRACE_KEYS if isinstance(meta.get(key), str)}
