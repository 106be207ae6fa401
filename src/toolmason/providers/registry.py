"""The name of a provider → its format.

Lives here: the list of those we know. Names are read without regard to case; the bytes of a toolbox follow from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.toolbox.definitions import Strict
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.provider_tools import AnyNativeTool
from toolmason.errors import UnsupportedProvider
from toolmason.providers.codec import Codec, Format
from toolmason.providers.formats.anthropic import CODEC as ANTHROPIC
from toolmason.providers.formats.gemini import CODEC as GEMINI
from toolmason.providers.formats.mcp import FORMAT as MCP
from toolmason.providers.formats.openai import CODEC as OPENAI
from toolmason.providers.formats.openai_chat import CODEC as OPENAI_CHAT
from toolmason.providers.schema.losses import Verdict

if TYPE_CHECKING:  # a format is asked for before there is a tool
    from toolmason._core.define.tool import Tool

_FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {made.name: made for made in (OPENAI, OPENAI_CHAT, ANTHROPIC, GEMINI, MCP)}
)
KNOWN: Final = tuple(_FORMATS)
"""The providers that we know."""


def get_format(provider: str) -> Format:
    """Return the format of a provider.

    Raises:
        UnsupportedProvider: there is none of that name; names those there are.
    """
    provider_format = _FORMATS.get(str(provider).strip().lower().replace("_", "-"))
    if provider_format is None:
        raise UnsupportedProvider(provider, KNOWN)
    return provider_format


def codec(provider: str) -> Codec:
    """Return what writes requests to a provider and reads its answers.

    Raises:
        UnsupportedProvider: there is none of that name; names those there are.
    """
    provider_format = get_format(provider)
    if not isinstance(provider_format, Codec):
        raise UnsupportedProvider(provider, [name for name, made in _FORMATS.items() if isinstance(made, Codec)])
    return provider_format


def definitions(
    tools: Sequence[Tool],
    native: Iterable[AnyNativeTool],
    provider: str,
    strict: Strict,
    lossy: bool,  # noqa: FBT001 - called by position from `_core.exports`
) -> list[dict[str, Any]]:
    """Return tools as a provider takes them; see `Toolbox.definitions`."""
    provider_format = get_format(provider)
    return provider_format.format_tools(
        provider_format.fit_tools(tuple(tool.definition for tool in tools), tuple(native), strict, lossy=lossy)
    )


def verdict(tool: ToolDefinition, provider: str, strict: Strict = "auto") -> Verdict:
    """Return what a provider makes of a tool: its schema, strict or not and why, what gets lost, its other name.

    Raises:
        UnsupportedProvider: there is no such provider; names those there are.
    """
    return get_format(provider).verdict(tool, strict)
