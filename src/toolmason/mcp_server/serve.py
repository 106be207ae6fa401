"""Serve a toolbox over stdio or HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Literal

from typing_extensions import Unpack

from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.errors import ConfigError
from toolmason.mcp_server.http.app import AppOptions, asgi_app, require_toolbox
from toolmason.mcp_server.http.guard import LOOPBACK_HOSTS
from toolmason.mcp_server.stdio.pipes import redirect_standard_streams
from toolmason.mcp_server.stdio.stdio_session import GRACE_SECONDS, StopSignal, serve_stdio

_log = logging.getLogger("toolmason.mcp_server")


class ServeOptions(AppOptions, total=False):
    """Options of `serve` besides the toolbox and the transport."""

    host: str
    port: int
    grace: float
    """Seconds that running calls have to finish when the server is stopped."""
    started: Callable[[int], None]
    """Called with the port once HTTP is listening; port 0 picks a free one."""


def serve(box: Toolbox, transport: Literal["stdio", "http"] = "stdio", **options: Unpack[ServeOptions]) -> None:
    """Serve a toolbox over MCP until end of input, SIGTERM or Ctrl-C. Blocks.

    HTTP binds to loopback by default. For another `host=`, set `allowed_hosts=` to the names that clients use.
    Running calls get `grace` seconds to finish.

    Raises:
        ConfigError: an option is invalid.
    """
    require_toolbox(box)
    grace = options.pop("grace", GRACE_SECONDS)
    if transport == "stdio":
        if options:
            raise ConfigError(f"serve(transport='stdio') does not take {min(options)!r}. It is for transport='http'.")
        stop = StopSignal()
        unfinished: list[int] = []
        # Must come first: the event loop logs on startup, and a log handler may write to stdout.
        with redirect_standard_streams() as descriptors:
            _run_until_signal(lambda: unfinished.append(asyncio.run(serve_stdio(box, stop, grace, descriptors))), stop)
        _exit_if_stuck(any(unfinished))
        return
    if transport != "http":
        raise ConfigError(f'transport={transport!r} must be "stdio" or "http".')
    host = options.pop("host", "127.0.0.1")
    port = options.pop("port", 8000)
    if type(port) is not int or not 0 <= port <= 65535:  # noqa: PLR2004 - the valid ports
        raise ConfigError(f"port={port!r} must be an integer from 0 to 65535; 0 picks a free port.")
    if host not in ("127.0.0.1", "localhost", "::1") and "allowed_hosts" not in options:
        raise ConfigError(
            f"serve(host={host!r}) opens the server to other machines. Set allowed_hosts=['tools.example.com'] to "
            f"the names that clients use, and auth= to check who may call."
        )
    options.setdefault("allowed_hosts", LOOPBACK_HOSTS)
    on_started = options.pop("started", None)
    from toolmason.mcp_server.http.uvicorn_limits import make_http_server  # noqa: PLC0415 - loads uvicorn

    app_options: Any = options
    server = make_http_server(asgi_app(box, **app_options), host, port, grace, on_started)
    _run_until_signal(server.run, lambda: setattr(server, "should_exit", True))
    if not server.started:
        raise ConfigError(f"Cannot listen on {host}:{port}. Is the port in use? Choose another with port=.")
    # Another thread that is not a daemon would keep the process from exiting.
    main_thread = threading.main_thread()
    _exit_if_stuck(any(not thread.daemon and thread is not main_thread for thread in threading.enumerate()))


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
