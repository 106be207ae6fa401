"""A plugin with a tool that another distribution offers, too."""

from toolmason import tool


@tool
def forecast(city: str) -> str:
    """Tell another weather."""
    return f"clash: sun in {city}"
