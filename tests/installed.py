"""The sample distributions of tests/plugins → real installations, each in a folder of its own.

Lives here: building and installing with pip, without a network, once for each state of the sources. Not here: what the
tests see in them.
"""

import fcntl
import hashlib
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from house.source import ROOT

PLUGINS = ROOT / "tests" / "plugins"
SITES = Path(sys.prefix) / "sample-distributions"
"""In the environment, so that `make clean` removes it."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
OFFLINE = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]


def run_pip(*words: str) -> None:
    done = subprocess.run([*PIP, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def installed() -> dict[str, Path]:
    """Return the folder of each sample distribution, installed with pip by the first test process that asks."""
    SITES.mkdir(exist_ok=True)
    place = SITES / _fingerprint()
    with (SITES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            shutil.rmtree(SITES / "unfinished", ignore_errors=True)
            _install_into(SITES / "unfinished")
            (SITES / "unfinished").rename(place)
    return {source.name: place / "site" / source.name for source in _sources()}


def _sources() -> list[Path]:
    return [path.parent for path in sorted(PLUGINS.glob("*/pyproject.toml"))]


def _fingerprint() -> str:
    """Return a digest of all that the installations are made from."""
    found = hashlib.sha256(repr((sys.version, version("pip"), version("hatchling"))).encode())
    files = [Path(__file__), *(file for source in _sources() for file in sorted(source.rglob("*")) if _is_source(file))]
    for file in files:
        found.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _is_source(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts


def _install_into(folder: Path) -> None:
    copies = [shutil.copytree(source, folder / "sources" / source.name) for source in _sources()]
    run_pip("wheel", *OFFLINE, "--wheel-dir", str(folder / "wheels"), *map(str, copies))
    for source in _sources():
        [wheel] = (folder / "wheels").glob(f"{source.name.replace('-', '_')}-*.whl")
        run_pip("install", *OFFLINE, "--no-compile", "--target", str(folder / "site" / source.name), str(wheel))


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
