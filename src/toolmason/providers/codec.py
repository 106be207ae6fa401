"""Base classes of the provider formats, and the steps that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from toolmason._core.toolbox.exchange import Finished, ModelEvent, ModelReply, ModelRequest, check_tool_choice
from toolmason._core.values.content import Text
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Citation, Message
from toolmason._core.values.provider_tools import AnyNativeTool, Strict
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._services import SERVICES, Service
from toolmason._wire import is_retryable_status
from toolmason.errors import ConfigError, ModelError, clip
from toolmason.providers.aliases import ToolNames, to_wire_id
from toolmason.providers.answer_rules import add_answer
from toolmason.providers.content_parts import is_replayable, join_parts, make_call_id
from toolmason.providers.conversation import repair
from toolmason.providers.native_tools import deduplicate, format_native_tool, refuse_shared_names
from toolmason.providers.option_rules import check_option, map_options, merge_body
from toolmason.providers.reply_checks import PARSE_ERRORS, check_reply, guard_events, make_unreadable_error
from toolmason.providers.schema.losses import NarrowedSchema, Verdict
from toolmason.providers.schema.narrow import SharedParts
from toolmason.providers.schema.strict import check_strict
from toolmason.providers.tool_set import EncodedMessage, ProviderRules, RequestCache, ToolSet, make_tool_set

Body = dict[str, Any]
_C = TypeVar("_C", bound="Codec")
_TOOL_OPTIONS: Final = ("strict", "lossy", "parallel")
"""Options on which the offered tools depend."""
_STATUSES: Final = range(400, 600)
_RETRYABLE_CODES: Final = (
    "overloaded_error",
    "rate_limit_error",
    "server_error",
    "rate_limit_exceeded",
    "UNAVAILABLE",
)


class Format(ABC):
    """Encoder of tools and results for one API."""

    rules: ProviderRules
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
        native = [tool for tool in formatted if tool is not None]
        if native:
            aliases = [tool_set.names.get_alias(tool.name) for tool, _ in tool_set.tools]
            refuse_shared_names(native, aliases, self.rules.provider)
        return native

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
        narrowed = self.rules.fit_schema(tool.input_schema, check_strict(strict), SharedParts())
        return Verdict(self.name, tool.name, narrowed, alias if alias != tool.name else None)


class ReplyReader(ABC, Generic[_C]):
    """Converter of one provider's stream events to model events."""

    def __init__(self, codec: _C, names: ToolNames) -> None:
        self.codec, self.names = codec, names
        self.pieces: defaultdict[Any, list[str]] = defaultdict(list)

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield the model events of one provider event.

        Raises:
            ModelError: the event reports a failure or is malformed.
        """
        yield from guard_events(self.codec.service.name, self.read_event(event), event)

    def end(self) -> ModelReply:
        """Return the complete reply.

        Raises:
            ModelError: the stream ended early, or the reply is malformed.
        """
        try:
            body = self.build_body()
            if body is None:
                message = "the stream ended before the reply was complete"
                raise ModelError(self.codec.service.name, message, code="cut", retryable=True)
            return self.codec.decode(body, self.names)
        except PARSE_ERRORS as error:
            raise make_unreadable_error(self.codec.service.name, "the response", error, "") from error

    @abstractmethod
    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Yield the model events of one provider event. May raise any error if the event is malformed."""

    @abstractmethod
    def build_body(self) -> Body | None:
        """Return the reply as one body, or None if the stream ended early. May raise any error, as `read_event`."""

    def get_final_events(self, reply: ModelReply) -> Iterable[ModelEvent]:
        """Return events for content of the reply that no event has reported yet, and `Finished`."""
        return (Finished(reply),)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """Request as it is sent, and the names of its tools."""

    body: Body
    names: ToolNames


