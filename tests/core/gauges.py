"""Tools that wait until they are let out, and a gauge that counts them.

Lives here: what the tests of batches share. Not here: any test.
"""

import asyncio

from toolmason import tool


class Gauge:
    """Counts how many calls are inside at once, and lets them out when told."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = 0
        self.gate = asyncio.Event()
        self.changed = asyncio.Condition()

    async def enter(self) -> None:
        async with self.changed:
            self.now += 1
            self.begun += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
        try:
            await self.gate.wait()
        finally:
            self.now -= 1

    async def wait_for(self, begun: int) -> None:
        async with asyncio.timeout(5), self.changed:
            await self.changed.wait_for(lambda: self.begun >= begun)


def work_on(gauge: Gauge, **options):
    @tool(**options)
    async def work(n: int = 0) -> int:
        await gauge.enter()
        return n

    return work


async def settle() -> None:
    """Give every task that can run its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


@tool
async def double(n: int) -> int:
    return n * 2


@tool
async def forever() -> None:
    await asyncio.Event().wait()
