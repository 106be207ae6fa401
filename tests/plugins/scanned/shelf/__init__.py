"""A package to scan."""

from json import dumps

from shelf.a_first import shared as shared
from toolmason import Toolbox, tool

box = Toolbox()


def helper() -> str:
    """Help; not a tool."""
    return dumps([])


@tool
def top() -> str:
    """Answer from the top."""
    return "top"
