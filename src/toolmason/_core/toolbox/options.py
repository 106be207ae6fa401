"""Validate the options of `Toolbox(...)`, and combine them with its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path, PurePath
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.call.approval import ApprovalRule, ApprovalSigner, Approver, TokenLedger, parse_key
from toolmason._core.call.call_policy import CallPolicy, NextCall, SharedState
from toolmason._core.call.limits import SharedRates
from toolmason._core.call.long_results import ResultStore
from toolmason._core.catalog.catalog import Resolver, check_resolvers
from toolmason._core.define.context import ToolContext
from toolmason._core.define.experimental import allow_experimental
from toolmason._core.remote.protocol import OnConflict, RequestHandler
from toolmason._core.values.definition import Naming
from toolmason._core.values.policy import (
    INHERIT,
    EngineSettings,
    Inherit,
    Limits,
    OnError,
    Retry,
    Timeout,
    are_exceptions,
    check_kinds,
    check_on_error,
    check_retry,
    check_store,
    check_timeout,
)
from toolmason._core.values.provider_tools import AnyNativeTool, RemoteMcp, WebSearch
from toolmason._core.values.remote_executor import RemoteExecutor
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import DefinitionError

if TYPE_CHECKING:  # 15 ms at start-up, needed only with settings
    from toolmason._core.config.config import Config
    from toolmason._store.store import Store


_OPTION_KINDS: Final = {
    **dict.fromkeys(("on_elicit", "on_sample"), (Callable, NoneType)),
    "rethrow": (tuple,),
    "resolution_fallback": (bool, Inherit),
    "approvals_file": (str, PurePath, NoneType),
    "max_concurrency": (int, NoneType),
    "executor": (RemoteExecutor, NoneType),
    "eager": (bool,),
    "name": (str, NoneType),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ToolboxPolicy:
    """Options of a toolbox. `INHERIT` marks what the application did not set."""

    context: ToolContext[Any] = field(default_factory=ToolContext)
    on_error: OnError | Inherit = INHERIT
    rethrow: tuple[type[BaseException], ...] = ()
    timeout: Timeout = INHERIT
    retry: Retry | None = None
    max_concurrency: int | None = None
    """Maximum number of concurrent calls; None for no limit on single calls, and that of the settings on batches."""
    executor: RemoteExecutor | None = None
    """Runs the tools that do not say where they run."""
    resolvers: tuple[Resolver, ...] = ()
    resolution_fallback: bool | Inherit = INHERIT
    """True if a call may use a tool that only a resolver knows. If inherited, only outside of a run."""
    naming: Naming | None = None
    approve: ApprovalRule | Inherit = INHERIT
    approver: Approver | None = None
    approval_key: str | bytes | None = None
    approvals_file: str | Path | None = None
    store: Store | None = None
    """Store of decisions and rates that several machines share."""
    results_dir: str | Path | None = None
    on_conflict: OnConflict = "shadow"
    """Action if a server offers a tool whose name is taken."""
    on_elicit: RequestHandler | None = None
    """Handler for a server's requests to the user."""
    on_sample: RequestHandler | None = None
    """Handler for a server's requests to a model."""
    roots: tuple[str | Path, ...] = ()
    """Folders that servers may work in, reported as MCP roots."""
    eager: bool = True
    """True if `async with` connects to the servers, False if their first use does."""
    settings: EngineSettings = EngineSettings()  # noqa: RUF009 - frozen, so one default serves all
    name: str | None = None
    limits: Limits = Limits()  # noqa: RUF009 - as above
    """Limits of a run that sets none itself."""
    experimental: bool = False
    """True if tools of this toolbox may use experimental APIs."""
    configured: tuple[Any, ...] = ()
    """Native tools and MCP servers from the configuration."""

    @property
    def max_parallel(self) -> int:
        """Maximum number of concurrent calls of a batch."""
        return self.settings.max_concurrency if self.max_concurrency is None else self.max_concurrency

    def __post_init__(self) -> None:
        check_kinds("", {name: getattr(self, name) for name in _OPTION_KINDS}, _OPTION_KINDS)
        if self.store is not None:
            check_store(self.store)
        if not are_exceptions(self.rethrow):
            raise DefinitionError(f"rethrow={self.rethrow!r}: must be a tuple of exception classes.")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise DefinitionError(f"max_concurrency={self.max_concurrency!r}: must be at least 1.")
        check_resolvers(self.resolvers)
        check_timeout(self.timeout)
        check_retry(self.retry)
        if not isinstance(self.on_error, Inherit):
            check_on_error(self.on_error)
        if self.on_conflict not in ("shadow", "error", "prefix"):
            raise DefinitionError(f'on_conflict={self.on_conflict!r}: must be "shadow", "error" or "prefix".')
        self._check_roots()
        if self.approver is not None and not callable(self.approver):
            raise DefinitionError(f"approver={self.approver!r}: must be a function that takes the request.")
        if self.naming not in (None, "snake") and not callable(self.naming):
            raise DefinitionError(f'naming={self.naming!r}: must be "snake", a function of the name, or None.')
        if self.approve not in ("destructive", "writes", "all", None, INHERIT):
            raise DefinitionError(f'approve={self.approve!r}: must be "destructive", "writes", "all" or None.')

    def _check_roots(self) -> None:
        for root in self.roots:
            is_path = isinstance(root, str | PurePath)  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            if not is_path or ("://" in str(root) and not str(root).startswith("file://")):
                raise DefinitionError(f"roots: {root!r} is not a folder. Use paths or file:// URIs.")

    def with_config(
        self, config: Config | Mapping[str, Any] | None, project_dir: str | Path | None, *, overrides: bool = False
    ) -> ToolboxPolicy:
        """Return the policy with the values of a configuration that the application did not set in code.

        With `overrides`, the limits of the configuration replace those of the policy.
        """
        parsed = _to_config(config)
        if overrides and parsed is not None:
            project_dir = parsed.project_dir
        context = self.context.with_config(parsed, project_dir)
        if parsed is None:
            return replace(self, context=context)
        if overrides:
            return replace(self, context=context, limits=parsed.limits or self.limits)
        is_raising = isinstance(self.on_error, Inherit) and parsed.throw_on_error
        is_default = self.settings == EngineSettings()
        return replace(
            self,
            context=context,
            on_error="raise" if is_raising else self.on_error,
            experimental=parsed.experimental,
            settings=parsed.engine if parsed.engine is not None and is_default else self.settings,
            limits=parsed.limits or self.limits,
            configured=(*make_native_tools(parsed), *_make_servers(parsed)),
        )


