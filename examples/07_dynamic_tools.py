"""Create tools at run time: from a function, a schema, a class or a name."""

from collections.abc import Mapping
from typing import Any

from toolmason import Tool, Toolbox, ToolContext, ToolDefinition, ToolOptions

LIGHT = {"type": "object", "properties": {"level": {"type": "integer", "maximum": 100}}, "required": ["level"]}


def set_light(arguments: Mapping[str, Any], context: ToolContext[Any]) -> str:
    """Receive arguments that match the schema."""
    return f"{context['room']} at {arguments['level']}"


class Endpoint(Tool):
    """Tool for one path of a web service."""

    def __init__(self, name: str, address: str) -> None:
        self.definition = ToolDefinition(name, f"Fetch {address}.", {"type": "object", "properties": {}})
        self.options = ToolOptions(read_only=True)
        self.address = address

    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        """Pretend to fetch the path."""
        del arguments, context
        return f"GET {self.address}"


class Multipliers:
    """Resolver that creates a tool for each name `times_<number>`."""

    def resolve(self, name: str) -> Tool | None:
        """Return the tool with that name, or None."""
        number = name.removeprefix("times_")
        if number == name or not number.isdigit():
            return None

        def multiply(value: int) -> int:
            return value * int(number)

        return Tool.from_function(multiply, name=name, read_only=True)


light = Tool.from_schema("set_light", "Switch the light.", LIGHT, set_light, idempotent=True)
box = Toolbox(light, Endpoint("news", "/news"), context={"room": "hall"}, resolvers=[Multipliers()])

if __name__ == "__main__":
    print(box.call_sync("set_light", '{"level": 40}').text)
    print(box.call_sync("set_light", '{"level": 400}').error)
    print(box.call_sync("news").text)
    print(box.call_sync("times_3", {"value": 14}).text)
