"""`Chat`: a model, tools and what was said, in one place.

Lives here: what a developer calls: send, stream, step, resume, cancel. They all drive the same run.
Not here: the run itself (`run`), or the model.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Self, TypeAlias

from typing_extensions import TypedDict, Unpack

from toolmason._core.call.approval import Approver, Decision
from toolmason._core.config.config import Config
from toolmason._core.define.context import ToolContext, context_from
from toolmason._core.run.blocking import run_to_end
from toolmason._core.toolbox.exchange import ModelRequest, ToolChoice
from toolmason._core.toolbox.sync_twins import ContextLike
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Limits, Parallel, Strategy
from toolmason.chat.durable.runtime import NOT_DRIVEN, MemoryRuntime, Runtime
from toolmason.chat.events import Done, Event
from toolmason.chat.loop import Advisor, ToolLoop, Turn, chained, placement_of
from toolmason.chat.memory import Memory, unsaid
from toolmason.chat.reply import Finish, Reply
from toolmason.chat.resume import Resumed, genuine
from toolmason.chat.run import Execute, Plan, Run, exceeded
from toolmason.chat.search import Search, Searching
from toolmason.chat.tools import Given, box_of, refuse_natives
from toolmason.errors import ConfigError
from toolmason.models.by_name import model as model_of
from toolmason.models.protocol import Model
from toolmason.providers.conversation import repair


class ChatWords(TypedDict, total=False):
    """What `Chat(...)` takes beside a model and tools."""

    system: str | None
    context: ContextLike
    memory: Memory | None
    advisors: Sequence[Advisor]
    limits: Limits
    on_limit: str
    strategy: Strategy
    execute: Execute
    history: bool
    approver: Approver | None
    config: Config | Mapping[str, Any] | None
    runtime: Runtime
    options: Mapping[str, Any]
    search: Search | str | None


class SendWords(TypedDict, total=False):
    """What `send` and `stream` take beside what is said."""

    tools: Any
    add_tools: Any
    context: ContextLike
    conversation: str | None
    tool_choice: ToolChoice | str | None
    limits: Limits
    run: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Policy:
    system: str | None = None
    context: ToolContext[Any] | None = None
    memory: Memory | None = None
    advisors: tuple[Advisor, ...] = ()
    limits: Limits = Limits()  # noqa: RUF009 - frozen, so one default serves all
    on_limit: str = "stop"
    strategy: Strategy = Parallel()  # noqa: RUF009 - as above
    execute: Execute = True
    history: bool = True
    runtime: Runtime = MemoryRuntime()  # noqa: RUF009 - it keeps nothing
    options: Mapping[str, Any] | None = None
    search: Search | None = None


class Chat:
    """A model that calls tools until it answers.

    `execute=False`, or a predicate of (request, reply), leaves calls to you: run them with `box.call_all(reply.calls)`
    and send `reply.extended(results)`. `history=False` shows the model only what the memory shows.
    """

    def __init__(self, model: Model | str, tools: Any = (), **words: Unpack[ChatWords]) -> None:
        given: dict[str, Any] = dict(words)
        if unknown := given.keys() - ChatWords.__annotations__.keys():
            raise ConfigError(
                f"Chat takes no {min(unknown)!r}. There are: {', '.join(sorted(ChatWords.__annotations__))}."
            )
        self.model: Model = model_of(model) if isinstance(model, str) else model
        self._own = (given.pop("approver", None), given.pop("config", None))
        self.box = box_of(tools, *self._own)
        refuse_natives(self.model, self.box)
        given["context"] = context_from(given.get("context"))
        given["advisors"] = tuple(given.get("advisors", ()))
        given["search"] = Search.of(given.get("search"), self.model)
        self.policy = _Policy(**given)
        if not self.policy.history and self.policy.memory is None:
            raise ConfigError("history=False shows the model only what a memory shows. Give `memory=` as well.")
        _refuse_path("memory", self.policy.memory, "SqliteMemory")
        _refuse_path("runtime", self.policy.runtime, "SqliteRuntime")
        if self.policy.on_limit not in ("stop", "raise"):
            raise ConfigError(f'on_limit={self.policy.on_limit!r}: give "stop" or "raise".')
        self._running: dict[str | None, set[asyncio.Task[Any]]] = {}
        self._called_off: set[asyncio.Task[Any]] = set()

    # --- asking --------------------------------------------------------------------------------------

    async def send(self, prompt: Prompt, **words: Unpack[SendWords]) -> Reply:
        """Say something, and return what the run comes to.

        `tools=` takes the place of the chat's tools for this request, `add_tools=` comes beside them.
        """
        return await self._driven(self._prepared(prompt, words), words)

    def send_sync(self, prompt: Prompt, **words: Unpack[SendWords]) -> Reply:
        """Run `send` to its end, from code that is not async."""
        return run_to_end(self.send(prompt, **words))

    async def stream(self, prompt: Prompt, **words: Unpack[SendWords]) -> AsyncGenerator[Event]:
        """Say something, and yield what happens; the last event is `Done` with the reply."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        async def produce() -> None:
            try:
                queue.put_nowait(Done(await self._driven(self._prepared(prompt, words, queue.put_nowait), words)))
            finally:
                queue.put_nowait(None)

        task = asyncio.get_running_loop().create_task(produce())
        try:
            while (event := await queue.get()) is not None:
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def step(self, prompt: Prompt, **words: Unpack[SendWords]) -> Reply:
        """Ask the model for one turn, and leave its calls to the caller."""

        async def prepared() -> _Prepared:
            made = await self._prepared(prompt, words)
            made.run.plan.execute = False
            return made

        return await self._driven(prepared(), words)

    def step_sync(self, prompt: Prompt, **words: Unpack[SendWords]) -> Reply:
        """Run `step` to its end, from code that is not async."""
        return run_to_end(self.step(prompt, **words))

    def cancel(self, conversation: str | None = None) -> None:
        """Call off what runs in a conversation: model, tools and servers; every call gets a result."""
        for task in tuple(self._running.get(conversation, ())):
            self._called_off.add(task)
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def said(self, conversation: str | None = None) -> Sequence[Message]:
        """Return what the memory shows of a conversation; nothing where there is no memory."""
        memory = self.policy.memory
        return () if memory is None else await memory.load(conversation or "")

    def said_sync(self, conversation: str | None = None) -> Sequence[Message]:
        """Run `said` to its end, from code that is not async."""
        return run_to_end(self.said(conversation))

    # --- going on later ------------------------------------------------------------------------------

    async def resume(
        self,
        saved: Mapping[str, Any] | Reply,
        decisions: Iterable[Decision | Mapping[str, Any]] = (),
        **words: Unpack[SendWords],
    ) -> Reply:
        """Go on with a run that waits for approval: `reply.save()`, and a decision for each request.

        A request without a decision that this application signed keeps waiting, and so does the run. A decision may
        come as the plain data that it was written as. Tools, context and limits are given again.

        Raises:
            ConfigError: it is not a saved run.
        """
        reply = saved if isinstance(saved, Reply) else Reply.load(saved)
        if not reply.pending or not any(message.results for message in reply.messages):
            raise ConfigError("This run does not wait for anything. Send the next message instead.")
        place = max(i for i, message in enumerate(reply.messages) if message.results)
        words = {**words, "conversation": reply.conversation, "run": reply.run}

        async def prepared() -> _Prepared:
            made = await self._prepared((), words, None, reply.messages[:place])
            made.run.said = reply.said - len(made.run.system)
            signed = genuine(made.run.plan.box, decisions)
            made.resumed = Resumed(reply, reply.messages[place].results, signed)
            return made

        return await self._driven(prepared(), words)

    def resume_sync(
        self,
        saved: Mapping[str, Any] | Reply,
        decisions: Iterable[Decision | Mapping[str, Any]] = (),
        **words: Unpack[SendWords],
    ) -> Reply:
        """Run `resume` to its end, from code that is not async."""
        return run_to_end(self.resume(saved, decisions, **words))

    # --- the run -------------------------------------------------------------------------------------

    async def _prepared(
        self,
        prompt: Prompt,
        words: SendWords,
        emit: Callable[[Event], None] | None = None,
        conversation: Sequence[Message] | None = None,
    ) -> _Prepared:
        if unknown := words.keys() - SendWords.__annotations__.keys():
            raise ConfigError(
                f"send takes no {min(unknown)!r}. There are: {', '.join(sorted(SendWords.__annotations__))}."
            )
        given = Given(self.box, self._own, words.get("tools"), words.get("add_tools"))
        try:
            return await self._planned(await spoken(prompt), words, given, emit, conversation)
        except BaseException:
            await given.aclose()
            raise

    async def _planned(
        self,
        new: list[Message],
        words: SendWords,
        given: Given,
        emit: Callable[[Event], None] | None,
        conversation: Sequence[Message] | None,
    ) -> _Prepared:
        policy = self.policy
        context = policy.context
        if (more := context_from(words.get("context"))) is not None:
            context = more if context is None else context.merged(more)
        box = await given.ready(context)
        if (searching := Searching.over(box, policy.search)) is not None:
            box = box | Toolbox(searching.tool)
        limits = words.get("limits", policy.limits)
        name = words.get("conversation")
        plan = Plan(
            self.model,
            box.run(limits),
            context,
            limits,
            policy.strategy,
            policy.execute,
            policy.history,
            policy.memory,
            name,
            emit,
            words.get("run") or uuid.uuid4().hex,
        )
        system = tuple(m for m in (conversation if conversation is not None else new) if m.role == "system")
        if policy.system is not None and not system:
            system = (Message("system", policy.system),)
        new = [message for message in new if message.role != "system"]
        before, new = unsaid(await self._before(name, conversation), new)
        run = Run(plan, NOT_DRIVEN, system, [*before], len(before))
        return _Prepared(run, new, words.get("tool_choice"), given, searching=searching)

    async def _before(self, name: str | None, conversation: Sequence[Message] | None) -> list[Message]:
        if conversation is not None:
            return [message for message in conversation if message.role != "system"]
        return [*await self.policy.memory.load(name or "")] if self.policy.memory is not None else []

    async def _driven(self, preparing: Coroutine[Any, Any, _Prepared], words: SendWords) -> Reply:
        conversation, task = words.get("conversation"), asyncio.current_task()
        running = self._running.setdefault(conversation, set())
        if task is not None:
            running.add(task)
        prepared: _Prepared | None = None
        limits, began = words.get("limits", self.policy.limits), time.monotonic()
        clock = asyncio.timeout(limits.seconds)
        try:
            async with clock:
                prepared = await preparing
            prepared.run.started = began
            await self._finished(prepared, task)
        except TimeoutError:
            # The time of a run begins with the wait for servers and memory.
            if prepared is not None or not clock.expired():
                raise
        except asyncio.CancelledError:
            # Whoever cancels the task itself wants it to end; `cancel()` wants to know what there is.
            if task is None or task not in self._called_off:
                raise
            task.uncancel()
        finally:
            if task is not None:
                running.discard(task)
                self._called_off.discard(task)
            if not running and self._running.get(conversation) is running:
                del self._running[conversation]
            if prepared is not None:
                await prepared.given.aclose()
        finish: Finish = "limit" if clock.expired() else "cancelled"
        reply = Reply((), finish, conversation=conversation) if prepared is None else prepared.run.reply()
        if reply.finish == "limit" and self.policy.on_limit == "raise":
            raise exceeded(limits, reply.turns, reply.results)
        return reply

    async def _finished(self, prepared: _Prepared, task: asyncio.Task[Any] | None) -> None:
        run = prepared.run
        try:
            async with self.policy.runtime.drive(run.plan.run) as driven:
                run.driven = driven
                try:
                    await self._through(prepared)
                except asyncio.CancelledError:
                    run.cancelled()
                    if task is None or task not in self._called_off:
                        raise
                    task.uncancel()
                except TimeoutError:
                    if not run.over(0):
                        raise
                    run.finish = "limit"
                await driven.end(run.finish, run.came_to)
        except asyncio.CancelledError:
            run.cancelled()
            raise

    async def _through(self, prepared: _Prepared) -> None:
        run, policy = prepared.run, self.policy
        inside = [advisor for advisor in policy.advisors if placement_of(advisor) == "inside_loop"]
        outside = [advisor for advisor in policy.advisors if placement_of(advisor) == "before_loop"]
        loops = [advisor for advisor in inside if isinstance(advisor, ToolLoop)]
        inside = [advisor for advisor in inside if not isinstance(advisor, ToolLoop)]
        inside += [] if prepared.searching is None else [prepared.searching]
        loop: Any = loops[0] if loops else ToolLoop()
        step = chained([*outside, loop], chained(inside, run.ask))
        if prepared.resumed is None:
            await run.begin(prepared.new)
            await run.record(prepared.new)
        # What was cut off before is closed first: providers refuse a call without a result.
        closed = repair(run.messages)
        request = ModelRequest(await run.shown(closed), run.plan.box, prepared.choice, policy.options)
        turn = Turn(request, 1, run.plan.conversation, run)
        if prepared.resumed is None:
            run.messages[:] = closed
        elif (after := await prepared.resumed.go_on(run, turn)) is None:
            return
        else:
            turn = after
        if run.plan.limits.steps is not None and run.plan.limits.steps < 1:
            run.finish = "limit"
            return
        await run.close(await step(turn))

    async def __aenter__(self) -> Self:
        await self.box.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.box.__aexit__(*exception)


@dataclass(slots=True, eq=False, repr=False)
class _Prepared:
    run: Run
    new: list[Message]
    choice: ToolChoice | str | None
    given: Given
    resumed: Resumed | None = None
    searching: Searching | None = None


def _refuse_path(word: str, given: Any, keeper: str) -> None:
    if isinstance(given, str | PurePath):
        raise ConfigError(f"{word}={str(given)!r} is a path. Give what keeps it, such as {keeper}({str(given)!r}).")


Said: TypeAlias = str | Message | Iterable[Message]
Prompt: TypeAlias = Said | Awaitable[Said]
"""Also what is still to be rendered, as `box.prompt(...)` is."""


async def spoken(prompt: Prompt) -> list[Message]:
    """Return what was said.

    Raises:
        ConfigError: it is neither a text nor messages.
    """
    said: Any = await prompt if isinstance(prompt, Awaitable) else prompt
    if isinstance(said, str):
        return [Message("user", said)]
    messages = [said] if isinstance(said, Message) or not isinstance(said, Iterable) else [*said]
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"{message!r:.80} cannot be said. Give a text, a Message, or a list of them.")
    return messages
