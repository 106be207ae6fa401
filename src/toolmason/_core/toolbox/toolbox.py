"""Provide `Toolbox`, a validated set of tools that runs calls."""

# ruff: noqa: SLF001 - a toolbox and its views are of one class

from __future__ import annotations

import builtins
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

from toolmason._core.call.approval import ApprovalRule, Approver
from toolmason._core.call.batch import Batch, get_max_parallel, to_call, to_calls
from toolmason._core.call.call_policy import Middleware
from toolmason._core.call.pipeline import NO_OPTIONS
from toolmason._core.call.route import CallOptions, Route
from toolmason._core.catalog.catalog import CatalogItem, Resolver
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ContextLike, ToolContext, make_context
from toolmason._core.define.decorators import OverrideKeywords
from toolmason._core.define.tool import Tool
from toolmason._core.remote.nested import RemoteView
from toolmason._core.remote.protocol import Health, OnConflict, RequestHandler
from toolmason._core.run.blocking import blocking, run_blocking
from toolmason._core.run.progress import OnProgress
from toolmason._core.run.tracing import LOADED_MODULES, OTEL, TRACE_API
from toolmason._core.toolbox.approvals import Approvals
from toolmason._core.toolbox.calls import Calls, name_call
from toolmason._core.toolbox.interchange import Interchange
from toolmason._core.toolbox.lookup import ToolLookup, carry_policies
from toolmason._core.toolbox.options import ToolboxPolicy
from toolmason._core.toolbox.servers import Servers
from toolmason._core.toolbox.state import ToolboxState
from toolmason._core.values.content import Content, ResourceLink
from toolmason._core.values.definition import Naming
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import (
    INHERIT,
    EngineSettings,
    Inherit,
    Limits,
    OnError,
    Parallel,
    Retry,
    Strategy,
    Timeout,
    check_timeout,
)
from toolmason._core.values.provider_tools import AnyNativeTool, Strict
from toolmason._core.values.remote_executor import RemoteExecutor
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, make_call
from toolmason._explain import explain_arguments
from toolmason.errors import PluginError, ToolCallError, UnknownName

if TYPE_CHECKING:  # 20 ms at start-up, needed only with these options
    from toolmason._core.catalog.augmented import ArgumentsCallback
    from toolmason._core.config.config import Config
    from toolmason._store.store import Store


