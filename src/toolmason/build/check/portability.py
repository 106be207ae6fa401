"""Check how each provider handles a tool definition: accepted, lossy or rejected, and if strict mode works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toolmason._core.values.definition import ToolDefinition
from toolmason.build.check.provider_limits import PROVIDERS, get_naming_rules
from toolmason.providers.aliases import ToolNames
from toolmason.providers.registry import get_format
from toolmason.providers.schema.losses import Loss, Status

NO_STRICT_FORM: Final = "has no strict form"
"""End of `ProviderVerdict.not_strict` if a constraint is the reason, and not a type."""


@dataclass(frozen=True, slots=True)
class ProviderVerdict:
    """How one provider handles one tool."""

    provider: str
    status: Status
    reasons: tuple[str, ...] = ()
    """Reasons why the definition is lossy or rejected."""
    strict: bool = True
    not_strict: str = ""
    """Reason why strict mode would lose something; empty if it works."""
    alias: str | None = None
    """Name sent instead of the tool's name if the provider refuses that."""
    keys: tuple[str, ...] = ()
    """Descriptions of properties that are sent under another name."""


def check_providers(definition: ToolDefinition, other_names: Iterable[str] = ()) -> list[ProviderVerdict]:
    """Return each provider's verdict on a definition that is offered together with tools of these names."""
    offered_names = [*other_names, definition.name]
    return [_check_provider(provider, definition, offered_names) for provider in PROVIDERS]


def _check_provider(provider: str, definition: ToolDefinition, offered_names: Sequence[str]) -> ProviderVerdict:
    verdict = get_format(provider).verdict(definition, strict=False)
    losses = verdict.narrowed.losses
    meaning_losses = [loss for loss in losses if loss.changes_meaning]
    # Gemini sets strict mode for a whole request, without rewriting schemas.
    checks_strict_form = not meaning_losses and provider != "gemini"
    not_strict = _explain_not_strict(provider, definition) if checks_strict_form else ""
    naming_rules = get_naming_rules(provider)
    names = ToolNames(offered_names, naming_rules.name_pattern, naming_rules.max_name_length)
    sent_name = names.get_alias(definition.name)
    return ProviderVerdict(
        provider=provider,
        status=verdict.status,
        reasons=tuple(_format_loss(loss, "is not enforced") for loss in meaning_losses or losses),
        strict=not meaning_losses and not not_strict,
        not_strict=not_strict,
        alias=sent_name if sent_name != definition.name else None,
        keys=tuple(f"{own!r} sent as {alias}" for alias, own in verdict.narrowed.keys.items()),
    )


def _explain_not_strict(provider: str, definition: ToolDefinition) -> str:
    """Return the most serious loss of strict mode as text; empty if nothing is lost."""
    losses = get_format(provider).verdict(definition, strict=True).narrowed.losses
    if not losses:
        return ""
    blocking = next((loss for loss in losses if loss.changes_meaning), losses[0])
    return _format_loss(blocking, NO_STRICT_FORM)


def _format_loss(loss: Loss, outcome: str) -> str:
    """Return a loss as text, with its path inside the sentence; `outcome` follows a constraint."""
    if loss.kind == "unenforced":
        return f"{loss.subject} at {loss.path} {outcome}"
    if loss.kind == "unrestricted":
        return f"{loss.subject} is allowed at {loss.path}"
    return loss.what if loss.path == "$" else f"{loss.what} (at {loss.path})"
