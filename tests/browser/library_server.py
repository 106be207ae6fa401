"""A real MCP server over stdio. Its tools come from a file, so that a test can change them while it runs."""

import json
import os
import time
from pathlib import Path

from toolmason import Toolbox, tool
from toolmason.mcp import serve

FOLDER = Path(os.environ["LIBRARY_FOLDER"])
(FOLDER / "server.pid").write_text(str(os.getpid()), "utf-8")


@tool(read_only=True)
def look_up(word: str) -> str:
    """Look up a word in the library."""
    return f"{word}: a word"


@tool
def lend(title: str) -> str:
    """Lend a book; takes until a test lets it go on."""
    (FOLDER / "lending").write_text(title, "utf-8")
    while not (FOLDER / "go").exists():
        time.sleep(0.05)
    return f"{title} is lent."


@tool
def add_shelf(name: str) -> str:
    """Add a tool to this server."""

    @tool(name=name, read_only=True)
    def shelf() -> str:
        """Read a shelf."""
        return "books"

    box.add(shelf)
    return name


changed = FOLDER / "definitions.json"
text = json.loads(changed.read_text("utf-8"))["look_up"] if changed.exists() else None
box = Toolbox(look_up, lend, add_shelf)
serve(box if text is None else box.override("look_up", description=text))
