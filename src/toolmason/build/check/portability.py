"""A built definition → what each provider would make of it: accepted, lossy or rejected, strict or why not.

Lives here: the narrowing of the providers (`toolmason.providers`), put into the words of a finding.
Not here: findings (`loaded`), or what a provider takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolmason._core.values.definition import ToolDefinition
from toolmason.build.check.provider_limits import PROVIDERS
from toolmason.providers.aliases import Names
from toolmason.providers.registry import format_of
from toolmason.providers.schema.losses import Loss

Status: TypeAlias = Literal["accepted", "lossy", "rejected"]
_TOLD: Final = " is told in words"
_NAMING: Final = {"openai": "openai-chat"}
"""Of two formats of one provider, the one that takes fewer names."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one provider makes of one tool."""

    provider: str
    status: Status
    reasons: tuple[str, ...] = ()
    """Why it is lossy or rejected."""
    strict: bool = True
    not_strict: str = ""
    """Why strict mode is not possible without loss."""
    alias: str | None = None
    """The name that is sent instead, where its own is refused."""
    keys: tuple[str, ...] = ()
    """Properties that are sent under another name, in words."""


def verdicts_on(definition: ToolDefinition, beside: Iterable[str] = ()) -> list[Verdict]:
    """Return what each provider makes of a definition that is offered beside tools of these names."""
    offered = [*beside, definition.name]
    found: list[Verdict] = []
    for provider in PROVIDERS:
        fit = format_of(provider).terms.fit
        loose = fit(definition.input_schema, False)  # noqa: FBT003 - strictness is the one thing it asks
        losses = loose.losses
        heavy = [loss for loss in losses if loss.changes_meaning]
        status: Status = "rejected" if heavy else "lossy" if losses else "accepted"
        reasons = tuple(_worded(loss, "is not enforced") for loss in heavy or losses)
        # Gemini is strict for a whole request, and rewrites nothing for it.
        strict = () if heavy or provider == "gemini" else fit(definition.input_schema, True).losses  # noqa: FBT003 - as above
        blocking = next((loss for loss in strict if loss.changes_meaning), strict[0] if strict else None)
        why = "" if blocking is None else _worded(blocking, "has no strict form")
        terms = format_of(_NAMING.get(provider, provider)).terms
        sent = Names(offered, terms.rule, terms.longest).alias(definition.name)
        alias = sent if sent != definition.name else None
        found.append(Verdict(provider, status, reasons, not heavy and not why, why, alias, _told_keys(loose.keys)))
    return found


def _told_keys(keys: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{own!r} sent as {alias}" for alias, own in keys.items())


def _worded(loss: Loss, outcome: str) -> str:
    """Return a loss as a finding tells it, with its place inside of the sentence."""
    if loss.what.endswith(_TOLD):
        return f"{loss.what.removesuffix(_TOLD)} at {loss.path} {outcome}"
    if loss.what.endswith(" here"):
        return f"{loss.what.removesuffix(' here')} at {loss.path}"
    return loss.what if loss.path == "$" else f"{loss.what} (at {loss.path})"
