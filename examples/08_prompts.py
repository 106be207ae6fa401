"""Start a conversation with a prompt; its parameters work like those of a tool."""

import json
from typing import Annotated

from toolmason import Message, Toolbox, prompt


@prompt(role="user")
def review(language: Annotated[str, "Programming language"], *, strict: Annotated[bool, "Be strict"] = False) -> str:
    """Ask for a code review."""
    return f"Review my {language} code." + (" Spare me nothing." if strict else "")


@prompt
def interview(topic: Annotated[str, "What to talk about"]) -> list[Message]:
    """Open an interview."""
    return [Message("system", "You are a curious reporter."), Message("user", f"Let's talk about {topic}.")]


box = Toolbox(review, interview)

if __name__ == "__main__":
    for item in box.prompts:
        print(item.name, "-", item.description, list(item.input_schema["properties"]))
    for message in box.prompt_sync("review", {"language": "Python", "strict": True}):
        print(f"{message.role}: {message.text}")
    for message in box.prompt_sync("interview", {"topic": "tea"}):
        print(json.dumps(message.to_dict()))