class Toolbox(Interchange):
    """Ordered, validated set of tools from any number of sources. All calls run through it."""

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each option
        self,
        *sources: Any,
        context: ToolContext[Any] | Mapping[str, Any] | None = None,
        project_dir: str | Path | None = None,
        on_error: OnError | Inherit = INHERIT,
        rethrow: tuple[type[BaseException], ...] = (),
        timeout: Timeout = INHERIT,
        retry: Retry | None = None,
        max_concurrency: int | None = None,
        executor: RemoteExecutor | None = None,
        resolvers: Sequence[Resolver] = (),
        resolution_fallback: bool | Inherit = INHERIT,
        naming: Naming | None = None,
        approve: ApprovalRule | Inherit = INHERIT,
        approver: Approver | None = None,
        approval_key: str | bytes | None = None,
        approvals_file: str | Path | None = None,
        store: Store | None = None,
        results_dir: str | Path | None = None,
        config: Config | Mapping[str, Any] | None = None,
        on_conflict: OnConflict = "shadow",
        on_elicit: RequestHandler | None = None,
        on_sample: RequestHandler | None = None,
        roots: Sequence[str | Path] = (),
        eager: bool = True,
        settings: EngineSettings | None = None,
        name: str | None = None,
    ) -> None:
        policy = ToolboxPolicy(
            context=ToolContext[Any]().merge(context),
            on_error=on_error,
            rethrow=rethrow,
            timeout=timeout,
            retry=retry,
            max_concurrency=max_concurrency,
            resolvers=carry_policies(resolvers, Toolbox, get_state),
            resolution_fallback=resolution_fallback,
            naming=naming,
            approve=approve,
            approver=approver,
            approval_key=approval_key,
            approvals_file=approvals_file,
            results_dir=results_dir,
            on_conflict=on_conflict,
            on_elicit=on_elicit,
            on_sample=on_sample,
            executor=executor,
            roots=(roots,) if isinstance(roots, str | Path) else tuple(roots),
            store=store,
            eager=eager,
            settings=settings or EngineSettings(),
            name=name,
        ).with_config(config, project_dir)
        self._set_state(ToolboxState.from_policy(policy, sources))

    def _set_state(self, state: ToolboxState, routes: dict[str, Route] | None = None) -> None:
        self._state, self._run = state, state.run
        self._default_options = NO_OPTIONS if state.run is None else CallOptions(run=state.run)
        self._routes: dict[str, Route] = {} if routes is None else routes
        self._lookup = ToolLookup(state, self._routes)
        self._calls = Calls(state, self._lookup)
        state.remotes.add_listener(self)

    def _view(self, state: ToolboxState) -> Self:
        view = object.__new__(type(self))
        view._set_state(state)
        return view

    @classmethod
    def from_manifest(cls, source: str | Path, *, instances: Mapping[Any, Any] | None = None, **options: Any) -> Self:
        """Return a toolbox with the tools in a package's manifest, without importing them. Options as for `Toolbox`.

        `toolmason build` writes the manifest. `source` is the name of the package, or the path of the manifest. A
        tool's module is imported on its first call, or earlier with `resolve(name)`. If a module has changed since
        the build, its tools come from the module itself, with a `StaleManifest` warning. `instances` has an instance of
        each class with constructor arguments, or a function that returns one, by class or `"module:Class"`.

        Raises:
            ConfigError: the manifest is missing or damaged, or `instances` has a class that it does not list.
            DuplicateTool: the manifest lists two tools with the same name.
        """
        from toolmason._core.load.manifest import find_manifest  # noqa: PLC0415 - 5 ms at start-up, needed only with a manifest

        return cls(find_manifest(source, instances), **options)

    # --- tools ---------------------------------------------------------------------------------

    def add(self, source: Any, *, replace: bool = False) -> None:
        """Add the tools and prompts of a source. A run that has begun keeps the tools that it has.

        Raises:
            DuplicateTool: a name is taken and `replace` is not set; the message names both origins.
            DefinitionError: the source provides no tools; the message says why.
        """
        self._set_state(self._state.add([source], replace=replace))
        self._state.remotes.mark_changed()
        self.__changed__()

    def __changed__(self) -> None:
        """Discard cached routes and definitions after the tools have changed."""
        self._lookup.clear()

    def __tools__(self) -> Iterator[CatalogItem | AnyNativeTool | RemoteView]:
        return self._state.iter_items()

    @property
    def problems(self) -> tuple[PluginError, ...]:
        """Plugins and modules that `discover` or `scan` skipped, with the reasons."""
        return self._state.problems

    @property
    def tools(self) -> builtins.list[Tool]:
        """Tools, sorted by name, so that the order is the same in every run.

        Includes `read_result` once a result has been truncated.
        """
        return self._lookup.list_with_reader()

    @property
    def native(self) -> tuple[AnyNativeTool, ...]:
        """Tools that a provider runs: web search, MCP servers it calls, and its own tools."""
        return self._state.catalog.native

    def __getitem__(self, name: str) -> Tool:
        found = self._lookup.find(name)
        if found is None:
            raise UnknownName(str(self._lookup.make_unknown(name)))
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._lookup.find(name) is not None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._lookup.list_tools())

    def __len__(self) -> int:
        return len(self._lookup.list_tools())

    def __repr__(self) -> str:
        return f"<Toolbox {self._state.policy.name or ''}[{', '.join(tool.name for tool in self)}]>"

    async def list(self) -> builtins.list[Tool]:
        """Return the tools that are enabled for the toolbox's context. Fetches missing or stale lists of servers."""
        return await self._lookup.list_enabled()

    list_sync = blocking(list)  # noqa: A003 - the method above

    def definitions(
        self, provider: str, strict: Strict = "auto", *, lossy: bool = False
    ) -> builtins.list[dict[str, Any]]:
        """Return the tools in the format of a provider's `tools` field: plain dicts, the same bytes every time.

        `strict=True` rewrites each schema for the provider's strict mode; `"auto"` does so if nothing is lost. The
        inner dicts are shared between calls and tools: copy them before you change them.

        Raises:
            UnsupportedProvider: the provider is unknown; the message lists the known ones.
            LossyDefinition: a schema would change its meaning, and `lossy` is not set; the message says where.
            DefinitionError: the provider does not support a native tool.
        """
        return self._lookup.make_definitions(provider, strict, lossy=lossy)

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call with this name would run, or None. Raise the error of a resolver that failed."""
        return await self._lookup.resolve(name)

    resolve_sync = blocking(resolve)

    # --- calls ---------------------------------------------------------------------------------

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
        """Run one call and return its result. Errors of the tool or the model are in the result, not raised.

        `call` is the name of a tool, with `arguments`, or a `ToolCall`. `on_progress` receives the tool's progress
        reports.
        """
        # Not `async def`: returning the runner's coroutine saves a layer for each call.
        call_id = None
        if type(call) is str or isinstance(call, str):
            name = call
        else:
            given_call = to_call(call)
            name, call_id, arguments = given_call.name, given_call.id, given_call.raw
        if context is None and on_progress is None and retry is INHERIT and timeout is INHERIT:
            options = self._default_options
        else:
            options = CallOptions.parse(context, timeout, retry, on_progress, self._run)
        route = self._routes.get(name)
        if route is None:
            found = self._lookup.get_route(name)
            if isinstance(found, ToolCallError):
                return name_call(self._calls.run_unknown(make_call(call_id, name, arguments), options, found))
            route = found
        if route.hooks or (OTEL._TRACER_PROVIDER and TRACE_API in LOADED_MODULES):
            return name_call(self._calls.run(route, make_call(call_id, name, arguments), options))
        return (route.runner if self._run is None else route.run_runner)(call_id, arguments, options)

    call_sync = blocking(call)

    async def call_all(  # noqa: PLR0913 - one parameter for each option
        self,
        calls: Iterable[ToolCall | tuple[str, Arguments]],
        *,
        strategy: Strategy = Parallel(),  # noqa: B008 - frozen, so one default serves all
        context: ContextLike = None,
        timeout: float | None = None,
        call_timeout: Timeout = INHERIT,
        retry: Retry | Inherit | None = INHERIT,
        results: builtins.list[ToolResult] | None = None,
        on_progress: OnProgress | None = None,
    ) -> builtins.list[ToolResult]:
        """Run the calls of one turn. Return one result for each, in call order, whatever fails.

        `timeout` applies to the whole batch, `call_timeout` and `retry` to each call. `results`, if given, is filled
        even if the batch is cancelled: finished calls keep their results, the others get `ToolCancelled`.
        """
        max_parallel = get_max_parallel(strategy, self._state.policy.max_parallel)
        batch = Batch(to_calls(calls), results, max_parallel, check_timeout(timeout))
        options = CallOptions.parse(context, call_timeout, retry, on_progress, self._run)
        return await self._calls.run_batch(batch, options)

    call_all_sync = blocking(call_all)

    def use(self, middleware: Middleware) -> None:
        """Wrap every call: `async def middleware(call, call_next) -> ToolResult`. The first middleware is outermost."""
        self._state.add_middleware(middleware)

    @property
    def approvals(self) -> Approvals:
        """Decisions about calls that wait for approval, and trial runs of calls."""
        return Approvals(self._state, self._calls)

    @property
    def prompts(self) -> builtins.list[Prompt]:
        """Prompts, sorted by name. A server prompt whose name is taken becomes `server__prompt`."""
        return self._lookup.list_prompts()

    async def prompt(
        self, name: str, arguments: Arguments = None, *, context: ContextLike = None
    ) -> builtins.list[Message]:
        """Return the messages of a prompt.

        Raises:
            KeyError: the prompt is unknown; the message lists the known ones.
            InvalidArguments: the arguments are invalid.
            ToolTimeout: the prompt did not finish in time.
        """
        return await self._lookup.render_prompt(name, arguments, make_context(context))

    prompt_sync = blocking(prompt)

    @property
    def resources(self) -> builtins.list[ResourceLink]:
        """Resources of this toolbox and the known resources of its servers, without templates."""
        return self._lookup.list_resources()

    async def read(self, uri: str, *, context: ContextLike = None) -> tuple[Content, ...]:
        """Return the contents of a resource of this toolbox, or else of a server.

        Raises:
            KeyError: no resource has this URI, and the toolbox has no servers.
            RemoteError: no server has it.
            ToolTimeout: the resource was not read in time.
        """
        return await self._lookup.read(uri, make_context(context))

    read_sync = blocking(read)

    @property
    def servers(self) -> Servers:
        """The MCP servers: their names, health, lists and connections."""
        return Servers(self._state.remotes)

    async def health(self) -> dict[str, Health]:
        """Check each server with a round trip."""
        return await self.servers.health()

    health_sync = blocking(health)

    async def refresh(self) -> None:
        """Refetch the lists of every server, as `box.servers.refresh()`."""
        await self.servers.refresh()

    refresh_sync = blocking(refresh)

    async def __aenter__(self) -> Self:
        await self._state.connect()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        if self._state.remotes:
            run_blocking(self._state.connect())
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_sync()

    async def aclose(self) -> None:
        """Close the connections and discard the servers' lists. The next use reconnects.

        Safe to call from any task, and more than once. A view closes only the stored results of its own run.
        """
        await self._state.aclose()

    def close_sync(self) -> None:
        """Run `aclose` to completion, from synchronous code."""
        if self._state.needs_loop:
            run_blocking(self.aclose())
        else:
            self._state.drop_results()

    def __mcp_server__(self) -> Any:
        """Return this toolbox as a server object of the MCP SDK, for `McpServer.of` and for tests."""
        handlers = import_module("toolmason.mcp_server.handlers").Handlers(self)
        return import_module("toolmason.mcp_server.sdk_server").make_server(handlers)

    # --- views ---------------------------------------------------------------------------------

    def select(
        self,
        *patterns: str,
        tags: Iterable[str] = (),
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        **unknown: Never,
    ) -> Self:
        """Return a view with the tools that match the tags, the effects and at least one pattern, if any are given.

        Patterns use shell wildcards: `get_*`.
        """
        effects = {"read_only": read_only, "destructive": destructive, "idempotent": idempotent}
        return self._view(self._state.select(patterns, tags, {**effects, "open_world": open_world, **unknown}))

    def exclude(self, *patterns: str, tags: Iterable[str] = (), **unknown: Never) -> Self:
        """Return a view without the tools that match a pattern or have one of the tags."""
        return self._view(self._state.exclude(patterns, tags, unknown))

    def prefixed(self, prefix: str) -> Self:
        """Return a view in which every tool name starts with `prefix`."""
        return self._view(self._state.rename(lambda name: f"{prefix}{name}"))

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a view with some tools renamed: `{"old": "new"}`.

        Raises:
            DefinitionError: no tool has an old name.
        """
        return self._view(self._state.rename_by_map(names))

    def override(self, name: str, /, **keywords: Unpack[OverrideKeywords]) -> Self:
        """Return a view in which one tool has other options, another name or description, or other arguments.

        In `arguments`, a `Param` renames, describes or defaults a parameter, a type narrows it, `Inject` hides it with
        a value of the context, any other value hides and fixes it. The tool keeps its own limits and approvals.

        Raises:
            DefinitionError: no tool has this name, or the changes do not fit it.
        """
        return self._view(self._state.override(name, keywords))

    def augmented(self, model: Any, *, on_arguments: ArgumentsCallback | None = None, keep: bool = False) -> Self:
        """Return a view in which the model also fills the fields of `model` with every call.

        `on_arguments` receives an `AugmentedCall` before the tool runs. Unless `keep`, the tool gets only its own ones.

        Raises:
            DefinitionError: a field has the name of a parameter.
        """
        return self._view(self._state.augment(model, on_arguments, keep=keep))

    def run(self, limits: Limits | None = None) -> RunToolbox:
        """Return a view for one run: it counts calls and detects repeats, and `cancel()` stops running calls.

        Without `limits`, those of the toolbox apply. As a context manager, it drops the rest of truncated results.
        """
        view = object.__new__(RunToolbox)
        # The routes are those of this toolbox. They take the state of the run from the options of each call.
        view._set_state(self._state.start_run(limits), self._routes)
        return view

    def with_policy(
        self,
        *,
        context: ContextLike = None,
        approver: Approver | None = None,
        config: Config | Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a view with another part of the policy. Rules, middleware, counters and the key stay the same.

        With `context`, servers are listed and called for its identity: one with `auth=` may offer other tools to it.
        """
        return self._view(self._state.with_policy(make_context(context), approver, config))

    def without_policy(self) -> Self:
        """Return a view with the default policy, also in another toolbox. Only policies of inner toolboxes apply."""
        return self._view(self._state.without_policy())

    def __or__(self, other: Toolbox) -> Self:
        """Return a toolbox with the tools of both, under this one's policy. The tools of `other` keep its policy."""
        return self._view(self._state.join(other._state))


class RunToolbox(Toolbox):
    """View of a toolbox for one run."""

    def cancel(self) -> None:
        """Cancel the calls of this run. Each still gets a result. Thread-safe."""
        if self._run is not None:
            self._run.cancellation.cancel()


def follow(run_box: RunToolbox, box: Toolbox) -> None:
    """Give a run the tools of a toolbox. What the run has counted and stored stays."""
    run_box._set_state(box._state.derive(run=run_box._run, owns_store=True), box._routes)  # pyright: ignore[reportPrivateUsage] - same module


def get_state(box: Toolbox) -> ToolboxState:
    """Return everything that a toolbox holds."""
    return box._state  # pyright: ignore[reportPrivateUsage] - same module
