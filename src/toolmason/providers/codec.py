"""Base classes of the provider formats, and the steps that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from toolmason._core.toolbox.definitions import Strict
from toolmason._core.toolbox.exchange import ModelEvent, ModelReply, ModelRequest
from toolmason._core.values.content import Text
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.provider_tools import AnyNativeTool
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.errors import ConfigError, ModelError
from toolmason.providers.aliases import ToolNames, to_wire_id
from toolmason.providers.content_parts import have_same_arguments
from toolmason.providers.conversation import repair
from toolmason.providers.native_tools import deduplicate, format_native_tool
from toolmason.providers.reply_checks import PARSE_ERRORS, check_reply, guard_events, make_unreadable_error
from toolmason.providers.schema.losses import NarrowedSchema, Verdict
from toolmason.providers.schema.strict import check_strict
from toolmason.providers.tool_set import EncodedMessages, ProviderRules, ToolSet, make_tool_set

Body = dict[str, Any]
_RETRYABLE_CODES: Final = (
    "overloaded_error",
    "rate_limit_error",
    "server_error",
    "rate_limit_exceeded",
    "UNAVAILABLE",
)


class Format(ABC):
    """Encoder of tools and results for one API."""

    rules: ClassVar[ProviderRules]
    name: ClassVar[str]
    """Name of the provider, from `rules`."""

    def __init_subclass__(cls) -> None:
        if "rules" in vars(cls):
            cls.name = cls.rules.provider

    @abstractmethod
    def format_definition(self, tool: ToolDefinition, narrowed: NarrowedSchema, alias: str) -> Body:
        """Return one tool in the provider's format."""

    @abstractmethod
    def result(self, result: ToolResult, names: ToolNames | None = None) -> Body:
        """Return the result of one call in the provider's format."""

    def fit_tools(
        self,
        tools: tuple[ToolDefinition, ...],
        native: tuple[AnyNativeTool, ...],
        strict: Any = "auto",
        *,
        lossy: bool = False,
    ) -> ToolSet:
        """Return the tools with their schemas and names adapted to this provider.

        Raises:
            LossyDefinition: a tool would change its meaning and `lossy` is not set.
        """
        return make_tool_set(tools, deduplicate(native), self.rules, check_strict(strict), lossy=lossy)

    def format_tools(self, tool_set: ToolSet) -> list[Body]:
        """Return the value of the request's `tools` field."""
        own = [
            self.format_definition(tool, narrowed, tool_set.names.get_alias(tool.name))
            for tool, narrowed in tool_set.tools
        ]
        return own + self.format_native_tools(tool_set)

    def format_native_tools(self, tool_set: ToolSet) -> list[Body]:
        """Return the tools that the provider runs itself."""
        formatted = (format_native_tool(item, self.rules.provider) for item in tool_set.native)
        return [tool for tool in formatted if tool is not None]

    def names_of(self, tools: Any) -> ToolNames:
        """Return this provider's names for the tools of a toolbox or any other source of tools."""
        if isinstance(tools, ToolNames):
            return tools
        request = ModelRequest((), tools)
        return self.fit_tools(request.tools, (), lossy=True).names if request.tools else self.no_names

    @property
    def no_names(self) -> ToolNames:
        """Names for an empty set of tools."""
        return ToolNames((), self.rules.name_pattern, self.rules.max_name_length)

    def verdict(self, tool: ToolDefinition, strict: Strict = "auto") -> Verdict:
        """Return how this provider accepts a tool."""
        alias = ToolNames([tool.name], self.rules.name_pattern, self.rules.max_name_length).get_alias(tool.name)
        narrowed = self.rules.fit_schema(tool.input_schema, check_strict(strict))
        return Verdict(self.name, tool.name, narrowed, alias if alias != tool.name else None)


class ReplyReader(ABC):
    """Converter of one provider's stream events to model events."""

    def __init__(self, provider: str) -> None:
        self.provider = provider

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield the model events of one provider event.

        Raises:
            ModelError: the event reports a failure or is malformed.
        """
        yield from guard_events(self.provider, self.read_event(event), event)

    def end(self) -> ModelReply:
        """Return the complete reply.

        Raises:
            ModelError: the stream ended early, or the reply is malformed.
        """
        try:
            return check_reply(self.build_reply())
        except PARSE_ERRORS as error:
            raise make_unreadable_error(self.provider, "the response", error, "") from error

    @abstractmethod
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield the model events of one provider event. May raise any error if the event is malformed."""

    @abstractmethod
    def build_reply(self) -> ModelReply:
        """Return the complete reply. May raise any error if the events were malformed."""

    def iter_late_events(self, reply: ModelReply) -> Iterator[ModelEvent]:  # noqa: ARG002 - most readers report everything earlier
        """Yield events for content of the reply that no event has reported yet."""
        yield from ()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """Request as it is sent, and the names of its tools."""

    body: Body
    names: ToolNames


