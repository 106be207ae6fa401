"""A module with tools for all applications and for some."""

from app_tools.host import App
from toolmason import supported_for, tool


@tool
def for_all() -> None:
    """Do nothing."""


@tool
@supported_for(App)
def for_some() -> None:
    """Do nothing."""
