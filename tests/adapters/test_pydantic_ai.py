import asyncio

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from adapters.desk import STEPS, make_box
from toolmason import Deny, Toolbox
from toolmason.adapters import from_pydantic_ai, to_pydantic_ai
from toolmason.errors import ApprovalRequired, InvalidArguments, ToolError, ToolTimeout


def scripted(steps):
    left = iter(enumerate(steps))

    def respond(messages, info):
        found = next(left, None)
        if found is None:
            return ModelResponse(parts=[TextPart("done")])
        number, (name, arguments, _) = found
        return ModelResponse(parts=[ToolCallPart(name, arguments, f"c{number}")])

    return FunctionModel(respond)


async def test_every_outcome_is_read_by_the_model_of_a_pydantic_ai_agent():
    agent = Agent(scripted(STEPS), tools=make_box().as_pydantic_ai())

    run = await agent.run("go")

    parts = [part for message in run.all_messages() if isinstance(message, ModelRequest) for part in message.parts]
    read = [part for part in parts if isinstance(part, ToolReturnPart)]
    assert run.output == "done"
    assert [word in part.content for part, (*_, word) in zip(read, STEPS, strict=True)] == [True] * len(STEPS)
    assert isinstance(read[-1].metadata.error, ApprovalRequired)
    assert [part.metadata.call_id for part in read] == [f"c{number}" for number in range(len(STEPS))]


async def test_an_approver_decides_in_the_loop_of_pydantic_ai():
    box = make_box(approver=lambda request: Deny("never"))
    agent = Agent(scripted([("pay", {"amount": 5}, "")]), tools=to_pydantic_ai(box))

    run = await agent.run("go")

    assert "never" in str(run.all_messages())


def divide(ctx: RunContext[int], a: int) -> float:
    """Divide the dependency by a number."""
    if a == 0:
        raise ModelRetry("not by zero")
    return ctx.deps / a


async def test_tools_of_pydantic_ai_run_in_a_toolbox():
    box = Toolbox(from_pydantic_ai(divide, deps=12))

    assert (await box.call("divide", {"a": 4})).value == pytest.approx(3)
    retry = await box.call("divide", {"a": 0})
    assert isinstance(retry.error, ToolError)
    assert (retry.error.retryable, "not by zero" in retry.text) == (True, True)
    assert isinstance((await box.call("divide", {"a": "x"})).error, InvalidArguments)
    assert "ctx" not in box["divide"].definition.input_schema["properties"]


async def test_the_dependencies_may_come_from_the_context():
    from toolmason import ToolContext

    box = Toolbox(from_pydantic_ai(divide))

    assert (await box.call("divide", {"a": 4}, context=ToolContext(20))).value == pytest.approx(5)


async def test_approval_and_time_outs_of_pydantic_ai_hold():
    async def stall() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    tools = FunctionToolset([Tool(stall, timeout=0.05), Tool(divide, name="guarded", requires_approval=True)])
    box = Toolbox(from_pydantic_ai(tools, deps=1))

    assert isinstance((await box.call("stall", {})).error, ToolTimeout)
    assert isinstance((await box.call("guarded", {"a": 1})).error, ApprovalRequired)


async def test_a_tool_goes_there_and_back():
    box = Toolbox(from_pydantic_ai(to_pydantic_ai(make_box())))

    assert (await box.call("add", {"a": 1, "b": 2})).text == "3"
