"""Tool definitions, as the model sees them, and tool options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import NoneType
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import to_json

from toolmason._core.values.policy import (
    INHERIT,
    Inherit,
    OnError,
    Rate,
    Record,
    Retry,
    RunsOn,
    Timeout,
    check_kinds,
    check_on_error,
    check_retry,
    check_timeout,
)
from toolmason._core.values.remote_executor import RemoteExecutor
from toolmason._explain import explain_arguments
from toolmason._value import Value
from toolmason.errors import DefinitionError

JsonSchema: TypeAlias = dict[str, Any]
Naming: TypeAlias = Literal["snake"] | Callable[[str], str]
Extra: TypeAlias = Literal["ignore", "forbid", "allow"]
Converter: TypeAlias = Callable[[Any, Any], Any]
"""`(value, return_type) -> str | Content | list[Content]`."""


@dataclass(frozen=True, eq=False, repr=False)
class ToolDefinition(Value):
    """The part of a tool that the model sees."""

    name: str
    description: str
    input_schema: JsonSchema
    output_schema: JsonSchema | None = None
    title: str | None = None

    @explain_arguments
    def __post_init__(self) -> None:
        if not self.name or not self.name.strip():
            raise DefinitionError(f"A tool needs a name, got {self.name!r}. Pass `name=`.")
        if not isinstance(self.input_schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass JSON text
            raise DefinitionError(
                f"Tool {self.name!r}: its input schema must be a mapping, not {type(self.input_schema).__name__}. "
                "Parse JSON text with `json.loads(...)` first."
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of every field that the model sees, independent of key order."""
        import hashlib  # noqa: PLC0415 - 2 ms at start-up, needed only to pin or approve

        visible_fields = [self.name, self.title, self.description, self.input_schema, self.output_schema]
        return hashlib.sha256(to_json(canonicalize(visible_fields))).hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)


