"""Define the options of one request, and convert its prompt to messages."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from toolmason._core.call.approval import Decision
from toolmason._core.define.context import ContextLike
from toolmason._core.toolbox.exchange import ToolChoice
from toolmason._core.values.content import Content
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Limits
from toolmason._core.values.results import ToolResult
from toolmason.errors import ConfigError
from toolmason.models.protocol import Model

if TYPE_CHECKING:
    from toolmason.chat.run.plan import DelegatedCall

SHARED_KINDS: Final[Mapping[str, tuple[type, ...]]] = {"limits": (Limits, NoneType), "options": (Mapping, NoneType)}
"""Types of the options that a chat and a request have."""
REQUEST_KINDS: Final = {**SHARED_KINDS, "conversation": (str, NoneType), "run": (str, NoneType)}


@dataclass(frozen=True, slots=True, eq=False)
class SendOptions:
    """Options of one request."""

    tools: Any = None
    add_tools: Any = None
    context: ContextLike = None
    conversation: str | None = None
    tool_choice: ToolChoice | str | None = None
    limits: Limits | None = None
    run: str | None = None
    output: Any = None
    model: Model | str | None = None
    options: Mapping[str, Any] | None = None
    """Options of the model, over those of the chat."""
    attempts: int = 0
    """Number of answers that the model sent before the run was resumed."""
    results: tuple[ToolResult, ...] = ()
    """Results of calls that the application ran, if the run is resumed."""
    delegated: DelegatedCall | None = None
    """Call of another run that starts this one, or None."""
    trace: str = ""
    """Trace header of the run that was saved, if this one resumes it."""


class ResumeKeywords(TypedDict, total=False):
    """Keywords of `resume` but for `output`."""

    tools: Any
    add_tools: Any
    context: ContextLike
    tool_choice: ToolChoice | str | None
    limits: Limits | None
    model: Model | str | None
    options: Mapping[str, Any] | None


class SendKeywords(ResumeKeywords, total=False):
    """Keywords of `send` but for `output`."""

    conversation: str | None
    run: str | None


def check_keywords(method: str, given: Mapping[str, Any], keywords: type) -> None:
    """Raise TypeError if a method of `Chat` got a keyword that it does not have."""
    unknown = [name for name in given if name not in keywords.__annotations__]
    if unknown:
        raise TypeError(f"Chat.{method}() got an unexpected keyword argument {unknown[0]!r}")


Decisions: TypeAlias = Iterable[Decision | Mapping[str, Any]]
MessageInput: TypeAlias = str | Content | Message | Iterable[Message] | Iterable[str | Content]
PromptInput: TypeAlias = MessageInput | Awaitable[MessageInput]
"""Messages, the text and content parts of one message, or an awaitable of messages such as `box.prompt(...)`."""


async def to_messages(prompt: PromptInput) -> list[Message]:
    """Convert the argument of `send` to messages.

    Raises:
        ConfigError: the value is neither a string nor messages nor the parts of one message.
    """
    given: Any = await prompt if isinstance(prompt, Awaitable) else prompt
    if isinstance(given, str):  # an awaitable of one
        return [Message("user", given)]
    is_list = isinstance(given, Iterable) and not isinstance(given, Message | Mapping | bytes)
    messages: list[Any] = [*given] if is_list else [given]
    if messages and all(isinstance(item, str | Content) for item in messages):
        return [Message("user", messages)]
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"send() takes a str, a Message, a list of Message or parts, not {message!r:.80}.")
    return messages
