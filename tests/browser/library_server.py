"""A real MCP server over stdio. Its tools come from a file, so that a test can change them while it runs."""

import json
import os
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
box = Toolbox(look_up, add_shelf)
serve(box if text is None else box.override("look_up", description=text))
