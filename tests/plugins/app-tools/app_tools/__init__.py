"""A plugin that says which applications each of its tools is for."""

from app_tools.host import App, Closable, Other
from toolmason import Toolbox, supported_for, tool


@supported_for(App)
class ForApp:
    """For one application, and those that derive from it."""

    @tool
    def for_app(self) -> None:
        """Do nothing."""


@supported_for(App, Other)
@tool
def for_either() -> None:
    """Do nothing."""


@supported_for()
@tool
def for_none() -> None:
    """Do nothing."""


@supported_for(Closable)
@tool
def for_protocol() -> None:
    """Do nothing."""


@supported_for("worker")
@tool
def for_tag() -> None:
    """Do nothing."""


@tool
def in_box() -> None:
    """Do nothing."""


box = supported_for(Other)(Toolbox(in_box))
