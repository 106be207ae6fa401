"""Format tools that a provider runs itself: web search, MCP servers and provider-specific tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from toolmason._core.values.provider_tools import AnyNativeTool, NativeTool, RemoteMcp, WebSearch
from toolmason.errors import DefinitionError, UnsupportedProvider

__all__ = ["NativeTool", "RemoteMcp", "WebSearch", "deduplicate", "format_anthropic_servers", "format_native_tool"]

_SEARCH_TYPES: Final = {
    "openai": (
        "web_search",
        ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
    ),
    "anthropic": ("web_search_20260318", ("web_search_20250305", "web_search_20260209", "web_search_20260318")),
    "gemini": ("googleSearch", ("googleSearch", "google_search")),
}
"""Current web search type of each provider, and all accepted types."""
_SERVER_PROVIDERS: Final = ("openai", "anthropic", "gemini")
_PROVIDERS: Final = ("openai", "openai-chat", "anthropic", "gemini")


def format_native_tool(item: AnyNativeTool, provider: str) -> dict[str, Any] | None:
    """Return a tool in the provider's format, or None if it belongs to another provider.

    Raises:
        DefinitionError: the provider has no such tool; the message lists the providers that do.
        UnsupportedProvider: the tool names an unknown provider, so it would never be sent.
    """
    if isinstance(item, NativeTool):
        owner = str(item.provider).strip().lower().replace("_", "-")
        if owner not in _PROVIDERS:
            raise UnsupportedProvider(str(item.provider), _PROVIDERS)
        return dict(item.spec) if owner == provider else None
    return _format_search(item, provider) if isinstance(item, WebSearch) else _format_server(item, provider)


def _format_search(item: WebSearch, provider: str) -> dict[str, Any]:
    if provider not in _SEARCH_TYPES:
        raise DefinitionError(
            f"{provider} has no web search. Remove WebSearch, or use one of: {', '.join(_SEARCH_TYPES)}."
        )
    current, known = _SEARCH_TYPES[provider]
    kind = current if item.type == "default" else item.type
    if kind not in known:
        raise DefinitionError(
            f"WebSearch(type={item.type!r}): {provider} has no such search type. "
            f"Use 'default' or one of: {', '.join(known)}."
        )
    location = {"user_location": {"type": "approximate", **item.location}} if item.location else {}
    if provider == "openai":
        return {"type": kind, **location}
    if provider == "anthropic":
        return {"type": kind, "name": "web_search", **location}
    if location:
        raise DefinitionError(
            f"WebSearch({', '.join(item.location)}=…): gemini does not support a search location. Omit it."
        )
    return {"googleSearch": {}}


def _format_server(item: RemoteMcp, provider: str) -> dict[str, Any]:
    if provider not in _SERVER_PROVIDERS:
        raise DefinitionError(
            f"{provider} cannot call MCP servers. Use `McpServer` for {item.name!r}, or one of: "
            f"{', '.join(_SERVER_PROVIDERS)}."
        )
    if provider == "openai":
        optional = {
            "server_description": item.description,
            "authorization": item.authorization,
            "require_approval": item.require_approval,
        }
        given = {key: value for key, value in optional.items() if value}
        return {"type": "mcp", "server_label": item.name, "server_url": item.url, **given}
    if item.require_approval == "always":
        raise DefinitionError(
            f"RemoteMcp({item.name!r}, require_approval='always'): {provider} calls servers without approval. "
            "Use `McpServer` with approval, or openai."
        )
    if provider == "anthropic":
        return {"type": "mcp_toolset", "mcp_server_name": item.name}
    transport: dict[str, Any] = {"url": item.url}
    if item.authorization:
        transport["headers"] = {"Authorization": item.authorization}
    return {"mcpServers": [{"name": item.name, "streamableHttpTransport": transport}]}


def deduplicate(items: Iterable[AnyNativeTool]) -> tuple[AnyNativeTool, ...]:
    """Return the tools without duplicates. Of two searches, or two servers with the same name, the later one wins."""
    unique_items: dict[Any, AnyNativeTool] = {}
    for item in items:
        key = ("spec", repr(item)) if isinstance(item, NativeTool) else (type(item), item.name)
        unique_items[key] = item
    return tuple(unique_items.values())


def format_anthropic_servers(items: tuple[AnyNativeTool, ...]) -> list[dict[str, Any]]:
    """Return the value of Anthropic's `mcp_servers` field."""
    return [
        {
            "type": "url",
            "name": item.name,
            "url": item.url,
            **({"authorization_token": item.authorization.removeprefix("Bearer ")} if item.authorization else {}),
        }
        for item in items
        if isinstance(item, RemoteMcp)
    ]
