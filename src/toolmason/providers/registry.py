"""Look up provider formats by name, ignoring case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.provider_tools import AnyNativeTool, Strict
from toolmason._services import SERVICES, Service
from toolmason.errors import UnsupportedProvider
from toolmason.providers.codec import Codec, Format
from toolmason.providers.formats.anthropic import CODEC as ANTHROPIC
from toolmason.providers.formats.gemini import CODEC as GEMINI
from toolmason.providers.formats.mcp import FORMAT as MCP
from toolmason.providers.formats.openai import CODEC as OPENAI
from toolmason.providers.formats.openai_chat import CODEC as OPENAI_CHAT
from toolmason.providers.schema.losses import Verdict

if TYPE_CHECKING:  # imported for types only: formats are used before any tool exists
    from toolmason._core.define.tool import Tool

_FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {known.name: known for known in (OPENAI, OPENAI_CHAT, ANTHROPIC, GEMINI, MCP)}
)
KNOWN: Final = tuple(_FORMATS)
"""Names of the supported providers."""


def get_format(provider: str) -> Format:
    """Return the format of a provider.

    Raises:
        UnsupportedProvider: the provider is unknown; the message lists the known ones.
    """
    name = str(provider).strip().lower().replace("_", "-")
    if name in _FORMATS:
        return _FORMATS[name]
    if name not in SERVICES:
        raise UnsupportedProvider(provider, (*KNOWN, *(each for each in SERVICES if each not in _FORMATS)))
    return make_codec(SERVICES[name])


def make_codec(service: Service) -> Codec:
    """Return the codec of a service."""
    shared = _FORMATS[service.format]
    assert isinstance(shared, Codec)  # noqa: S101 - every service has the format of a conversation
    return shared if shared.service is service else type(shared)(service)


def codec(provider: str) -> Codec:
    """Return the codec that writes requests to a provider and reads its replies.

    Raises:
        UnsupportedProvider: the provider is unknown or has no codec; the message lists those that have one.
    """
    provider_format = get_format(provider)
    if not isinstance(provider_format, Codec):
        raise UnsupportedProvider(provider, [name for name, known in _FORMATS.items() if isinstance(known, Codec)])
    return provider_format


def definitions(
    tools: Sequence[Tool],
    native: Iterable[AnyNativeTool],
    provider: str,
    strict: Strict,
    lossy: bool,  # noqa: FBT001 - called by position from `_core.toolbox.lookup`
) -> list[dict[str, Any]]:
    """Return tools in a provider's format; see `Toolbox.definitions`."""
    provider_format = get_format(provider)
    return provider_format.format_tools(
        provider_format.fit_tools(tuple(tool.definition for tool in tools), tuple(native), strict, lossy=lossy)
    )


def verdict(tool: ToolDefinition, provider: str, strict: Strict = "auto") -> Verdict:
    """Return how a provider accepts a tool: its schema, strict or not and why, losses and alias.

    Raises:
        UnsupportedProvider: the provider is unknown; the message lists the known ones.
    """
    return get_format(provider).verdict(tool, strict)
