"""Where the official conformance suite is, and how one scenario of it is run.

Installs the suite and a Node that can run it into `.judges/`, once. Not here: what is judged.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".judges"
NODE = "node@24"
SUITES = {"alpha": "0.2.0-alpha.12", "stable": "0.1.16"}


def installed(suite: str = "alpha") -> list[str]:
    """Return the command of a suite, installing it first where it is not there."""
    folder = HOME / suite
    main = folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    node = folder / "node_modules" / ".bin" / "node"
    if not main.is_file() or not node.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"name": "judges", "private": true}\n', "utf-8")
        npm = shutil.which("npm")
        if npm is None:
            sys.exit("The conformance suite needs npm: install Node and npm, then run this again.")
        package = f"@modelcontextprotocol/conformance@{SUITES[suite]}"
        subprocess.run([npm, "install", "--silent", "--no-audit", "--no-fund", NODE, package], cwd=folder, check=True)
    return [str(node), str(main)]


def required(side: str, version: str) -> list[str]:
    """Return the scenarios that a client or server of a protocol version must pass."""
    command = [*installed(), "list", f"--{side}", "--requirements", version]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    part = text.split(f"{side.capitalize()} scenarios", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\s+- (\S+)", part, re.MULTILINE)
