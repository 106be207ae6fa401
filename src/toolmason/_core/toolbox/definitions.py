"""Export tools in a provider's format."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from toolmason._core.values.provider_tools import AnyNativeTool

if TYPE_CHECKING:  # a format can be needed before any tool exists
    from toolmason._core.define.tool import Tool


Strict: TypeAlias = bool | Literal["auto"]
_REGISTRY_MODULE: Final = "toolmason.providers.registry"
"""Module with `definitions(tools, native, provider, strict, lossy)`. Imported on first use, so that programs that only
run calls never load it.
"""


def make_definitions(
    tools: Sequence[Tool], native: Sequence[AnyNativeTool], provider: str, strict: Strict, *, lossy: bool
) -> list[dict[str, Any]]:
    """Return the tools in the format of a provider's `tools` field."""
    found: list[dict[str, Any]] = import_module(_REGISTRY_MODULE).definitions(tools, native, provider, strict, lossy)
    return found
