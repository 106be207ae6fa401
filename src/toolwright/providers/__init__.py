"""Providers: a toolbox → what each API takes, and its answers back. Plain dicts; no SDK, no network."""

from toolwright.providers.bodies import check_body
from toolwright.providers.conversation import Flaw, check_conversation, repair
from toolwright.providers.native import NativeTool, RemoteMcp, WebSearch
from toolwright.providers.registry import KNOWN, codec, verdict
from toolwright.providers.report import Loss, Verdict

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
