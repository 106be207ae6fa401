"""Checked by mypy and pyright, never run: what marks an object leaves its type as it was."""

from typing import assert_type

from toolmason import Config, Limits, Toolbox, discover, scan, supported_for, tool
from toolmason.extend import (
    DryRun,
    EngineSettings,
    EntryPointResolver,
    ImportResolver,
    StaticResolver,
    WebSearchSettings,
    allow_experimental,
    experimental,
)
from toolmason.mcp import ServerSettings


class App:
    """An application."""


@experimental
def double(n: int) -> int:
    return n * 2


@experimental("the name may change")
async def fetch(url: str) -> bytes:
    return url.encode()


@experimental
class Engine:
    """Marked."""

    def __init__(self, size: int) -> None:
        self.size = size


@supported_for(App, "worker")
class Bundle:
    """Marked."""

    @tool
    def step(self, by: int) -> int:
        return by


@supported_for(App)
@tool
def triple(n: int) -> int:
    return n * 3


async def check() -> None:
    assert_type(double(2), int)
    assert_type(await fetch("x"), bytes)
    assert_type(Engine(3), Engine)
    assert_type(Bundle().step(1), int)
    assert_type(triple(2), int)
    double("2")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    Engine("3")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    triple("2")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    supported_for(5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with allow_experimental():
        assert_type(discover(App()), Toolbox)
    assert_type(scan("package", strict=True), Toolbox)
    box = Toolbox("name", resolvers=[StaticResolver(triple), EntryPointResolver(), ImportResolver("a:b")])
    assert_type(await box.approvals.dry_run("name"), DryRun)
    config = Config.find()
    assert_type(config.servers, tuple[ServerSettings, ...])
    assert_type(config.engine, EngineSettings | None)
    assert_type(config.limits, Limits | None)
    assert_type(config.web_search, WebSearchSettings | None)
    assert_type(config.experimental, bool)
