"""Export a toolbox's tools in a provider's format, and cache them until the tools change."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Exports(ABC):
    """Provider-specific exports of a toolbox."""

    _definitions_cache: dict[tuple[str, Strict, bool, bool], list[dict[str, Any]]]

    @property
    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """Tools, sorted by name."""

    @property
    @abstractmethod
    def native(self) -> Sequence[AnyNativeTool]:
        """Tools that a provider runs."""

    @abstractmethod
    def _has_stored_results(self) -> bool:
        """Return True if `read_result` is currently available."""

    def definitions(self, provider: str, strict: Strict = "auto", *, lossy: bool = False) -> list[dict[str, Any]]:
        """Return the tools in the format of a provider's `tools` field: plain dicts, the same bytes every time.

        `strict=True` rewrites each schema for the provider's strict mode; `"auto"` does so if nothing is lost. The
        inner dicts are shared between calls: copy them before you change them.

        Raises:
            UnsupportedProvider: the provider is unknown; the message lists the known ones.
            LossyDefinition: a schema would change its meaning, and `lossy` is not set; the message says where.
            DefinitionError: the provider does not support a native tool.
        """
        key = (provider, strict, lossy, self._has_stored_results())
        found = self._definitions_cache.get(key)
        if found is None:
            make = import_module(_REGISTRY_MODULE).definitions
            found = self._definitions_cache[key] = make(self.tools, self.native, provider, strict, lossy)
        return list(map(dict.copy, found))
