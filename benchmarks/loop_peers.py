"""Loops of other libraries over an in-memory model, written as in their documentation: N steps with one call each."""

from collections.abc import Awaitable, Callable
from typing import Any

from samples import TWO_INTS

Run = Callable[[int], Awaitable[object]]
TEXT = '{"a": 1, "b": 2}'
add = TWO_INTS.on_loop


def pydantic_ai() -> Run:
    """Pydantic AI: an agent with a function model."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import UsageLimits

    async def run(steps: int) -> object:
        left = iter(range(steps))

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            del messages, info
            number = next(left, None)
            if number is None:
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart("add", TEXT, f"c{number}")])

        agent = Agent(FunctionModel(respond), tools=[add])
        return (await agent.run("go", usage_limits=UsageLimits(request_limit=None))).output

    return run


def openai_agents() -> Run:
    """OpenAI Agents SDK: its runner with a custom model."""
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Steps(Model):
        def __init__(self, steps: int) -> None:
            self.left = steps

        async def get_response(self, *args: Any, **words: Any) -> ModelResponse:
            del args, words
            item: Any
            if self.left:
                self.left -= 1
                item = ResponseFunctionToolCall(
                    arguments=TEXT, call_id=f"c{self.left}", name="add", type="function_call"
                )
            else:
                text = ResponseOutputText(annotations=[], text="done", type="output_text")
                item = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **words: Any) -> Any:
            raise NotImplementedError

    tool = function_tool(add)

    async def run(steps: int) -> object:
        agent = Agent(name="bench", tools=[tool], model=Steps(steps))
        config = RunConfig(tracing_disabled=True)
        return (await Runner.run(agent, "go", max_turns=steps + 2, run_config=config)).final_output

    return run


def _langchain_model(steps: int) -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Steps(BaseChatModel):
        left: int

        @property
        def _llm_type(self) -> str:
            return "steps"

        def bind_tools(self, tools: Any, **words: Any) -> Any:
            del tools, words
            return self

        def _generate(self, messages: list[BaseMessage], *args: Any, **words: Any) -> ChatResult:
            del messages, args, words
            if self.left:
                self.left -= 1
                call = {"name": "add", "args": {"a": 1, "b": 2}, "id": f"c{self.left}", "type": "tool_call"}
                message = AIMessage("", tool_calls=[call])
            else:
                message = AIMessage("done")
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: list[BaseMessage], *args: Any, **words: Any) -> ChatResult:
            return self._generate(messages, *args, **words)

    return Steps(left=steps)


def langchain() -> Run:
    """LangChain: `create_agent` with a custom model."""
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import StructuredTool

    tool = StructuredTool.from_function(coroutine=add)

    async def run(steps: int) -> object:
        agent = create_agent(_langchain_model(steps), [tool])
        asked = {"messages": [HumanMessage("go")]}
        return (await agent.ainvoke(asked, {"recursion_limit": 3 * steps + 10}))["messages"][-1].content

    return run


def langchain_core() -> Run:
    """LangChain Core: a hand-written loop with a custom model."""
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import StructuredTool

    tool = StructuredTool.from_function(coroutine=add)

    async def run(steps: int) -> object:
        model, messages = _langchain_model(steps), [HumanMessage("go")]
        while True:
            answer = await model.ainvoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                return answer.content
            messages += [await tool.ainvoke(call) for call in answer.tool_calls]

    return run


def llm() -> Run:
    """`llm`: a chain with a custom model."""
    import llm as package

    class Steps(package.AsyncModel):
        model_id = "steps"
        can_stream = False
        supports_tools = True

        def __init__(self, steps: int) -> None:
            self.left = steps

        async def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
            del prompt, stream, conversation
            if self.left:
                self.left -= 1
                response.add_tool_call(package.ToolCall("add", {"a": 1, "b": 2}, f"c{self.left}"))
            else:
                yield "done"

    tool = package.Tool.function(add)

    async def run(steps: int) -> object:
        chain = Steps(steps).conversation().chain("go", tools=[tool], chain_limit=0)
        return await chain.text()

    return run


PEERS: dict[str, Callable[[], Run]] = {
    "pydantic-ai, FunctionModel": pydantic_ai,
    "openai-agents, Runner": openai_agents,
    "langchain, create_agent": langchain,
    "langchain-core, hand-written loop": langchain_core,
    "llm, chain": llm,
}
