"""Failed calls return results with an error that a model can act on; they do not raise."""

import asyncio
from typing import Annotated

from toolmason import Retry, Toolbox, ToolContext, ToolError, tool

STOCK = {"TEA-01": 3}


@tool
def reserve(sku: Annotated[str, "Article number"], count: Annotated[int, "How many"]) -> int:
    """Reserve an article."""
    if STOCK.get(sku, 0) < count:
        raise ToolError(f"Only {STOCK.get(sku, 0)} of {sku} are left.")
    return count


@tool
def broken() -> str:
    """Fail."""
    raise RuntimeError("the disk is full")


@tool(timeout=0.1)
async def slow() -> str:
    """Take too long."""
    await asyncio.sleep(10)
    return "done"


@tool(retry=Retry(attempts=3, delay=0.01))
async def flaky(ctx: ToolContext) -> str:
    """Fail twice, then succeed."""
    if ctx.attempt < 3:  # noqa: PLR2004 - it fails twice
        raise ConnectionError("connection reset")
    return "page"


box = Toolbox(reserve, broken, slow, flaky)

if __name__ == "__main__":
    print(box.call_sync("reserve", {"sku": "TEA-01", "count": 5}).text)
    print(box.call_sync("reserve", '{"count": "many"}').error)
    print(box.call_sync("resreve").error)
    print(box.call_sync("broken").error)
    print(box.call_sync("slow").error)
    flaky_result = box.call_sync("flaky")
    print(flaky_result.text, "after", flaky_result.attempts, "attempts")
