"""A plugin whose entry points name a module and classes."""

from toolmason import prompt, tool


@tool(read_only=True)
def forecast(city: str) -> str:
    """Tell the weather of tomorrow."""
    return f"alpha: rain in {city}"


@tool
def warn(city: str) -> str:
    """Warn of a storm."""
    return f"alpha: storm in {city}"


@prompt
def ask(topic: str) -> str:
    """Ask about the weather."""
    return f"Tell me about {topic}."
