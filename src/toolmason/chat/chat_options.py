"""Check the options of a chat, make its system message, and choose the model of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import NoneType
from typing import Any, Final, TypeAlias

from toolmason._core.call.call_policy import run_in_time
from toolmason._core.catalog.catalog import FINAL_ANSWER
from toolmason._core.define.context import ToolContext
from toolmason._core.run.execute import call_user_function
from toolmason._core.toolbox.exchange import ModelRequest
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Parallel, Sequential, check_kinds, check_object
from toolmason.chat.answers import AnswerRun, AnswerType
from toolmason.chat.run.compaction import Compact
from toolmason.chat.run.spending import Price
from toolmason.chat.send_options import SHARED_KINDS, SendOptions
from toolmason.errors import ConfigError
from toolmason.models.by_name import model as make_model
from toolmason.models.protocol import Model, check_model, check_options
from toolmason.providers.codec import Codec
from toolmason.providers.option_rules import merge_options

System: TypeAlias = str | Callable[[ToolContext[Any]], str | Awaitable[str | None] | None]
"""System message, or a function of the context that returns one for each run, sync or async."""
_KINDS: Final = {
    **SHARED_KINDS,
    "advisors": (Iterable,),
    "strategy": (Parallel, Sequential),
    "execute": (bool, Callable),
    "history": (bool,),
    "approver": (Callable, NoneType),
    "price": (Price, Mapping, NoneType),
    "compact": (Compact, NoneType),
    "system": (str, Callable, NoneType),
}
_OBJECTS: Final = {
    "memory": ("SqliteMemory", ("load", "append")),
    "runtime": ("SqliteRuntime", ("execute",)),
    "budget": ("SqliteBudget", ("find_limit", "add")),
}
_WORDS: Final = {"on_limit": ("stop", "raise"), "on_length": ("stop", "continue")}


def check_chat_options(given: Mapping[str, Any]) -> None:
    """Raise ConfigError or DefinitionError if an option of a chat has a wrong value."""
    check_kinds("", {name: given[name] for name in _KINDS}, _KINDS)
    for name, (example, methods) in _OBJECTS.items():
        check_object(name, given[name], example, methods)
    for name, (first, second) in _WORDS.items():
        if given[name] not in (first, second):
            raise ConfigError(f'{name}={given[name]!r}: must be "{first}" or "{second}".')
    if not given["history"] and given["memory"] is None:
        raise ConfigError("history=False requires a memory. Pass `memory=` as well.")


async def make_system(system: System | None, context: ToolContext[Any] | None, box: Toolbox) -> tuple[Message, ...]:
    """Return the system message of a run; none if the function returns None.

    Raises:
        ConfigError: the function returned something else.
        ToolTimeout: the function did not return in time.
    """
    if callable(system):
        state = get_state(box)
        work = call_user_function(system, context or ToolContext[Any](), settings=state.policy.settings)
        text: Any = await run_in_time("system", (state.calls,), work)
        if not isinstance(text, str | None):
            raise ConfigError(f"system={system!r}: it returned {text!r:.60}, which is not a string.")
    else:
        text = system
    return () if text is None else (Message("system", text),)


def drop_system(messages: Any) -> list[Message]:
    """Return messages without those of the system."""
    return [message for message in messages if message.role != "system"]


def make_answer(
    box: Toolbox, chat_box: Toolbox, kind: AnswerType | None, options: SendOptions, model: Model
) -> AnswerRun | None:
    """Return the typed answer of a run, of the type of the request or of the chat; None if there is neither.

    Raises:
        ConfigError: a tool has the name of the tool for typed answers.
    """
    answer_type = kind if options.output is None else AnswerType(options.output, chat_box)
    if answer_type is None:
        return None
    if FINAL_ANSWER in box:
        raise ConfigError(f"A tool is named {FINAL_ANSWER!r}, as the tool for typed answers is. Rename yours.")
    return AnswerRun(answer_type, model, options.attempts)


def make_chat_model(given: Any) -> Model:
    """Return the model of a chat, from a name, a list of them, or a model.

    Raises:
        ConfigError: the value is none of these.
    """
    model: Model = make_model(given) if isinstance(given, str | list | tuple) else given
    check_model(model)
    return model


class ModelChoice:
    """Model and options of a chat, from which a request may differ."""

    def __init__(self, model: Model, box: Toolbox, options: Mapping[str, Any]) -> None:
        self._box = box
        self.default = (model, options)
        """Model and options of a request that differs in neither."""
        self._by_name: dict[str, Model] = {}
        refuse_unsupported_native(model, box)
        check_options(model, options)

    def choose(
        self, model: Model | str | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Model, Mapping[str, Any]]:
        """Return the model of a request, and its options. A model that is given by name is made once.

        Raises:
            ConfigError: the value is not a model, or an option is not supported.
            DefinitionError: the provider does not support a tool of the chat.
        """
        merged = self.default[1] if options is None else merge_options(self.default[1], options)
        chosen: Any = self.default[0] if model is None else model
        if isinstance(chosen, str):
            chosen = self._by_name.setdefault(chosen, self._by_name.get(chosen) or make_model(chosen))
        check_model(chosen)
        if model is not None:
            refuse_unsupported_native(chosen, self._box)
        check_options(chosen, merged)
        return chosen, merged


def refuse_unsupported_native(model: Model, box: Toolbox) -> None:
    """Reject native tools that the provider does not support, before anything is sent.

    Raises:
        DefinitionError: the provider does not support a tool; the message names the alternative.
    """
    for each in getattr(model, "models", (model,)) if box.native else ():
        codec = getattr(each, "codec", None)
        if isinstance(codec, Codec):
            codec.encode(ModelRequest("?", box.native), "?")
