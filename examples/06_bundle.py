"""Group related tools as methods of a class with shared state."""

from typing import Annotated

from toolmason import Toolbox, ToolError, prompt, tool


class Notes:
    """Notebook."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @tool
    def add_note(self, text: Annotated[str, "What to remember"]) -> int:
        """Save a note and return its number."""
        self.lines.append(text)
        return len(self.lines)

    @tool(read_only=True)
    def read_note(self, number: Annotated[int, "Number returned by `add_note`"]) -> str:
        """Read a note."""
        if not 1 <= number <= len(self.lines):
            raise ToolError(f"No note {number}. There are {len(self.lines)} notes.")
        return self.lines[number - 1]

    @prompt
    def summary(self) -> str:
        """Describe the notebook."""
        return f"You have {len(self.lines)} notes."


class LockedNotes(Notes):
    """Read-only notebook."""

    @tool.exclude
    def add_note(self, text: str) -> int:
        """Do nothing."""
        del text
        return 0


box = Toolbox(Notes())

if __name__ == "__main__":
    print(box.call_sync("add_note", {"text": "Buy tea"}).text)
    print(box.call_sync("read_note", {"number": 1}).text)
    print(box.call_sync("read_note", {"number": 7}).error)
    print(box.prompt_sync("summary")[0].text)
    print(Toolbox(LockedNotes()))
