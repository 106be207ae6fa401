"""Tools from and for other libraries, so that an application need not switch at once. One module for each library."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason.adapters.langchain import from_langchain, to_langchain
    from toolmason.adapters.openai_agents import from_openai_agents, to_openai_agents
    from toolmason.adapters.pydantic_ai import from_pydantic_ai, to_pydantic_ai

__all__ = [
    "from_langchain",
    "from_openai_agents",
    "from_pydantic_ai",
    "to_langchain",
    "to_openai_agents",
    "to_pydantic_ai",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason.adapters.langchain": ("from_langchain", "to_langchain"),
        "toolmason.adapters.openai_agents": ("from_openai_agents", "to_openai_agents"),
        "toolmason.adapters.pydantic_ai": ("from_pydantic_ai", "to_pydantic_ai"),
    },
)
