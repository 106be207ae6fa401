"""Tools that a provider runs: web search, remote MCP servers and other native tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from toolmason._core.values.results import WEB
from toolmason._explain import explain_arguments
from toolmason._value import Value
from toolmason.errors import DefinitionError

Strict: TypeAlias = bool | Literal["auto"]
"""The choice of a provider's strict form; `"auto"` takes it for the tools that fit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WebSearch(Value):
    """A web search that the provider runs. `type="default"` selects its current one; the location is approximate."""

    type: str = "default"
    city: str | None = None
    country: str | None = None
    """Two-letter country code, such as `CZ`."""
    region: str | None = None

    @property
    def name(self) -> str:
        """The name by which views select it."""
        return "web_search"

    @property
    def location(self) -> dict[str, str]:
        """The location fields that are set."""
        fields = {"city": self.city, "country": self.country, "region": self.region}
        return {key: value for key, value in fields.items() if value}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemoteMcp(Value):
    """An MCP server that the provider calls. Its tools run there, outside the toolbox's policy."""

    name: str
    url: str
    authorization: str | None = field(default=None, repr=False, kw_only=True)
    """Bearer token, with or without the word `Bearer`; each provider gets the form that it wants."""
    description: str | None = field(default=None, kw_only=True)
    require_approval: Literal["always", "never"] | None = field(default=None, kw_only=True)
    """Approval mode of the provider. `None` keeps the provider's default; OpenAI's is to ask."""

    @explain_arguments
    def __post_init__(self) -> None:
        if self.name.split() != [self.name] or not self.url.startswith(("https://", "http://")):
            raise DefinitionError(
                f"RemoteMcp({self.name!r}, {self.url!r}): a name without blanks and a URL that begins with http:// or "
                "https:// are required."
            )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NativeTool(Value):
    """Any other provider tool, sent unchanged: `NativeTool("openai", {"type": "code_interpreter", …})`."""

    provider: str
    spec: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name by which views select it."""
        for key in ("name", "type"):
            if isinstance(value := self.spec.get(key), str):
                return value
        return next(iter(self.spec), "native")


AnyNativeTool: TypeAlias = WebSearch | RemoteMcp | NativeTool
_REPORTING_PROVIDERS: Final = ("openai", "anthropic")
"""Providers whose replies have an item for each use of their own tools."""
NATIVE_TOOL_TYPES = (WebSearch, RemoteMcp, NativeTool)


def get_native_key(item: AnyNativeTool) -> tuple[str, str, str]:
    """Return what must differ between two provider-run tools: kind, provider and name."""
    return type(item).__name__, item.provider if isinstance(item, NativeTool) else "", item.name


def find_provider_origins(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the origins of what the provider's own tools found, from the items of a reply."""
    items: Any = state.get("items", ())
    for item in items if isinstance(items, list) else ():
        kind = str(item.get("type", "")) if isinstance(item, Mapping) else ""
        if kind.startswith("web_"):
            yield WEB
        elif kind in ("mcp_call", "mcp_tool_use"):
            yield f"server:{item.get('server_label') or item.get('server_name') or ''}"


def get_native_origins(tools: Iterable[AnyNativeTool], provider: str) -> frozenset[str]:
    """Return the origins that replies may have with these tools; none if the items of the provider show them."""
    if provider in _REPORTING_PROVIDERS:
        return frozenset()
    return frozenset(f"server:{tool.name}" if isinstance(tool, RemoteMcp) else WEB for tool in tools)
