"""Models: `model("openai:gpt-5")` creates one. It takes requests, and returns replies or streams of events."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason._core.toolbox.exchange import (
        AnswerFormat,
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
        iter_reply_events,
    )
    from toolmason.models.by_name import model
    from toolmason.models.fallback import FallbackModel
    from toolmason.models.protocol import Model
    from toolmason.models.scripted import ScriptedModel

__all__ = [
    "AnswerFormat",
    "ArgumentsDelta",
    "CallClosed",
    "CallOpened",
    "FallbackModel",
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
    "iter_reply_events",
    "model",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason._core.toolbox.exchange": (
            "AnswerFormat",
            "ArgumentsDelta",
            "CallClosed",
            "CallOpened",
            "Finished",
            "ModelEvent",
            "ModelReply",
            "ModelRequest",
            "TextDelta",
            "ThoughtDelta",
            "ToolChoice",
            "Usage",
            "iter_reply_events",
        ),
        "toolmason.models.by_name": ("model",),
        "toolmason.models.fallback": ("FallbackModel",),
        "toolmason.models.protocol": ("Model",),
        "toolmason.models.scripted": ("ScriptedModel",),
    },
)
