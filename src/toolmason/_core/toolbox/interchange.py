"""Make a toolbox from an OpenAPI document, and offer its tools to other libraries."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self


class Interchange:
    """The part of `Toolbox` that converts from and to other forms. Each converter is imported when it is used."""

    @classmethod
    def from_openapi(  # noqa: PLR0913 - one parameter for each option
        cls,
        spec: Mapping[str, Any] | str | Path,
        *,
        client: Any = None,
        base_url: str | None = None,
        auth: Mapping[str, Any] | None = None,
        include: Sequence[str | Callable[..., bool]] = (),
        exclude: Sequence[str | Callable[..., bool]] = (),
        rename: Mapping[str, str] | Callable[..., str | None] | None = None,
        outputs: bool = True,
        **options: Any,
    ) -> Self:
        """Return a toolbox with the operations of an OpenAPI document: a path, a URL, or the parsed document.

        The parameters are those of `toolmason.openapi.OpenApi`, and the options those of `Toolbox`. `client` is an
        `httpx2.AsyncClient`. Operations that cannot be tools are in `problems`, with the reasons.

        Raises:
            ConfigError: the document cannot be read, or names no server and `base_url` is not set.
        """
        source = import_module("toolmason.openapi.open_api").OpenApi(
            spec,
            client=client,
            base_url=base_url,
            auth=auth,
            include=include,
            exclude=exclude,
            rename=rename,
            outputs=outputs,
        )
        make: Any = cls
        toolbox: Self = make(source, **options)
        return toolbox

    # The results have types of the other libraries, which type checkers may not find: `toolmason.adapters` has them.

    def as_langchain(self) -> builtins.list[Any]:
        """Return the tools as LangChain tools, under the policy of this toolbox."""
        tools: builtins.list[Any] = import_module("toolmason.adapters.langchain").to_langchain(self)
        return tools

    def as_pydantic_ai(self) -> builtins.list[Any]:
        """Return the tools as Pydantic AI tools, under the policy of this toolbox."""
        tools: builtins.list[Any] = import_module("toolmason.adapters.pydantic_ai").to_pydantic_ai(self)
        return tools

    def as_openai_agents(self) -> builtins.list[Any]:
        """Return the tools as tools of the OpenAI Agents SDK, under the policy of this toolbox."""
        tools: builtins.list[Any] = import_module("toolmason.adapters.openai_agents").to_openai_agents(self)
        return tools
