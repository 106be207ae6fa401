"""What every provider's format can do, and the steps that they share.

Lives here: `Format` (tools and results), `Codec` (whole conversations as well), the way back of a provider's own items.
Not here: any field of any API (each provider's module), or sending (`toolmason.models`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from toolmason._core.toolbox.definitions import Strict
from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest, ToolChoice
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.provider_tools import Native
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ConfigError, ModelError
from toolmason.providers.aliases import Names, wire_id
from toolmason.providers.content_parts import same_arguments
from toolmason.providers.conversation import repair
from toolmason.providers.native_tools import each_once, native_tool
from toolmason.providers.reply_checks import WRONG, checked, guarded, unreadable
from toolmason.providers.schema.losses import Narrowed, Verdict
from toolmason.providers.schema.strict import checked_strict
from toolmason.providers.tool_set import Kept, Offer, Terms, offer_of

Body = dict[str, Any]


class Format(ABC):
    """How one API writes tools and results."""

    name: ClassVar[str]
    terms: ClassVar[Terms]

    @abstractmethod
    def definition(self, tool: ToolDefinition, narrowed: Narrowed, alias: str) -> Body:
        """Return one tool."""

    @abstractmethod
    def result(self, result: ToolResult, names: Names | None = None) -> Body:
        """Return the answer to one call."""

    def offer(
        self,
        tools: tuple[ToolDefinition, ...],
        native: tuple[Native, ...],
        strict: Any = "auto",
        *,
        lossy: bool = False,
    ) -> Offer:
        """Return the tools with their schemas and names for this provider.

        Raises:
            LossyDefinition: one would change its meaning, and `lossy` is not set.
        """
        return offer_of(tools, each_once(native), self.terms, checked_strict(strict), lossy=lossy)

    def tools(self, offer: Offer) -> list[Body]:
        """Return what goes into the field `tools`."""
        own = [self.definition(tool, narrowed, offer.names.alias(tool.name)) for tool, narrowed in offer.tools]
        return own + self.native_tools(offer)

    def native_tools(self, offer: Offer) -> list[Body]:
        """Return the tools that the provider runs."""
        found = (native_tool(item, self.terms.provider) for item in offer.native)
        return [tool for tool in found if tool is not None]

    def names_of(self, tools: Any) -> Names:
        """Return the names that this provider has for tools: of a toolbox, or of anything that gives tools."""
        if isinstance(tools, Names):
            return tools
        asked = ModelRequest((), tools)
        return self.offer(asked.tools, (), lossy=True).names if asked.tools else self.no_names

    @property
    def no_names(self) -> Names:
        """Names of no tools at all: each name is its own."""
        return Names((), self.terms.rule, self.terms.longest)

    def verdict(self, tool: ToolDefinition, strict: Strict = "auto") -> Verdict:
        """Return what this provider makes of a tool."""
        alias = Names([tool.name], self.terms.rule, self.terms.longest).alias(tool.name)
        narrowed = self.terms.fit(tool.input_schema, checked_strict(strict))
        return Verdict(self.name, tool.name, narrowed, alias if alias != tool.name else None)


class Reader(ABC):
    """A stream of one provider's events → our events, the last of which has the reply."""

    def __init__(self, provider: str) -> None:
        self.provider = provider

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield what one event means.

        Raises:
            ModelError: it tells of a failure, or is not an event as this provider sends them.
        """
        yield from guarded(self.provider, self.take(event), event)

    def end(self) -> ModelReply:
        """Return the reply.

        Raises:
            ModelError: the stream was cut before its end, or what came is no answer.
        """
        try:
            return checked(self.whole())
        except WRONG as error:
            raise unreadable(self.provider, "the answer", error, "") from error

    @abstractmethod
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield what one event means; may raise anything that a malformed one leads to."""

    @abstractmethod
    def whole(self) -> ModelReply:
        """Return the reply; may raise anything that malformed events lead to."""

    def late(self, reply: ModelReply) -> Iterator[ModelEvent]:  # noqa: ARG002 - most have told all
        """Yield what the reply holds that no event has told yet."""
        yield from ()