def make_call_policy(policy: ToolboxPolicy) -> CallPolicy:
    """Return the part of a toolbox's policy that its tools carry."""
    key = parse_key("approval_key", policy.approval_key)
    return CallPolicy(
        settings=policy.settings,
        context=policy.context,
        timeout=policy.timeout,
        retry=policy.retry,
        on_error=policy.on_error,
        rethrow=policy.rethrow,
        approval_rule=policy.approve,
        approver=policy.approver,
        signer=_make_signer(policy, key),
        max_concurrency=policy.max_concurrency,
        executor=policy.executor,
        state=SharedState(
            middleware=[_run_with_experimental] if policy.experimental else [], rates=_make_shared_rates(policy)
        ),
    )


def _make_shared_rates(policy: ToolboxPolicy) -> SharedRates | None:
    if policy.store is None:
        return None
    from toolmason._core.toolbox.stored_state import StoredRates  # noqa: PLC0415 - loads SQLite

    return StoredRates(policy.store)


def _make_signer(policy: ToolboxPolicy, key: bytes | None) -> ApprovalSigner:
    if key is None:
        return ApprovalSigner()
    place = policy.approvals_file or policy.store
    if place is None:
        return ApprovalSigner(key, make_ledger(policy))
    from toolmason._core.toolbox.stored_state import StoredDecisions  # noqa: PLC0415 - loads SQLite

    return ApprovalSigner(key, make_ledger(policy), StoredDecisions(place))


async def _run_with_experimental(call: ToolCall, call_next: NextCall) -> ToolResult:
    """Run a call with experimental APIs allowed (the setting `experimental = true`)."""
    with allow_experimental():
        return await call_next(call)


def make_ledger(policy: ToolboxPolicy) -> TokenLedger:
    """Return the record of used decisions that processes with the same key share."""
    from toolmason._core.toolbox.stored_state import ApprovalLedger  # noqa: PLC0415 - loads SQLite

    return ApprovalLedger(policy.approvals_file or policy.store)


def make_result_store(policy: ToolboxPolicy) -> ResultStore:
    """Return the store for a toolbox's long results."""
    directory = None if policy.results_dir is None else Path(policy.results_dir)
    return ResultStore(policy.settings.kept_bytes, directory)


def _to_config(config: Any) -> Any:
    if config is None:
        return None
    from toolmason._core.config.config import Config  # noqa: PLC0415 - see above

    check_kinds("", {"config": config}, {"config": (Config, Mapping)})
    return config if isinstance(config, Config) else Config(config)


def make_native_tools(config: Config) -> Iterator[AnyNativeTool]:
    """Yield the native tools that the settings enable: `WebSearchTool.*`, and `MCP*.` groups with `native=true`."""
    from toolmason._core.config.mcp_json import normalize_server_name  # noqa: PLC0415 - see above

    if (search := config.web_search) is not None:
        yield WebSearch(type=search.type, city=search.city, country=search.country, region=search.region)
    for server in config.servers:
        if server.native and server.url is not None:
            name = normalize_server_name(server)
            yield RemoteMcp(name, server.url, authorization=server.authorization, description=server.description)


def _make_servers(config: Config) -> Sequence[Any]:
    """Return the servers that the settings name, apart from those that the provider calls."""
    if all(server.native for server in config.servers):
        return ()
    servers: Sequence[Any] = import_module("toolmason.mcp_client.source").McpServer.from_config(config)
    return servers
