"""One turn of a model, and what may stand around it.

Lives here: `Turn`, advisors and where they stand, and the loop as an advisor of its own. Those `before_loop` see a run
once, those `inside_loop` every turn of it. Not here: what is done with calls (`run`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from toolmason._core.toolbox.exchange import ModelReply, ModelRequest
from toolmason._core.values.messages import Message

Placement: TypeAlias = Literal["before_loop", "inside_loop"]
_PLACEMENT_ATTRIBUTE: Final = "__toolmason_placement__"


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """What is about to be asked of the model."""

    request: ModelRequest
    number: int = 1
    conversation: str | None = None
    run: Any = None
    """The run that the turn belongs to."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model is shown."""
        return self.request.messages

    def with_messages(self, messages: Sequence[Message]) -> ModelTurn:
        """Return the turn with other messages."""
        return replace(self, request=replace_messages(self.request, messages))


def replace_messages(request: ModelRequest, messages: Sequence[Message], **changes: Any) -> ModelRequest:
    """Return a request with other messages; everything else stays, to the byte."""
    copied = object.__new__(ModelRequest)
    for name in ModelRequest.__slots__:
        object.__setattr__(copied, name, changes.get(name, getattr(request, name)))
    object.__setattr__(copied, "messages", tuple(messages))
    return copied


NextStep: TypeAlias = Callable[[ModelTurn], Awaitable[ModelReply]]
Advisor: TypeAlias = Callable[[ModelTurn, NextStep], Awaitable[ModelReply]]
"""`async def advisor(turn, next) -> ModelReply`."""


def before_loop(advisor: Advisor) -> Advisor:
    """Have an advisor see a run once, as a whole."""
    setattr(advisor, _PLACEMENT_ATTRIBUTE, "before_loop")
    return advisor


def inside_loop(advisor: Advisor) -> Advisor:
    """Have an advisor see every turn of a run; so does one that says nothing."""
    setattr(advisor, _PLACEMENT_ATTRIBUTE, "inside_loop")
    return advisor


def get_placement(advisor: Advisor) -> Placement:
    """Return where an advisor stands."""
    placement: Placement = getattr(advisor, _PLACEMENT_ATTRIBUTE, "inside_loop")
    return placement


class ToolLoop:
    """The loop: ask the model, do what it asks for, and again, until it answers. Subclass it to look in."""

    async def on_start(self, turn: ModelTurn) -> ModelTurn:
        """Change the first turn, before anything is asked."""
        return turn

    async def before_turn(self, turn: ModelTurn) -> ModelTurn:
        """Change a turn before the model is asked."""
        return turn

    async def after_turn(self, turn: ModelTurn, reply: ModelReply) -> ModelReply:
        """Change what the model answered, before it is acted upon."""
        del turn
        return reply

    async def on_finish(self, turn: ModelTurn, reply: ModelReply) -> ModelReply:
        """Change the last answer."""
        del turn
        return reply

    async def __call__(self, turn: ModelTurn, call_next: NextStep) -> ModelReply:
        """Run the loop."""
        turn = await self.on_start(turn)
        while True:
            turn = await self.before_turn(turn)
            reply = await self.after_turn(turn, await call_next(turn))
            next_turn = await turn.run.handle_reply(turn, reply)
            if next_turn is None:
                return await self.on_finish(turn, reply)
            turn = next_turn


def chain(advisors: Sequence[Advisor], last: NextStep) -> NextStep:
    """Return one step out of many; the first advisor is outermost."""
    step = last
    for advisor in reversed(advisors):
        step = _wrap(advisor, step)
    return step


def _wrap(advisor: Advisor, step: NextStep) -> NextStep:
    async def call_advisor(turn: ModelTurn) -> ModelReply:
        return await advisor(turn, step)

    return call_advisor