class Codec(Format):
    """Encoder and decoder of conversations for one API, with the differences of one service that has it."""

    _reader_class: ClassVar[type[ReplyReader[Any]]]
    search_tool: ClassVar[Body | None] = None
    """The provider's own tool search for deferred tools, or `None` if it has none."""

    def __init__(self, service: Service | None = None) -> None:
        self.service = SERVICES[self.name] if service is None else service
        if self.service.strict != self.rules.strict:
            self.rules = replace(self.rules, strict=self.service.strict)

    @abstractmethod
    def format_message(self, message: Message, names: ToolNames, model: str) -> Sequence[Body]:
        """Return the items of one message."""

    @abstractmethod
    def build_body(self, request: ModelRequest, messages: Sequence[EncodedMessage], model: str) -> Body:
        """Return the request body without the fields of its tools."""

    @abstractmethod
    def offer_tools(self, request: ModelRequest, tool_set: ToolSet) -> Body:
        """Return the fields of the request body that offer the tools."""

    @abstractmethod
    def parse_reply(self, body: Mapping[str, Any], names: ToolNames) -> ModelReply:
        """Parse a reply. May raise any error if the body is malformed."""

    def reader(self, names: ToolNames) -> ReplyReader[Any]:
        """Return a reader for one stream."""
        return self._reader_class(self, names)

    def add_tools(self, body: Body, offer: Body) -> Body:
        """Return the body with the fields of `offer_tools`."""
        return {**body, **offer}

    def _apply_options(self, body: Body, request: ModelRequest, model: str) -> Body:
        """Return the body with the fields of the request's options.

        Raises:
            ConfigError: the service does not support an option.
        """
        return merge_body(body, map_options(request.options, self.service, model))

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
        check_tool_choice(request)
        return tool_set

    def encode(
        self, request: ModelRequest, model: str = "", *, stream: bool = False, cache: RequestCache | None = None
    ) -> Body:
        """Return the body of a request, after repairing problems such as calls without results.

        With `cache`, parts of the body are shared with earlier requests; do not modify it then.

        Raises:
            ConfigError: `request` is not a `ModelRequest`, or no model is named.
        """
        given: Any = request
        if not isinstance(given, ModelRequest):
            raise ConfigError(
                f"encode(request={clip(repr(given))}): must be a ModelRequest. Write `ModelRequest(messages, tools)`."
            )
        if not model:
            raise ConfigError(f"encode(model={model!r}): must be the name of a model.")
        return self.prepare(request, model, cache or RequestCache(), stream=stream).body

    def prepare(
        self, request: ModelRequest, model: str, cache: RequestCache, *, stream: bool = False
    ) -> PreparedRequest:
        """Return the body of a request, as `encode`, and the names under which its tools are sent."""
        if not cache.is_valid(request.messages):
            request = request.with_messages(repair(request.messages))
        options = request.options
        answer = request.answer
        key = (request.tools, request.native, request.tool_choice, answer, *map(options.get, _TOOL_OPTIONS))
        # Comparing tuples of identical objects is fast: Python compares identity before equality.
        if cache.offer is None or cache.offer[0] != key:
            tool_set = self.fit_request_tools(request)
            cache.offer = (key, tool_set.names, self.offer_tools(request, tool_set))
        _, names, offer = cache.offer
        messages = cache.encode(request.messages, names, partial(self.format_message, names=names, model=model))
        body = self.add_tools(self.build_body(request, messages, model), offer)
        if options:
            body = self._apply_options(body, request, model)
        if deferred := options.get("defer"):
            check_option("defer", deferred)
            deferred_names = frozenset([deferred] if isinstance(deferred, str) else deferred)
            body = self._defer_tools(body, deferred_names, request, names)
        if stream:
            body = self.as_streaming(body)
        if extra_fields := options.get("body"):
            body = merge_body(body, extra_fields)
        if answer is not None and answer.mode != "tool":
            body = add_answer(body, answer, self.name)
        return PreparedRequest(body, names)

    def _defer_tools(self, body: Body, deferred: frozenset[str], request: ModelRequest, names: ToolNames) -> Body:
        if self.search_tool is None:
            raise ConfigError(f"{self.service.name} has no built-in tool search. Omit `defer`.")
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
            raise parse_error(self.service.name, body)
        tool_names = names if isinstance(names, ToolNames) else self.names_of(names)
        try:
            reply = check_reply(self.parse_reply(body, tool_names))
        except PARSE_ERRORS as error:
            raise make_unreadable_error(self.service.name, "the response", error, body) from error
        # Gemini and compatible servers report calls as an ordinary end.
        return replace(reply, finish="calls") if reply.message.calls and reply.finish == "stop" else reply


