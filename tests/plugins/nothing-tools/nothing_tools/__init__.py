"""A plugin whose entry points all name something that is no tool."""

from toolmason import tool

NUMBER = 5
TEXT = "not a tool"


class Needy:
    """Has a tool, and cannot be made without arguments."""

    def __init__(self, needed: str) -> None:
        self.needed = needed

    @tool
    def needy(self) -> str:
        """Tell what is needed."""
        return self.needed


class Raising:
    """Fails while it is made."""

    def __init__(self) -> None:
        raise ConnectionError("no database")

    @tool
    def raising(self) -> None:
        """Do nothing."""
