"""A tool in a toolbox → how its calls are treated, worked out once.

Lives here: the order of policy (call > tool > toolbox > setting) as one frozen value for each tool.
Not here: applying it (`dispatch`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from toolmason._core.approve import Approver, Rule, ask_for
from toolmason._core.arguments import Bound, binder_of
from toolmason._core.catalog import Resolver
from toolmason._core.context import ToolContext
from toolmason._core.definition import Naming
from toolmason._core.handles import Store, shortened
from toolmason._core.host import Asked
from toolmason._core.native import Native, native_from
from toolmason._core.policy import INHERIT, Inherit, OnError, Retry, RunsOn, Settings, Timeout, checked, checked_policy
from toolmason._core.remotes import OnConflict
from toolmason._core.render import Render, renderer_of
from toolmason._core.tool import Tool
from toolmason._core.values import Arguments, ToolResult
from toolmason.errors import DefinitionError

if TYPE_CHECKING:  # 15 ms at start-up, for programs that have settings
    from toolmason._core.config import Config


class BoxWords(TypedDict, total=False):
    """What `Toolbox(...)` takes beside its sources."""

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
    approve: Rule
    approver: Approver | None
    approval_key: str | bytes | None
    results_dir: str | Path | None
    config: Config | Mapping[str, Any] | None
    on_conflict: OnConflict
    on_elicit: Asked | None
    on_sample: Asked | None
    roots: Sequence[str | Path]
    eager: bool
    settings: Settings
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BoxPolicy:
    """How a toolbox treats its calls, where a tool or a call does not say otherwise."""

    context: ToolContext[Any] = field(default_factory=ToolContext)
    on_error: OnError = "message"
    rethrow: tuple[type[BaseException], ...] = ()
    timeout: Timeout = INHERIT
    retry: Retry | None = None
    max_concurrency: int = 0
    """How many calls of a batch run at once; 0 where the settings say it."""
    resolvers: tuple[Resolver, ...] = ()
    resolution_fallback: bool | Inherit = INHERIT
    """Whether a call may name a tool that only a resolver knows; inherited: outside of a run alone."""
    naming: Naming | None = None
    approve: Rule | Inherit = INHERIT
    approver: Approver | None = None
    approval_key: str | bytes | None = None
    results_dir: str | Path | None = None
    on_conflict: OnConflict = "shadow"
    """What happens when a server offers a tool whose name is taken."""
    on_elicit: Asked | None = None
    """Answers what a server asks the user."""
    on_sample: Asked | None = None
    """Answers what a server asks a model."""
    roots: tuple[str | Path, ...] = ()
    """Folders that servers are told they may work in."""
    eager: bool = True
    """Whether `async with` connects at once, or the first need does."""
    said_on_error: bool = False
    """Whether the application has said what becomes of failures."""
    capped_width: bool = False
    """Whether `max_concurrency` was asked for, and so holds for single calls too."""
    settings: Settings = Settings()  # noqa: RUF009 - frozen, so one default serves all
    experimental: bool = False
    """Whether tools of this toolbox may use APIs that may still change."""
    native: tuple[Native, ...] = ()
    """What the configuration has a provider run."""
    name: str | None = None

    @classmethod
    def of(cls, words: BoxWords) -> BoxPolicy:
        """Read the keywords of `Toolbox(...)`.

        Raises:
            DefinitionError: a keyword or value that makes no sense.
        """
        given: dict[str, Any] = dict(words)
        known = {item.name for item in fields(cls)} - {"capped_width", "experimental", "native", "said_on_error"} | {
            "project_dir",
            "config",
        }
        if unknown := given.keys() - known:
            raise DefinitionError(f"Toolbox takes no {min(unknown)!r}. There are: {', '.join(sorted(known))}.")
        config = given.pop("config", None)
        config = _settings_in(config)
        folder = given.pop("project_dir", None) or (config.project_dir if config is not None else None)
        context = ToolContext[Any]().merged(given.pop("context", None))
        given["context"] = context.within(config, None if folder is None else Path(folder).absolute())
        given.update({key: tuple(given[key]) for key in ("resolvers", "roots") if key in given})
        if config is not None:
            given = {**_from_config(config), **given}
        if given.get("max_concurrency", 1) < 1:
            raise DefinitionError(f"max_concurrency={given['max_concurrency']!r}: give 1 or more.")
        checked(given.get("timeout", INHERIT))
        checked_policy(given.get("on_error", "message"))
        settings: Settings = given.get("settings", Settings())
        given["capped_width"] = "max_concurrency" in given
        given["said_on_error"] = "on_error" in given
        given.setdefault("max_concurrency", settings.max_concurrency)
        if given.get("on_conflict", "shadow") not in ("shadow", "error", "prefix"):
            raise DefinitionError(f'on_conflict={given["on_conflict"]!r}: give "shadow", "error" or "prefix".')
        for root in map(str, given.get("roots", ())):
            if "://" in root and not root.startswith("file://"):
                raise DefinitionError(
                    f"roots: {root!r} is not a folder. Give paths, or addresses that begin with file://."
                )
        if not callable(approver := given.get("approver") or ask_for):
            raise DefinitionError(f"approver={approver!r}: give a function of the request.")
        if given.get("approve", INHERIT) not in ("destructive", "writes", "all", None, INHERIT):
            raise DefinitionError(f'approve={given["approve"]!r}: give "destructive", "writes", "all" or None.')
        return cls(**given)


def _settings_in(config: Any) -> Any:
    if config is None:
        return None
    from toolmason._core.config import Config  # noqa: PLC0415 - see above

    return Config(config) if isinstance(config, Mapping) and not isinstance(config, Config) else config


def _from_config(config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {"on_error": "raise"} if config.throw_on_error else {}
    if config.experimental:
        found["experimental"] = True
    if (limits := config.limits) is not None:
        found["settings"] = limits
    if native := tuple(native_from(config)):
        found["native"] = native
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Route:
    """One tool of a toolbox, with everything decided that does not depend on the call."""

    tool: Tool
    name: str
    box: BoxPolicy
    timeout: float | None
    retry: Retry | None
    on_error: OnError
    where: RunsOn
    is_async: bool
    return_direct: bool
    bind: Callable[[Arguments], Bound]
    """Arguments as they came → values."""
    render: Render
    """What the tool returned → the fields of its result."""
    most_characters: int
    """Text results up to this length are certainly within the limit."""
    longest: int
    """Bytes that a result may have."""
    shorten: Callable[[dict[str, Any]], dict[str, Any]]
    """Cuts a result that is too long, and keeps the whole."""
    patience: tuple[str, float]
    """The tool's name, and how long it may take to clean up when it is called off."""
    perform: Callable[..., Coroutine[Any, Any, ToolResult]] | None = None
    """What runs its calls on the short way; `None` where they take the long one, through limits and approval."""
    direct: Callable[..., Any] | None = None
    """The function itself, where the values go to it as they are: nothing is filled in, no context is needed."""


