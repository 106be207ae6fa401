"""`serve`: a toolbox, until it is told to stop.

Lives here: the choice of transport, and what must hold before a server opens its doors.
"""

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
    """What `serve` takes beside the toolbox and the transport."""

    host: str
    port: int
    grace: float
    """How many seconds running calls have to finish when the server is told to stop."""
    started: Callable[[int], None]
    """Called with the port when HTTP listens: with port 0 it is one that was free."""


def serve(box: Toolbox, transport: Literal["stdio", "http"] = "stdio", **options: Unpack[ServeOptions]) -> None:
    """Serve a toolbox over MCP until it is told to stop: end of input, SIGTERM or Ctrl-C. Blocks.

    Over HTTP it binds loopback unless `host=` says otherwise, and then `allowed_hosts=` must say under which names it
    is reached. Running calls get `grace` seconds to finish.

    Raises:
        ConfigError: an option that makes no sense.
    """
    require_toolbox(box)
    grace = options.pop("grace", GRACE_SECONDS)
    if transport == "stdio":
        if options:
            raise ConfigError(f"serve(transport='stdio') takes no {min(options)!r}. It is for transport='http'.")
        stop, unfinished = StopSignal(), []
        # Before anything of ours runs: the loop itself logs when it starts, and a log may be on standard output.
        with redirect_standard_streams() as descriptors:
            _run_until_signal(lambda: unfinished.append(asyncio.run(serve_stdio(box, stop, grace, descriptors))), stop)
        _exit_if_stuck(bool(sum(unfinished)))
        return
    if transport != "http":
        raise ConfigError(f'transport={transport!r}: give "stdio" or "http".')
    host, port = options.pop("host", "127.0.0.1"), options.pop("port", 8000)
    if type(port) is not int or not 0 <= port <= 65535:  # noqa: PLR2004 - the ports there are
        raise ConfigError(f"port={port!r}: give a whole number from 0 to 65535; 0 takes a free one.")
    if host not in ("127.0.0.1", "localhost", "::1") and "allowed_hosts" not in options:
        raise ConfigError(
            f"serve(host={host!r}) opens the server to other machines. Say under which names it is reached, with "
            f"allowed_hosts=['tools.example.com'], and who may call, with auth=."
        )
    options.setdefault("allowed_hosts", LOOPBACK_HOSTS)
    on_started = options.pop("started", None)
    from toolmason.mcp_server.http.uvicorn_limits import make_http_server  # noqa: PLC0415 - uvicorn, for HTTP alone

    app_options: Any = options
    server = make_http_server(asgi_app(box, **app_options), host, port, grace, on_started)
    _run_until_signal(server.run, lambda: setattr(server, "should_exit", True))
    if not server.started:
        raise ConfigError(f"The server could not listen on {host}:{port}. Is the port taken? Give another with port=.")
    _exit_if_stuck(_has_live_threads())


def _run_until_signal(work: Callable[[], object], stop: Callable[[], None]) -> None:
    """Do the work in a thread of its own, and stop it when a signal comes.

    On the main thread nobody can tell a KeyboardInterrupt that a tool raises from one that a user sends.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that called
            errors.append(error)

    thread = threading.Thread(target=run, name="toolmason-serve", daemon=True)
    previous_handlers = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.5)  # not for ever: a signal is looked at between two waits
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    if errors and not isinstance(errors[0], SystemExit):
        raise errors[0]


def _has_live_threads() -> bool:
    """Tell whether a thread would keep the process from ending."""
    return any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate())


def _exit_if_stuck(stuck: bool) -> None:  # noqa: FBT001 - it is what is asked
    """End the process though a tool would not; a thread cannot be stopped, and whoever started us waits."""
    if stuck and threading.current_thread() is threading.main_thread():
        _log.warning("calls were still running when the server stopped")
        logging.shutdown()
        os._exit(0)
