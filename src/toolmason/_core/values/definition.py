"""What a tool is: what the model sees of it, and how we treat it.

Lives here: `ToolDefinition`, `ToolOptions`, the rules that hold for a definition by itself.
Not here: how they are read off a function (`signature`), or anything that runs (`tool`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pydantic_core import to_json

from toolmason._core.values.policy import (
    INHERIT,
    Inherit,
    OnError,
    Rate,
    Retry,
    RunsOn,
    Timeout,
    check_on_error,
    check_timeout,
)
from toolmason.errors import DefinitionError

JsonSchema: TypeAlias = dict[str, Any]
Naming: TypeAlias = Literal["snake"] | Callable[[str], str]
Extra: TypeAlias = Literal["ignore", "forbid", "allow"]
Converter: TypeAlias = Callable[[Any, Any], Any]
"""`(value, return_type) -> str | Content | list[Content]`."""


PORTABLE_NAME = r"[A-Za-z0-9_-]{1,64}"
"""What every provider takes, as a regular expression. Another name is legal; adapters map it."""


@dataclass(frozen=True)
class ToolDefinition:
    """What the model sees of a tool."""

    name: str
    description: str
    input_schema: JsonSchema
    output_schema: JsonSchema | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.name.strip():
            raise DefinitionError(f"A tool needs a name, got {self.name!r}. Give one with `name=`.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that the model sees, whatever the order of keys."""
        import hashlib  # noqa: PLC0415 - 2 ms at start-up, for programs that pin or approve

        visible_fields = [self.name, self.title, self.description, self.input_schema, self.output_schema]
        return hashlib.sha256(to_json(canonicalize(visible_fields))).hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)


def canonicalize(value: Any) -> Any:
    """Return JSON data with its keys in order, so that equal data have equal bytes."""
    if isinstance(value, Mapping):
        return {key: canonicalize(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [canonicalize(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """How a tool is treated. The effects use MCP's words; `None` means "not said"."""

    read_only: bool | None = None
    """It changes nothing."""
    destructive: bool | None = None
    """What it changes cannot be had back."""
    idempotent: bool | None = None
    """Doing it twice is the same as doing it once."""
    open_world: bool | None = None
    """It reaches things outside the application."""
    return_direct: bool = False
    """Its result goes to the caller, not back to the model."""
    converter: Converter | None = None
    timeout: Timeout = INHERIT
    retry: Retry | Inherit | None = INHERIT
    approval: bool | Callable[[dict[str, Any], Any], Any] = False
    """Whether a human decides about each call: yes, or a predicate of (arguments, context)."""
    preview: Callable[..., Any] | None = None
    """Says what a call would do, from its arguments, for whoever decides. It must not do it."""
    reconcile: Callable[..., Any] | None = None
    """Finds out, from its arguments, whether a call that was interrupted was done. It must not do it."""
    skip_permission: bool = False
    """Exempt from the toolbox's approval rule."""
    overrides_builtin: bool = False
    """Takes the place of a tool of ours with the same name."""
    sequential: bool | None = None
    """In a batch it runs alone: calls before it finish first, calls after it wait. `None`: if it is destructive."""
    max_concurrency: int | None = None
    """How many calls of it run at once."""
    lock: str | None = None
    """The parameter whose equal values take turns."""
    max_calls: int | None = None
    """How many calls of it a run may make."""
    rate: Rate | None = None
    max_result_bytes: int | None = None
    repeats: Literal["detect", "allow"] = "detect"
    """Whether a call that is made again and again with the same result is held up."""
    strict_types: bool = False
    """Take arguments exactly as the schema says; repair nothing."""
    extra: Extra = "ignore"
    """What happens to arguments that the schema does not name."""
    runs_on: RunsOn | None = None
    """Where it runs: `"loop"`, `"thread"`, `"process"`, or `None`: async on the loop, sync in a thread."""
    on_error: OnError | Inherit = INHERIT
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] = field(default_factory=dict)
    """For the application and its adapters; the model does not see it."""
    substitute_result: bool = False
    """Expand `${parameter}` in a text result. Off, because file contents hold such things."""

    def __post_init__(self) -> None:
        if self.extra not in ("ignore", "forbid", "allow"):
            raise DefinitionError(f'extra={self.extra!r}: give "ignore", "forbid" or "allow".')
        if self.runs_on not in (None, "loop", "thread", "process"):
            raise DefinitionError(f'runs_on={self.runs_on!r}: give "loop", "thread" or "process", or leave it out.')
        for name, minimum in (("max_concurrency", 1), ("max_calls", 1), ("max_result_bytes", 256)):
            if (value := getattr(self, name)) is not None and value < minimum:
                raise DefinitionError(f"{name}={value!r}: give {minimum} or more, or leave it out.")
        if self.skip_permission and self.overrides_builtin:
            raise DefinitionError(
                "skip_permission=True and overrides_builtin=True: a tool that takes the place of a built-in one must "
                "not also go round the approval rule. Drop one of the two."
            )
        check_timeout(self.timeout)
        if not isinstance(self.on_error, Inherit):
            check_on_error(self.on_error)
        if self.read_only and self.destructive:
            raise DefinitionError("read_only=True and destructive=True: a tool that changes nothing destroys nothing.")

    @property
    def runs_alone(self) -> bool:
        """Whether it runs alone in a batch."""
        return bool(self.destructive) if self.sequential is None else self.sequential

    @property
    def repeatable(self) -> bool:
        """Whether a second run does no harm."""
        return bool(self.read_only or self.idempotent)

    def with_(self, **changes: Any) -> ToolOptions:
        """Return a copy with these fields changed."""
        return replace(self, **changes)


def apply_naming(name: str, naming: Naming | None) -> str:
    """Return the name that a toolbox with this `naming=` gives to a function called `name`."""
    if naming is None:
        return name
    return _to_snake_case(name) if naming == "snake" else naming(name)


def name_to_words(name: str) -> str:
    """Return a name as words, for a tool that has no description."""
    return _to_snake_case(name).replace("_", " ").replace("-", " ").strip().capitalize()


def _to_snake_case(name: str) -> str:
    # Two passes, so that an acronym stays one word: getURLFor -> get_url_for, not get_u_r_l_for.
    separated = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", separated).lower()
