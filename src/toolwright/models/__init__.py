"""Models: what answers. `model("openai:gpt-5")` makes one; requests go in, replies or streams of events come out."""

from toolwright._core.exchange import (
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
from toolwright.models.named import model
from toolwright.models.protocol import Model
from toolwright.models.scripted import ScriptedModel

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
