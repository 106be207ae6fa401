"""Handle the methods of the protocol for a served toolbox."""

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

from toolmason._core.define.context import CLIENT_KEY, ToolContext
from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.content import EmbeddedResource
from toolmason.errors import Abort, InvalidArguments, RemoteError, ToolmasonError
from toolmason.mcp_client.remote_errors import is_from_server
from toolmason.mcp_server.call_tool import CallHandler, RequestInfo, get_trace_context
from toolmason.mcp_server.client_requests import Answers, ClientProxy, MissingCapability, NeedsInput
from toolmason.mcp_server.encode import encode_contents, encode_messages, without_hop_fields
from toolmason.mcp_server.http.owner import ANONYMOUS, Identity
from toolmason.mcp_server.lists import MAX_COMPLETIONS, InvalidCursor, find_completions
from toolmason.mcp_server.subscriptions import Subscriptions
from toolmason.mcp_server.tasks import EXTENSION_ID, ServedTask

_log = logging.getLogger("toolmason.mcp_server")

PRINCIPAL_KEY: Final = "toolmason.principal"
"""Key of the ASGI scope that holds the identity of the caller."""
TTL_MS: Final = 60_000
_LEGACY_NOT_FOUND: Final = -32002
"""Error code of a missing resource before protocol version 2026-07-28."""
_QUESTION_TYPES: Final[Mapping[str, Any]] = {
    "elicitation/create": (ElicitRequest, ElicitResult),
    "sampling/createMessage": (CreateMessageRequest, CreateMessageResult),
    "roots/list": (ListRootsRequest, ListRootsResult),
}


