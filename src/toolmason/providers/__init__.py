"""Convert a toolbox to each provider's API format, and replies back. Plain dicts; no SDK, no network."""

from toolmason._core.values.provider_tools import NativeTool, RemoteMcp, WebSearch
from toolmason.providers.conversation import Flaw, check_conversation, repair
from toolmason.providers.registry import KNOWN, codec, verdict
from toolmason.providers.schema.losses import Loss, Verdict

__all__ = [
    "KNOWN",
    "Flaw",
    "Loss",
    "NativeTool",
    "RemoteMcp",
    "Verdict",
    "WebSearch",
    "check_conversation",
    "codec",
    "repair",
    "verdict",
]
