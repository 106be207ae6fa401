"""Write the spans and metrics of runs and model turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from toolmason._core.define.context import get_trace_options
from toolmason._core.run.call_log import MAX_CONTENT_CHARS, show_content
from toolmason._core.run.metrics import measure
from toolmason._core.run.tracing import get_error_type, open_span
from toolmason._core.toolbox.exchange import ModelReply, ModelRequest
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.messages import Message
from toolmason.chat.reply import Reply
from toolmason.chat.run.spending import Prices, find_cost
from toolmason.chat.send_options import SendOptions
from toolmason.models.protocol import Model

_PROVIDERS: Final = {"openai-chat": "openai", "gemini": "gcp.gemini"}
"""Names of providers in the conventions, if they differ."""
_MAX_MESSAGES: Final = 50
"""Maximum number of messages that a span shows; the last ones."""


def _describe_model(model: Model) -> dict[str, Any]:
    provider, colon, name = model.name.partition(":")
    provider_name = _PROVIDERS.get(provider, provider)
    return {"gen_ai.provider.name": provider_name, "gen_ai.request.model": name if colon else provider}


async def trace_run(
    model: Model, box: Toolbox, options: SendOptions, run: Callable[[], Awaitable[Reply[Any]]]
) -> Reply[Any]:
    """Execute a run in a span. A run that is resumed links the span of the run that was saved."""
    delegated = options.delegated
    name = (get_state(box).policy.name or "") if delegated is None else delegated.name
    attributes = {"gen_ai.operation.name": "invoke_agent", **_describe_model(model)}
    if name:
        attributes["gen_ai.agent.name"] = name
    if options.conversation is not None:
        attributes["gen_ai.conversation.id"] = options.conversation
    started, finish = perf_counter(), "error"
    with open_span(f"invoke_agent {name}".rstrip(), attributes) as span:
        try:
            reply = await run()
            finish = reply.finish
        finally:
            measure("toolmason.run.duration", perf_counter() - started, {"toolmason.run.finish": finish})
        if span is None:
            return reply
        resumed = None if delegated is None else delegated.resumed
        span.link(options.trace if resumed is None else resumed.reply.trace)
        facts = {"id": reply.run, "finish": reply.finish, "turns": reply.turns, "calls": len(reply.results)}
        span.set({f"toolmason.run.{key}": value for key, value in facts.items()})
        if reply.cost is not None:
            span.set({"toolmason.cost": float(reply.cost)})
        return replace(reply, trace=span.traceparent)


async def trace_turn(
    model: Model, box: Toolbox, request: ModelRequest, prices: Prices | None, ask: Callable[[], Awaitable[ModelReply]]
) -> ModelReply:
    """Ask a model for a turn in a span, and measure its time, its tokens and its cost."""
    labels = {"gen_ai.operation.name": "chat", **_describe_model(model)}
    has_content = get_trace_options(get_state(box).calls.context).has_content
    attributes = {**labels, **(_describe_request(request) if has_content else {})}
    started, outcome = perf_counter(), {}
    with open_span(f"chat {labels['gen_ai.request.model']}", attributes, "client") as span:
        try:
            reply = await ask()
        except BaseException as error:
            outcome = {"error.type": get_error_type(error)}
            raise
        finally:
            measure("gen_ai.client.operation.duration", perf_counter() - started, labels | outcome)
        usage, cost = reply.usage, None if prices is None else find_cost(prices, reply, model.name, [])
        for kind, tokens in (
            (("input", usage.input_tokens), ("output", usage.output_tokens)) if usage.total_tokens else ()
        ):
            measure("gen_ai.client.token.usage", tokens, {**labels, "gen_ai.token.type": kind})
        if cost is not None:
            measure("toolmason.run.cost", cost, labels)
        if span is not None:
            found = {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cache_read.input_tokens": usage.cached_tokens,
                "cache_creation.input_tokens": usage.cache_write_tokens,
                "reasoning.output_tokens": usage.reasoning_tokens,
            }
            span.set(
                {
                    "gen_ai.response.finish_reasons": (reply.finish,),
                    **{f"gen_ai.usage.{name}": count for name, count in found.items() if count},
                    **({} if cost is None else {"toolmason.cost": float(cost)}),
                    **({"gen_ai.output.messages": _show_messages([reply.message])} if has_content else {}),
                }
            )
    return reply


def _describe_request(request: ModelRequest) -> dict[str, Any]:
    system = [message for message in request.messages if message.role == "system"]
    others = [message for message in request.messages if message.role != "system"]
    shown = {"gen_ai.input.messages": _show_messages(others)}
    return {**shown, "gen_ai.system_instructions": _show_messages(system)} if system else shown


def _show_messages(messages: Sequence[Message]) -> str:
    """Return messages as JSON in the form of the conventions. The spans of calls have their arguments and results."""
    data: list[dict[str, Any]] = []
    for message in messages[-_MAX_MESSAGES:]:
        text = message.text
        parts: list[dict[str, Any]] = [{"type": "text", "content": show_content({"text": text})}] if text else []
        parts += [{"type": "tool_call", "id": call.id, "name": call.name} for call in message.calls]
        parts += [{"type": "tool_call_response", "id": result.call_id} for result in message.results]
        data.append({"role": message.role, "parts": parts})
    return show_content(data, max_chars=_MAX_MESSAGES * 2 * MAX_CONTENT_CHARS)
