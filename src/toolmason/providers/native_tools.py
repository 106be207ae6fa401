"""Format tools that a provider runs itself: web search, MCP servers and provider-specific tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolmason._core.values.provider_tools import AnyNativeTool, NativeTool, RemoteMcp, WebSearch
from toolmason.errors import DefinitionError, UnsupportedProvider

_SEARCH_TYPES: Final = {
    "openai": (
        "web_search",
        ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
    ),
    "anthropic": ("web_search_20260318", ("web_search_20250305", "web_search_20260209", "web_search_20260318")),
    "gemini": ("googleSearch", ("googleSearch", "google_search")),
}
"""Current web search type of each provider, and all accepted types."""
_CLIENT_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("memory_", "bash_", "text_editor_", "computer_", "browser_"),
    "openai": ("computer", "local_shell", "apply_patch", "custom"),
    "gemini": ("computerUse", "computer_use"),
}
"""Beginnings of the types of tools that the application would have to run."""
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
        if owner == provider:
            _refuse_client_tool(item, provider)
        return dict(item.spec) if owner == provider else None
    return _format_search(item, provider) if isinstance(item, WebSearch) else _format_server(item, provider)


def _refuse_client_tool(item: NativeTool, provider: str) -> None:
    """Raise DefinitionError if the application would have to run a tool itself: nothing here would answer its calls."""
    kind = str(item.spec.get("type", "")) or next(iter(item.spec), "")
    environment = item.spec.get("environment")
    is_local_shell = kind == "shell" and not (isinstance(environment, Mapping) and environment.get("type") != "local")
    if is_local_shell or kind.startswith(_CLIENT_TOOLS.get(provider, ())):
        raise DefinitionError(
            f"NativeTool({provider!r}, {{'type': {kind!r}}}): {provider} does not run this tool, the application would "
            "have to. Write it as a tool of your own, with `@tool` or `Tool.from_schema`."
        )


def refuse_shared_names(native: Iterable[Mapping[str, Any]], aliases: Iterable[str], provider: str) -> None:
    """Raise DefinitionError if a tool that the provider runs has the name of another one, which the API rejects."""
    taken = set(aliases)
    for tool in native:
        if tool.get("name") in taken:
            raise DefinitionError(
                f"{provider} runs a tool named {tool['name']!r}, and the toolbox has another one. Rename yours."
            )


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
    token = _get_token(item)
    if provider == "openai":
        optional = {
            "server_description": item.description,
            "authorization": token,
            "headers": {"Authorization": item.authorization} if item.authorization and not token else None,
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
        if item.authorization and not token:
            raise DefinitionError(
                f"RemoteMcp({item.name!r}, authorization=…): anthropic sends only bearer tokens. Pass the token alone."
            )
        return {"type": "mcp_toolset", "mcp_server_name": item.name}
    transport: dict[str, Any] = {"url": item.url}
    if item.authorization:
        transport["headers"] = {"Authorization": f"Bearer {token}" if token else item.authorization}
    return {"mcpServers": [{"name": item.name, "streamableHttpTransport": transport}]}


def _get_token(item: RemoteMcp) -> str:
    """Return the bearer token of a server; empty if it has none, or another scheme."""
    scheme, _, rest = (item.authorization or "").strip().partition(" ")
    if not rest:
        return scheme
    return rest.strip() if scheme.lower() == "bearer" else ""


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
            **({"authorization_token": token} if (token := _get_token(item)) else {}),
        }
        for item in items
        if isinstance(item, RemoteMcp)
    ]
