"""A module that is for one application as a whole."""

from app_tools.host import Other
from toolmason import tool

__supported_for__ = (Other,)


@tool
def in_module() -> None:
    """Do nothing."""