class Codec(Format):
    """How one API writes conversations."""

    search: ClassVar[Body | None] = None
    """The provider's own search among tools that it does not load at once; `None` where it has none."""

    @abstractmethod
    def body(self, request: ModelRequest, offer: Offer, model: str) -> Body:
        """Return the request for messages that are in order."""

    @abstractmethod
    def read(self, body: Mapping[str, Any], names: Names) -> ModelReply:
        """Read an answer; may raise anything that a malformed one leads to."""

    @abstractmethod
    def reader(self, names: Names) -> Reader:
        """Return a reader for one stream."""

    @abstractmethod
    def streaming(self, body: Body) -> Body:
        """Return the request for a stream."""

    def offered(self, request: ModelRequest) -> Offer:
        """Return the tools of a request.

        Raises:
            ConfigError: the choice names a tool that is not offered, or wants one where there is none.
        """
        options = request.options
        offer = self.offer(
            request.tools, request.native, options.get("strict", "auto"), lossy=bool(options.get("lossy"))
        )
        choice = request.tool_choice
        known = {tool.name for tool in request.tools}
        if choice is not None and (missing := [name for name in choice.names if name not in known]):
            raise ConfigError(f"tool_choice names {missing[0]!r}, which is not offered. There are: {sorted(known)}.")
        if choice is not None and choice.mode == "required" and not known and not request.native:
            raise ConfigError('tool_choice="required", and there are no tools. Offer some, or leave it out.')
        return offer

    def encode(self, request: ModelRequest, model: str, *, stream: bool = False, kept: Kept | None = None) -> Body:
        """Return the body of a request. Calls without results, and the like, are put in order first.

        With `kept`, parts of the body are shared with those of earlier requests; do not change it then.
        """
        right = kept is not None and kept.right(request.messages)
        messages = request.messages if right else repair(request.messages)
        in_order = ModelRequest(messages, (), request.tool_choice, request.options)
        offer = self.offered(request)
        body = self.body(in_order, offer if kept is None else replace(offer, kept=kept), model)
        later = request.options.get("defer") or ()
        if deferred := frozenset([later] if isinstance(later, str) else later):
            body = self._deferring(body, deferred, request)
        if stream:
            body = self.streaming(body)
        return {**body, **request.options.get("body", {})}

    def _deferring(self, body: Body, deferred: frozenset[str], request: ModelRequest) -> Body:
        if self.search is None:
            raise ConfigError(f"{self.name} has no search of its own among tools. Leave `defer` out.")
        # A tool that must be called has to be there.
        forced = request.tool_choice.names if request.tool_choice is not None else ()
        names = self.offered(request).names
        later = {names.alias(name) for name in deferred if name not in forced}
        tools = [
            {**tool, "defer_loading": True} if tool.get("name") in later else tool for tool in body.get("tools", ())
        ]
        return (
            {**body, "tools": [dict(self.search), *tools]} if any("defer_loading" in tool for tool in tools) else body
        )

    def decode(self, body: Any, names: Any = None) -> ModelReply:
        """Read the body of an answer. With a toolbox, or `names_of` one, calls have the tools' own names.

        Raises:
            ModelError: it is not one, or it tells of a failure.
        """
        if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
            raise error_in(self.name, body)
        try:
            return checked(self.read(body, self.names_of(names)))
        except WRONG as error:
            raise unreadable(self.name, "the answer", error, body) from error


def error_in(provider: str, body: Mapping[str, Any], status: int | None = None) -> ModelError:
    """Return the failure that a body tells of."""
    told = body.get("error")
    told = told if isinstance(told, Mapping) else {"message": told or body.get("message") or str(dict(body))[:300]}
    code = told.get("type") or told.get("status") or told.get("code") or ""
    if isinstance(told.get("code"), str):
        code = told["code"]
    busy = code in ("overloaded_error", "rate_limit_error", "server_error", "rate_limit_exceeded", "UNAVAILABLE")
    return ModelError(provider, str(told.get("message", told)), status=status, code=str(code), retryable=busy)


def allowed(choice: ToolChoice | None, names: Names) -> list[str]:
    """Return the names that a choice allows, as the provider knows them."""
    return [names.alias(name) for name in choice.names] if choice is not None else []


def state_of(message: Message, provider: str) -> list[Any] | None:
    """Return the items of a message that came from this very provider."""
    state = message.provider_state
    if not isinstance(state, Mapping) or state.get("provider") != provider:
        return None
    items = state.get("items")
    return items if isinstance(items, list) else None


class Replay:
    """A message of the model → the provider's own items again, where they came from it.

    Items that we cannot say ourselves (thoughts, signatures, what the provider ran) go back as they came. A text or a
    call that was changed since goes as it is now.
    """

    def __init__(
        self,
        call_in: Callable[[Mapping[str, Any]], ToolCall | None],
        text_in: Callable[[Mapping[str, Any]], str | None],
        call_to: Callable[[ToolCall], Body],
        text_to: Callable[[str], Body],
    ) -> None:
        self.call_in, self.text_in, self.call_to, self.text_to = call_in, text_in, call_to, text_to

    def items(self, message: Message, state: list[Any] | None, text: str) -> Iterator[Body]:
        """Yield the items of a message, in order."""
        left = {wire_id(call.id): call for call in message.calls}
        kept = [item for item in state or () if isinstance(item, Mapping)]
        said = [part for part in map(self.text_in, kept) if part is not None]
        same, told = "".join(said) == text, False
        for item in kept:
            was, words = self.call_in(item), self.text_in(item)
            if was is not None:
                call = left.pop(wire_id(was.id) if was.id else _first_of(left, was), None)
                if call is not None:
                    yield dict(item) if same_arguments(call, was) else {**item, **self.call_to(call)}
            elif words is None or same:
                yield dict(item)
            elif text and not told:
                told = True
                yield self.text_to(text)
        if text and not told and not (same and said):
            yield self.text_to(text)
        for call in left.values():
            yield self.call_to(call)


def _first_of(calls: Mapping[str, ToolCall], like: ToolCall) -> str:
    """Return the id of the first call that a call without one may be."""
    return next((call_id for call_id, call in calls.items() if call.name == like.name), "")
