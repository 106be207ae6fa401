"""Turn a typed function into a tool; it stays a function."""

import json
from typing import Annotated, Literal

from toolmason import Toolbox, tool


@tool(read_only=True)
def get_weather(
    city: Annotated[str, "City name"], unit: Annotated[Literal["C", "F"], "Celsius or Fahrenheit"] = "C"
) -> str:
    """Current weather in a city."""
    return f"21 {unit} and sunny in {city}"


box = Toolbox(get_weather)

if __name__ == "__main__":
    print(get_weather("Prague"))
    print(json.dumps(box["get_weather"].definition.input_schema, indent=2))
    print(box.call_sync("get_weather", '{"city": "Oslo", "unit": "F"}').text)
