"""Tools that a provider runs itself: what the application says of them, as frozen values.

Lives here: `WebSearch`, `RemoteMcp`, `NativeTool`, and what the settings say of them.
Not here: how each provider writes them (`toolmason.providers`). None of them has anything to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolmason.errors import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSearch:
    """A search that the provider runs; `type="default"` is its current one, and the place is roughly where from."""

    type: str = "default"
    city: str | None = None
    country: str | None = None
    """Two letters, such as `CZ`."""
    region: str | None = None

    @property
    def name(self) -> str:
        """What views select it by."""
        return "web_search"

    @property
    def location(self) -> dict[str, str]:
        """The place, as far as it is known."""
        fields = {"city": self.city, "country": self.country, "region": self.region}
        return {key: value for key, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class RemoteMcp:
    """An MCP server that the provider calls; its tools run there, and not under our policy."""

    name: str
    url: str
    authorization: str | None = field(default=None, repr=False, kw_only=True)
    """Handed to the provider as it is."""
    description: str | None = field(default=None, kw_only=True)
    require_approval: Literal["always", "never"] | None = field(default=None, kw_only=True)
    """Whether the provider asks before each call; `None`: as it does by itself. OpenAI asks."""

    def __post_init__(self) -> None:
        if not self.name or not self.url.startswith(("https://", "http://")):
            raise DefinitionError(
                f"RemoteMcp({self.name!r}, {self.url!r}): a provider needs a name and an address that begins with "
                "https://. Give both."
            )


@dataclass(frozen=True, slots=True)
class NativeTool:
    """Any other tool of one provider, sent as it is: `NativeTool("openai", {"type": "code_interpreter", …})`."""

    provider: str
    spec: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What views select it by."""
        for key in ("name", "type"):
            if isinstance(value := self.spec.get(key), str):
                return value
        return next(iter(self.spec), "native")


AnyNativeTool: TypeAlias = WebSearch | RemoteMcp | NativeTool
NATIVE_TOOL_TYPES = (WebSearch, RemoteMcp, NativeTool)
