"""Applications that a plugin may be for."""

from typing import Protocol, runtime_checkable


class App:
    """An application."""


class SubApp(App):
    """One that derives from it."""


class Other:
    """Another one, which calls itself a worker."""

    __tags__ = ("worker", "night")


class Stranger:
    """One that nobody knows, and that can be closed."""

    name = "stranger"

    def close(self) -> None:
        """Close it."""


@runtime_checkable
class Closable(Protocol):
    """Anything that has a name and can be closed."""

    name: str

    def close(self) -> None:
        """Close it."""
        ...
