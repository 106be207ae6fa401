"""Bundles of each kind."""

from abc import ABC, abstractmethod

from shelf.a_first import shared
from toolmason import tool


class Base:
    """Extended below, and so not taken by itself."""

    @tool
    def kind(self) -> str:
        """Tell the kind."""
        return "base"


class Derived(Base):
    """Taken for its base."""

    def kind(self) -> str:
        return "derived"


class Abstract(ABC):
    """Cannot be made."""

    @tool
    def never(self) -> str:
        """Answer what nobody asks."""
        return "never"

    @abstractmethod
    def unfinished(self) -> None:
        """Have no body."""


class Needy:
    """Needs an argument."""

    def __init__(self, needed: str) -> None:
        self.needed = needed

    @tool
    def needy(self) -> str:
        """Tell what is needed."""
        return self.needed


class _Private:
    """Not decorated itself, and private."""

    @tool
    def private(self) -> None:
        """Do nothing."""


class Plain:
    """Has no tools."""


__all__ = ["Abstract", "Base", "Derived", "Needy", "Plain", "shared"]
