"""One `tools/call` → its result: the engine of the core, and what the wire adds to it.

Lives here: the order of a served call: questions of earlier rounds, the call, approval by the client's user, tasks.
Both ways into a server, the SDK's and the short one, come here. Not here: lists (`lists`), transports.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

from toolmason._core.call.approval import Allow, ApprovalRequest
from toolmason._core.call.approval_text import arguments_shown, legible
from toolmason._core.call.failures import shown
from toolmason._core.call.long_results import keep_for, let_go
from toolmason._core.define.context import CLIENT
from toolmason._core.run.progress import OnProgress, ProgressReport
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.results import ToolResult
from toolmason.errors import Abort, ApprovalDenied, ApprovalRequired, ToolCallError, UnknownTool
from toolmason.mcp_client.remote_errors import is_answer
from toolmason.mcp_server.client_requests import Caller, CannotAsk, Deferred, NeedsInput
from toolmason.mcp_server.encode import as_given, call_result, failure, is_writable, remote_name_of
from toolmason.mcp_server.lists import Facts, Lists
from toolmason.mcp_server.signed_state import BadState, Seal, bound_to
from toolmason.mcp_server.structured import with_data
from toolmason.mcp_server.tasks import EXTENSION, Task, Tasks, TooManyTasks

_log = logging.getLogger("toolmason.serving")

APPROVAL: Final = "approval"
"""The name of the question for approval."""
_TRACE: Final = ("traceparent", "tracestate", "baggage")


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What came in with a request, beside its parameters."""

    caller: Caller
    modern: bool = True
    principal: Mapping[str, Any] = field(default_factory=dict)
    """Context values that authentication gave."""
    who: str = ""
    """For whom the request is made: the owner of what comes of it."""
    session: str = ""
    """The session it came in; empty where there is none."""
    token: Any = None
    """The progress token, where the client wants to hear of progress."""


