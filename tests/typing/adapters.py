"""The tools of a toolbox pass the types of the libraries that they are for."""

from typing import Any, assert_type

from agents import Agent as OpenAIAgent
from agents import FunctionTool
from langchain_core.tools import BaseTool
from pydantic_ai import Agent
from pydantic_ai import Tool as PydanticTool

from toolmason import Tool, Toolbox
from toolmason.adapters import from_langchain, from_pydantic_ai, to_langchain, to_openai_agents, to_pydantic_ai

box = Toolbox()

assert_type(to_langchain(box), list[BaseTool])
assert_type(to_pydantic_ai(box), list[PydanticTool[Any]])
assert_type(to_openai_agents(box), list[FunctionTool])
assert_type(from_langchain(to_langchain(box)), list[Tool])
assert_type(from_pydantic_ai(to_pydantic_ai(box)), list[Tool])

Agent("test", tools=to_pydantic_ai(box))
Agent("test", tools=box.as_pydantic_ai())
OpenAIAgent(name="a", tools=[*to_openai_agents(box)])
OpenAIAgent(name="a", tools=box.as_openai_agents())

from_langchain("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(Toolbox.from_openapi("api.json", base_url="https://example.com"), Toolbox)
