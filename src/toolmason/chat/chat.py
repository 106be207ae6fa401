"""Provide `Chat`: a model, tools and a conversation."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, overload

from typing_extensions import TypeForm, Unpack

from toolmason._core.call.approval import Approver, get_identity
from toolmason._core.config.config import Config
from toolmason._core.define.context import SESSION_KEY, ContextLike, ToolContext, get_model_options, make_context
from toolmason._core.define.decorators import SchemaToolKeywords, make_declaration, show_keywords
from toolmason._core.define.tool import Tool
from toolmason._core.run.blocking import blocking
from toolmason._core.run.metrics import METER, METERS
from toolmason._core.run.tracing import LOADED_MODULES, PROVIDER, TRACE_API
from toolmason._core.toolbox.exchange import ToolChoice
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Limits, Parallel, Strategy, check_kinds
from toolmason._core.values.results import ToolResult
from toolmason._explain import explain_arguments
from toolmason.chat.answers import AnswerType, OutputT
from toolmason.chat.budget import Budget
from toolmason.chat.chat_options import (
    ModelChoice,
    System,
    check_chat_options,
    drop_system,
    make_answer,
    make_chat_model,
    make_system,
)
from toolmason.chat.durable.effects import Runtime
from toolmason.chat.events import Event
from toolmason.chat.loop import Advisor, order_advisors
from toolmason.chat.memory import Memory
from toolmason.chat.programs.code import Code, parse_code
from toolmason.chat.programs.run_code import add_code
from toolmason.chat.reply import Reply, RunFinish, make_limit_error
from toolmason.chat.run.compaction import Compact, Compactor
from toolmason.chat.run.delegation import ChatTool
from toolmason.chat.run.external import check_results
from toolmason.chat.run.plan import ExecuteRule, RunPlan, share_budget
from toolmason.chat.run.prepared import Prepare, PreparedRun, PrepareRun, RunTask, restore_history, stream_events
from toolmason.chat.run.resume import (
    ResumedRun,
    load_waiting,
    make_resume_options,
    verify_decisions,
)
from toolmason.chat.run.run import Run
from toolmason.chat.run.spending import Prices, Spending, require_price
from toolmason.chat.run.ticket_store import TicketStore
from toolmason.chat.run_spans import trace_run
from toolmason.chat.search import Search, add_search
from toolmason.chat.send_options import (
    REQUEST_KINDS,
    Decisions,
    PromptInput,
    ResumeKeywords,
    SendKeywords,
    SendOptions,
    check_keywords,
    to_messages,
)
from toolmason.chat.tools import RequestTools, check_deps, make_toolbox
from toolmason.errors import ConfigError
from toolmason.models.protocol import Model

_log = logging.getLogger("toolmason")
_T = TypeVar("_T")
_CheckT = TypeVar("_CheckT", bound=Callable[..., Any])


class Chat(Generic[OutputT]):
    """Chat with a model that calls tools until it answers. A `Chat[Invoice]` answers with an `Invoice`.

    With `execute=False`, or a predicate of (request, reply), you run the calls: pass `reply.calls` to `box.call_all`
    and send `reply.extended(results)`. With `history=False`, the model sees only the messages that the memory
    returns, and those of the current turn. With `code=True`, it writes programs that call the tools, in a sandbox.
    With a memory, all requests without `conversation=` share one conversation: a chat for several users needs it.
    """

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each option
        self,
        model: Model | str | Sequence[Model | str],
        tools: Any = (),
        *,
        output: TypeForm[OutputT] = None,  # type: ignore[assignment]  # noqa: RUF013 - the type's default is None as well
        system: System | None = None,
        context: ContextLike = None,
        memory: Memory | None = None,
        advisors: Sequence[Advisor] = (),
        limits: Limits | None = None,
        on_limit: Literal["stop", "raise"] = "stop",
        on_length: Literal["stop", "continue"] = "stop",
        strategy: Strategy = Parallel(),  # noqa: B008 - frozen, so one default serves all
        execute: ExecuteRule = True,
        history: bool = True,
        approver: Approver | None = None,
        config: Config | Mapping[str, Any] | None = None,
        runtime: Runtime | None = None,
        options: Mapping[str, Any] | None = None,
        search: Search | str | None = None,
        price: Prices | None = None,
        budget: Budget | None = None,
        compact: Compact | None = None,
        code: Code | bool = False,
    ) -> None:
        check_chat_options(locals())
        self.model: Model = make_chat_model(model)
        self.box = make_toolbox(tools, approver, config)
        self.limits = get_state(self.box).policy.limits if limits is None else limits
        self.price, self._budget = price, budget
        self._compact = None if compact is None else compact.for_chat(self.model, price)
        self._system, self._context = system, make_context(context)
        settings = get_model_options(get_state(self.box).policy.context)
        self._choice = ModelChoice(self.model, self.box, {**settings, **(options or {})})
        self._memory, self._history, self._runtime = memory, history, runtime
        self._advisors = order_advisors(advisors)
        self._on_limit, self._strategy, self._execute_rule = on_limit, strategy, execute
        self._search = Search.parse(search, self.model)
        self._code = parse_code(code, search, execute)
        self._needs_deps = check_deps(self.box, self._context, may_follow=True)
        self._on_length = on_length
        self._running: dict[str | None, set[RunTask]] = {}
        self._tickets = TicketStore()
        self._sharers: set[str] = set()
        given_output: Any = output
        self._output = given_output
        self._answer_type = None if given_output is None else AnswerType(given_output, self.box)

    def check(self, check: _CheckT) -> _CheckT:
        """Add a function that checks each answer of the chat's type: `@chat.check`. It raises `ToolError` to refuse it.

        The reason goes to the model, which may answer again. A sync function runs in a thread.

        Raises:
            ConfigError: the chat has no `output=`.
        """
        if self._answer_type is None:
            raise ConfigError("This chat has no typed answers to check. Pass `output=` to `Chat`.")
        self._answer_type.checks.append(check)
        return check

    # --- sending -------------------------------------------------------------------------------------

    @overload
    async def send(
        self, prompt: PromptInput, *, output: None = None, **options: Unpack[SendKeywords]
    ) -> Reply[OutputT]: ...
    @overload
    async def send(
        self, prompt: PromptInput, *, output: TypeForm[_T], **options: Unpack[SendKeywords]
    ) -> Reply[_T]: ...
    async def send(  # noqa: PLR0913 - one parameter for each option
        self,
        prompt: PromptInput,
        *,
        tools: Any = None,
        add_tools: Any = None,
        context: ContextLike = None,
        conversation: str | None = None,
        tool_choice: ToolChoice | str | None = None,
        limits: Limits | None = None,
        run: str | None = None,
        output: Any = None,
        model: Model | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Reply[Any]:
        """Send a message and return the reply of the run.

        `tools=` replaces the chat's tools for this request; `add_tools=` adds to them. Both run under the policy of
        the chat's toolbox. `output=` is the type of the answer and `model=` the model, in place of those of the chat;
        `options=` are options of the model, over those of the chat.
        """
        given = SendOptions(tools, add_tools, context, conversation, tool_choice, limits, run, output, model, options)
        return await self._execute(partial(self._prepare, prompt, given, None), given)

    send_sync = blocking(send)

    @show_keywords(SendKeywords, SendOptions)
    def stream(
        self, prompt: PromptInput, *, output: Any = None, **options: Unpack[SendKeywords]
    ) -> AsyncGenerator[Event]:
        """Send a message and yield the events of the run, the last one `Done` with the reply. Options as in `send`."""
        check_keywords("stream", options, SendKeywords)
        given = SendOptions(**options, output=output)
        return self._stream(partial(self._prepare, prompt, given), given)

    def _stream(self, prepare: Prepare, options: SendOptions) -> AsyncGenerator[Event]:
        return stream_events(lambda emit: self._execute(partial(prepare, emit), options))

    @show_keywords(SendKeywords, SendOptions)
    async def step(self, prompt: PromptInput, *, output: Any = None, **options: Unpack[SendKeywords]) -> Reply[Any]:
        """Ask the model for one turn and leave its calls to the caller. Options as in `send`."""
        check_keywords("step", options, SendKeywords)
        given = SendOptions(**options, output=output)

        async def prepare(request_tools: RequestTools) -> PreparedRun:
            prepared_run = await self._prepare(prompt, given, None, request_tools)
            prepared_run.run.plan.execute = False
            return prepared_run

        return await self._execute(prepare, given)

    step_sync = blocking(step)

    @explain_arguments
    def cancel(self, conversation: str | None = None) -> None:
        """Cancel the runs of a conversation: model, tools, servers and tickets. Every call still gets a result."""
        self._tickets.cancel(conversation)
        for run_task in tuple(self._running.get(conversation, ())):
            run_task.cancel()

    async def wait_for_tickets(self, conversation: str | None = None) -> None:
        """Wait until the work in the background of a conversation has ended. The next `send` delivers the results."""
        await self._tickets.wait(conversation)

    wait_for_tickets_sync = blocking(wait_for_tickets)

    @property
    def has_memory(self) -> bool:
        """True if the chat has a memory, so that it needs only the new messages."""
        return self._memory is not None

    async def load_history(self, conversation: str | None = None) -> Sequence[Message]:
        """Return the messages that the memory has of a conversation, or none if the chat has no memory."""
        return () if self._memory is None else await self._memory.load(conversation or "")

    load_history_sync = blocking(load_history)

    # --- resuming ------------------------------------------------------------------------------------

    @overload
    async def resume(
        self,
        saved: Mapping[str, Any] | Reply[Any],
        decisions: Decisions = (),
        *,
        results: Iterable[ToolResult] = (),
        output: None = None,
        **options: Unpack[ResumeKeywords],
    ) -> Reply[OutputT]: ...
    @overload
    async def resume(
        self,
        saved: Mapping[str, Any] | Reply[Any],
        decisions: Decisions = (),
        *,
        results: Iterable[ToolResult] = (),
        output: TypeForm[_T],
        **options: Unpack[ResumeKeywords],
    ) -> Reply[_T]: ...
    async def resume(  # noqa: PLR0913 - as above
        self,
        saved: Mapping[str, Any] | Reply[Any],
        decisions: Decisions = (),
        *,
        results: Iterable[ToolResult] = (),
        tools: Any = None,
        add_tools: Any = None,
        context: ContextLike = None,
        tool_choice: ToolChoice | str | None = None,
        limits: Limits | None = None,
        model: Model | str | None = None,
        options: Mapping[str, Any] | None = None,
        output: Any = None,
    ) -> Reply[Any]:
        """Resume a run that waits, from `reply.save()`, a decision for each request, and `results` of external calls.

        A request without a valid signed decision keeps waiting, and so does the run. A decision may also be the
        plain data of `Decision.to_dict`. Pass tools, context and limits again.

        Raises:
            ConfigError: the data is not a saved run, the run is not waiting, or a result does not fit its call.
        """
        reply = load_waiting(saved)
        keywords = ResumeKeywords(tools=tools, add_tools=add_tools, context=context, tool_choice=tool_choice)
        keywords |= {"limits": limits, "model": model, "options": options}
        given = make_resume_options(reply, output, results, **keywords)
        return await self._execute(partial(self._prepare_resumed, reply, decisions, given, None), given)

    resume_sync = blocking(resume)

    @show_keywords(ResumeKeywords, SendOptions)
    def stream_resumed(
        self,
        saved: Mapping[str, Any] | Reply[Any],
        decisions: Decisions = (),
        *,
        results: Iterable[ToolResult] = (),
        output: Any = None,
        **options: Unpack[ResumeKeywords],
    ) -> AsyncGenerator[Event]:
        """Resume a run as `resume` does, and yield its events as `stream` does."""
        check_keywords("stream_resumed", options, ResumeKeywords)
        reply = load_waiting(saved)
        resumed = make_resume_options(reply, output, results, **options)
        return self._stream(partial(self._prepare_resumed, reply, decisions, resumed), resumed)

    async def _prepare_resumed(
        self,
        reply: Reply[Any],
        decisions: Decisions,
        options: SendOptions,
        emit: Callable[[Event], None] | None,
        request_tools: RequestTools,
    ) -> PreparedRun:
        results_index = max(i for i, message in enumerate(reply.messages) if message.results)
        prepared_run = await self._prepare((), options, emit, request_tools, reply.messages[:results_index])
        # This chat may have a system message that the saved run did not have.
        saved_system = len(reply.messages) - len(drop_system(reply.messages))
        prepared_run.run.history_length = reply.history_length - saved_system
        prepared_run.run.recorded = results_index - reply.history_length + reply.compacted[0]
        verified = verify_decisions(prepared_run.run.plan.box, decisions)
        given = await check_results(prepared_run.run.plan.box, options.results)
        prepared_run.resumed = ResumedRun(reply, reply.messages[results_index].results, verified, given)
        return prepared_run

    # --- as a tool -----------------------------------------------------------------------------------

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        prompt: Callable[..., Any] | None = None,
        **keywords: Unpack[SchemaToolKeywords],
    ) -> Tool:
        """Return the chat as a tool that other chats call: its answer is the tool's result.

        `prompt` has the arguments of the tool, and returns the message to send; without it, the argument is `prompt`,
        a string. The keywords are those of `@tool`. Called from a run, the chat shares its limits, its time, its
        journal and its approvals. The tool has no time-out of its own unless `timeout=` is given.
        """
        declaration = make_declaration({"timeout": None, **keywords, "name": name, "description": description})
        deps = None if self._context is None else self._context.deps
        return ChatTool(self, self._run_as_tool, self._output, deps, prompt, declaration)

    async def _run_as_tool(self, prompt: PromptInput, options: SendOptions) -> Reply[Any]:
        delegated = options.delegated
        emit = None if delegated is None else delegated.emit
        if delegated is None or delegated.resumed is None:
            return await self._execute(partial(self._prepare, prompt, options, emit), options)
        resumed = delegated.resumed
        prepare = partial(self._prepare_resumed, resumed.reply, resumed.decisions, options, emit)
        return await self._execute(prepare, options)

    # --- running -------------------------------------------------------------------------------------

    async def _prepare(
        self,
        prompt: PromptInput,
        options: SendOptions,
        emit: Callable[[Event], None] | None,
        request_tools: RequestTools,
        saved_messages: Sequence[Message] | None = None,
    ) -> PreparedRun:
        new_messages = [Message("user", prompt)] if isinstance(prompt, str) else await to_messages(prompt)
        context = self._context
        if options.context is not None and (call_context := make_context(options.context)) is not None:
            context = call_context if context is None else context.merge(call_context)
        await request_tools.prepare(context)
        offer = await self._change_offer(request_tools, context)
        box = request_tools.box
        limits, delegated = self._get_limits(options), options.delegated
        conversation = options.conversation
        context = self._add_conversation(context, conversation)
        caller = None if delegated is None else delegated.caller
        is_own = options.model is None and options.options is None
        model, model_options = self._choice.default if is_own else self._choice.choose(options.model, options.options)
        plan = RunPlan(
            model,
            box.run(limits),
            context,
            limits,
            self._strategy,
            self._execute_rule,
            self._history,
            self._memory,
            conversation,
            emit,
            options.run or uuid.uuid4().hex,
            request_tools,
            self,
            Spending(limits, self.price, None if caller is None else caller.spending),
            self._runtime if caller is None or caller.runtime is None else caller.runtime,
            share_budget(self._budget, context, conversation, caller) if self._budget is not None or caller else (),
            make_answer(box, self.box, self._answer_type, options, model)
            if self._answer_type or options.output
            else None,
            delegated,
            on_length=self._on_length,
            ticket_store=self._tickets,
        )
        if delegated is not None:
            delegated.connect(plan.box)
        given_messages = new_messages if saved_messages is None else saved_messages
        system = tuple([message for message in given_messages if message.role == "system"])
        if system:
            new_messages = drop_system(new_messages)
        elif self._system is not None:
            system = await make_system(self._system, context, self.box)
        run = Run(plan, system, compactor=None if self._compact is None else Compactor(plan, self._compact))
        if saved_messages is not None or self._memory is not None:
            whole = self._compact is not None
            new_messages = await restore_history(run, self._memory, new_messages, saved_messages, whole=whole)
        advisors: Sequence[Advisor] = self._advisors if offer is None else [*self._advisors, offer]
        return PreparedRun(run, new_messages, options.tool_choice, advisors, model_options)

    def _add_conversation(self, context: ToolContext[Any] | None, conversation: str | None) -> ToolContext[Any] | None:
        """Return a context with the key of the conversation. Log once if several users share the one without a key."""
        if conversation is not None:
            return ToolContext[Any](**{SESSION_KEY: conversation}).merge(context)
        identity = None if context is None or self._memory is None else get_identity(context)
        if identity is not None and len(self._sharers) < 2:  # noqa: PLR2004 - two are several
            self._sharers.add(identity)
            if len(self._sharers) > 1:
                _log.warning("several users share one conversation of a chat: pass `conversation=` to `send`")
        return context

    async def _change_offer(self, request_tools: RequestTools, context: ToolContext[Any] | None) -> Advisor | None:
        """Add the tool that searches tools, or runs programs. Return its advisor, or None if all tools are offered."""
        if self._search is not None:
            return await add_search(self._search, request_tools, context)
        return None if self._code is None else add_code(self._code, request_tools, Chat)

    def _get_limits(self, options: SendOptions) -> Limits:
        limits = self.limits if options.limits is None else options.limits
        if limits.cost is not None or getattr(self._budget, "needs_price", False):
            require_price(self.price, self.model)
        return limits

    def _execute(self, prepare: PrepareRun, options: SendOptions) -> Coroutine[Any, Any, Reply[Any]]:
        for name, kinds in REQUEST_KINDS.items():
            if not isinstance(getattr(options, name), kinds):
                check_kinds("", {name: getattr(options, name)}, {name: kinds})
        if getattr(LOADED_MODULES.get(TRACE_API), PROVIDER, None) or getattr(LOADED_MODULES.get(METERS), METER, None):
            return trace_run(self.model, self.box, options, lambda: self._execute_run(prepare, options))
        return self._execute_run(prepare, options)

    async def _execute_run(self, prepare: PrepareRun, options: SendOptions) -> Reply[Any]:
        request_tools = RequestTools(self.box, options.tools, options.add_tools)
        conversation = options.conversation
        running = self._running.setdefault(conversation, set())
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs coroutines in tasks
        running.add(run_task := RunTask(task, task.cancelling()))
        prepared: PreparedRun | None = None
        limits = self._get_limits(options)
        started_at = time.monotonic()
        timeout = asyncio.timeout(limits.seconds)
        try:
            async with timeout:
                prepared = await prepare(request_tools)
            if self._needs_deps or options.tools is not None or options.add_tools is not None:
                check_deps(prepared.run.plan.box, prepared.run.plan.context)
            prepared.run.start(started_at)
            await prepared.execute(run_task)
        except TimeoutError:
            # The time limit of a run includes waiting for servers and memory.
            if prepared is not None or not timeout.expired():
                raise
        except asyncio.CancelledError:
            # A task that its caller cancelled must end; after `cancel()`, the caller expects a reply.
            if not run_task.take_back():
                raise
        finally:
            run_task.is_over = True
            if run_task.count:  # it ended in spite of a cancellation
                run_task.take_back()
            running.discard(run_task)
            if not running and self._running.get(conversation) is running:
                del self._running[conversation]
            await request_tools.aclose()
        finish: RunFinish = "limit" if timeout.expired() else "cancelled"
        limit = f"limit of {limits.seconds} seconds" if finish == "limit" else ""
        reply: Reply[Any] = (
            Reply((), finish, conversation=conversation, limit=limit) if prepared is None else prepared.run.make_reply()
        )
        if reply.finish == "limit" and self._on_limit == "raise" and options.delegated is None:
            raise make_limit_error(reply.limit)
        return reply

    async def __aenter__(self) -> Self:
        await self.box.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._tickets.aclose()
        await self.box.__aexit__(*exception)
