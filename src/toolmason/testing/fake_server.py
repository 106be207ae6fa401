"""Provide `FakeMcpServer`, a scripted and faulty MCP server for tests, in a real process."""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Final

from typing_extensions import Unpack

from toolmason._core.define.decorators import show_keywords
from toolmason._core.remote.protocol import Remote, ServerRequestHandlers
from toolmason._core.values.results import ToolCall
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError
from toolmason.mcp_client.server_options import ServerOptions, ServerSpec
from toolmason.mcp_client.source import McpServer
from toolmason.testing import fake_server_process

MCP_FAULTS: Final = tuple(fake_server_process.FAULTS)
"""Names of the faults that a call to a `FakeMcpServer` can have."""
_START_MODES: Final = (None, "banner", "dies", "silent")
_LISTING_MODES: Final = (None, "bad definition", "fails")
_log_numbers = count(1)


class FakeMcpServer:
    """Scripted server for a toolbox: `Toolbox(FakeMcpServer({"echo": "pong"}, faults=["dies"]))`.

    `tools` maps each tool to its answer: a string, or a mapping for structured content. `faults` lists one fault per
    call, in order; later calls are answered correctly. A server that died is restarted by the toolbox and continues
    its script. `start` (`"banner"`, `"dies"` or `"silent"`) and `listing` (`"bad definition"` or `"fails"`) cause a
    fault before the first call.
    """

    @show_keywords(ServerOptions, ServerSpec)
    @explain_arguments
    def __init__(
        self,
        tools: Mapping[str, Any],
        faults: Sequence[str] = (),
        *,
        name: str = "fake",
        start: str | None = None,
        listing: str | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        if unknown := [fault for fault in faults if fault not in MCP_FAULTS]:
            raise ConfigError(f"Unknown server fault {unknown[0]!r}. Available: {', '.join(MCP_FAULTS)}.")
        if start not in _START_MODES:
            raise ConfigError(f"FakeMcpServer(start={start!r}): start must be one of {_START_MODES}.")
        if listing not in _LISTING_MODES:
            raise ConfigError(f"FakeMcpServer(listing={listing!r}): listing must be one of {_LISTING_MODES}.")
        self._log = _get_log_dir() / f"{next(_log_numbers)}.jsonl"
        plan = {
            "tools": {
                tool: {"description": f"Answer as {tool} would.", "input_schema": {"type": "object"}, "answer": answer}
                for tool, answer in tools.items()
            },
            "faults": list(faults),
            "start": start,
            "listing": listing,
        }
        command = [str(fake_server_process.__file__), json.dumps(plan), str(self._log)]
        self.source = McpServer.stdio(name, sys.executable, command, **options)
        """Server specification for a toolbox."""

    def __remote__(self, handlers: ServerRequestHandlers) -> Remote:
        """Return a connection for one toolbox."""
        return self.source.__remote__(handlers)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Calls received, in order, including those of earlier processes."""
        if not self._log.exists():
            return ()
        lines = map(json.loads, self._log.read_text("utf-8").splitlines())
        return tuple(ToolCall(str(number), line["name"], line["arguments"]) for number, line in enumerate(lines, 1))


@lru_cache(maxsize=1)
def _get_log_dir() -> Path:
    # Kept until this process exits: a toolbox may outlive the test.
    folder = tempfile.mkdtemp(prefix="toolmason-fake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
