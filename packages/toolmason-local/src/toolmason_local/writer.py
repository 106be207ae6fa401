"""What writes text under a grammar, as the steps of the local model see it.

Lives here: the protocol and its values. Not here: llama.cpp (`engine`), or what is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and whether it came to its end."""

    text: str
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What may be written: `grammar` in GBNF or `schema` in JSON Schema, up to `most` tokens."""

    grammar: str | None = None
    schema: Mapping[str, Any] | None = None
    most: int = 64
    stop: tuple[str, ...] = ()


class Writer(Protocol):
    """A small language model: it goes on with a text, and tells how likely a text is."""

    def write(self, prompt: str, bounds: Bounds, told: Callable[[str], None] | None = None) -> Written:
        """Go on with a prompt; `told` gets each piece as it comes.

        Raises:
            ModelError: nothing could be written.
        """
        ...

    def likelihood(self, prompt: str, text: str) -> float:
        """Return the mean log-probability of the tokens of a text after a prompt.

        Raises:
            ModelError: it could not be read.
        """
        ...


def harmless(text: str) -> str:
    """Return a text in which no token of the model's own stands: `<|im_end|>` in a request is not an end."""
    return text.replace("<|", "< |").replace("\r", " ")