def route_to(tool: Tool, box: BoxPolicy, store: Store) -> Route:
    """Work out how a toolbox treats a tool."""
    options = tool.options
    most = options.max_result_bytes or box.settings.result_bytes
    timeout = next((t for t in (options.timeout, box.timeout) if not isinstance(t, Inherit)), box.settings.call_timeout)
    # A retry for the whole toolbox must not send a mail twice.
    inherited = box.retry if options.repeatable else None
    retry = inherited if isinstance(options.retry, Inherit) else options.retry
    on_error = box.on_error if isinstance(options.on_error, Inherit) else options.on_error
    where = options.runs_on or ("thread" if tool.kind == "sync" else "loop")
    return Route(
        tool=tool,
        name=tool.name,
        box=box,
        timeout=capped(timeout, box.settings),
        retry=retry,
        on_error=on_error,
        where=where,
        is_async=tool.kind == "async",
        return_direct=options.return_direct,
        bind=binder_of(tool.inputs, tool.name, box.settings),
        render=renderer_of(tool),
        most_characters=most // 4,
        shorten=lambda fields: shortened(fields, most, store),
        longest=most,
        patience=(tool.name, box.settings.cancel_grace),
        direct=tool.direct,
    )


def capped(timeout: Timeout, settings: Settings) -> float | None:
    """Return a time-out within the hard maximum; `None` stays "none"."""
    return None if timeout is None or isinstance(timeout, Inherit) else min(timeout, settings.max_timeout)
