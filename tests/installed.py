"""The sample distributions of tests/plugins → real installations, each in a folder of its own.

Lives here: building and installing with pip, without a network. Not here: what the tests see in them.
"""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from house.source import ROOT

PLUGINS = ROOT / "tests" / "plugins"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
OFFLINE = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]


def run_pip(*words: str) -> None:
    done = subprocess.run([*PIP, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def installed(folder: Path) -> dict[str, Path]:
    """Install every sample distribution with pip; return its folder for each name."""
    import shutil

    sources = [path.parent for path in sorted(PLUGINS.glob("*/pyproject.toml"))]
    copies = [shutil.copytree(source, folder / "sources" / source.name) for source in sources]
    run_pip("wheel", *OFFLINE, "--wheel-dir", str(folder / "wheels"), *map(str, copies))
    places = {}
    for source in sources:
        places[source.name] = folder / "site" / source.name
        [wheel] = (folder / "wheels").glob(f"{source.name.replace('-', '_')}-*.whl")
        run_pip("install", *OFFLINE, "--no-compile", "--target", str(places[source.name]), str(wheel))
    return places


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Put folders on the path of imports, and forget afterwards what came from them."""
    before, known = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(folder) for folder in folders]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
        importlib.invalidate_caches()
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if any(Path(file).is_relative_to(folder) for folder in folders):
                del sys.modules[name]
