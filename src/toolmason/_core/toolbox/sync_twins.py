"""The sync face of a toolbox: a few lines over the async one, for code that is not async.

Lives here: the `_sync` twins and nothing else; each runs its async method to the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeAlias

from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.run.blocking import run_blocking
from toolmason._core.run.progress import OnProgress
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import INHERIT, Inherit, Parallel, Retry, Strategy, Timeout
from toolmason._core.values.results import Arguments, ToolCall, ToolResult

ContextLike: TypeAlias = ToolContext[Any] | Mapping[str, Any] | None
Calls: TypeAlias = Iterable[ToolCall | tuple[str, Arguments]]
Results: TypeAlias = list[ToolResult]
Tools: TypeAlias = list[Tool]
Messages: TypeAlias = list[Message]
PARALLEL = Parallel()


class Faces(ABC):
    """What a toolbox can be asked, async and sync."""

    @abstractmethod
    def call(
        self,
        call: str | ToolCall,
        arguments: Arguments = None,
        *,
        context: ContextLike = None,
        timeout: Timeout = INHERIT,
        retry: Retry | Inherit | None = INHERIT,
        on_progress: OnProgress | None = None,
    ) -> Coroutine[Any, Any, ToolResult]:
        """Run one call."""

    @abstractmethod
    async def call_all(
        self,
        calls: Calls,
        *,
        strategy: Strategy = PARALLEL,
        context: ContextLike = None,
        timeout: float | None = None,
        results: Results | None = None,
        on_progress: OnProgress | None = None,
    ) -> Results:
        """Run the calls of one turn."""

    @abstractmethod
    async def list(self) -> Tools:
        """Return the tools."""

    @abstractmethod
    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call of this name would run."""

    @abstractmethod
    async def prompt(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> Messages:
        """Return the messages of a prompt."""

    def call_sync(
        self,
        call: str | ToolCall,
        arguments: Arguments = None,
        *,
        context: ContextLike = None,
        timeout: Timeout = INHERIT,
        retry: Retry | Inherit | None = INHERIT,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Run `call` to its end, from code that is not async."""
        return run_blocking(
            self.call(call, arguments, context=context, timeout=timeout, retry=retry, on_progress=on_progress)
        )

    def call_all_sync(
        self,
        calls: Calls,
        *,
        strategy: Strategy = PARALLEL,
        context: ContextLike = None,
        timeout: float | None = None,
        results: Results | None = None,
        on_progress: OnProgress | None = None,
    ) -> Results:
        """Run `call_all` to its end, from code that is not async."""
        return run_blocking(
            self.call_all(
                calls, strategy=strategy, context=context, timeout=timeout, results=results, on_progress=on_progress
            )
        )

    def list_sync(self) -> Tools:
        """Run `list` to its end, from code that is not async."""
        return run_blocking(self.list())

    def resolve_sync(self, name: str) -> Tool | None:
        """Run `resolve` to its end, from code that is not async."""
        return run_blocking(self.resolve(name))

    def prompt_sync(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> Messages:
        """Run `prompt` to its end, from code that is not async."""
        return run_blocking(self.prompt(name, arguments, context=context))
