"""What a server asks of us → what the application answers: elicitation, sampling, roots.

Lives here: the wire's questions as plain data and back. A question without a handler is declined, and the server is
told beforehand that we cannot answer it. Not here: who is asked.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import ValidationError

from toolmason._core.remote.protocol import Host
from toolmason.mcp_client.calls.forwarding import ROUNDS, Passages

_FORWARDED: Final[Mapping[str, tuple[str, Any]]] = {
    "elicitation_callback": ("elicitation/create", ElicitResult),
    "sampling_callback": ("sampling/createMessage", CreateMessageResult),
    "list_roots_callback": ("roots/list", ListRootsResult),
}
_log = logging.getLogger("toolmason.mcp")


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A server asks the user something."""

    message: str
    schema: Mapping[str, Any] | None = None
    """What the answer should look like, for a form."""
    url: str | None = None
    """Where the user should go instead. Show it in full, and open it only if the user says so."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """A server asks for a model's answer."""

    messages: tuple[Mapping[str, Any], ...]
    system: str | None = None
    max_tokens: int = 0
    raw: Mapping[str, Any] | None = None


def answers_of(host: Host, passages: Passages) -> dict[str, Any]:
    """Return the SDK's callbacks for what the application can answer, or a client of ours for whom we ask."""
    answers = {name: _in_turn(passages, answer) for name, answer in _answers(host, passages).items()}
    return {"logging_callback": _logged_by(passages), **answers}


def _in_turn(passages: Passages, answer: Any) -> Any:
    """Have a question answered only as often as a request may ask, and few at a time: an answer costs somebody."""

    async def answered(context: Any, *params: Any) -> Any:
        if not passages.admit():
            words = f"no more than {ROUNDS} questions are answered within one request"
            return ErrorData(code=INVALID_REQUEST, message=words)
        async with passages.turns:
            return await answer(context, *params)

    return answered


def _answers(host: Host, passages: Passages) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    if host.passes:
        for name, (method, result) in _FORWARDED.items():
            answers[name] = _forwarded(passages, method, result)
    if "elicitation" in host.own:
        answers["elicitation_callback"] = _elicited_by(host.on_elicit)
    if "sampling" in host.own:
        answers["sampling_callback"] = _sampled_by(host.on_sample)
    if "roots" in host.own:
        answers["list_roots_callback"] = _rooted_at(host.roots)
    return answers


def _logged_by(passages: Passages) -> Any:
    async def log(params: Any) -> None:
        passages.heard(params)

    return log


def _forwarded(passages: Passages, method: str, result: Any) -> Any:
    async def forward(context: Any, params: Any = None) -> Any:
        del context
        passage = passages.current
        if passage is None:
            # It may come from another client's call: to ask the wrong one is worse than not to ask.
            return ErrorData(code=INVALID_REQUEST, message="there is nobody to ask at the moment")
        given = None if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            return result.model_validate(dict(await passage.ask(method, given)), by_name=False)
        except MCPError as error:
            return ErrorData(code=error.code, message=error.message)
        except ValidationError:
            return ErrorData(code=INTERNAL_ERROR, message="the client's answer does not fit the protocol")

    return forward


def _elicited_by(ask: Any) -> Any:
    async def elicit(context: Any, params: Any) -> ElicitResult | ErrorData:
        del context
        question = Elicitation(params.message, getattr(params, "requested_schema", None), getattr(params, "url", None))
        try:
            answer = await _answer(ask(question))
        except Exception as error:  # noqa: BLE001 - the application's code; the server gets a no
            _log.warning("on_elicit failed: %s", type(error).__name__)
            return ElicitResult(action="cancel")
        if answer is None or answer is False:
            return ElicitResult(action="decline")
        if question.url is not None:
            return ElicitResult(action="accept")
        return ElicitResult(action="accept", content=dict(answer) if isinstance(answer, Mapping) else {})

    return elicit


def _sampled_by(ask: Any) -> Any:
    async def sample(context: Any, params: Any) -> CreateMessageResult | ErrorData:
        del context
        data = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        question = Sampling(tuple(data["messages"]), data.get("systemPrompt"), data.get("maxTokens", 0), data)
        try:
            answer = await _answer(ask(question))
        except Exception as error:  # noqa: BLE001 - the application's code; the server is told that it failed
            _log.warning("on_sample failed: %s", type(error).__name__)
            return ErrorData(code=INTERNAL_ERROR, message="the request could not be answered")
        if isinstance(answer, Mapping):
            return CreateMessageResult.model_validate(dict(answer), by_name=False)
        content = TextContent(type="text", text=str(answer))
        return CreateMessageResult(role="assistant", content=content, model="toolmason", stop_reason="endTurn")

    return sample


def _rooted_at(roots: Any) -> Any:
    async def list_roots(context: Any) -> ListRootsResult:
        del context
        return ListRootsResult(roots=[Root(uri=_address_of(root)) for root in roots])

    return list_roots


def _address_of(root: Any) -> Any:
    """Return a root as the wire has it; a folder is one on this machine."""
    text = str(root)
    return text if "://" in text else Path(root).absolute().as_uri()


async def _answer(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
