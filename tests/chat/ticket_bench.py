"""A tool that works in the background until a test lets it end."""

import asyncio

from toolmason import Chat, ToolContext, tool
from toolmason.testing import ScriptedModel

WAIT = 10
CALL = [("work", {"n": 1})]


class Bench:
    """A tool that works until it is allowed to end, and what it did."""

    def __init__(self, **options):
        self.may_end, self.has_begun, self.is_cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.runs, self.cancelled = [], []

        @tool(**{"background": True, "timeout": None, **options})
        async def work(ctx: ToolContext, n: int = 1) -> str:
            """Work for long."""
            self.runs.append(n)
            await ctx.progress(n, 10, "so far")
            self.has_begun.set()
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancelled.append(n)
                self.is_cancelled.set()
                raise
            return f"made {n}"

        self.tool = work

    def chat(self, script, *tools, **options):
        return Chat(ScriptedModel(script), [self.tool, *tools], **options)


def ticket_of(request):
    """Return the last ticket that a request shows."""
    found = [result.meta.get("toolmason.ticket") for message in request.messages for result in message.results]
    return [each["id"] for each in found if each][-1]
