import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import ToolException
from langchain_core.tools import tool as langchain_tool

from adapters.desk import STEPS, make_box
from toolmason import Deny, Toolbox
from toolmason.adapters import from_langchain, to_langchain
from toolmason.errors import ApprovalRequired, InvalidArguments, ToolError


class Scripted(BaseChatModel):
    """A model that makes the calls of the script, one for each turn."""

    step: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *args, **options):
        message = AIMessage("done")
        if self.step < len(STEPS):
            name, arguments, _ = STEPS[self.step]
            message = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"c{self.step}"}])
            self.step += 1
        return ChatResult(generations=[ChatGeneration(message=message)])


async def test_every_outcome_is_read_by_the_model_of_a_langchain_agent():
    agent = create_agent(Scripted(), make_box().as_langchain())

    state = await agent.ainvoke({"messages": [HumanMessage("go")]}, {"recursion_limit": 50})

    read = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert state["messages"][-1].content == "done"
    assert [part in message.text for message, (*_, part) in zip(read, STEPS, strict=True)] == [True] * len(STEPS)
    assert [message.status for message in read] == ["success", *["error"] * 5]
    assert isinstance(read[-1].artifact.error, ApprovalRequired)


def test_a_sync_agent_works_too():
    agent = create_agent(Scripted(), make_box().as_langchain())

    state = agent.invoke({"messages": [HumanMessage("go")]}, {"recursion_limit": 50})

    assert next(message for message in state["messages"] if isinstance(message, ToolMessage)).text == "3"
    assert state["messages"][-1].content == "done"


async def test_an_approver_decides_in_the_loop_of_langchain():
    [pay] = [tool for tool in to_langchain(make_box(approver=lambda request: Deny("no"))) if tool.name == "pay"]

    message = await pay.ainvoke({"type": "tool_call", "id": "1", "name": "pay", "args": {"amount": 5}})

    assert (message.status, "no" in message.content) == ("error", True)


def test_the_schema_is_that_of_the_tool():
    box = make_box()

    tools = {tool.name: tool for tool in to_langchain(box)}

    assert tools["add"].args == box["add"].definition.input_schema["properties"]
    assert tools["add"].description == "Add two numbers."


@langchain_tool
def multiply(a: int, b: int = 2) -> int:
    """Multiply two numbers."""
    if a < 0:
        raise ToolException("too small")
    return a * b


@langchain_tool(response_format="content_and_artifact")
async def fetch(url: str) -> tuple[list[dict[str, str]], bytes]:
    """Fetch a page."""
    return [{"type": "text", "text": f"page {url}"}], b"raw"


async def test_tools_of_langchain_run_in_a_toolbox():
    multiply.handle_tool_error = True
    box = Toolbox(from_langchain(multiply, [fetch]))

    assert (await box.call("multiply", {"a": 3})).text == "6"
    assert (await box.call("fetch", {"url": "x"})).text == "page x"
    failed = await box.call("multiply", {"a": -1})
    assert isinstance(failed.error, ToolError)
    assert "too small" in failed.text
    assert isinstance((await box.call("multiply", {"a": "x"})).error, InvalidArguments)


async def test_an_exception_of_a_langchain_tool_is_a_result():
    multiply.handle_tool_error = False

    result = await Toolbox(from_langchain(multiply)).call("multiply", {"a": -1})

    assert not result.ok


async def test_a_tool_goes_there_and_back():
    box = Toolbox(from_langchain(to_langchain(make_box())))

    assert (await box.call("add", {"a": 1, "b": 2})).text == "3"
    assert "cannot do x" in (await box.call("fail", {"word": "x"})).text


@pytest.fixture(autouse=True)
def _restore():
    yield
    multiply.handle_tool_error = False
