"""What a caller says → messages.

Lives here: the forms that `send` takes. Not here: what was said before (`memory`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, TypeAlias

from toolmason._core.messages import Message
from toolmason.errors import ConfigError

Said: TypeAlias = str | Message | Iterable[Message]
Prompt: TypeAlias = Said | Awaitable[Said]
"""Also what is still to be rendered, as `box.prompt(...)` is."""


async def spoken(prompt: Prompt) -> list[Message]:
    """Return what was said.

    Raises:
        ConfigError: it is neither a text nor messages.
    """
    said: Any = await prompt if isinstance(prompt, Awaitable) else prompt
    if isinstance(said, str):
        return [Message("user", said)]
    messages = [said] if isinstance(said, Message) or not isinstance(said, Iterable) else [*said]
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"{message!r:.80} cannot be said. Give a text, a Message, or a list of them.")
    return messages
