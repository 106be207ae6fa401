"""What writes text under a grammar, as the steps of the local model see it.

Lives here: the protocol and its values. Not here: llama.cpp (`engine`), or what is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Completion:
    """What was written, and whether it came to its end."""

    text: str
    is_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLimits:
    """What may be written: `grammar` in GBNF or `schema` in JSON Schema, up to `most` tokens."""

    grammar: str | None = None
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 64
    stop: tuple[str, ...] = ()


class TextGenerator(Protocol):
    """A small language model: it goes on with a text, and tells how likely a text is."""

    def generate(
        self, prompt: str, limits: GenerationLimits, on_text: Callable[[str], None] | None = None
    ) -> Completion:
        """Go on with a prompt; `told` gets each piece as it comes.

        Raises:
            ModelError: nothing could be written.
        """
        ...

    def score_text(self, prompt: str, text: str) -> float:
        """Return the mean log-probability of the tokens of a text after a prompt.

        Raises:
            ModelError: it could not be read.
        """
        ...


def escape_special_tokens(text: str) -> str:
    """Return a text in which no token of the model's own stands: `<|im_end|>` in a request is not an end."""
    return text.replace("<|", "< |").replace("\r", " ")
