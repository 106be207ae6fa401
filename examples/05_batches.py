"""Run the calls of one turn in parallel; the results are in call order."""

import asyncio
import time
from typing import Annotated

from toolmason import Sequential, Toolbox, ToolCall, tool


@tool(read_only=True)
async def fetch(page: Annotated[str, "Page name"]) -> str:
    """Fetch a page."""
    await asyncio.sleep(0.1)
    return f"<{page}>"


@tool(sequential=True)
async def publish(page: Annotated[str, "Page name"]) -> str:
    """Publish a page. Runs alone."""
    return f"{page} is public"


box = Toolbox(fetch, publish)
CALLS = [
    ToolCall("1", "fetch", '{"page": "home"}'),
    ToolCall("2", "fetch", '{"page": "news"}'),
    ToolCall("3", "publish", '{"page": "news"}'),
    ToolCall("4", "fetch", '{"pages": "blog"}'),
    ToolCall("5", "fetch", '{"page": "blog"}'),
]


async def main() -> None:
    """Run the batch in parallel, sequentially, and with a deadline."""
    started = time.perf_counter()
    for result in await box.call_all(CALLS):
        print(result.call_id, result.text if result.ok else result.error)
    print(f"parallel: {time.perf_counter() - started:.1f} s")

    started = time.perf_counter()
    await box.call_all(CALLS, strategy=Sequential())
    print(f"sequential: {time.perf_counter() - started:.1f} s")

    late = await box.call_all(CALLS, timeout=0.15)
    print("with a deadline:", [result.error.code if result.error else "ok" for result in late])


if __name__ == "__main__":
    asyncio.run(main())
