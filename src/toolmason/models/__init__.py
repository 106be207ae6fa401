"""Models: what answers. `model("openai:gpt-5")` makes one; requests go in, replies or streams of events come out.

Each name is loaded when it is first used: who makes a model pays for what makes it, and for the rest with its first
request.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolmason._core.exchange import (
        ArgumentsDelta,
        CallClosed,
        CallOpened,
        Finished,
        ModelEvent,
        ModelReply,
        ModelRequest,
        TextDelta,
        ThoughtDelta,
        ToolChoice,
        Usage,
    )
    from toolmason.models.named import model
    from toolmason.models.protocol import Model
    from toolmason.models.scripted import ScriptedModel

__all__ = [
    "ArgumentsDelta",
    "CallClosed",
    "CallOpened",
    "Finished",
    "Model",
    "ModelEvent",
    "ModelReply",
    "ModelRequest",
    "ScriptedModel",
    "TextDelta",
    "ThoughtDelta",
    "ToolChoice",
    "Usage",
    "model",
]

_HOMES = {"Model": "models.protocol", "ScriptedModel": "models.scripted", "model": "models.named"}
"""Name → the module that has it, where it is not that of requests and replies."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'toolmason.models' has no attribute {name!r}")
    value = getattr(import_module(f"toolmason.{_HOMES.get(name, '_core.exchange')}"), name)
    globals()[name] = value  # so that the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
