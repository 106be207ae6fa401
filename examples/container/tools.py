"""Tools that the container serves."""

from toolmason import Toolbox, tool


@tool(read_only=True)
async def opening_hours(day: str) -> str:
    """Return the opening hours of a day.

    Args:
        day: Name of the day, in English.
    """
    return "closed" if day == "Sunday" else "9 to 17"


box = Toolbox(opening_hours, name="desk")
