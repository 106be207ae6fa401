"""Bundles: one is made without arguments, one needs them and has static tools alone."""

from toolmason import tool


class Shelf:
    """Counts what was put on it."""

    made = 0

    def __init__(self, size: int = 3) -> None:
        type(self).made += 1
        self.size = size

    @tool
    def shelf_size(self) -> int:
        """Tell the size of the shelf."""
        return self.size


class Static:
    """Cannot be made without arguments, and need not be."""

    def __init__(self, needed: str) -> None:
        self.needed = needed

    @staticmethod
    @tool
    def static_answer() -> int:
        """Answer."""
        return 42
