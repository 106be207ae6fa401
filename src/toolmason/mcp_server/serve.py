"""Serve a toolbox over stdio or HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack

from toolmason._core.define.decorators import show_keywords
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._http.guard import LOOPBACK_HOSTS, Bearer, VerifyToken
from toolmason._text import LOOPBACK_NAMES
from toolmason.errors import ConfigError
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.http.app import asgi_app, require_toolbox
from toolmason.mcp_server.stdio.pipes import redirect_standard_streams
from toolmason.mcp_server.stdio.stdio_session import GRACE_SECONDS, StopSignal, serve_stdio

_log = logging.getLogger("toolmason.mcp_server")


class HttpOptions(TypedDict, total=False):
    """Options of `serve` for HTTP. Those from `path` on are options of `asgi_app`."""

    host: str
    port: int
    started: Callable[[int], None] | None
    allowed_hosts: Sequence[str] | None
    path: str
    auth: VerifyToken | Bearer | None
    allowed_origins: Sequence[str]
    max_body_bytes: int
    max_sessions: int
    state_key: str | bytes | None
    replicas: bool


def _serve_http(
    box: Toolbox,
    grace: float,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    started: Callable[[int], None] | None = None,
    allowed_hosts: Sequence[str] | None = None,
    **app_options: Any,
) -> None:
    if type(port) is not int or not 0 <= port <= 65535:  # noqa: PLR2004 - the valid ports
        raise ConfigError(f"port={port!r} must be an integer from 0 to 65535; 0 picks a free port.")
    if allowed_hosts is None:
        if host not in LOOPBACK_NAMES:
            raise ConfigError(
                f"serve(host={host!r}) opens the server to other machines. Set allowed_hosts=['tools.example.com'] to "
                f"the names that clients use, and auth= to check who may call."
            )
        allowed_hosts = LOOPBACK_HOSTS
    run_http(asgi_app(box, allowed_hosts=allowed_hosts, **app_options), host, port, grace, started)


def run_http(
    app: Any,
    host: str,
    port: int,
    grace: float = GRACE_SECONDS,
    started: Callable[[int], object] | None = None,
    ended: Callable[[], None] = lambda: None,
) -> None:
    """Run an application until SIGTERM or Ctrl-C, then call `ended`. Blocks.

    Raises:
        ConfigError: the port is taken.
    """
    from toolmason.mcp_server.http.http_server import make_http_server  # noqa: PLC0415 - loads uvicorn

    server = make_http_server(app, host, port, grace, started)
    try:
        _run_until_signal(server.run, lambda: setattr(server, "should_exit", True))
    finally:
        ended()
    if not server.started:
        raise ConfigError(f"Cannot listen on {host}:{port}. Is the port in use? Choose another port.")
    # Another thread that is not a daemon would keep the process from exiting.
    main_thread = threading.main_thread()
    _exit_if_stuck(any(not thread.daemon and thread is not main_thread for thread in threading.enumerate()))


@show_keywords(HttpOptions, asgi_app, _serve_http)
def serve(
    box: Toolbox,
    transport: Literal["stdio", "http"] = "stdio",
    *,
    grace: float = GRACE_SECONDS,
    **http_options: Unpack[HttpOptions],
) -> None:
    """Serve a toolbox over MCP until end of input, SIGTERM or Ctrl-C. Blocks.

    HTTP binds to loopback by default. For another `host=`, set `allowed_hosts=` to the names that clients use.
    `started` is called with the port once HTTP is listening; port 0 picks a free one. Running calls get `grace`
    seconds to finish. The options from `path` on are those of `asgi_app`.

    Raises:
        ConfigError: an option is invalid.
    """
    if unknown := http_options.keys() - HttpOptions.__annotations__:
        raise TypeError(f"serve() got an unexpected keyword argument {min(unknown)!r}")
    require_toolbox(box)
    if transport == "stdio":
        if http_options:
            name = next(iter(http_options))
            raise ConfigError(f"serve(transport='stdio') does not take {name!r}. It is for transport='http'.")
        run_stdio(Handlers(box), grace)
    elif transport == "http":
        _serve_http(box, grace, **http_options)
    else:
        raise ConfigError(f'transport={transport!r} must be "stdio" or "http".')


def run_stdio(handlers: Handlers, grace: float = GRACE_SECONDS) -> None:
    """Serve a toolbox over standard input and output until end of input, SIGTERM or Ctrl-C. Blocks."""
    stop = StopSignal()
    unfinished: list[int] = []
    # Must come first: the event loop logs on startup, and a log handler may write to stdout.
    with redirect_standard_streams() as descriptors:
        _run_until_signal(lambda: unfinished.append(asyncio.run(serve_stdio(handlers, stop, grace, descriptors))), stop)
    _exit_if_stuck(any(unfinished))


def _run_until_signal(work: Callable[[], object], stop: Callable[[], None]) -> None:
    """Run `work` in its own thread, and stop it on a signal.

    On the main thread, a KeyboardInterrupt raised by a tool cannot be distinguished from the user's.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again on the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, name="toolmason-serve", daemon=True)
    previous_handlers = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.5)  # with a timeout, so that signals are handled between waits
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    if errors and not isinstance(errors[0], SystemExit):
        raise errors[0]


def _exit_if_stuck(stuck: bool) -> None:  # noqa: FBT001 - the only input
    """Exit the process if a tool is still running: a thread cannot be stopped, and the parent process waits."""
    if stuck and threading.current_thread() is threading.main_thread():
        _log.warning("calls were still running when the server stopped")
        logging.shutdown()
        os._exit(0)
