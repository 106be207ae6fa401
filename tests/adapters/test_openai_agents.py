import json

from agents import Agent, Model, ModelResponse, RunConfig, RunContextWrapper, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from adapters.desk import STEPS, make_box
from toolmason import Deny, Image, Toolbox, tool
from toolmason.adapters import from_openai_agents, to_openai_agents
from toolmason.errors import ApprovalRequired, InvalidArguments


class Scripted(Model):
    """A model that makes the calls of a script, and keeps what it reads."""

    def __init__(self, steps):
        self.left, self.read = list(enumerate(steps)), []

    async def get_response(self, system_instructions, input, *args, **options):  # noqa: A002 - the name of the SDK
        self.read = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
        if self.left:
            number, (name, arguments, _) = self.left.pop(0)
            item = ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=f"c{number}", name=name, type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            item = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **options):
        raise NotImplementedError


async def run(box, steps):
    model = Scripted(steps)
    agent = Agent(name="desk", tools=to_openai_agents(box), model=model)
    result = await Runner.run(agent, "go", max_turns=len(steps) + 2, run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "done"
    return [item["output"] for item in model.read]


async def test_every_outcome_is_read_by_the_model_of_an_openai_agent():
    read = await run(make_box(), STEPS)

    assert [word in text for text, (*_, word) in zip(read, STEPS, strict=True)] == [True] * len(STEPS)


async def test_an_approver_decides_in_the_loop_of_the_sdk():
    [text] = await run(make_box(approver=lambda request: Deny("never")), [("pay", {"amount": 5}, "")])

    assert "never" in text


async def test_an_image_stays_an_image():
    @tool
    def draw() -> list[str | Image]:
        """Draw."""
        return ["a dot", Image(b"png")]

    [parts] = await run(Toolbox(draw), [("draw", {}, "")])

    assert [part["type"] for part in parts] == ["input_text", "input_image"]


def test_the_names_on_the_toolbox_are_the_same_tools():
    assert [tool.name for tool in make_box().as_openai_agents()] == ["add", "crash", "fail", "pay", "stall"]


@function_tool
def scale(ctx: RunContextWrapper[int], number: int) -> int:
    """Multiply a number by the context."""
    return ctx.context * number


@function_tool(needs_approval=True)
def guarded() -> str:
    """Ask first."""
    return "done"


async def test_tools_of_the_sdk_run_in_a_toolbox():
    box = Toolbox(from_openai_agents(scale, [guarded], context=3))

    assert (await box.call("scale", {"number": 4})).value == 12
    assert isinstance((await box.call("scale", {"number": "x"})).error, InvalidArguments)
    assert isinstance((await box.call("guarded", {})).error, ApprovalRequired)


async def test_a_tool_goes_there_and_back():
    box = Toolbox(from_openai_agents(to_openai_agents(make_box())))

    assert (await box.call("add", {"a": 1, "b": 2})).text == "3"
