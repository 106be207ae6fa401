"""Hold the tickets of a chat: calls whose work goes on in the background, until their results are delivered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from toolmason._core.run.execute import Cancellation
from toolmason._core.run.progress import OnProgress, ProgressReport
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._wire import ByteBudget
from toolmason.errors import ToolError

MAX_OPEN_TICKETS: Final = 16
"""Maximum number of tickets of a conversation."""
MAX_TICKETS: Final = 1000
"""Maximum number of tickets of a chat."""
MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the results that wait for delivery; beyond it, the oldest is dropped."""
MAX_OWNER_RESULT_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of those of one conversation."""


@dataclass(slots=True, eq=False, repr=False)
class Ticket:
    """A call whose work goes on in the background."""

    id: str
    owner: str
    """Hash of the conversation and the identity that it belongs to."""
    conversation: str | None
    call: ToolCall
    cancellation: Cancellation = field(default_factory=Cancellation)
    result: ToolResult | None = None
    report: ProgressReport | None = None
    """Last report of progress."""
    on_progress: OnProgress | None = None
    """Function that takes the progress, while a run is in progress."""
    task: asyncio.Task[None] | None = None
    failure: Exception | None = None
    """Exception that the call raised, such as `Abort`."""
    is_awaited: bool = True
    """True until the model gets the ticket."""
    is_taken: bool = False
    """True once a run delivers the result. Another run of the conversation must not deliver it again."""
    is_elsewhere: bool = False
    """True if another process, or another chat, has the work."""
    is_recorded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the journal has the start of the work."""
    is_finished: asyncio.Event = field(default_factory=asyncio.Event)

    def take_report(self, report: ProgressReport) -> None:
        """Keep a report of progress, and pass it on to the run in progress."""
        self.report = report
        if self.on_progress is not None:
            self.on_progress(report)

    def stop(self) -> None:
        """End the work without a result of its own, from any thread. With a journal, it counts as interrupted."""
        if self.task is not None and not (loop := self.task.get_loop()).is_closed():
            loop.call_soon_threadsafe(self.task.cancel)

    def describe(self) -> str:
        """Return the state of the work as text."""
        if self.result is not None:
            return f"{self.call.name} has finished."
        report, where = self.report, " in another process" if self.is_elsewhere else ""
        if report is None:
            return f"{self.call.name} is still at work{where}."
        total = "" if report.total is None else f" of {report.total:g}"
        message = "" if report.message is None else f": {report.message[:1000]}"
        return f"{self.call.name} is still at work{where}. Progress: {report.done:g}{total}{message}"


@dataclass(slots=True, eq=False, repr=False)
class TicketStore:
    """Tickets of a chat, by ID."""

    tickets: dict[str, Ticket] = field(default_factory=dict)
    _sizes: ByteBudget[str] = field(default_factory=lambda: ByteBudget(MAX_RESULT_BYTES, MAX_OWNER_RESULT_BYTES))

    def find_all(self, owner: str) -> list[Ticket]:
        """Return the tickets of an owner, oldest first, with those that are reserved for calls that are awaited."""
        return [ticket for ticket in self.tickets.values() if ticket.owner == owner]

    def reserve(self, ticket: Ticket) -> str:
        """Add a ticket. If there are too many, return the limit instead."""
        if len(self.find_all(ticket.owner)) >= MAX_OPEN_TICKETS:
            return f"limit of {MAX_OPEN_TICKETS} open tickets in this conversation"
        if len(self.tickets) >= MAX_TICKETS:
            return f"limit of {MAX_TICKETS} open tickets of this chat"
        self.tickets[ticket.id] = ticket
        return ""

    def finish(self, ticket: Ticket, result: ToolResult) -> None:
        """Keep the result of a ticket. Older results may be dropped for it."""
        ticket.result, ticket.on_progress = result, None
        ticket.is_finished.set()
        if ticket.id not in self.tickets:
            return
        size = sum(len(getattr(part, "data", None) or getattr(part, "text", None) or "") for part in result.content)
        self._sizes.grow(ticket.id, ticket.owner, size)
        while (excess := self._sizes.find_excess(ticket.owner)) is not None:
            dropped = self.tickets[excess]
            self._sizes.release(excess)
            error = ToolError(f"{dropped.call.name} has finished, but its result was dropped: too many are waiting.")
            dropped.result = ToolResult(dropped.call.id, dropped.call.name, error=error)

    def remove(self, ticket_id: str) -> Ticket | None:
        """Forget a ticket whose result is delivered. Return it, or None if it is unknown."""
        self._sizes.release(ticket_id)
        return self.tickets.pop(ticket_id, None)

    def cancel(self, conversation: str | None) -> None:
        """Cancel the work of a conversation. Its results say so. Thread-safe."""
        for ticket in tuple(self.tickets.values()):
            if ticket.conversation == conversation:
                ticket.cancellation.cancel()

    async def wait(self, conversation: str | None) -> None:
        """Wait until the work of a conversation has ended, as far as this chat has it."""
        for ticket in tuple(self.tickets.values()):
            if ticket.conversation == conversation and ticket.task is not None:
                await asyncio.wait((ticket.task,))

    async def aclose(self) -> None:
        """Stop all work, and forget it. With a journal, another process can go on with it."""
        running = [ticket.task for ticket in self.tickets.values() if ticket.task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=1.0)
        for ticket_id in tuple(self.tickets):
            self.remove(ticket_id)