def canonicalize(value: Any) -> Any:
    """Return JSON data with sorted keys, so that equal data serializes to equal bytes."""
    kind = type(value)
    if kind in SCALAR_TYPES:  # asking whether one is a Mapping takes longer than everything else
        return value
    if kind is dict or isinstance(value, Mapping):
        return {key: canonicalize(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        if SCALAR_TYPES.issuperset(map(type, value)):
            return [*value]
        return [canonicalize(item) for item in value]
    return value


SCALAR_TYPES: Final = frozenset({str, int, float, bool, NoneType})
"""Types of the values of JSON that hold no others. All are immutable."""
_OPTION_KINDS: Final = {
    **dict.fromkeys(("read_only", "destructive", "idempotent", "open_world", "sequential"), (bool, NoneType)),
    **dict.fromkeys(("return_direct", "skip_permission", "overrides_builtin", "strict_types"), (bool,)),
    **dict.fromkeys(("substitute_result", "background", "external"), (bool,)),
    **dict.fromkeys(("ticket_after", "cpus", "gpus"), (int, float, NoneType)),
    **dict.fromkeys(("max_concurrency", "max_calls", "max_result_bytes", "memory"), (int, NoneType)),
    "lock": (str, NoneType),
    "rate": (Rate, NoneType),
    **dict.fromkeys(("tags", "scopes"), (AbstractSet,)),
    "meta": (Mapping,),
}


ApprovalOption: TypeAlias = bool | Callable[[dict[str, Any], Any], Any]
"""True if each call needs approval, or a function of arguments and context that decides."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ToolOptions(Value):
    """Options that control how a tool is run. The four effects follow MCP's annotations; `None` means unset."""

    read_only: bool | None = None
    """True if the tool changes nothing."""
    destructive: bool | None = None
    """True if the tool's changes cannot be undone."""
    idempotent: bool | None = None
    """True if calling the tool twice has the same effect as calling it once."""
    open_world: bool | None = None
    """True if the tool reaches systems outside the application."""
    return_direct: bool = False
    """True if the result goes to the caller instead of back to the model."""
    converter: Converter | None = None
    timeout: Timeout = INHERIT
    retry: Retry | Inherit | None = INHERIT
    approval: ApprovalOption = False
    """True if a human must approve each call, or a predicate of (arguments, context)."""
    preview: Callable[..., Any] | None = None
    """Describes what a call would do, from its arguments, to the person who approves it. Must have no side effects."""
    reconcile: Callable[..., Any] | None = None
    """Finds out, from the arguments, whether an interrupted call completed. Must have no side effects."""
    enabled: bool | Callable[[Any], Any] = True
    """False to withhold the tool, or a predicate of the context that decides which callers have it."""
    scopes: frozenset[str] = frozenset()
    """Scopes that the caller needs, all of them. The context of a call has those of the caller, as `scopes`."""
    skip_permission: bool = False
    """True to exempt the tool from the toolbox's approval rule."""
    overrides_builtin: bool = False
    """True to replace the built-in tool of the same name."""
    sequential: bool | None = None
    """True if the tool runs alone in a batch: earlier calls finish first, later calls wait. `None`: if destructive."""
    max_concurrency: int | None = None
    """Maximum number of concurrent calls."""
    lock: str | None = None
    """Parameter to lock on: calls with the same value run one at a time."""
    max_calls: int | None = None
    """Maximum number of calls per run."""
    rate: Rate | None = None
    max_result_bytes: int | None = None
    repeats: Literal["detect", "allow"] = "detect"
    """`"detect"` to cache, then refuse, a call that keeps returning the same result; `"allow"` to run it every time."""
    background: bool = False
    """True if a call in a chat returns a ticket at once, and the work goes on."""
    ticket_after: float | None = None
    """Seconds after which a call in a chat returns a ticket, and the work goes on."""
    strict_types: bool = False
    """True to accept arguments only exactly as the schema declares them, without repairs."""
    extra: Extra = "ignore"
    """Handling of arguments that the schema does not declare."""
    runs_on: RunsOn | None = None
    """`"loop"`, `"thread"`, `"process"`, `"ray"`, or an executor. `None` runs a tool on the executor of its toolbox, or
    else async tools on the loop and sync tools in a thread."""
    cpus: float | None = None
    """CPUs that a call needs on a cluster."""
    gpus: float | None = None
    """GPUs that a call needs on a cluster."""
    memory: int | None = None
    """Bytes of memory that a call needs on a cluster."""
    on_error: OnError | Inherit = INHERIT
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Data for the application and its adapters; the model does not see it."""
    substitute_result: bool = False
    """True to expand `${parameter}` in text results. Off by default because file contents may contain such text."""
    record: Record | None = None
    """Content of spans and of the log: `"none"`, the `"shape"` of arguments and results (types and sizes) or, with
    secrets masked, `"full"`. `None`: sizes, or all if the setting `tools.include_content` is true."""
    external: bool = False
    """True if the application or its front end runs the calls. The function gives only the schema."""

    @explain_arguments
    def __post_init__(self) -> None:
        check_kinds("", {name: getattr(self, name) for name in _OPTION_KINDS}, _OPTION_KINDS)
        if self.extra not in ("ignore", "forbid", "allow"):
            raise DefinitionError(f'extra={self.extra!r}: must be "ignore", "forbid" or "allow".')
        if not all(isinstance(tag, str) for tag in self.tags):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise DefinitionError(f"tags={set(self.tags)!r}: must be strings.")
        if wrong := [scope for scope in self.scopes if not is_scope(scope)]:
            raise DefinitionError(f"scopes: {wrong[0]!r} must be text without spaces, quotes and backslashes.")
        if self.repeats not in ("detect", "allow"):
            raise DefinitionError(f'repeats={self.repeats!r}: must be "detect" or "allow".')
        if self.record not in (None, "none", "shape", "full"):
            raise DefinitionError(f'record={self.record!r}: must be "none", "shape" or "full", or omitted.')
        if self.ticket_after is not None and not self.ticket_after >= 0:
            raise DefinitionError(f"ticket_after={self.ticket_after!r}: must be at least 0 seconds, or omitted.")
        check_runs_on(self.runs_on)
        check_converter(self.converter)
        minimums = {"max_concurrency": 1, "max_calls": 1, "max_result_bytes": 256, "cpus": 0, "gpus": 0, "memory": 1}
        for name, minimum in minimums.items():
            if (value := getattr(self, name)) is not None and value < minimum:
                raise DefinitionError(f"{name}={value!r}: must be at least {minimum}, or omitted.")
        self._check_functions()
        check_timeout(self.timeout)
        check_retry(self.retry)
        if not isinstance(self.on_error, Inherit):
            check_on_error(self.on_error)
        self._check_pairs()

    def _check_pairs(self) -> None:
        """Refuse options that contradict each other."""
        if self.skip_permission and self.overrides_builtin:
            raise DefinitionError(
                "skip_permission=True and overrides_builtin=True: a tool that replaces a built-in must "
                "not also bypass the approval rule. Remove one of the two."
            )
        if self.external and self.runs_on is not None:
            raise DefinitionError(f"external=True and runs_on={self.runs_on!r}: it does not run here. Remove one.")
        if self.read_only and self.destructive:
            raise DefinitionError(
                "read_only=True and destructive=True: a read-only tool cannot be destructive. Remove one."
            )

    def _check_functions(self) -> None:
        for name, takes in (("approval", "(arguments, context)"), ("enabled", "the context")):
            if not isinstance(rule := getattr(self, name), bool) and not _accepts(rule, takes.count(",") + 1):
                raise DefinitionError(f"{name}={rule!r}: must be True, False or a function of {takes}.")
        for name in ("preview", "reconcile"):
            if (function := getattr(self, name)) is not None and not callable(function):
                raise DefinitionError(f"{name}={function!r}: must be a function of the arguments, or omitted.")

    @property
    def runs_alone(self) -> bool:
        """True if the tool runs alone in a batch."""
        return bool(self.destructive) if self.sequential is None else self.sequential

    @property
    def repeatable(self) -> bool:
        """True if running the tool twice does no harm."""
        return bool(self.read_only or self.idempotent)

    @property
    def may_open_ticket(self) -> bool:
        """True if the work of a call may go on in the background."""
        return self.background or self.ticket_after is not None

    def with_(self, **changes: Any) -> ToolOptions:
        """Return a copy with these fields changed."""
        return replace(self, **changes)


def is_scope(text: Any) -> bool:
    """Return True if a value is one scope of RFC 6749, section 3.3."""
    return isinstance(text, str) and re.fullmatch(r"[!#-\[\]-~]+", text) is not None


def _accepts(function: Any, count: int) -> bool:
    """Return True if a function can be called with so many arguments, or does not tell."""
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # a function in C without a signature
    return True


def check_runs_on(runs_on: Any) -> None:
    """Raise if a tool cannot run there.

    Raises:
        DefinitionError: it is neither a known name nor an executor of threads.
    """
    if isinstance(runs_on, RemoteExecutor):
        return
    if isinstance(runs_on, Executor):
        # Its class is loaded on first access, so a program without process pools does not pay for it.
        pools = sys.modules.get("concurrent.futures.process")
        if pools is None or not isinstance(runs_on, pools.ProcessPoolExecutor):
            return
        raise DefinitionError(f'runs_on={runs_on!r}: its processes cannot be stopped at a deadline. Use "process".')
    if runs_on not in (None, "loop", "thread", "process", "ray"):
        raise DefinitionError(
            f'runs_on={runs_on!r}: must be "loop", "thread", "process" or "ray", or omitted. An executor works, too.'
        )


def check_converter(converter: Any) -> None:
    """Raise if a converter cannot be called with a value and its type.

    Raises:
        DefinitionError: it is a class or async, or cannot be called.
    """
    if converter is None:
        return
    call = converter if inspect.isroutine(converter) else getattr(type(converter), "__call__", None)  # noqa: B004 - needs the method itself
    if isinstance(converter, type) or not callable(converter):
        raise DefinitionError(f"converter={converter!r}: must be a function or an object that can be called.")
    if inspect.iscoroutinefunction(call):
        raise DefinitionError(f"converter={converter!r}: must not be async. Await in the tool instead.")


def apply_naming(name: str, naming: Naming | None) -> str:
    """Return the tool name for a function called `name` under the convention `naming`."""
    if naming is None:
        return name
    return _to_snake_case(name) if naming == "snake" else naming(name)


def name_to_words(name: str) -> str:
    """Return a name as a phrase, for a tool without a description."""
    return _to_snake_case(name).replace("_", " ").replace("-", " ").strip().capitalize()


def _to_snake_case(name: str) -> str:
    # Two passes keep an acronym together: getURLFor -> get_url_for, not get_u_r_l_for.
    separated = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", separated).lower()
