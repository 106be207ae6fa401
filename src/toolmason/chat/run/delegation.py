"""Call a chat as a tool: its run has the budget, the time, the journal and the approvals of the run that called it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from typing_extensions import override

from toolmason._core.call.approval import ApprovalRequest, ApprovalVerdict, Approver, Deny
from toolmason._core.call.approval_gate import request_verdict
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Declaration
from toolmason._core.define.tool import CompiledTool, FunctionTool, Tool, compile_tool, get_root
from toolmason._core.run.execute import call_user_function
from toolmason._core.toolbox.exchange import Usage
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import dump_result, load_result
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import OWN, WEB, ToolCall, ToolResult, replace_result
from toolmason.chat.durable.effects import OutcomeSerializer
from toolmason.chat.programs.code import PROGRAM_FAILED, count_turns
from toolmason.chat.reply import Delegation, Reply
from toolmason.chat.run.plan import CURRENT_RUN, DelegatedCall, ResumedChat, RunPlan
from toolmason.chat.send_options import SendOptions
from toolmason.errors import AnswerError, ApprovalDenied, ApprovalRequired, ExternalCall, ToolError

_DELEGATION: Final = "toolmason.delegation"
"""Key of the `meta` of a result, for the run that made it."""
TICKET: Final = "toolmason.ticket"
"""Key of the `meta` of a result, for the ticket that a call opened, or whose result it is."""

ChatRunner: TypeAlias = Callable[[Any, SendOptions], Awaitable[Reply[Any]]]
"""Function that runs a chat: of the prompt and the options."""


class ChatTool(Tool):
    """A chat as a tool. The function `prompt` has the arguments of the tool, and returns the message to send."""

    def __init__(
        self, chat: Any, runner: ChatRunner, output: Any, deps: Any, prompt: Any, declaration: Declaration
    ) -> None:
        self.chat, self._runner, self._output, self._deps = chat, runner, output, deps
        self._prompt_tool = FunctionTool(_ask if prompt is None else prompt, replace(declaration, output_schema=False))
        self._answer_tool = FunctionTool(_make_answer_function(output), declaration)
        shown = self._prompt_tool.definition
        self.definition = ToolDefinition(
            shown.name,
            shown.description,
            shown.input_schema,
            self._answer_tool.definition.output_schema,
            declaration.title,
        )
        self.options = declaration.options

    @override
    def _compile(self) -> CompiledTool:
        answer = compile_tool(self._answer_tool)
        return replace(
            compile_tool(self._prompt_tool),
            call=self._send,
            kind="async",
            function=None,
            plain_function=None,
            returns=answer.returns,
            output=answer.output,
        )

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        compiled = compile_tool(self._prompt_tool)
        return await self._send(compiled.fill(dict(arguments), context), context)

    async def _send(self, values: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Run the chat, and return its answer.

        Raises:
            ToolError: it has no answer; says why.
        """
        prompt = await self._make_prompt(values, context)
        delegated = _find_delegated_call(self.name, context.call)
        if delegated is not None:
            delegated.check(self.chat, self.chat.price)
        reply = await self._run(prompt, context, delegated)
        if delegated is not None:
            reply = await self._ask_approver(reply, context, delegated)
            delegated.caller.answered[delegated.call_id] = reply
        if reply.finish_reason == PROGRAM_FAILED:
            raise ToolError(reply.text)
        return _get_answer(self.name, reply, has_output=self._output is not None)

    async def _run(self, prompt: Any, context: ToolContext[Any], delegated: DelegatedCall | None) -> Reply[Any]:
        # The values of the caller, such as its user, but the chat's own dependencies, and not the caller's settings.
        context = ToolContext[Any](context.deps if self._deps is None else self._deps, **context)
        if delegated is None:
            return await self._runner(prompt, SendOptions(context=context))
        limits = delegated.get_limits(self.chat.limits)
        conversation = delegated.conversation if self.chat.has_memory else None
        options = SendOptions(None, None, context, conversation, None, limits, delegated.run_id)
        resumed = delegated.resumed
        if resumed is not None:
            attempts = 0 if resumed.reply.answer is None else resumed.reply.answer.attempts
            options = replace(options, attempts=attempts, results=resumed.results)
        return await self._runner(prompt, replace(options, delegated=delegated))

    async def _make_prompt(self, values: dict[str, Any], context: ToolContext[Any]) -> Any:
        compiled = compile_tool(self._prompt_tool)
        work = partial(compiled.call, values, context)
        if compiled.kind == "async":
            return await work()
        if self._prompt_tool.fn is _ask:
            return work()
        return await call_user_function(work, settings=get_state(self.chat.box).policy.settings)

    async def _ask_approver(self, reply: Reply[Any], context: ToolContext[Any], delegated: DelegatedCall) -> Reply[Any]:
        """Let the approver of the calling run decide on what waits. Without one, the application decides."""
        box = delegated.caller.box
        approver = get_state(box).calls.approver
        known: frozenset[str] = frozenset()
        while approver is not None and reply.pending and not known.issuperset(r.id for r in reply.pending):
            known |= {request.id for request in reply.pending}
            settings = get_state(box).policy.settings
            decisions = [
                box.approvals.decide(request, await _ask_in_time(approver, request, settings))
                for request in reply.pending
            ]
            resumed = ResumedChat(reply, decisions)
            reply = await self._run("", context, replace(delegated, resumed=resumed, is_counted=True))
        return reply