class ItemCodec(Codec):
    """Codec for an API whose replies are lists of items, such as text, calls and thoughts."""

    call_id_prefix: ClassVar[str] = "call"
    """Prefix of the ids of calls that arrived without one."""
    signature_key: ClassVar[str | None] = None
    """Key of a signature on an item, which the provider wants back."""

    @abstractmethod
    def parse_text(self, item: Mapping[str, Any]) -> str | None:
        """Return the text of an item, or None if it is not text."""

    @abstractmethod
    def parse_call(self, item: Mapping[str, Any], names: ToolNames) -> ToolCall | None:
        """Return the call of an item, or None if it is not a call. Its id is empty if it has none."""

    @abstractmethod
    def format_text(self, text: str) -> Body:
        """Return the item of an assistant's text."""

    @abstractmethod
    def format_call(self, call: ToolCall, names: ToolNames) -> Body:
        """Return the item of a call."""

    def read_message(self, items: Sequence[Mapping[str, Any]], names: ToolNames) -> Message:
        """Return the assistant message of a reply.

        An item that is neither text nor a call is opaque: only the provider understands it, so all items are kept
        for replay.
        """
        text = ""
        calls: list[ToolCall] = []
        citations: list[Citation] = []
        is_opaque = False
        for item in items:
            item_text = self.parse_text(item)
            call = self.parse_call(item, names)
            if call is not None:
                calls.append(call if call.id else replace(call, id=make_call_id(self.call_id_prefix)))
            # Citations split one text into several items.
            if item_text:
                citations += self._read_citations(item, len(text))
            text += item_text or ""
            is_opaque = is_opaque or (item_text is None and call is None) or self.signature_key in item
        state = {"provider": self.name, "items": list(items)} if is_opaque else None
        return Message("assistant", [Text(text)] if text else (), calls, provider_state=state, citations=citations)

    def _read_citations(self, item: Mapping[str, Any], start: int) -> Iterable[Citation]:
        """Return the sources that an item names for its text, which begins at `start` in the text of the message."""
        del item, start
        return ()

    def format_assistant(self, message: Message, names: ToolNames) -> list[Body]:
        """Return the items of an assistant message, of which the original ones are used again.

        Opaque items (thoughts, signatures, tools that the provider ran) are sent back unchanged. Text and calls that
        have changed since are encoded again.
        """
        text = join_parts(message.content)
        remaining_calls = {to_wire_id(call.id): call for call in message.calls}
        items = get_provider_items(message, self.name)
        item_texts = [part for part in map(self.parse_text, items) if part is not None]
        text_unchanged = "".join(item_texts) == text
        text_sent = not text or (text_unchanged and bool(item_texts))
        encoded: list[Body] = []
        for item in items:
            original = self.parse_call(item, names)
            if original is not None:
                # A call of Gemini may have no id: it is the first one of its tool.
                same_tool = (key for key, call in remaining_calls.items() if call.name == original.name)
                call = remaining_calls.pop(to_wire_id(original.id) if original.id else next(same_tool, ""), None)
                if call is not None:
                    encoded.append({**item, **({} if is_replayable(call, original) else self.format_call(call, names))})
            elif text_unchanged or self.parse_text(item) is None:
                encoded.append(dict(item))
            elif not text_sent:
                text_sent = True
                encoded.append(self.format_text(text))
        if not text_sent:
            encoded.append(self.format_text(text))
        return [*encoded, *[self.format_call(call, names) for call in remaining_calls.values()]]


def parse_error(provider: str, body: Mapping[str, Any], status: int | None = None) -> ModelError:
    """Return the error that a body describes."""
    error = body.get("error")
    if not isinstance(error, Mapping):
        error = {"message": error or body.get("message") or str(dict(body))[:300]}
    code = error.get("type") or error.get("status") or error.get("code") or ""
    if isinstance(error.get("code"), str):
        code = error["code"]
    elif status is None and isinstance(number := error.get("code"), int) and number in _STATUSES:
        # OpenRouter reports the status of the model's own server in the body of a response with the status 200.
        status = number
    metadata = error.get("metadata")
    detail = metadata.get("raw") if isinstance(metadata, Mapping) else None
    message = str(error.get("message", error)) + (f" ({detail})" if isinstance(detail, str) and detail else "")
    # A code may say less than the type beside it.
    codes = (code, error.get("type"), error.get("status"))
    retryable = any(each in _RETRYABLE_CODES for each in codes) or (status is not None and is_retryable_status(status))
    return ModelError(provider, message, status=status, code=str(code), retryable=retryable)


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


def make_openai_citation(mark: Mapping[str, Any], start: int) -> Citation:
    """Return an annotation of OpenAI as a citation. Its positions count from `start`."""
    first, last = mark.get("start_index"), mark.get("end_index")
    place = (start + first, start + last) if isinstance(first, int) and isinstance(last, int) else (start, 0)
    title = str(mark.get("title") or mark.get("filename") or "")
    quote = str(mark.get("content") or "")  # OpenRouter has the text of the page there
    return Citation(str(mark.get("url") or ""), title, quote, str(mark.get("file_id") or ""), *place)


def get_provider_items(message: Message, provider: str) -> list[Mapping[str, Any]]:
    """Return the raw items of a message; none if another provider sent it."""
    state = message.provider_state
    if not isinstance(state, Mapping) or state.get("provider") != provider:
        return []
    items = state.get("items")
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
