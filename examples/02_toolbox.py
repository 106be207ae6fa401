"""Collect tools from several sources in a toolbox, and restrict them with views."""

import asyncio
from typing import Annotated

from toolmason import Toolbox, tool


@tool(read_only=True, tags=["clock"])
def time_in(city: Annotated[str, "City name"]) -> str:
    """Local time in a city."""
    return f"12:00 in {city}"


@tool(destructive=True, preview=lambda number: f"Delete alarm {number}")
async def delete_alarm(number: Annotated[int, "Number of the alarm"]) -> str:
    """Delete an alarm."""
    return f"alarm {number} deleted"


def celsius(fahrenheit: Annotated[float, "Degrees Fahrenheit"]) -> float:
    """Convert a temperature. Plain functions work, too."""
    return round((fahrenheit - 32) / 1.8, 1)


box = Toolbox(time_in, delete_alarm, celsius, name="assistant")


async def main() -> None:
    """Call tools through the toolbox and its views."""
    print(box)
    print((await box.call("celsius", {"fahrenheit": 70})).text)

    safe = box.exclude("delete_*")
    print(safe)
    print((await safe.call("delete_alarm", {"number": 1})).error)

    print(box.select(tags=["clock"]).prefixed("clock_"))
    print((await box.resolve("TIME_IN")) is box["time_in"])


if __name__ == "__main__":
    asyncio.run(main())