async def _ask_in_time(approver: Approver, request: ApprovalRequest, settings: EngineSettings) -> ApprovalVerdict:
    """Ask an approver for a verdict. A failure, or no answer in time, counts as a denial."""
    seconds = settings.max_timeout if settings.approval_seconds is None else settings.approval_seconds
    try:
        async with asyncio.timeout(seconds):
            return await request_verdict(approver, request, settings)
    except ApprovalDenied as error:
        return Deny(error.reason)
    except TimeoutError:
        return Deny(f"the approver did not answer within {seconds:g} s")


def _ask(prompt: str) -> str:
    """Ask for something.

    Args:
        prompt: The task, with everything that is needed to do it.
    """
    return prompt


def _make_answer_function(output: Any) -> Callable[..., Any]:
    def answer() -> Any: ...

    answer.__annotations__ = {"return": str if output is None else output}
    return answer


def _find_delegated_call(name: str, call: ToolCall) -> DelegatedCall | None:
    """Return the call as one of the current run, or None if no run made it."""
    plan = CURRENT_RUN.get()
    if plan is None or call.id not in plan.call_ids:
        return None
    return DelegatedCall(name, call.id, plan, plan.resumed.pop(call.id, None))


def _get_answer(name: str, reply: Reply[Any], *, has_output: bool) -> Any:
    match reply.finish:
        case "pending" if reply.external:
            names = ", ".join(call.name for call in reply.external)
            raise ToolError(f"{name} waits for the application to run {names}. Call it from a chat.")
        case "pending" if reply.pending:
            paths = ", ".join(request.path for request in reply.pending)
            raise ToolError(f"{name} waits for approval of {paths}. Give its chat an approver, or call it from a chat.")
        case "limit":
            raise ToolError(f"{name} reached its {reply.limit}. It wrote so far: {reply.text[:2000] or 'nothing'}")
        case "cancelled":
            raise ToolError(f"{name} was cancelled.")
        case "calls":
            raise ToolError(f"{name} left its calls to its caller. Create its chat without `execute=`.")
        case "pending":
            raise ToolError(f"{name} waits for its provider ({reply.finish_reason}). Send its chat the next message.")
        case "length" | "refusal" | "filter" | "error":
            raise ToolError(f"{name}: {reply.problem} It wrote so far: {reply.text[:2000] or 'nothing'}")
        case _:
            pass
    if not has_output:
        return reply.text
    try:
        return reply.output
    except AnswerError as error:
        raise ToolError(f"{name} has no answer: {error}") from error


# --- results ---------------------------------------------------------------------------------


def is_chat_tool(tool: Tool | None) -> bool:
    """Return True if a tool is a chat. The journal keeps its run, so that it may be executed again after a crash."""
    return tool is not None and isinstance(get_root(tool), ChatTool)


def complete_result(call: ToolCall, result: ToolResult, reply: Reply[Any]) -> ToolResult:
    """Return the result of a call of a chat: it waits if the chat waits, and says what the chat used."""
    if reply.pending or reply.external:
        error = ApprovalRequired(call.name, reply.pending[0]) if reply.pending else ExternalCall(call.name)
        return ToolResult(call.id, call.name, error=error, attempts=0, duration=result.duration)
    meta = {**result.meta, _DELEGATION: make_delegation(call, reply).to_dict()}
    # The answer is made of what the chat has read. The web first: it is the origin that rules ask about.
    origins = frozenset[str]().union(*[message.origins for message in reply.messages], (result.origin,))
    return replace_result(result, meta=meta, origin=max(origins, key=(OWN, *sorted(origins - {OWN, WEB}), WEB).index))


def make_delegation(call: ToolCall, reply: Reply[Any]) -> Delegation:
    """Return what the run of a chat used."""
    calls = len(reply.calls) + sum(each.calls for each in reply.delegations)
    return Delegation(
        call.name,
        call.id,
        reply.run,
        reply.finish,
        reply.usage,
        reply.cost,
        count_steps(reply),
        calls,
        reply.delegations,
    )


def count_steps(reply: Reply[Any]) -> int:
    """Return the number of model turns of a run, including those of the chats that it called."""
    waiting = sum(map(count_steps, reply.waiting.values()))
    return count_turns(reply.model, reply.turns) + waiting + sum(each.steps for each in reply.delegations)


def restore_delegation(plan: RunPlan, delegation: Delegation, counted: Reply[Any] | None) -> None:
    """Count what a chat used in an earlier process, except what the run that was saved has `counted` of it."""
    plan.spending.add(delegation.usage, delegation.cost, delegation.steps)
    if counted is not None:
        used = Usage(*[-getattr(counted.usage, name) for name in Usage.__slots__])
        plan.spending.add(used, None if counted.cost is None else -counted.cost, -count_steps(counted))
    if (state := get_state(plan.box).run) is not None:
        state.add_delegated(delegation.calls)


def get_delegation(result: ToolResult) -> Delegation | None:
    """Return what the chat used that made a result, or None if no chat made it."""
    found = result.meta.get(_DELEGATION)
    return None if found is None else Delegation.from_dict(found)


def _dump_call(result: ToolResult) -> dict[str, Any] | None:
    # A call that waits for approval has not run. Another process asks again, with a request that it signs.
    if isinstance(result.error, ApprovalRequired | ExternalCall):
        return None
    return dump_result(result) | {key: result.meta[key] for key in (_DELEGATION, TICKET) if key in result.meta}


def _load_call(data: Mapping[str, Any]) -> ToolResult:
    meta = {key: data[key] for key in (_DELEGATION, TICKET) if key in data}
    if not meta:
        return load_result(data)
    return replace_result(load_result({key: data[key] for key in data if key not in meta}), meta=meta)


CALL_SERIALIZER: Final = OutcomeSerializer(_dump_call, _load_call)
