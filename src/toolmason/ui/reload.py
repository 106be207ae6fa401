"""Load the target of a page again when one of its files has changed."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.errors import ToolmasonError
from toolmason.ui.page import Page, PageOptions

POLL_SECONDS: Final = 0.5
"""Time between two looks at the files."""
_INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
Load = Callable[[], tuple[Toolbox, PageOptions]]


def list_modules(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the loaded modules of a project by name: those in its folders that are not installed packages."""
    found: dict[str, Path] = {}
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and not file.startswith(_INSTALLED) and name.partition(".")[0] not in ("toolmason", "__main__"):
            path = Path(file)
            if any(path.is_relative_to(folder) for folder in folders):
                found[name] = path
    return found


def read_times(files: set[Path]) -> dict[Path, int]:
    """Return when each file was written. A file that is gone for a moment has no time."""
    times: dict[Path, int] = {}
    for path in files:
        with suppress(OSError):
            times[path] = path.stat().st_mtime_ns
    return times


class Reloader:
    """Watches the files of a target, and gives the page its new toolbox."""

    def __init__(self, page: Page, load: Load, folder: Path, files: Sequence[Path] = ()) -> None:
        self._page, self._load = page, load
        self._files = {path.resolve() for path in files}
        """Files beside the modules: the target, which may not have loaded, or a configuration of servers."""
        self._folders = [folder.resolve(), *(path.parent for path in self._files)]
        self._times = self._read_times()

    def _read_times(self) -> dict[Path, int]:
        return read_times({*self._files, *list_modules(self._folders).values()})

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.check()

    def _load_again(self) -> tuple[Toolbox, PageOptions]:
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
        old = self._page.box
        try:
            box, options = await asyncio.to_thread(self._load_again)
        except (ToolmasonError, ImportError, OSError) as error:
            self._page.report(str(error))
        except Exception as error:  # noqa: BLE001 - loading runs the user's code, which may raise anything
            self._page.report(f"{type(error).__name__}: {error}")
        else:
            self._page.replace(box, options)
            await get_state(old).remotes.aclose()
        self._times = await asyncio.to_thread(self._read_times) | times
        return True