class Codec(Format):
    """Encoder and decoder of conversations for one API."""

    search_tool: ClassVar[Body | None] = None
    """The provider's own tool search for deferred tools, or `None` if it has none."""

    @abstractmethod
    def build_body(self, request: ModelRequest, tool_set: ToolSet, model: str) -> Body:
        """Return the request body for a valid conversation."""

    @abstractmethod
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        """Parse a reply. May raise any error if the body is malformed."""

    @abstractmethod
    def reader(self, names: ToolNames) -> ReplyReader:
        """Return a reader for one stream."""

    def as_streaming(self, body: Body) -> Body:
        """Return the request body with streaming enabled."""
        return {**body, "stream": True}

    def fit_request_tools(self, request: ModelRequest) -> ToolSet:
        """Return the tools of a request, adapted to this provider.

        Raises:
            ConfigError: `tool_choice` names a tool that is not offered, or requires a tool but none is offered.
        """
        options = request.options
        tool_set = self.fit_tools(
            request.tools, request.native, options.get("strict", "auto"), lossy=bool(options.get("lossy"))
        )
        choice = request.tool_choice
        known = {tool.name for tool in request.tools}
        if choice is not None and (missing := [name for name in choice.names if name not in known]):
            raise ConfigError(f"tool_choice names {missing[0]!r}, which is not offered. Available: {sorted(known)}.")
        if choice is not None and choice.mode == "required" and not known and not request.native:
            raise ConfigError('tool_choice="required" needs at least one tool. Offer tools, or omit it.')
        return tool_set

    def encode(
        self,
        request: ModelRequest,
        model: str,
        *,
        stream: bool = False,
        encoded_messages: EncodedMessages | None = None,
    ) -> Body:
        """Return the body of a request, after repairing problems such as calls without results.

        With `encoded_messages`, parts of the body are shared with earlier requests; do not modify it then.
        """
        return self.prepare(request, model, stream=stream, encoded_messages=encoded_messages).body

    def prepare(
        self,
        request: ModelRequest,
        model: str,
        *,
        stream: bool = False,
        encoded_messages: EncodedMessages | None = None,
    ) -> PreparedRequest:
        """Return the body of a request, as `encode`, and the names under which its tools are sent."""
        is_valid = encoded_messages is not None and encoded_messages.is_valid(request.messages)
        if not is_valid:
            request = request.with_messages(repair(request.messages))
        tool_set = self.fit_request_tools(request)
        body = self.build_body(
            request,
            tool_set if encoded_messages is None else replace(tool_set, encoded_messages=encoded_messages),
            model,
        )
        deferred_option = request.options.get("defer") or ()
        if deferred := frozenset([deferred_option] if isinstance(deferred_option, str) else deferred_option):
            body = self._defer_tools(body, deferred, request, tool_set.names)
        if stream:
            body = self.as_streaming(body)
        return PreparedRequest({**body, **request.options.get("body", {})}, tool_set.names)

    def _defer_tools(self, body: Body, deferred: frozenset[str], request: ModelRequest, names: ToolNames) -> Body:
        if self.search_tool is None:
            raise ConfigError(f"{self.name} has no built-in tool search. Omit `defer`.")
        # A tool that the model must call cannot be deferred.
        forced = request.tool_choice.names if request.tool_choice is not None else ()
        deferred_aliases = {names.get_alias(name) for name in deferred if name not in forced}
        tools = [
            {**tool, "defer_loading": True} if tool.get("name") in deferred_aliases else tool
            for tool in body.get("tools", ())
        ]
        if not any("defer_loading" in tool for tool in tools):
            return body
        return {**body, "tools": [dict(self.search_tool), *tools]}

    def decode(self, body: Any, names: Any = None) -> ModelReply:
        """Parse the body of a reply. With a toolbox or `names_of(toolbox)`, calls carry the tools' own names.

        Raises:
            ModelError: the body is malformed or reports a failure.
        """
        if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
            raise parse_error(self.name, body)
        try:
            return check_reply(self.parse_reply(body, self.names_of(names)))
        except PARSE_ERRORS as error:
            raise make_unreadable_error(self.name, "the response", error, body) from error