class Handlers:
    """One handler per protocol method, with the arguments that the SDK passes to all of them."""

    def __init__(self, call_handler: CallHandler, subscriptions: Subscriptions) -> None:
        self.call_handler = call_handler
        self.subscriptions = subscriptions
        self.lists = call_handler.lists
        self.box = call_handler.box

    # --- tools -------------------------------------------------------------------------------------

    def get_header_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool that mirrors parameters in headers, or None."""
        traits = self.lists.get_traits(name)
        return traits.schema if traits is not None and traits.mirrors_headers else None

    async def list_tools(self, ctx: Any, params: Any) -> Any:
        """Handle `tools/list`."""
        del ctx
        return self._make_page("tools", (await self.lists.refresh()).tools, params)

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        """Handle `tools/call`."""
        del params
        return await self.call_handler.call(ctx.params, self._make_request_info(ctx, ctx.params.get("name", "")))

    def _make_page(self, key: str, entries: Any, params: Any) -> dict[str, Any]:
        cursor = None if params is None else params.cursor
        try:
            page, next_cursor = self.lists.get_page(entries, cursor)
        except InvalidCursor:
            raise MCPError(INVALID_PARAMS, "This server did not issue the cursor.") from None
        return {key: page} if next_cursor is None else {key: page, "nextCursor": next_cursor}

    def _make_request_info(self, ctx: Any, name: str) -> RequestInfo:
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        capabilities = ctx.session.client_capabilities
        capability_data = (
            {} if capabilities is None else capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        )
        meta = (ctx.params or {}).get("_meta") or {}
        session_id = "" if modern else _get_session_id(ctx)
        level = meta.get(LOG_LEVEL_META_KEY) if modern else self.subscriptions.log_levels.get(session_id, "info")
        client = ClientProxy(
            capability_data,
            send_questions=None if modern or not ctx.session.can_send_request else _make_asker(ctx),
            send_notification=_make_notifier(ctx),
            log_level=level,
            logger=name,
            close_stream=ctx.close_sse_stream,
        )
        identity = _get_identity(ctx)
        context = {**get_trace_context(meta), **identity}
        return RequestInfo(
            client, modern=modern, principal=context, owner=identity.owner, session_id=session_id, progress_token=True
        )

    # --- prompts and completions -------------------------------------------------------------------

    async def list_prompts(self, ctx: Any, params: Any) -> Any:
        """Handle `prompts/list`."""
        del ctx
        return self._make_page("prompts", (await self.lists.refresh()).prompts, params)

    async def get_prompt(self, ctx: Any, params: Any) -> Any:
        """Handle `prompts/get`."""
        name, arguments = params.name, dict(params.arguments or {})
        info = self._make_request_info(ctx, name)
        self.call_handler.restore_answers(ctx.params, info, "prompts/get", name, arguments)
        prompt = next((item for item in self.box.prompts if item.name == name), None)
        if prompt is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt {name!r}.")
        try:
            found = await self.box.prompt(name, arguments, context=self._make_context(info))
        except NeedsInput:
            return self.call_handler.make_input_required(info.client, "prompts/get", name, arguments, info.owner)
        except Exception as error:  # noqa: BLE001 - a prompt is user code
            raise _make_error(error, f"The prompt {name!r}") from None
        if (reply := info.client.upstream_reply) is not None and prompt.entry is not None:
            return without_hop_fields(reply[2])
        return {"description": prompt.description, "messages": encode_messages(found)}

    def _make_context(self, info: RequestInfo) -> dict[str, Any]:
        return {**info.principal, CLIENT_KEY: info.client}

    async def complete(self, ctx: Any, params: Any) -> Any:
        """Handle `completion/complete`."""
        ref, argument = params.ref, params.argument
        found: list[Any]
        if ref.type == "ref/prompt":
            found = [item for item in self.box.prompts if item.name == ref.name and item.entry is None]
        else:
            found = [item for item in get_state(self.box).catalog.resources.values() if item.uri == str(ref.uri)]
        if not found and (upstream_result := await self._complete_upstream(ctx)) is not None:
            return upstream_result
        values = find_completions(found[0].input_schema, argument.name, argument.value) if found else []
        has_more = len(values) > MAX_COMPLETIONS
        return {"completion": {"values": values[:MAX_COMPLETIONS], "total": len(values), "hasMore": has_more}}

    async def _complete_upstream(self, ctx: Any) -> dict[str, Any] | None:
        request = {key: value for key, value in ctx.params.items() if key != "_meta"}
        context = ToolContext[Any](**self._make_context(self._make_request_info(ctx, "completion")))
        try:
            found = await Gateway(get_state(self.box).remotes).complete(request, context)
        except RemoteError as error:
            raise _make_error(error, "The completion") from None
        return None if found is None else without_hop_fields(found)

    # --- resources ---------------------------------------------------------------------------------

    async def list_resources(self, ctx: Any, params: Any) -> Any:
        """Handle `resources/list`."""
        del ctx
        return self._make_page("resources", (await self.lists.refresh()).resources, params)

    async def list_templates(self, ctx: Any, params: Any) -> Any:
        """Handle `resources/templates/list`."""
        del ctx
        return self._make_page("resourceTemplates", (await self.lists.refresh()).templates, params)

    async def read_resource(self, ctx: Any, params: Any) -> Any:
        """Handle `resources/read`."""
        uri = str(params.uri)
        info = self._make_request_info(ctx, uri)
        self.call_handler.restore_answers(ctx.params, info, "resources/read", uri, {})
        try:
            found = await self.box.read(uri, context=self._make_context(info))
        except NeedsInput:
            return self.call_handler.make_input_required(info.client, "resources/read", uri, {}, info.owner)
        except (KeyError, RemoteError) as error:
            _raise_upstream_error(error, excluded_codes=(INVALID_PARAMS, _LEGACY_NOT_FOUND))
            code = INVALID_PARAMS if info.modern else _LEGACY_NOT_FOUND
            raise MCPError(code, "Resource not found.", {"uri": uri}) from None
        except Exception as error:  # noqa: BLE001 - a resource is user code
            raise _make_error(error, f"The resource {uri!r}") from None
        if (
            (reply := info.client.upstream_reply) is not None
            and reply[:2] == ("resources/read", uri)
            and not self._owns(uri)
        ):
            return without_hop_fields(reply[2])
        return {"contents": [encode_contents(part) for part in found if isinstance(part, EmbeddedResource)]}

    def _owns(self, uri: str) -> bool:
        return any(item.match_uri(uri) is not None for item in get_state(self.box).catalog.resources.values())

    async def subscribe(self, ctx: Any, params: Any) -> Any:
        """Handle `resources/subscribe`."""
        if not self.subscriptions.subscribe(
            str(params.uri), _get_session_id(ctx), ctx.session, _get_identity(ctx).owner
        ):
            raise MCPError(INTERNAL_ERROR, "Too many subscriptions. Try again later.")
        await self.subscriptions.sync_upstream()
        return {}

    async def unsubscribe(self, ctx: Any, params: Any) -> Any:
        """Handle `resources/unsubscribe`."""
        self.subscriptions.unsubscribe(str(params.uri), _get_session_id(ctx))
        await self.subscriptions.sync_upstream()
        return {}

    def make_listener(self, listen_handler: ListenHandler) -> Any:
        """Return the handler of `subscriptions/listen`."""

        async def listen(ctx: Any, params: Any) -> Any:
            self.subscriptions.open()
            async with self.subscriptions.listen(params.notifications.resource_subscriptions or ()):
                return await listen_handler(ctx, params)

        return listen

    # --- sessions ----------------------------------------------------------------------------------

    async def set_level(self, ctx: Any, params: Any) -> Any:
        """Handle `logging/setLevel`."""
        self.subscriptions.log_levels[_get_session_id(ctx)] = params.level
        while len(self.subscriptions.log_levels) > 10 * len(self.subscriptions.sessions) + 100:
            self.subscriptions.log_levels.popitem(last=False)
        return {}

    async def on_initialized(self, ctx: Any, params: Any) -> None:
        """Handle `notifications/initialized`."""
        del params
        self.subscriptions.add_session(_get_session_id(ctx), ctx.session)

    # --- tasks -------------------------------------------------------------------------------------

    async def handle_task(self, ctx: Any, params: Any) -> Any:
        """Handle `tasks/get`, `tasks/update` and `tasks/cancel`."""
        del params
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        task = self._find_task(ctx)
        if ctx.method == "tasks/cancel":
            self.call_handler.tasks.cancel(task)
            return {}
        if ctx.method == "tasks/update":
            answers = ctx.params.get("inputResponses")
            if not isinstance(answers, Mapping):
                raise MCPError(INVALID_PARAMS, "tasks/update: inputResponses must be an object.")
            task.add_answers(answers)
            return {}
        return task.to_dict()

    def _find_task(self, ctx: Any) -> ServedTask:
        capabilities = ctx.session.client_capabilities
        extensions = {} if capabilities is None else capabilities.extensions or {}
        if EXTENSION_ID not in extensions:
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION_ID: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"The client does not offer {EXTENSION_ID!r}.", data)
        task_id = (ctx.params or {}).get("taskId")
        headers = getattr(ctx.request, "headers", None)
        if headers is not None and decode_header_value(headers.get("mcp-name")) != task_id:
            raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")
        task = self.call_handler.tasks.find(task_id, _get_identity(ctx).owner)
        if task is None:
            raise MCPError(INVALID_PARAMS, "Task not found.", {"taskId": task_id})
        return task


def _get_session_id(ctx: Any) -> str:
    """Return the id of the session; empty over stdio, which has a single one."""
    headers = getattr(ctx.request, "headers", None)
    return "" if headers is None else headers.get("mcp-session-id", "")


def _get_identity(ctx: Any) -> Identity:
    scope = getattr(ctx.request, "scope", None) or {}
    identity: Identity = scope.get(PRINCIPAL_KEY, ANONYMOUS)
    return identity


def _raise_upstream_error(error: Exception, excluded_codes: tuple[int, ...] = ()) -> None:
    """Raise the error that an upstream server sent, unless its code differs between eras (`excluded_codes`)."""
    cause = error.__cause__
    if isinstance(cause, MCPError) and is_from_server(cause) and cause.code not in excluded_codes:
        raise MCPError(cause.code, cause.message, cause.data)


def _make_error(error: Exception, subject: str) -> MCPError:
    _raise_upstream_error(error)
    if isinstance(error, MissingCapability):
        return MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), {"requiredCapabilities": {error.capability: {}}}
        )
    if isinstance(error, InvalidArguments):
        return MCPError(INVALID_PARAMS, str(error))
    if isinstance(error, Abort):
        return MCPError(INTERNAL_ERROR, str(error))
    detail = "" if isinstance(error, ToolmasonError) else f" ({type(error).__name__})"
    _log.error("a prompt or resource failed: %s%s", subject, detail)
    return MCPError(INTERNAL_ERROR, f"{subject} failed because of an internal error.")


def _make_notifier(ctx: Any) -> Any:
    async def notify(method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/progress":
            await ctx.session.report_progress(params["progress"], params.get("total"), params.get("message"))
            return
        notification = LoggingMessageNotification(params=LoggingMessageNotificationParams.model_validate(dict(params)))
        await ctx.session.send_notification(notification, related_request_id=ctx.request_id)

    return notify


def _make_asker(ctx: Any) -> Any:
    async def ask(questions: dict[str, dict[str, Any]]) -> Answers:
        answers: dict[str, Any] = {}
        for key, request in questions.items():
            request_type, result_type = _QUESTION_TYPES[request["method"]]
            typed_request = request_type.model_validate(request, by_name=False)
            metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
            answer = await ctx.session.send_request(typed_request, result_type, metadata=metadata)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return answers

    return ask
