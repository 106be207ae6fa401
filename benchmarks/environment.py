"""Create the virtual environment of the peers from `peers.txt`, separate from the project's own."""

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACE = HERE / ".peers"
WANTED = HERE / "peers.txt"


def is_current() -> bool:
    """Return True if this process runs in the environment of the peers."""
    return Path(sys.prefix).resolve() == PLACE


def python() -> Path:
    """Return the interpreter of the environment; create or update it first."""
    interpreter = PLACE / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp, wanted = PLACE / "installed.txt", WANTED.read_text("utf-8")
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        print(
            f"Installing the peers into {PLACE.relative_to(HERE.parent)} (once; takes a few minutes)", file=sys.stderr
        )
        venv.create(PLACE, with_pip=True, clear=True)
        (PLACE / ".gitignore").write_text("*\n", "utf-8")
        install = [interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", WANTED, "-e", f"{HERE.parent}[otel]"], check=True)
        stamp.write_text(wanted, "utf-8")
    return interpreter