def parse_error(provider: str, body: Mapping[str, Any], status: int | None = None) -> ModelError:
    """Return the error that a body describes."""
    error = body.get("error")
    if not isinstance(error, Mapping):
        error = {"message": error or body.get("message") or str(dict(body))[:300]}
    code = error.get("type") or error.get("status") or error.get("code") or ""
    if isinstance(error.get("code"), str):
        code = error["code"]
    message = str(error.get("message", error))
    return ModelError(provider, message, status=status, code=str(code), retryable=code in _RETRYABLE_CODES)


def format_openai_tools(tools: Sequence[Body], request: ModelRequest, names: ToolNames, *, nest: bool) -> Body:
    """Return the body fields that offer the tools. With `nest`, each choice stands under the key of its type."""

    def wrap(kind: str, fields: Body) -> Body:
        return {"type": kind, kind: fields} if nest else {"type": kind, **fields}

    if not tools:
        return {}
    body: Body = {"tools": tools}
    if (parallel := request.options.get("parallel")) is not None:
        body["parallel_tool_calls"] = bool(parallel)
    choice = request.tool_choice
    if choice is None:
        return body
    functions = [wrap("function", {"name": names.get_alias(name)}) for name in choice.names]
    if not functions or choice.mode == "none":
        body["tool_choice"] = choice.mode
    elif choice.mode == "required" and len(functions) == 1:
        body["tool_choice"] = functions[0]
    else:
        body["tool_choice"] = wrap("allowed_tools", {"mode": choice.mode, "tools": functions})
    return body


def get_provider_items(message: Message, provider: str) -> list[Any] | None:
    """Return the raw items of a message, or None if another provider sent it."""
    state = message.provider_state
    if not isinstance(state, Mapping) or state.get("provider") != provider:
        return None
    items = state.get("items")
    return items if isinstance(items, list) else None


def read_message(
    provider: str,
    items: Sequence[Mapping[str, Any]],
    parse_text: Callable[[Mapping[str, Any]], str | None],
    parse_call: Callable[[Mapping[str, Any]], ToolCall | None],
    is_opaque: Callable[[Mapping[str, Any]], bool] | None = None,
) -> Message:
    """Return the assistant message of a reply.

    An item that is neither text nor a call is opaque: only the provider understands it, so all items are kept for
    replay.
    """
    texts = [parse_text(item) for item in items]
    calls = [parse_call(item) for item in items]
    # Citations split one text into several items.
    text = "".join(filter(None, texts))
    opaque = any(
        (part is None and call is None) or (is_opaque is not None and is_opaque(item))
        for item, part, call in zip(items, texts, calls, strict=True)
    )
    state = {"provider": provider, "items": list(items)} if opaque else None
    content = [Text(text)] if text else []
    return Message("assistant", content, [call for call in calls if call is not None], provider_state=state)


class Replay:
    """Encoder of an assistant message that reuses the provider's original items.

    Opaque items (thoughts, signatures, tools that the provider ran) are sent back unchanged. Text and calls that have
    changed since are encoded again.
    """

    def __init__(
        self,
        parse_call: Callable[[Mapping[str, Any]], ToolCall | None],
        parse_text: Callable[[Mapping[str, Any]], str | None],
        format_call: Callable[[ToolCall], Body],
        format_text: Callable[[str], Body],
    ) -> None:
        self.parse_call = parse_call
        self.parse_text = parse_text
        self.format_call = format_call
        self.format_text = format_text

    def iter_items(self, message: Message, original_items: list[Any] | None, text: str) -> Iterator[Body]:
        """Yield the items of a message, in order; `text` is its present text."""
        remaining_calls = {to_wire_id(call.id): call for call in message.calls}
        items = [item for item in original_items or () if isinstance(item, Mapping)]
        item_texts = [part for part in map(self.parse_text, items) if part is not None]
        text_unchanged = "".join(item_texts) == text
        text_sent = False
        for item in items:
            original_call = self.parse_call(item)
            item_text = self.parse_text(item)
            if original_call is not None:
                original_id = to_wire_id(original_call.id) if original_call.id else ""
                call = remaining_calls.pop(original_id or _find_first_id(remaining_calls, original_call), None)
                if call is not None:
                    yield dict(item) if have_same_arguments(call, original_call) else {**item, **self.format_call(call)}
            elif item_text is None or text_unchanged:
                yield dict(item)
            elif text and not text_sent:
                text_sent = True
                yield self.format_text(text)
        if text and not text_sent and not (text_unchanged and item_texts):
            yield self.format_text(text)
        for call in remaining_calls.values():
            yield self.format_call(call)


def _find_first_id(calls: Mapping[str, ToolCall], original: ToolCall) -> str:
    """Return the id of the first call with the same tool name, or an empty string."""
    return next((call_id for call_id, call in calls.items() if call.name == original.name), "")
