"""A toolbox → what a provider takes, remembered until its tools change.

Lives here: the part of a toolbox that gives definitions away. Not here: any provider's format; those stand above the
core, and only the name of the place where they are found is known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from toolmason._core.values.provider_tools import AnyNativeTool

if TYPE_CHECKING:  # a format is asked for before there is a tool
    from toolmason._core.define.tool import Tool


Strict: TypeAlias = bool | Literal["auto"]
_REGISTRY_MODULE: Final = "toolmason.providers.registry"
"""Has `definitions(tools, native, provider, strict, lossy)`. Loaded with the first need: most programs have a chat
that asks for it, and those that only run calls never pay for it."""


class Exports(ABC):
    """What a toolbox says of its tools to a provider."""

    _definitions_cache: dict[tuple[str, Strict, bool, bool], list[dict[str, Any]]]

    @property
    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """The tools, sorted by name."""

    @property
    @abstractmethod
    def native(self) -> Sequence[AnyNativeTool]:
        """Tools that a provider runs."""

    @abstractmethod
    def _has_stored_results(self) -> bool:
        """Tell whether `read_result` is offered by now."""

    def definitions(self, provider: str, strict: Strict = "auto", *, lossy: bool = False) -> list[dict[str, Any]]:
        """Return the tools as a provider's API takes them in `tools`: plain dicts, the same bytes every time.

        `strict=True` rewrites each schema for the provider's strict mode, `"auto"` does so where nothing gets lost.
        The inner dicts are shared between calls: copy before you change them.

        Raises:
            UnsupportedProvider: there is no such provider; names those there are.
            LossyDefinition: a tool would change its meaning, and `lossy` is not set; says where.
            DefinitionError: the provider does not run a tool that it is meant to.
        """
        key = (provider, strict, lossy, self._has_stored_results())
        found = self._definitions_cache.get(key)
        if found is None:
            make = import_module(_REGISTRY_MODULE).definitions
            found = self._definitions_cache[key] = make(self.tools, self.native, provider, strict, lossy)
        return list(map(dict.copy, found))
