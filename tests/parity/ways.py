"""The ways in which the tools of the parity suite are reached."""

import importlib
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp_server.sample_server import running
from toolmason import McpServer, Toolbox
from toolmason.build.manifest.package_manifest import build, write_file

PACKAGE = "parity_shelf"
SERVE = f"from {PACKAGE} import *; from toolmason import serve; serve(make_shelf(Toolbox(*TOOLS)))"


@contextmanager
def install_shelf(folder: Path) -> Iterator[Any]:
    """Put the package of the tools, with its manifest, into a folder that modules are imported from."""
    shutil.copytree(Path(__file__).parent / "shelf", folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        built = build(PACKAGE)
        write_file(built.path, built.data)
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(PACKAGE, None)


@asynccontextmanager
async def open_ways(shelf: Any, folder: Path) -> AsyncIterator[dict[str, Toolbox]]:
    """Return a toolbox for each way, connected."""

    def make() -> Toolbox:
        return shelf.make_shelf(Toolbox(*shelf.TOOLS))  # type: ignore[no-any-return]

    def make_from_manifest() -> Toolbox:
        return shelf.make_shelf(Toolbox.from_manifest(PACKAGE))  # type: ignore[no-any-return]

    async with AsyncExitStack() as stack:

        async def connect(server: McpServer) -> Toolbox:
            return await stack.enter_async_context(Toolbox(server))

        stateless = stack.enter_context(running(make()))
        sessions = stack.enter_context(running(make(), legacy=True))
        gateway = stack.enter_context(running(Toolbox(McpServer.of("inner", make()))))
        stdio = McpServer.stdio("far", sys.executable, ["-c", SERVE], env={"PYTHONPATH": str(folder)})
        yield {
            "local": make(),
            "in-memory server": await connect(McpServer.of("far", make())),
            "stdio": await connect(stdio),
            "HTTP, sessions": await connect(McpServer.http("far", sessions.url)),
            "HTTP, stateless": await connect(McpServer.http("far", stateless.url)),
            "gateway": await connect(McpServer.http("far", gateway.url)),
            "nested toolbox": Toolbox(make()),
            "manifest": make_from_manifest(),
            "served manifest": await connect(McpServer.of("far", make_from_manifest())),
        }
