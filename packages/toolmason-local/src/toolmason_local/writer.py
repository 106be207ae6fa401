"""Protocol of text generators with constrained output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Completion:
    """Generated text, whether it is complete, and how probable its beginning was."""

    text: str
    is_complete: bool = True
    probability: float = 1.0
    """Probability of the first token, whatever the grammar allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLimits:
    """Constraints on the output: a GBNF `grammar` or a JSON `schema`, at most `max_tokens` tokens, and stop strings."""

    grammar: str | None = None
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 64
    stop: tuple[str, ...] = ()


class TextGenerator(Protocol):
    """Small language model that completes a prompt."""

    has_adapter: bool
    """True if the model was taught to call tools."""

    def generate(
        self, prompt: str, limits: GenerationLimits, on_text: Callable[[str], None] | None = None
    ) -> Completion:
        """Complete a prompt; `on_text` receives each piece as it is generated.

        Raises:
            ModelError: generation failed.
        """
        ...


def escape_special_tokens(text: str) -> str:
    """Return text without special tokens, so that `<|im_end|>` in a request does not end a message."""
    return text.replace("<|", "< |").replace("\r", " ")
