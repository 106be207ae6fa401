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
_PLACE: Final = "__toolmason_placement__"


@dataclass(frozen=True, slots=True)
class Turn:
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

    def showing(self, messages: Sequence[Message]) -> Turn:
        """Return the turn with other messages."""
        return replace(self, request=with_messages(self.request, messages))


def with_messages(request: ModelRequest, messages: Sequence[Message], **changes: Any) -> ModelRequest:
    """Return a request with other messages; everything else stays, to the byte."""
    made = object.__new__(ModelRequest)
    for name in ModelRequest.__slots__:
        object.__setattr__(made, name, changes.get(name, getattr(request, name)))
    object.__setattr__(made, "messages", tuple(messages))
    return made


Next: TypeAlias = Callable[[Turn], Awaitable[ModelReply]]
Advisor: TypeAlias = Callable[[Turn, Next], Awaitable[ModelReply]]
"""`async def advisor(turn, next) -> ModelReply`."""


def before_loop(advisor: Advisor) -> Advisor:
    """Have an advisor see a run once, as a whole."""
    setattr(advisor, _PLACE, "before_loop")
    return advisor


def inside_loop(advisor: Advisor) -> Advisor:
    """Have an advisor see every turn of a run; so does one that says nothing."""
    setattr(advisor, _PLACE, "inside_loop")
    return advisor


def placement_of(advisor: Advisor) -> Placement:
    """Return where an advisor stands."""
    place: Placement = getattr(advisor, _PLACE, "inside_loop")
    return place


class ToolLoop:
    """The loop: ask the model, do what it asks for, and again, until it answers. Subclass it to look in."""

    async def on_start(self, turn: Turn) -> Turn:
        """Change the first turn, before anything is asked."""
        return turn

    async def before_turn(self, turn: Turn) -> Turn:
        """Change a turn before the model is asked."""
        return turn

    async def after_turn(self, turn: Turn, reply: ModelReply) -> ModelReply:
        """Change what the model answered, before it is acted upon."""
        del turn
        return reply

    async def on_finish(self, turn: Turn, reply: ModelReply) -> ModelReply:
        """Change the last answer."""
        del turn
        return reply

    async def __call__(self, turn: Turn, following: Next) -> ModelReply:
        """Run the loop."""
        turn = await self.on_start(turn)
        while True:
            turn = await self.before_turn(turn)
            reply = await self.after_turn(turn, await following(turn))
            after = await turn.run.after(turn, reply)
            if after is None:
                return await self.on_finish(turn, reply)
            turn = after


def chained(advisors: Sequence[Advisor], last: Next) -> Next:
    """Return one step out of many; the first advisor is outermost."""
    step = last
    for advisor in reversed(advisors):
        step = _around(advisor, step)
    return step


def _around(advisor: Advisor, step: Next) -> Next:
    async def around(turn: Turn) -> ModelReply:
        return await advisor(turn, step)

    return around
