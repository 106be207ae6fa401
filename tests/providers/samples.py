"""Tools and conversations that the tests of providers share."""

from typing import Annotated, Literal

from toolmason import Audio, EmbeddedResource, Image, Message, ResourceLink, Text, Toolbox, ToolCall, ToolResult, tool
from toolmason.errors import ToolError

CHATS = ("openai", "openai-chat", "anthropic", "gemini")
PNG = Image(b"\x89PNG\r\n", "image/png")
WAV = Audio(b"RIFF", "audio/wav")
PDF = EmbeddedResource("file:///report.pdf", data=b"%PDF-1.7", mime_type="application/pdf")
LINK = ResourceLink("https://example.com/a.txt", "a.txt", "text/plain")


@tool
def get_weather(city: Annotated[str, "City name"], unit: Literal["C", "F"] = "C", days: int = 1) -> str:
    """Current weather in a city."""
    return f"21 {unit} in {city}"


@tool(name="shop.find it")
def find_it(filters: dict[str, int]) -> str:
    """Find articles."""
    return "none"


@tool
def now() -> str:
    """Tell the time."""
    return "12:00"


def box() -> Toolbox:
    return Toolbox(get_weather, find_it, now)


def transcript() -> list[Message]:
    """A conversation with everything in it: parts of every kind, parallel calls, a failure, an odd id."""
    return [
        Message("system", "Be brief."),
        Message("user", ["What is this?", PNG, WAV, PDF, LINK]),
        Message(
            "assistant",
            "I look.",
            [ToolCall("c 1", "get_weather", '{"city": "Oslo"}'), ToolCall("c2", "shop.find it", {"filters": {"a": 1}})],
        ),
        Message(
            "tool",
            results=[
                ToolResult("c 1", "get_weather", content=(Text("21"), PNG, WAV, PDF)),
                ToolResult("c2", "shop.find it", error=ToolError("the shop is closed")),
            ],
        ),
        Message("system", "Now in French."),
        Message("user", "And?"),
    ]
