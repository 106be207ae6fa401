"""Answer the requests of the page: an ASGI application behind the guard of the library."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from toolmason._core.load.reload import Reloader
from toolmason._core.run.progress import ProgressReport
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.results import ToolResult
from toolmason._http.caller import ANONYMOUS
from toolmason._http.guard import (
    LOOPBACK_HOSTS,
    MAX_BODY_BYTES,
    ErrorResponse,
    Receive,
    Send,
    make_guard,
    token_is,
)
from toolmason.chat.frontends.chat_app import refuse, run_until_disconnect
from toolmason.chat.frontends.frontend import get_field, parse_verdict
from toolmason.errors import ApprovalRequired, ConfigError, ToolmasonError, UnknownName
from toolmason.mcp_client.transport.framing import UnreadableMessage, parse_json
from toolmason.ui.page import Page
from toolmason.ui.page_chats import PageChats
from toolmason.ui.run_entries import describe_journal, describe_run, reconcile_call
from toolmason.ui.server_entries import approve_definitions, describe_drift, describe_servers, start_sign_in
from toolmason.ui.tool_entries import describe_box, describe_in_full, describe_plan, describe_result

STATIC: Final = Path(__file__).parent / "static"
"""Files that `make web` built."""
_HEADERS: Final = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data: blob:; media-src data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }.items()
)
_STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
_API: Final = "/api/"
Handler = Callable[[Request], Awaitable[Response]]


def make_token() -> str:
    """Return a random token for the address of a page."""
    return secrets.token_urlsafe(24)


class PageApp:
    """The page as an ASGI application. Requests to `/api/` need the token; the files of the page hold no secret."""

    def __init__(self, page: Page, token: str) -> None:
        self.page = page
        self.guard = make_guard(LOOPBACK_HOSTS, (), token_is(token), MAX_BODY_BYTES)
        # The token is checked before a request reaches a chat.
        self.chats = PageChats(page, make_guard(LOOPBACK_HOSTS, (), None, MAX_BODY_BYTES))
        self._app = Starlette(routes=self._make_routes(), lifespan=self._run_lifespan)
        self.close_streams = page.close_streams
        self.reloader: Reloader[Any] | None = None
        """Watches the files of the target while the page is served."""

    def _make_routes(self) -> list[Any]:
        handlers: dict[str, tuple[str, Handler]] = {
            "state": ("GET", self._get_state),
            "events": ("GET", self._follow),
            "tools": ("GET", self._list_tools),
            "tools/{name:path}": ("GET", self._get_tool),
            "checks": ("POST", self._check_call),
            "calls": ("POST", self._start_call),
            "approvals": ("POST", self._answer_request),
            "servers": ("GET", self._list_servers),
            "servers/{name}/drift": ("GET", self._get_drift),
            "servers/{name}/approve": ("POST", self._approve_server),
            "servers/{name}/sign-in": ("POST", self._sign_in),
            "servers/reconnect": ("POST", self._reconnect),
            "conversations/{name}": ("GET", self._save_conversation),
            "conversations/{name}/load": ("POST", self._load_conversation),
            "runs": ("GET", self._list_runs),
            "runs/{name:path}/reconcile": ("POST", self._reconcile),
            "runs/{name:path}": ("GET", self._get_run),
        }
        routes = [
            Route(f"{_API}{path}", _answer_errors(work), methods=[method]) for path, (method, work) in handlers.items()
        ]
        pages = Route("/", lambda _: FileResponse(STATIC / "index.html", headers={"cache-control": "no-store"}))
        return [*routes, pages, Mount("/assets", StaticFiles(directory=STATIC / "assets"))]

    @asynccontextmanager
    async def _run_lifespan(self, _: Any) -> AsyncGenerator[None]:
        self.page.start()
        async with self.reloader or nullcontext():
            yield

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        refusal = self.guard.check_headers(headers, scope["headers"])
        is_api = scope["path"].startswith(_API)
        if refusal is None and is_api:
            identity = await self.guard.authenticate(headers)
            refusal = identity if isinstance(identity, ErrorResponse) else None
        if refusal is not None:
            await refuse(send_with_headers, refusal)
        elif scope["path"] in (f"{_API}chat", f"{_API}resumed"):
            await self._run_chat(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    async def _run_chat(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass a request on to the SSE application of the chosen model."""
        try:
            name = Request(scope).query_params.get("model", "")
            app = self.chats.get(name, resumes=scope["path"].endswith("resumed"))
        except (ToolmasonError, ImportError) as error:
            await refuse(send, ErrorResponse(400, str(error)))
            return
        await app(scope, receive, send)

    async def _read(self, request: Request) -> Any:
        """Return the JSON body of a request.

        Raises:
            ConfigError: it cannot be read.
        """
        receive: Any = request.receive
        text = await self.guard.read_body(dict(request.scope["headers"]), receive, request.scope, ANONYMOUS)
        if not isinstance(text, bytes):
            raise ConfigError("The body is missing." if text is None else text.message)
        body = await asyncio.to_thread(parse_json, text)
        if isinstance(body, UnreadableMessage):
            raise ConfigError(f"The body cannot be read: {body.reason}.")
        return body

    # --- state and changes -----------------------------------------------------------------------

    async def _get_state(self, _: Request) -> Response:
        page, options = self.page, self.page.options
        return _to_response(
            {
                "version": version("toolmason"),
                "target": options.target,
                "models": [{"name": name, "note": note} for name, note in options.models.items()],
                "journal": None if options.runtime is None else options.runtime.tables.store.name,
                "servers": list(page.box.servers),
                "limits": asdict(get_state(page.box).policy.limits),
                "problem": page.problem,
            }
        )

    async def _follow(self, _: Request) -> Response:
        return _EventStream(self.page.follow())

    # --- tools and calls -------------------------------------------------------------------------

    async def _list_tools(self, _: Request) -> Response:
        return _to_response(await asyncio.to_thread(describe_box, self.page.box))

    async def _get_tool(self, request: Request) -> Response:
        return _to_response(describe_in_full(self.page.box, request.path_params["name"]))

    async def _check_call(self, request: Request) -> Response:
        name, arguments = _read_call(await self._read(request))
        return _to_response(describe_plan(await self.page.box.approvals.dry_run(name, arguments)))

    async def _start_call(self, request: Request) -> Response:
        name, arguments = _read_call(await self._read(request))
        box = self.page.box
        return _EventStream(self._run_call(lambda report: box.call(name, arguments, on_progress=report)))

    async def _answer_request(self, request: Request) -> Response:
        body = await self._read(request)
        name = get_field(body, "id", str, "")
        verdict = parse_verdict(name, body.get("answer"))
        approvals = self.page.box.approvals
        decision = approvals.decide(self.page.take_request(name), verdict)
        return _EventStream(self._run_call(lambda report: approvals.resume(decision, on_progress=report)))

    async def _run_call(
        self, start: Callable[[Callable[[ProgressReport], None]], Awaitable[ToolResult]]
    ) -> AsyncGenerator[dict[str, Any] | None]:
        """Yield the progress and the result of a call. If the page goes away, the call is cancelled."""
        reports: asyncio.Queue[ProgressReport | None] = asyncio.Queue()
        task = asyncio.ensure_future(start(reports.put_nowait))
        task.add_done_callback(lambda _: reports.put_nowait(None))
        try:
            while (report := await reports.get()) is not None:
                progress = {"done": report.done, "total": report.total, "message": report.message}
                yield {"type": "progress", **progress}
            result = task.result()
        finally:
            task.cancel()
        if isinstance(result.error, ApprovalRequired):
            self.page.keep_request(result.error.request)
        yield {"type": "result", "result": describe_result(result)}
        if self.page.box.servers:
            self.page.refresh()  # a call may have changed the tools of its server

    # --- servers ---------------------------------------------------------------------------------

    async def _list_servers(self, _: Request) -> Response:
        return _to_response(await describe_servers(self.page.box))

    async def _get_drift(self, request: Request) -> Response:
        return _to_response(await describe_drift(self.page.box, request.path_params["name"]))

    async def _approve_server(self, request: Request) -> Response:
        digests = get_field(await self._read(request), "digests", dict, {})
        await approve_definitions(self.page.box, request.path_params["name"], digests)
        self.page.notify("tools")
        return _to_response({"approved": len(digests)})

    async def _sign_in(self, request: Request) -> Response:
        return _to_response({"address": await start_sign_in(self.page, request.path_params["name"])})

    async def _reconnect(self, _: Request) -> Response:
        await self.page.box.servers.reconnect()
        self.page.notify("tools")
        return _to_response(await describe_servers(self.page.box))

    # --- conversations and runs ------------------------------------------------------------------

    async def _save_conversation(self, request: Request) -> Response:
        model = request.query_params.get("model", "")
        return _to_response({"messages": await self.chats.save(model, request.path_params["name"])})

    async def _load_conversation(self, request: Request) -> Response:
        messages = get_field(await self._read(request), "messages", list, [])
        await self.chats.load(request.path_params["name"], messages)
        return _to_response({"messages": len(messages)})

    async def _list_runs(self, _: Request) -> Response:
        return _to_response(await asyncio.to_thread(describe_journal, self.page.options.runtime))

    async def _get_run(self, request: Request) -> Response:
        return _to_response(
            await asyncio.to_thread(describe_run, self.page.options.runtime, request.path_params["name"])
        )

    async def _reconcile(self, request: Request) -> Response:
        body = await self._read(request)
        await asyncio.to_thread(reconcile_call, self.page.options.runtime, request.path_params["name"], body)
        return _to_response({})


