"""List the attributes that this package writes: one table, by the conventions of OpenTelemetry.

Names that start with `toolmason.` are the package's own. All others are those of the GenAI, MCP, HTTP and general
conventions of the version in `SCHEMA_URL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the conventions, as opentelemetry-semantic-conventions 0.66b2 has it."""


class Attribute(NamedTuple):
    """One attribute of spans, metrics or log records."""

    type: type[Any]
    meaning: str


ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "gen_ai.operation.name": Attribute(str, "`invoke_agent`, `chat` or `execute_tool`"),
    "gen_ai.agent.name": Attribute(str, "name of the toolbox of a run, or of the tool that a delegated chat is"),
    "gen_ai.conversation.id": Attribute(str, "conversation of a run"),
    "gen_ai.provider.name": Attribute(str, "provider of the model"),
    "gen_ai.request.model": Attribute(str, "name of the model"),
    "gen_ai.request.stream": Attribute(bool, "true if the reply is read as a stream"),
    "gen_ai.response.finish_reasons": Attribute(tuple, "why the model stopped"),
    "gen_ai.usage.input_tokens": Attribute(int, "input tokens, cached ones included"),
    "gen_ai.usage.output_tokens": Attribute(int, "output tokens"),
    "gen_ai.usage.cache_read.input_tokens": Attribute(int, "input tokens read from the provider's cache"),
    "gen_ai.usage.cache_creation.input_tokens": Attribute(int, "input tokens written to the provider's cache"),
    "gen_ai.usage.reasoning.output_tokens": Attribute(int, "output tokens spent on reasoning"),
    "gen_ai.token.type": Attribute(str, "`input` or `output`"),
    "gen_ai.system_instructions": Attribute(str, "system message, only with content"),
    "gen_ai.input.messages": Attribute(str, "messages that the model reads, only with content"),
    "gen_ai.output.messages": Attribute(str, "message of the model, only with content"),
    "gen_ai.tool.name": Attribute(str, "name of the tool"),
    "gen_ai.tool.type": Attribute(str, "`function`"),
    "gen_ai.tool.description": Attribute(str, "description that the model reads"),
    "gen_ai.tool.call.id": Attribute(str, "ID of the call"),
    "gen_ai.tool.call.arguments": Attribute(str, "arguments, only with content"),
    "gen_ai.tool.call.result": Attribute(str, "result, only with content"),
    "gen_ai.prompt.name": Attribute(str, "name of the prompt"),
    "mcp.method.name": Attribute(str, "method of the protocol"),
    "mcp.protocol.version": Attribute(str, "version of the protocol"),
    "jsonrpc.request.id": Attribute(str, "ID of the request"),
    "rpc.response.status_code": Attribute(str, "code of a protocol error"),
    "network.transport": Attribute(str, "`pipe` for a process, `tcp` for HTTP"),
    "server.address": Attribute(str, "host of a server or provider"),
    "server.port": Attribute(int, "port of a server or provider"),
    "http.request.method": Attribute(str, "`POST`"),
    "http.request.resend_count": Attribute(int, "number of earlier attempts of a request"),
    "http.response.status_code": Attribute(int, "status of a response"),
    "process.pid": Attribute(int, "worker process of a tool"),
    "error.type": Attribute(str, "code of the error, or the class of an exception"),
    "toolmason.error.id": Attribute(str, "ID of a failure, also in the log and the result"),
    "toolmason.run.id": Attribute(str, "ID of a run"),
    "toolmason.run.finish": Attribute(str, "why a run ended"),
    "toolmason.run.turns": Attribute(int, "number of model turns of a run"),
    "toolmason.run.calls": Attribute(int, "number of calls of a run"),
    "toolmason.cost": Attribute(float, "cost of a turn or run, in the currency of the price"),
    "toolmason.server": Attribute(str, "name of an MCP server"),
    "toolmason.attempt": Attribute(int, "number of the attempt"),
    "toolmason.attempts": Attribute(int, "number of attempts, if there was more than one"),
    "toolmason.repairs": Attribute(int, "number of repairs of the arguments, if any"),
    "toolmason.arguments.size": Attribute(int, "characters of the arguments"),
    "toolmason.result.size": Attribute(int, "characters of the result"),
    "toolmason.arguments.shape": Attribute(str, "types and sizes of the arguments"),
    "toolmason.result.shape": Attribute(str, "types and sizes of the result"),
    "toolmason.approval.verdict": Attribute(str, "`allow`, `deny` or `edit`; `none` without an answer"),
    "toolmason.approval.request": Attribute(str, "ID of the request"),
    "toolmason.effect.key": Attribute(str, "key of a step in the journal"),
    "toolmason.effect.replayed": Attribute(bool, "true if the outcome came from the journal"),
    "toolmason.cache": Attribute(str, "`journal`, or `list` for the tools of a server"),
    "spring.ai.kind": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.type": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.call.id": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.call.arguments": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.call.result": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.definition.name": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.definition.description": Attribute(str, "name of Spring AI"),
    "spring.ai.tool.definition.schema": Attribute(str, "name of Spring AI"),
}
"""Every attribute, with its type and its meaning."""
