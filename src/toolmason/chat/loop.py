"""Define model turns, the advisors that wrap them, and the tool loop.

An advisor marked `before_loop` runs once per run, one marked `inside_loop` once per turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, TypeAlias

from toolmason._core.toolbox.exchange import ModelReply, ModelRequest
from toolmason._core.values.messages import Message
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError

_PLACEMENT_ATTRIBUTE: Final = "__toolmason_placement__"


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """Request that is about to be sent to the model."""

    request: ModelRequest
    number: int = 1
    conversation: str | None = None
    run: Any = None
    """Run that the turn belongs to."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages that the model sees."""
        return self.request.messages

    def with_messages(self, messages: Sequence[Message]) -> ModelTurn:
        """Return the turn with other messages."""
        return replace(self, request=self.request.with_messages(messages))


class SystemAddition:
    """Text that is added to the system message of each request of a run."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last: tuple[tuple[Message, ...], Message] | None = None
        """System messages of the last request, and the one that it was sent with."""

    def apply(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages with the text in one system message: some servers accept no second one."""
        count = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
        if self._last is None or self._last[0] != messages[:count]:
            texts = [*(message.text for message in messages[:count]), self._text]
            self._last = (messages[:count], Message("system", "\n\n".join(texts)))
        return (self._last[1], *messages[count:])


NextStep: TypeAlias = Callable[[ModelTurn], Awaitable[ModelReply]]
"""The next advisor, or the model."""
Advisor: TypeAlias = Callable[[ModelTurn, NextStep], Awaitable[ModelReply]]
"""`async def advisor(turn, call_next) -> ModelReply`. It returns `await call_next(turn)`, or another reply.

A turn that an advisor answers counts as one of the model: it uses up a step, and its tools can be called.
"""


class RunOver(Exception):
    """An advisor asks for a further turn, and none may follow. The argument is the last reply."""


async def refuse_turn(run: Any) -> NoReturn:
    """End a run whose advisor asks for a further turn, although `run.finish` says that none may follow."""
    await asyncio.sleep(0)  # so that the run can be cancelled, even if the advisor goes on asking
    raise RunOver(run.last)


@explain_arguments
def before_loop(advisor: Advisor) -> Advisor:
    """Mark an advisor to run once per run, around the whole loop."""
    setattr(advisor, _PLACEMENT_ATTRIBUTE, "before_loop")
    return advisor


@explain_arguments
def inside_loop(advisor: Advisor) -> Advisor:
    """Mark an advisor to run in every turn, which is also the default."""
    setattr(advisor, _PLACEMENT_ATTRIBUTE, "inside_loop")
    return advisor


class ToolLoop:
    """Loop that asks the model and runs its calls until it answers. Subclass it to observe or change turns."""

    async def on_start(self, turn: ModelTurn) -> ModelTurn:
        """Change the first turn before the loop starts."""
        return turn

    async def before_turn(self, turn: ModelTurn) -> ModelTurn:
        """Change a turn before it is sent to the model."""
        return turn

    async def after_turn(self, turn: ModelTurn, reply: ModelReply) -> ModelReply:
        """Change a reply before its calls are run."""
        del turn
        return reply

    async def on_finish(self, turn: ModelTurn, reply: ModelReply) -> ModelReply:
        """Change the final reply."""
        del turn
        return reply

    async def __call__(self, turn: ModelTurn, call_next: NextStep) -> ModelReply:
        """Run the loop."""
        turn = await self.on_start(turn)
        if turn.number <= turn.run.turns:  # an advisor runs the loop again: each call of a run has its own key
            if turn.run.finish != "pending" and await turn.run.must_stop():
                turn.run.finish = "limit"
            if turn.run.finish in ("pending", "limit"):
                await refuse_turn(turn.run)
            turn = replace(turn, number=turn.run.turns + 1)
        while True:
            turn = await self.before_turn(turn)
            reply = await self.after_turn(turn, await call_next(turn))
            next_turn = await turn.run.handle_reply(turn, reply)
            if next_turn is None:
                return await self.on_finish(turn, reply)
            turn = next_turn


def order_advisors(advisors: Iterable[Advisor]) -> tuple[Advisor, ...]:
    """Return the advisors, outermost first, with one tool loop between those before and those inside the loop.

    Raises:
        ConfigError: there are several tool loops.
    """
    loops: list[Advisor] = []
    outer: list[Advisor] = []
    inner: list[Advisor] = []
    for advisor in advisors:
        if not callable(advisor):
            raise ConfigError(f"advisors=: an item is of type {type(advisor).__name__!r}: it must be a function.")
        if isinstance(advisor, ToolLoop):
            loops.append(advisor)
        else:
            (outer if getattr(advisor, _PLACEMENT_ATTRIBUTE, "") == "before_loop" else inner).append(advisor)
    if len(loops) > 1:
        raise ConfigError(f"advisors= contains {len(loops)} tool loops, but a chat runs one. Combine them.")
    return (*outer, loops[0] if loops else ToolLoop(), *inner)


def chain(advisors: Sequence[Advisor], last: NextStep) -> NextStep:
    """Combine advisors into one step. The first advisor is outermost."""
    if not advisors:
        return last
    first, *others = advisors
    step = chain(others, last)
    return lambda turn: first(turn, step)