def _read_call(body: Any) -> tuple[str, Any]:
    """Return the name and the arguments of a call. Text is passed on as a model would send it."""
    arguments = body.get("arguments") if isinstance(body, dict) else None
    if arguments is not None and not isinstance(arguments, dict | str):
        raise ConfigError("'arguments' must be an object, or its JSON text.")
    return get_field(body, "tool", str, ""), arguments


def _answer_errors(work: Handler) -> Handler:
    """Answer an error of a request with its text."""

    async def handle(request: Request) -> Response:
        try:
            return await work(request)
        except UnknownName as error:
            status, text = 404, str(error)
        except (ToolmasonError, OSError, ImportError) as error:
            status, text = 400, str(error)
        return _to_response({"error": {"message": text}}, status)

    return handle


def _to_response(data: Any, status: int = 200) -> Response:
    return Response(_encode(data), status, {"cache-control": "no-store"}, "application/json")


def _encode(data: Any) -> bytes:
    return to_json(data, inf_nan_mode="null", fallback=str)


class _EventStream(Response):
    """Events as they come. If the page goes away, their source is closed, also while it has none."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[dict[str, Any] | None]) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events."""
        del scope
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await run_until_disconnect(self._send(send), receive)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                data = b": waiting\n\n" if event is None else b"data: %b\n\n" % _encode(event)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
