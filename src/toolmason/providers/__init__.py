"""Encode requests for each provider's API and decode its replies, as plain dicts without an SDK or network access."""

from toolmason.providers.body_checks import check_body
from toolmason.providers.conversation import Flaw, check_conversation, repair
from toolmason.providers.native_tools import NativeTool, RemoteMcp, WebSearch
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
    "check_body",
    "check_conversation",
    "codec",
    "repair",
    "verdict",
]
