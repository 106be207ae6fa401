"""Prompts open a conversation; their parameters work as those of tools do."""

import json
from typing import Annotated

from toolmason import Message, Toolbox, prompt


@prompt(role="user")
def review(
    language: Annotated[str, "Programming language"], *, strict: Annotated[bool, "Whether to be severe"] = False
) -> str:
    """Ask for a code review."""
    return f"Review my {language} code." + (" Spare me nothing." if strict else "")


@prompt
def interview(topic: Annotated[str, "What to talk about"]) -> list[Message]:
    """Open an interview."""
    return [Message("system", "You are a curious reporter."), Message("user", f"Let us talk about {topic}.")]


box = Toolbox(review, interview)

if __name__ == "__main__":
    for item in box.prompts:
        print(item.name, "-", item.description, list(item.input_schema["properties"]))
    for message in box.prompt_sync("review", {"language": "Python", "strict": True}):
        print(f"{message.role}: {message.text}")
    for message in box.prompt_sync("interview", {"topic": "tea"}):
        print(json.dumps(message.to_dict()))