@dataclass(slots=True, eq=False, repr=False)
class Engine:
    """Answers the calls of one served toolbox."""

    box: Toolbox
    lists: Lists
    seal: Seal = field(default_factory=Seal)
    tasks: Tasks = field(default_factory=Tasks)
    redact: bool = False
    """Whether failures lose their words, where a tool does not say otherwise."""

    async def call(self, params: Mapping[str, Any], inquiry: Inquiry) -> dict[str, Any]:
        """Return the result of a call, as the wire has it.

        Raises:
            MCPError: the request is wrong as a request: no such tool, a state that is not ours.
        """
        name, arguments = params["name"], params.get("arguments") or {}
        facts = self.lists.facts_of(name)
        bound = bound_to("tools/call", name, arguments, inquiry.who)
        self._recall(params, inquiry, bound)
        if facts is not None and facts.task is not None and self._becomes_task(facts, params, inquiry):
            return self._begun(name, arguments, facts, inquiry)
        try:
            return await self._answer(name, arguments, facts, inquiry)
        except NeedsInput:
            return self._input_required(inquiry.caller, bound)
        except Deferred:
            return self._begun(name, arguments, facts, inquiry)
        finally:
            await inquiry.caller.settled()

    # --- rounds ------------------------------------------------------------------------------------

    def _recall(self, params: Mapping[str, Any], inquiry: Inquiry, bound: str) -> None:
        given, state = params.get("inputResponses"), params.get("requestState")
        caller = inquiry.caller
        if isinstance(state, str):
            try:
                known = self.seal.opened(state, bound)
            except BadState as bad:
                raise MCPError(INVALID_PARAMS, f"The requestState is not valid: {bad}.") from None
            caller.answers.update(known["answers"])
            caller.kept, caller.bound = known["kept"], True
            given = {key: value for key, value in (given or {}).items() if key in known["asked"]}
        elif isinstance(given, Mapping):
            # Without a state nothing ties a yes to these arguments.
            given = {key: value for key, value in given.items() if key != APPROVAL}
        caller.answers.update({key: value for key, value in (given or {}).items() if isinstance(value, Mapping)})

    def input_required(self, caller: Caller, method: str, name: str, arguments: Any, who: str) -> dict[str, Any]:
        """Return the answer that asks for input, for a request that is not a call."""
        return self._input_required(caller, bound_to(method, name, arguments, who))

    def recall(self, params: Mapping[str, Any], inquiry: Inquiry, method: str, name: str, arguments: Any) -> None:
        """Take over what was answered in earlier rounds of a request that is not a call."""
        self._recall(params, inquiry, bound_to(method, name, arguments, inquiry.who))

    def _input_required(self, caller: Caller, bound: str) -> dict[str, Any]:
        state = self.seal.sealed(_kept_of(caller), bound)
        return {"resultType": "input_required", "inputRequests": dict(caller.questions), "requestState": state}

    # --- the call ----------------------------------------------------------------------------------

    async def _answer(self, name: str, arguments: Any, facts: Facts | None, inquiry: Inquiry) -> dict[str, Any]:
        caller = inquiry.caller
        context = {**inquiry.principal, CLIENT: caller}
        progress = None if inquiry.token is None else _reports_to(caller, inquiry.token)
        kept = keep_for(inquiry.who or inquiry.session)
        try:
            result = await self.box.call(name, arguments, context=context, on_progress=progress)
            if isinstance(result.error, ApprovalRequired):
                result = await self._approved(result, inquiry, context, progress)
        except (NeedsInput, Deferred):
            raise
        except CannotAsk as missing:
            if not inquiry.modern:
                return failure(str(missing))
            data: dict[str, Any] = {"requiredCapabilities": {missing.capability: {}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(missing), data) from None
        except (Abort, ToolCallError) as raised:
            return self.stopped(raised)
        finally:
            let_go(kept)
        if caller.questions and caller.send is None:
            raise NeedsInput("the call waits for input")
        found = self.written(result, facts)
        given = caller.given
        # What a tool of ours asked of a server on its way is not its own result.
        if given is None or name not in self.box or given[:2] != ("tools/call", remote_name_of(self.box[name])):
            return found
        return as_given(found, given[2], result)

    def written(self, result: ToolResult, facts: Facts | None) -> dict[str, Any]:
        """Return a result as the wire has it, and as JSON can say it.

        Raises:
            MCPError: there is no such tool.
        """
        found = self.shown(result, facts)
        return found if result.error is not None or is_writable(found) else self.unwritable(result.name)

    def stopped(self, raised: Abort | ToolCallError) -> dict[str, Any]:
        """Return the result of a call that was told to raise: nobody catches it here, and its words are not shown.

        Raises:
            MCPError: the tool ended more than itself.
        """
        if isinstance(raised, ToolCallError):
            return failure(shown(raised, "redact")["text"])
        raise MCPError(INTERNAL_ERROR, str(raised) or "The tool stopped the run.") from None

    def unwritable(self, name: str) -> dict[str, Any]:
        """Return the result of a call whose value JSON cannot say."""
        _log.warning("%s returned something that JSON cannot say", name)
        return failure(f"{name} returned something that JSON cannot say. Trying again will not help.")

    def shown(self, result: ToolResult, facts: Facts | None) -> dict[str, Any]:
        """Return a result as the wire has it.

        Raises:
            MCPError: there is no such tool.
        """
        if result.error is not None:
            if isinstance(passed := result.error.__cause__, MCPError) and is_answer(passed):
                # A server behind us has refused the request as a request.
                raise MCPError(passed.code, passed.message, passed.data)
            if isinstance(result.error, UnknownTool) and result.attempts == 0 and result.error.name not in self.box:
                raise MCPError(INVALID_PARAMS, str(result.error))
            if self.redact and (facts is None or not facts.says_on_error):
                return failure(shown(result.error, "redact")["text"])
        found = call_result(result, structured=facts is not None and facts.structured)
        if facts is not None and facts.structured and "structuredContent" not in found and not found["isError"]:
            return with_data(found, self.box[result.name], result) if result.name in self.box else found
        return found

    async def _approved(
        self, result: ToolResult, inquiry: Inquiry, context: Mapping[str, Any], progress: OnProgress | None
    ) -> ToolResult:
        """Ask the client's user where the client can; a call that nobody can decide about stays refused."""
        request: Any = getattr(result.error, "request", None)
        if not isinstance(request, ApprovalRequest) or not inquiry.caller.can("elicitation"):
            return result
        answer = await inquiry.caller.elicit(_question(request), _YES_OR_NO, key=APPROVAL)
        agreed = bool(answer) and answer.content.get("approve") is True
        # One answer, one call: the next one asks again.
        given = inquiry.caller.answers.pop(APPROVAL, None)
        if not agreed:
            denied = ApprovalDenied(request.tool, "the user said no")
            return ToolResult(result.call_id, result.name, attempts=0, error=denied)
        decision = self.box.decide(request, Allow())
        try:
            return await self.box.resume(decision, context=dict(context), on_progress=progress)
        except (NeedsInput, Deferred):
            # The same call goes on in another round, with the same leave.
            inquiry.caller.answers[APPROVAL] = given
            raise

    # --- tasks -------------------------------------------------------------------------------------

    def _becomes_task(self, facts: Facts, params: Mapping[str, Any], inquiry: Inquiry) -> bool:
        offers = inquiry.caller.capabilities.get("extensions")
        able = inquiry.modern and isinstance(offers, Mapping) and EXTENSION in offers
        if facts.task == "required" and not able:
            message = f"This tool runs as a task, and the client does not offer {EXTENSION!r}."
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, data)
        return able and (facts.task != "after_input" or bool(params.get("inputResponses")))

    def _begun(self, name: str, arguments: Any, facts: Facts | None, inquiry: Inquiry) -> dict[str, Any]:
        try:
            task = self.tasks.new(inquiry.who)
        except TooManyTasks:
            raise MCPError(INTERNAL_ERROR, "Too many tasks are running. Try again later.") from None
        before = inquiry.caller
        caller = Caller(before.capabilities, dict(before.answers), send=task.ask, kept=before.kept, bound=before.bound)
        own = Inquiry(caller, modern=True, principal=inquiry.principal, who=inquiry.who)
        self.tasks.start(task, self._finish(task, name, arguments, facts, own))
        return {"resultType": "task", **task.seen()}

    async def _finish(self, task: Task, name: str, arguments: Any, facts: Facts | None, inquiry: Inquiry) -> None:
        try:
            result = await self._answer(name, arguments, facts, inquiry)
        except MCPError as error:
            task.become("failed", error={"code": error.code, "message": error.message})
        except Exception as error:  # noqa: BLE001 - whoever polls must learn of the end
            _log.error("%s failed as a task: %s", name, type(error).__name__)
            task.become("failed", error={"code": INTERNAL_ERROR, "message": "The task failed."})
        else:
            task.become("completed", result={"resultType": "complete", **result})


_YES_OR_NO: Final = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "description": "Let this call run."}},
    "required": ["approve"],
}


def _kept_of(caller: Caller) -> dict[str, Any]:
    return {"answers": caller.answers, "asked": list(caller.questions), "kept": caller.kept}


def _question(request: ApprovalRequest) -> str:
    effects = f" ({', '.join(request.effects)})" if request.effects else ""
    asked = f"Let {request.tool}{effects} run? {arguments_shown(request.arguments)}"
    return f"{asked}\n{legible(request.preview)}" if request.preview else asked


def _reports_to(caller: Caller, token: Any) -> OnProgress:
    def report(progress: ProgressReport) -> None:
        params = {"progressToken": token, "progress": progress.done, "total": progress.total}
        known = {**params, "message": progress.message}
        caller.put("notifications/progress", {key: value for key, value in known.items() if value is not None})

    return report


def trace_in(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace context that a request carries."""
    return {key: meta[key] for key in _TRACE if isinstance(meta.get(key), str)}
