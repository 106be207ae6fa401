"""A module whose tool others import, too."""

from toolmason import Tool, prompt, tool


@tool
def shared() -> str:
    """Answer for all."""
    return "shared"


@prompt
def opening() -> str:
    """Open."""
    return "Hello."


made = Tool.from_schema("made", "Made by hand.", {}, lambda arguments, context: "made")


class Unready:
    """Answers nothing before it is set up, as settings of a framework do."""

    def __getattr__(self, name: str) -> None:
        raise RuntimeError(f"{name} before set-up")


settings = Unready()
