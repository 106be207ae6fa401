"""A toolbox → a server object of the SDK, which every transport runs.

Lives here: the handlers of the protocol's methods. Not here: calls (`calls`), bytes (`stdio`, `app`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from mcp_types.jsonrpc import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolmason._core.define.context import CLIENT, ToolContext
from toolmason._core.values.content import EmbeddedResource
from toolmason.errors import Abort, InvalidArguments, RemoteError, ToolmasonError
from toolmason.mcp_client.remote_errors import is_answer
from toolmason.mcp_server.call_tool import Engine, Inquiry, trace_in
from toolmason.mcp_server.client_requests import Answers, Caller, CannotAsk, NeedsInput
from toolmason.mcp_server.encode import bare, contents, messages
from toolmason.mcp_server.http.owner import NOBODY, Identity
from toolmason.mcp_server.lists import COMPLETIONS, BadCursor, completions
from toolmason.mcp_server.subscriptions import Changes
from toolmason.mcp_server.tasks import EXTENSION, Task

_log = logging.getLogger("toolmason.serving")

PRINCIPAL: Final = "toolmason.principal"
"""Where the guard leaves, in an ASGI scope, for whom a request is made."""
TTL_MS: Final = 60_000
_NOT_FOUND_BEFORE: Final = -32002
"""What a missing resource was before 2026-07-28."""
_RESULTS: Final[Mapping[str, Any]] = {
    "elicitation/create": (ElicitRequest, ElicitResult),
    "sampling/createMessage": (CreateMessageRequest, CreateMessageResult),
    "roots/list": (ListRootsRequest, ListRootsResult),
}


class _Handlers:
    """One method for each method of the protocol; each takes what the SDK gives to all of them."""

    def __init__(self, engine: Engine, changes: Changes) -> None:
        self.engine, self.changes, self.lists, self.box = engine, changes, engine.lists, engine.box

    # --- tools -------------------------------------------------------------------------------------

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        facts = self.lists.facts_of(name)
        return facts.schema if facts is not None and facts.headers else None

    async def list_tools(self, ctx: Any, params: Any) -> Any:
        del ctx
        return self._page("tools", (await self.lists.fresh()).tools, params)

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        del params
        return await self.engine.call(ctx.params, self._inquiry(ctx, ctx.params.get("name", "")))

    def _page(self, what: str, entries: Any, params: Any) -> dict[str, Any]:
        cursor = None if params is None else params.cursor
        try:
            found, following = self.lists.part(entries, cursor)
        except BadCursor:
            raise MCPError(INVALID_PARAMS, "The cursor is not one that this server gave.") from None
        return {what: found} if following is None else {what: found, "nextCursor": following}

    def _inquiry(self, ctx: Any, name: str) -> Inquiry:
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        offers = ctx.session.client_capabilities
        able = {} if offers is None else offers.model_dump(by_alias=True, mode="json", exclude_none=True)
        meta = (ctx.params or {}).get("_meta") or {}
        level = meta.get(LOG_LEVEL_META_KEY) if modern else self.changes.levels.get(_key(ctx), "info")
        caller = Caller(
            able,
            send=None if modern or not ctx.session.can_send_request else _asker(ctx),
            tell=_teller(ctx),
            log_level=level,
            logger=name,
            close=ctx.close_sse_stream,
        )
        whose = _identity(ctx)
        known = {**trace_in(meta), **whose}
        session = "" if modern else _key(ctx)
        return Inquiry(caller, modern=modern, principal=known, who=whose.owner, session=session, token=True)

    # --- prompts and completions -------------------------------------------------------------------

    async def list_prompts(self, ctx: Any, params: Any) -> Any:
        del ctx
        return self._page("prompts", (await self.lists.fresh()).prompts, params)

    async def get_prompt(self, ctx: Any, params: Any) -> Any:
        name, arguments = params.name, dict(params.arguments or {})
        inquiry = self._inquiry(ctx, name)
        self.engine.recall(ctx.params, inquiry, "prompts/get", name, arguments)
        prompt = next((item for item in self.box.prompts if item.name == name), None)
        if prompt is None:
            raise MCPError(INVALID_PARAMS, f"There is no prompt named {name!r}.")
        try:
            found = await self.box.prompt(name, arguments, context=self._context(inquiry))
        except NeedsInput:
            return self.engine.input_required(inquiry.caller, "prompts/get", name, arguments, inquiry.who)
        except Exception as error:  # noqa: BLE001 - a prompt is foreign code
            raise _refusal(error, f"The prompt {name!r}") from None
        if (given := inquiry.caller.given) is not None and hasattr(prompt, "entry"):
            return bare(given[2])
        return {"description": prompt.description, "messages": messages(found)}

    def _context(self, inquiry: Inquiry) -> dict[str, Any]:
        return {**inquiry.principal, CLIENT: inquiry.caller}

    async def complete(self, ctx: Any, params: Any) -> Any:
        ref, begun = params.ref, params.argument
        found: list[Any]
        if ref.type == "ref/prompt":
            found = [item for item in self.box.prompts if item.name == ref.name and not hasattr(item, "entry")]
        else:
            found = [item for item in self.box.own_resources if item.uri == str(ref.uri)]
        if not found and (passed := await self._completed_behind(ctx)) is not None:
            return passed
        words = completions(found[0].input_schema, begun.name, begun.value) if found else []
        more = len(words) > COMPLETIONS
        return {"completion": {"values": words[:COMPLETIONS], "total": len(words), "hasMore": more}}

    async def _completed_behind(self, ctx: Any) -> dict[str, Any] | None:
        asked = {key: value for key, value in ctx.params.items() if key != "_meta"}
        context = ToolContext[Any](**self._context(self._inquiry(ctx, "completion")))
        try:
            found = await self.box.__behind__().complete(asked, context)
        except RemoteError as error:
            raise _refusal(error, "The completion") from None
        return None if found is None else bare(found)

    # --- resources ---------------------------------------------------------------------------------

    async def list_resources(self, ctx: Any, params: Any) -> Any:
        del ctx
        return self._page("resources", (await self.lists.fresh()).resources, params)

    async def list_templates(self, ctx: Any, params: Any) -> Any:
        del ctx
        return self._page("resourceTemplates", (await self.lists.fresh()).templates, params)

    async def read_resource(self, ctx: Any, params: Any) -> Any:
        uri = str(params.uri)
        inquiry = self._inquiry(ctx, uri)
        self.engine.recall(ctx.params, inquiry, "resources/read", uri, {})
        try:
            found = await self.box.read(uri, context=self._context(inquiry))
        except NeedsInput:
            return self.engine.input_required(inquiry.caller, "resources/read", uri, {}, inquiry.who)
        except (KeyError, RemoteError) as error:
            _pass_on(error, ours=(INVALID_PARAMS, _NOT_FOUND_BEFORE))
            code = INVALID_PARAMS if inquiry.modern else _NOT_FOUND_BEFORE
            raise MCPError(code, "There is no such resource.", {"uri": uri}) from None
        except Exception as error:  # noqa: BLE001 - a resource is foreign code
            raise _refusal(error, f"The resource {uri!r}") from None
        if (given := inquiry.caller.given) is not None and given[:2] == ("resources/read", uri) and not self._owns(uri):
            return bare(given[2])
        return {"contents": [contents(part) for part in found if isinstance(part, EmbeddedResource)]}

    def _owns(self, uri: str) -> bool:
        return any(item.values_in(uri) is not None for item in self.box.own_resources)

    async def subscribe(self, ctx: Any, params: Any) -> Any:
        if not self.changes.subscribe(str(params.uri), _key(ctx), ctx.session, _identity(ctx).owner):
            raise MCPError(INTERNAL_ERROR, "There are too many subscriptions. Try again later.")
        await self.changes.follow()
        return {}

    async def unsubscribe(self, ctx: Any, params: Any) -> Any:
        self.changes.unsubscribe(str(params.uri), _key(ctx))
        await self.changes.follow()
        return {}

    def listened_by(self, listening: ListenHandler) -> Any:
        async def listen(ctx: Any, params: Any) -> Any:
            self.changes.open()
            async with self.changes.listened(params.notifications.resource_subscriptions or ()):
                return await listening(ctx, params)

        return listen

    # --- sessions ----------------------------------------------------------------------------------

    async def set_level(self, ctx: Any, params: Any) -> Any:
        self.changes.levels[_key(ctx)] = params.level
        while len(self.changes.levels) > 10 * len(self.changes.sessions) + 100:
            self.changes.levels.popitem(last=False)
        return {}

    async def initialized(self, ctx: Any, params: Any) -> None:
        del params
        self.changes.joined(_key(ctx), ctx.session)

    # --- tasks -------------------------------------------------------------------------------------

    async def task(self, ctx: Any, params: Any) -> Any:
        del params
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        task = self._task(ctx)
        if ctx.method == "tasks/cancel":
            self.engine.tasks.cancel(task)
            return {}
        if ctx.method == "tasks/update":
            answers = ctx.params.get("inputResponses")
            if not isinstance(answers, Mapping):
                raise MCPError(INVALID_PARAMS, "tasks/update needs inputResponses, an object.")
            task.take(answers)
            return {}
        return task.seen()

    def _task(self, ctx: Any) -> Task:
        offers = ctx.session.client_capabilities
        extensions = {} if offers is None else offers.extensions or {}
        if EXTENSION not in extensions:
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"The client does not offer {EXTENSION!r}.", data)
        asked = (ctx.params or {}).get("taskId")
        headers = getattr(ctx.request, "headers", None)
        if headers is not None and decode_header_value(headers.get("mcp-name")) != asked:
            raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")
        task = self.engine.tasks.find(asked, _identity(ctx).owner)
        if task is None:
            raise MCPError(INVALID_PARAMS, "There is no such task.", {"taskId": asked})
        return task


def _key(ctx: Any) -> str:
    """Return what tells sessions apart; over stdio there is one."""
    headers = getattr(ctx.request, "headers", None)
    return "" if headers is None else headers.get("mcp-session-id", "")


def _identity(ctx: Any) -> Identity:
    scope = getattr(ctx.request, "scope", None) or {}
    found: Identity = scope.get(PRINCIPAL, NOBODY)
    return found


def _pass_on(error: Exception, ours: tuple[int, ...] = ()) -> None:
    """Raise what a server behind us said, in its own words, unless the eras have different codes for it (`ours`)."""
    said = error.__cause__
    if isinstance(said, MCPError) and is_answer(said) and said.code not in ours:
        raise MCPError(said.code, said.message, said.data)


def _refusal(error: Exception, what: str) -> MCPError:
    _pass_on(error)
    if isinstance(error, CannotAsk):
        return MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), {"requiredCapabilities": {error.capability: {}}}
        )
    if isinstance(error, InvalidArguments):
        return MCPError(INVALID_PARAMS, str(error))
    if isinstance(error, Abort):
        return MCPError(INTERNAL_ERROR, str(error))
    place = "" if isinstance(error, ToolmasonError) else f" ({type(error).__name__})"
    _log.error("a prompt or resource failed: %s%s", what, place)
    return MCPError(INTERNAL_ERROR, f"{what} failed because of an internal error.")


def _teller(ctx: Any) -> Any:
    async def tell(method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/progress":
            await ctx.session.report_progress(params["progress"], params.get("total"), params.get("message"))
            return
        told = LoggingMessageNotification(params=LoggingMessageNotificationParams.model_validate(dict(params)))
        await ctx.session.send_notification(told, related_request_id=ctx.request_id)

    return tell


def _asker(ctx: Any) -> Any:
    async def ask(questions: dict[str, dict[str, Any]]) -> Answers:
        answers: dict[str, Any] = {}
        for key, request in questions.items():
            kind, result = _RESULTS[request["method"]]
            asked = kind.model_validate(request, by_name=False)
            where = ServerMessageMetadata(related_request_id=ctx.request_id)
            found = await ctx.session.send_request(asked, result, metadata=where)
            answers[key] = found.model_dump(by_alias=True, mode="json", exclude_none=True)
        return answers

    return ask
