"""The events of an OpenAI Responses stream → our events and the whole answer.

Lives here: putting items together. Not here: what an item means (`openai`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typing_extensions import override

from toolmason._core.exchange import (
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    ModelEvent,
    ModelReply,
    TextDelta,
    ThoughtDelta,
)
from toolmason._core.values import ToolCall
from toolmason.errors import ModelError
from toolmason.providers.codec import Reader, error_in
from toolmason.providers.names import Names

_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.done")


class ResponsesReader(Reader):
    """One stream of the Responses API."""

    def __init__(self, names: Names, decode: Callable[[Any], ModelReply]) -> None:
        super().__init__("openai")
        self._names, self._decode = names, decode
        self._items: dict[int, dict[str, Any]] = {}
        self._ids: dict[str, int] = {}
        self._closed: set[int] = set()
        self._body: dict[str, Any] | None = None

    @override
    def take(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        kind = event.get("type", "")
        if kind == "error" or (not kind and "error" in event):
            told = event if isinstance(event.get("error"), Mapping) else {"error": dict(event)}
            raise error_in("openai", told)
        if kind in ("response.output_item.added", "response.output_item.done"):
            yield from self._item(kind, event)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            yield TextDelta(event.get("delta") or "")
        elif kind in _THOUGHTS:
            yield ThoughtDelta(event.get("delta") or "")
        elif kind == "response.function_call_arguments.delta":
            item = self._items.setdefault(self._index(event), {})
            item["arguments"] = (item.get("arguments") or "") + (event.get("delta") or "")
            yield ArgumentsDelta(str(item.get("call_id") or ""), event.get("delta") or "")
        elif kind == "response.function_call_arguments.done":
            item = self._items.setdefault(self._index(event), {})
            item["arguments"] = event.get("arguments") or item.get("arguments") or ""
        elif kind in _ENDS:
            yield from self._end(event.get("response") or {})

    def _index(self, event: Mapping[str, Any]) -> int:
        if isinstance(number := event.get("output_index"), int):
            return number
        return self._ids.get(str(event.get("item_id")), max(self._items, default=0))

    def _item(self, kind: str, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        number = self._index(event) if "output_index" in event else len(self._items)
        item = dict(event.get("item") or {})
        known = self._items.get(number, {})
        self._ids[str(item.get("id"))] = number
        if item.get("type") == "function_call":
            item["arguments"] = item.get("arguments") or known.get("arguments") or ""
            if kind.endswith("added"):
                yield CallOpened(str(item.get("call_id") or item.get("id")), self._names.name(item.get("name") or ""))
        self._items[number] = item
        if kind.endswith("done") and number not in self._closed:
            self._closed.add(number)
            yield from self._close(item)

    def _close(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if item.get("type") == "function_call":
            call_id = str(item.get("call_id") or item.get("id"))
            yield CallClosed(ToolCall(call_id, self._names.name(item.get("name") or ""), item["arguments"] or "{}"))

    def _end(self, response: Mapping[str, Any]) -> Iterator[ModelEvent]:
        for number in sorted(self._items.keys() - self._closed):
            yield from self._close(self._items[number])
        self._closed.update(self._items)
        # Not every server repeats the items at the end.
        output = response.get("output") or [self._items[number] for number in sorted(self._items)]
        self._body = {"status": "completed", **response, "output": output}

    @override
    def whole(self) -> ModelReply:
        if self._body is None:
            raise ModelError("openai", "the stream ended before the answer did", code="cut", retryable=True)
        return self._decode(self._body)
