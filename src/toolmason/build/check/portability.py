"""Check how each provider handles a tool definition: accepted, lossy or rejected, and if strict mode works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolmason._core.values.definition import ToolDefinition
from toolmason.build.check.provider_limits import PROVIDERS
from toolmason.providers.aliases import ToolNames
from toolmason.providers.registry import get_format
from toolmason.providers.schema.losses import Loss

Status: TypeAlias = Literal["accepted", "lossy", "rejected"]
_DESCRIBED_SUFFIX: Final = " is described but not enforced"
_NAMING_FORMATS: Final = {"openai": "openai-chat"}
"""The format with the stricter name limits, for providers with two formats."""


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
    offered = [*other_names, definition.name]
    verdicts: list[ProviderVerdict] = []
    for provider in PROVIDERS:
        fit = get_format(provider).rules.fit_schema
        fitted = fit(definition.input_schema, False)  # noqa: FBT003 - `strict` is its only option
        losses = fitted.losses
        meaning_losses = [loss for loss in losses if loss.changes_meaning]
        status: Status = "rejected" if meaning_losses else "lossy" if losses else "accepted"
        reasons = tuple(_format_loss(loss, "is not enforced") for loss in meaning_losses or losses)
        # Gemini sets strict mode for a whole request, without rewriting schemas.
        strict = () if meaning_losses or provider == "gemini" else fit(definition.input_schema, True).losses  # noqa: FBT003 - as above
        blocking = next((loss for loss in strict if loss.changes_meaning), strict[0] if strict else None)
        why = "" if blocking is None else _format_loss(blocking, "has no strict form")
        terms = get_format(_NAMING_FORMATS.get(provider, provider)).rules
        sent_name = ToolNames(offered, terms.name_pattern, terms.max_name_length).get_alias(definition.name)
        alias = sent_name if sent_name != definition.name else None
        verdicts.append(
            ProviderVerdict(
                provider, status, reasons, not meaning_losses and not why, why, alias, _format_renamed_keys(fitted.keys)
            )
        )
    return verdicts


def _format_renamed_keys(keys: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{own!r} sent as {alias}" for alias, own in keys.items())


def _format_loss(loss: Loss, outcome: str) -> str:
    """Return a loss as text, with its path inside the sentence."""
    if loss.what.endswith(_DESCRIBED_SUFFIX):
        return f"{loss.what.removesuffix(_DESCRIBED_SUFFIX)} at {loss.path} {outcome}"
    if loss.what.endswith(" here"):
        return f"{loss.what.removesuffix(' here')} at {loss.path}"
    return loss.what if loss.path == "$" else f"{loss.what} (at {loss.path})"
