"""Load a target again when one of its files has changed."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from traceback import walk_tb
from typing import Final, Generic, Self, TypeVar

from toolmason.errors import ToolmasonError

POLL_SECONDS: Final = 0.5
"""Time between two looks at the files."""
_INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_T = TypeVar("_T")


def find_files(error: BaseException | None) -> Iterable[Path]:
    """Yield the files that an error and its causes come from. A module that is new and wrong has no other trace."""
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename:
            yield Path(error.filename)
        yield from (Path(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))
        error = error.__cause__ or error.__context__


def list_modules(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the loaded modules of a project by name: those in its folders that are not installed packages."""
    found: dict[str, Path] = {}
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] not in ("toolmason", "__main__") and is_in_project(Path(file), folders):
            found[name] = Path(file)
    return found


def is_in_project(path: Path, folders: Sequence[Path]) -> bool:
    """Return True if a file is in one of the folders, and not in an installed package."""
    return any(map(path.is_relative_to, folders)) and not str(path).startswith(_INSTALLED)


def read_times(files: Iterable[Path]) -> dict[Path, int]:
    """Return when each file was written. A file that is gone for a moment has no time."""
    times: dict[Path, int] = {}
    for path in files:
        with suppress(OSError):
            times[path] = path.stat().st_mtime_ns
    return times


class Reloader(Generic[_T]):
    """Watches the files of a target in an `async with` block, and passes on what it loads, or why it cannot."""

    def __init__(
        self,
        load: Callable[[], _T],
        replace: Callable[[_T], Awaitable[None]],
        report: Callable[[str], None],
        target: str | None,
    ) -> None:
        self._load, self._replace, self._report = load, replace, report
        parts = [] if target is None else [target, target.rpartition(":")[0]]
        # The target itself may not have loaded, and may be a file of another kind.
        files = [Path(part).resolve() for part in parts if Path(part).is_file()]
        self._folders = [Path.cwd().resolve(), *(path.parent for path in files)]
        self._files = {*files}
        self._times = self._read_times()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _read_times(self) -> dict[Path, int]:
        # A module that failed to load is not in `sys.modules`, but its file is the one to watch.
        self._files.update(list_modules(self._folders).values())
        return read_times(self._files)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.check()

    def _load_again(self) -> _T:
        for name, path in list_modules(self._folders).items():
            sys.modules.pop(name, None)
            # A compiled file has the second and the size of its source, so that two saves may look alike.
            with suppress(OSError, NotImplementedError):
                Path(cache_from_source(str(path))).unlink()
        return self._load()

    async def check(self) -> bool:
        """Reload if a file has changed. Return True if so."""
        times = await asyncio.to_thread(self._read_times)
        if times == self._times:
            return False
        try:
            loaded = await asyncio.to_thread(self._load_again)
        except Exception as error:  # noqa: BLE001 - loading runs the user's code, which may raise anything
            is_known = isinstance(error, ToolmasonError | ImportError | OSError)
            self._report(str(error) if is_known else f"{type(error).__name__}: {error}")
            self._files.update(path for path in find_files(error) if is_in_project(path, self._folders))
        else:
            await self._replace(loaded)
        self._times = await asyncio.to_thread(self._read_times) | times
        return True
