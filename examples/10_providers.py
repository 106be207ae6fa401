"""Format the same tools for every provider, show the losses, and run a turn with a scripted model."""

import asyncio
from typing import Annotated, Literal

from toolmason import Message, Toolbox, tool
from toolmason.models import ModelRequest, ScriptedModel
from toolmason.providers import KNOWN, verdict


@tool(read_only=True)
def get_weather(city: Annotated[str, "City name"], unit: Annotated[Literal["C", "F"], "Scale"] = "C") -> str:
    """Current weather in a city."""
    return f"21 {unit} and sunny in {city}"


@tool(name="shop.search", read_only=True)  # toolmason: ignore[TM201] - the example shows the alias
def search(filters: Annotated[dict[str, str], "Field and value"]) -> list[str]:
    """Search the shop."""
    return sorted(filters)


box = Toolbox(get_weather, search)


async def main() -> None:
    """Print how each provider accepts the tools, and run one conversation."""
    for provider in KNOWN:
        for item in box:
            found = verdict(item.definition, provider)
            mode = "strict" if found.narrowed.strict else f"not strict: {found.narrowed.reason}"
            print(f"{provider:12} {found.alias or found.tool:12} {found.status}, {mode}")

    model = ScriptedModel([[("get_weather", {"city": "Prague"})], "It is 21 C and sunny in Prague."])
    history = [Message("user", "What is the weather in Prague?")]
    while True:
        reply = await model.respond(ModelRequest(history, box))
        history.append(reply.message)
        if not reply.calls:
            break
        history.append(Message("tool", results=await box.call_all(reply.calls)))
    print(history[-1].text)


asyncio.run(main())
