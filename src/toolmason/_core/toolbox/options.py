"""Parse and validate the options of `Toolbox(...)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from toolmason._core.call.approval import ApprovalRule, Approver, request_verdict
from toolmason._core.call.route import CallPolicy
from toolmason._core.catalog.catalog import Resolver
from toolmason._core.define.context import ToolContext
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
    check_on_error,
    check_timeout,
)
from toolmason._core.values.provider_tools import AnyNativeTool, RemoteMcp, WebSearch
from toolmason.errors import DefinitionError

if TYPE_CHECKING:  # 15 ms at start-up, needed only with settings
    from toolmason._core.config.config import Config


class ToolboxOptions(TypedDict, total=False):
    """Keyword arguments of `Toolbox(...)`."""

    context: ToolContext[Any] | Mapping[str, Any] | None
    project_dir: str | Path | None
    on_error: OnError
    rethrow: tuple[type[BaseException], ...]
    timeout: Timeout
    retry: Retry | None
    max_concurrency: int
    resolvers: Sequence[Resolver]
    resolution_fallback: bool
    naming: Naming | None
    approve: ApprovalRule
    approver: Approver | None
    approval_key: str | bytes | None
    results_dir: str | Path | None
    config: Config | Mapping[str, Any] | None
    on_conflict: OnConflict
    on_elicit: RequestHandler | None
    on_sample: RequestHandler | None
    roots: Sequence[str | Path]
    eager: bool
    settings: EngineSettings
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ToolboxPolicy:
    """Default policy of a toolbox. Tools and calls can override it."""

    context: ToolContext[Any] = field(default_factory=ToolContext)
    on_error: OnError = "message"
    rethrow: tuple[type[BaseException], ...] = ()
    timeout: Timeout = INHERIT
    retry: Retry | None = None
    max_concurrency: int = 0
    """Maximum number of concurrent calls in a batch; 0 means the value from the settings."""
    resolvers: tuple[Resolver, ...] = ()
    resolution_fallback: bool | Inherit = INHERIT
    """True if a call may use a tool that only a resolver knows. If inherited, only outside of a run."""
    naming: Naming | None = None
    approve: ApprovalRule | Inherit = INHERIT
    approver: Approver | None = None
    approval_key: str | bytes | None = None
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
    on_error_is_set: bool = False
    """True if the application set `on_error`."""
    max_concurrency_is_set: bool = False
    """True if the application set `max_concurrency`, which then also applies to single calls."""
    settings: EngineSettings = EngineSettings()  # noqa: RUF009 - frozen, so one default serves all
    limits: Limits = Limits()  # noqa: RUF009 - as above
    """Limits of a run that sets none itself."""
    experimental: bool = False
    """True if tools of this toolbox may use experimental APIs."""
    native: tuple[AnyNativeTool, ...] = ()
    """Native tools from the configuration, which the provider runs."""
    name: str | None = None

    def for_calls(self) -> CallPolicy:
        """Return the part that applies to each call."""
        return CallPolicy(self.settings, self.context, self.timeout, self.retry, self.on_error, self.rethrow)

    @classmethod
    def from_options(cls, options: ToolboxOptions) -> ToolboxPolicy:
        """Parse the keyword arguments of `Toolbox(...)`.

        Raises:
            DefinitionError: a keyword is unknown, or a value is invalid.
        """
        values: dict[str, Any] = dict(options)
        known_options = ToolboxOptions.__annotations__.keys()
        if unknown := values.keys() - known_options:
            raise DefinitionError(
                f"Toolbox() got an unknown option {min(unknown)!r}. Options: {', '.join(sorted(known_options))}."
            )
        config = _to_config(values.pop("config", None))
        folder = values.pop("project_dir", None) or (config.project_dir if config is not None else None)
        context = ToolContext[Any]().merge(values.pop("context", None))
        values["context"] = context.with_config(config, None if folder is None else Path(folder).absolute())
        values.update({key: tuple(values[key]) for key in ("resolvers", "roots") if key in values})
        if config is not None:
            values = {**_options_from_config(config), **values}
        if values.get("max_concurrency", 1) < 1:
            raise DefinitionError(f"max_concurrency={values['max_concurrency']!r}: must be at least 1.")
        check_timeout(values.get("timeout", INHERIT))
        check_on_error(values.get("on_error", "message"))
        settings: EngineSettings = values.get("settings", EngineSettings())
        values["max_concurrency_is_set"] = "max_concurrency" in values
        values["on_error_is_set"] = "on_error" in values
        values.setdefault("max_concurrency", settings.max_concurrency)
        if values.get("on_conflict", "shadow") not in ("shadow", "error", "prefix"):
            raise DefinitionError(f'on_conflict={values["on_conflict"]!r}: must be "shadow", "error" or "prefix".')
        for root in map(str, values.get("roots", ())):
            if "://" in root and not root.startswith("file://"):
                raise DefinitionError(f"roots: {root!r} is not a folder. Use paths or file:// URIs.")
        if not callable(approver := values.get("approver") or request_verdict):
            raise DefinitionError(f"approver={approver!r}: must be a function that takes the request.")
        if values.get("approve", INHERIT) not in ("destructive", "writes", "all", None, INHERIT):
            raise DefinitionError(f'approve={values["approve"]!r}: must be "destructive", "writes", "all" or None.')
        return cls(**values)


def _to_config(config: Any) -> Any:
    if config is None:
        return None
    from toolmason._core.config.config import Config  # noqa: PLC0415 - see above

    return Config(config) if isinstance(config, Mapping) and not isinstance(config, Config) else config


def _options_from_config(config: Config) -> dict[str, Any]:
    options: dict[str, Any] = {"on_error": "raise"} if config.throw_on_error else {}
    if config.experimental:
        options["experimental"] = True
    if (engine := config.engine) is not None:
        options["settings"] = engine
    if (limits := config.limits) is not None:
        options["limits"] = limits
    if native := tuple(make_native_tools(config)):
        options["native"] = native
    return options


def make_native_tools(config: Config) -> Iterator[AnyNativeTool]:
    """Yield the native tools that the settings enable: `WebSearchTool.*`, and `MCP*.` groups with `native=true`."""
    if (search := config.web_search) is not None:
        yield WebSearch(type=search.type, city=search.city, country=search.country, region=search.region)
    for server in config.servers:
        if server.native and server.url is not None:
            yield RemoteMcp(server.name, server.url, authorization=server.authorization, description=server.description)
