"""Answer a server's elicitation, sampling and roots requests with the application's handlers or its client."""

from __future__ import annotations

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
    TextContent,
)
from pydantic import ValidationError
from pydantic_core import from_json

from toolmason._core.remote.protocol import ServerRequestHandlers
from toolmason._core.run.execute import await_with_timeout, call_user_function
from toolmason._core.values.policy import EngineSettings
from toolmason.mcp_client.calls.forwarding import MAX_ROUNDS, ForwardedRequests
from toolmason.mcp_client.calls.output_checks import OutputChecker

_FORWARDED_CALLBACKS: Final[Mapping[str, tuple[str, Any]]] = {
    "elicitation_callback": ("elicitation/create", ElicitResult),
    "sampling_callback": ("sampling/createMessage", CreateMessageResult),
    "list_roots_callback": ("roots/list", ListRootsResult),
}
_log = logging.getLogger("toolmason.mcp")


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A server's question to the user."""

    message: str
    schema: Mapping[str, Any] | None = None
    """Schema of the expected answer, for a form."""
    url: str | None = None
    """URL that the user should open instead. Show it in full, and open it only if the user agrees."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """A server's request for a model completion."""

    messages: tuple[Mapping[str, Any], ...]
    system: str | None = None
    max_tokens: int = 0
    raw: Mapping[str, Any] | None = None


def make_callbacks(handlers: ServerRequestHandlers, requests: ForwardedRequests) -> dict[str, Any]:
    """Return the SDK callbacks for the requests that the application or its client can answer."""
    callbacks: dict[str, Any] = {}
    if handlers.forwards:
        for name, (method, result_type) in _FORWARDED_CALLBACKS.items():
            callbacks[name] = _make_forwarding_callback(requests, method, result_type)
    if "elicitation" in handlers.handled:
        callbacks["elicitation_callback"] = _make_elicitation_callback(handlers.on_elicit, handlers.settings)
    if "sampling" in handlers.handled:
        callbacks["sampling_callback"] = _make_sampling_callback(handlers.on_sample, handlers.settings)
    if "roots" in handlers.handled:
        callbacks["list_roots_callback"] = _make_roots_callback(handlers.roots)
    limited = {name: _limit_questions(requests, callback) for name, callback in callbacks.items()}
    return {"logging_callback": requests.on_log, **limited}


def _limit_questions(requests: ForwardedRequests, callback: Any) -> Any:
    """Limit the questions per request and the concurrent ones: each takes the time of a user or a model."""

    async def limited(context: Any, *params: Any) -> Any:
        del context
        if not requests.admit():
            reason = f"at most {MAX_ROUNDS} questions are answered per request"
            return ErrorData(code=INVALID_REQUEST, message=reason)
        async with requests.question_slots:
            return await callback(*params)

    return limited


def _make_forwarding_callback(requests: ForwardedRequests, method: str, result_type: Any) -> Any:
    async def forward(params: Any = None) -> Any:
        request = requests.current
        if request is None:
            # The question may belong to another client's call: asking the wrong client is worse than not asking.
            return ErrorData(code=INVALID_REQUEST, message="the question cannot be assigned to a client")
        raw_params = None if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            return result_type.model_validate(dict(await request.ask(method, raw_params)), by_name=False)
        except MCPError as error:
            return ErrorData(code=error.code, message=error.message)
        except ValidationError:
            return ErrorData(code=INTERNAL_ERROR, message="the client's answer does not match the protocol")

    return forward


def _make_elicitation_callback(handler: Any, settings: EngineSettings) -> Any:
    async def elicit(params: Any) -> ElicitResult | ErrorData:
        question = Elicitation(params.message, getattr(params, "requested_schema", None), getattr(params, "url", None))
        try:
            answer = await _ask_application("on_elicit", handler, question, settings)
        except Exception as error:  # noqa: BLE001 - application code; the server gets a cancel
            _log.warning("on_elicit failed: %s", type(error).__name__)
            return ElicitResult(action="cancel")
        if answer is None or answer is False:
            return ElicitResult(action="decline")
        if question.url is not None:
            return ElicitResult(action="accept")
        content = dict(answer) if isinstance(answer, Mapping) else {}
        try:
            result = ElicitResult(action="accept", content=content)
            sent = from_json(result.model_dump_json())["content"]
        except ValueError:
            return ErrorData(code=INTERNAL_ERROR, message="the answer of on_elicit cannot be sent as JSON")
        # A server of the stateless era may repeat its question after an answer that does not match.
        misfit = await OutputChecker(dict(question.schema or {}), "on_elicit").find_misfit(sent)
        if misfit is not None:
            place = misfit.partition(": ")[0]
            reason = f"the answer of on_elicit does not match the requested schema at {place}"
            return ErrorData(code=INTERNAL_ERROR, message=reason)
        return result

    return elicit


def _make_sampling_callback(handler: Any, settings: EngineSettings) -> Any:
    async def sample(params: Any) -> CreateMessageResult | ErrorData:
        data = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        question = Sampling(tuple(data["messages"]), data.get("systemPrompt"), data.get("maxTokens", 0), data)
        try:
            answer = await _ask_application("on_sample", handler, question, settings)
        except Exception as error:  # noqa: BLE001 - application code; the server gets an error
            _log.warning("on_sample failed: %s", type(error).__name__)
            return ErrorData(code=INTERNAL_ERROR, message="the application failed to answer the request")
        if isinstance(answer, Mapping):
            return CreateMessageResult.model_validate(dict(answer), by_name=False)
        content = TextContent(type="text", text=str(answer))
        return CreateMessageResult(role="assistant", content=content, model="toolmason", stop_reason="endTurn")

    return sample


def _make_roots_callback(roots: Any) -> Any:
    # A root without a scheme is the path of a local folder.
    uris = [str(root) if "://" in str(root) else Path(root).absolute().as_uri() for root in roots]
    result = ListRootsResult.model_validate({"roots": [{"uri": uri} for uri in uris]})

    async def list_roots() -> ListRootsResult:
        return result

    return list_roots


async def _ask_application(name: str, handler: Any, question: Any, settings: EngineSettings) -> Any:
    """Return the application's answer to a server's question, within the hard limit of a call."""
    work = call_user_function(handler, question, settings=settings)
    return await await_with_timeout(work, settings.max_timeout, name, settings.cancel_grace)
