"""Prompts: functions that open a conversation."""

import asyncio
import threading
from typing import Annotated

import pytest

from toolmason import Chat, Config, Image, Message, Param, Text, Toolbox, prompt, resource, tool, tools_from
from toolmason.errors import ConfigError, DefinitionError, InvalidArguments, ToolTimeout
from toolmason.extend import EngineSettings
from toolmason.testing import ScriptedModel


@prompt
def review(language: str, tone: Annotated[str, "How to say it"] = "kind") -> str:
    """Review some code."""
    return f"Review this {language} code. Be {tone}."


async def test_a_text_becomes_one_message_of_the_user():
    [message] = await Toolbox(review).prompt("review", {"language": "Python"})

    assert message == Message("user", "Review this Python code. Be kind.")


@pytest.mark.row("MA-19", "MA-20")
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
async def test_the_role_of_a_text_can_be_chosen(role):
    @prompt(role=role)
    def hello() -> str:
        return "Hello"

    [message] = await Toolbox(hello).prompt("hello")

    assert message.role == role


@pytest.mark.row("MA-20")
def test_a_role_that_does_not_exist_is_refused():
    with pytest.raises(DefinitionError, match="role"):
        prompt(role="robot")(lambda: "Hello")


async def test_a_message_keeps_its_own_role():
    @prompt
    def hello() -> Message:
        return Message("user", "Hello")

    assert await Toolbox(hello).prompt("hello") == [Message("user", "Hello")]


async def test_a_list_may_mix_texts_messages_and_parts():
    picture = Image(b"\x89PNG")

    @prompt(role="user")
    def mixed() -> list:
        return ["Look:", picture, Message("assistant", "I see."), Text("So?")]

    messages = await Toolbox(mixed).prompt("mixed")

    assert messages == [
        Message("user", "Look:"),
        Message("user", picture),
        Message("assistant", "I see."),
        Message("user", "So?"),
    ]


async def test_a_prompt_may_be_async():
    @prompt
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    [message] = await Toolbox(later).prompt("later")

    assert message.text == "later"


async def test_a_sync_prompt_may_return_an_awaitable():
    async def later() -> str:
        return "later"

    @prompt
    def now() -> str:
        return later()

    [message] = await Toolbox(now).prompt("now")

    assert message.text == "later"


async def test_what_cannot_be_a_message_is_refused_by_name():
    @prompt
    def number() -> int:
        return 5

    with pytest.raises(DefinitionError, match=r"'number'.*int"):
        await Toolbox(number).prompt("number")


def test_a_prompt_is_described_as_a_tool_is():
    [found] = Toolbox(review).prompts

    assert (found.name, found.description) == ("review", "Review some code.")
    assert found.input_schema["required"] == ["language"]
    assert found.input_schema["properties"]["tone"]["description"] == "How to say it"
    assert "review" in repr(found)


@pytest.mark.row("MA-19")
def test_a_prompt_may_be_given_a_name_and_a_description():
    @prompt(name="hi", description="Say hi.")
    def hello() -> str:
        return "Hello"

    [found] = Toolbox(hello).prompts

    assert (found.name, found.description) == ("hi", "Say hi.")


def test_the_function_stays_callable():
    assert review("Go") == "Review this Go code. Be kind."


async def test_bad_arguments_of_a_prompt_are_raised_with_every_problem():
    with pytest.raises(InvalidArguments) as caught:
        await Toolbox(review).prompt("review", {"tone": 5})

    assert {problem.path for problem in caught.value.problems} == {"$.language", "$.tone"}


async def test_a_prompt_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(KeyError, match="review"):
        await Toolbox(review).prompt("reviews")
    with pytest.raises(KeyError, match="none"):
        await Toolbox().prompt("review")


async def test_parameters_of_prompts_have_templates_and_other_names_too():
    @prompt
    def about(
        topic: Annotated[str, Param(name="subject")], title: Annotated[str, Param(template=True, default="On ${topic}")]
    ) -> str:
        return title

    [message] = await Toolbox(about).prompt("about", {"subject": "tea"})

    assert message.text == "On tea"


async def test_an_injected_value_that_is_missing_is_a_config_error():
    @prompt
    def where(project_dir: str) -> str:
        return project_dir

    with pytest.raises(ConfigError, match="project"):
        await Toolbox(where).prompt("where")


async def test_the_configuration_is_injected():
    @prompt
    def sign(config: Config) -> str:
        return config["name"]

    [message] = await Toolbox(sign, config={"name": "Ada"}).prompt("sign")

    assert message.text == "Ada"


def test_prompts_of_a_bundle_are_found_beside_its_tools():
    class Bundle:
        @tool
        def work(self) -> None: ...

        @prompt
        def start(self) -> str:
            return "Go"

        @staticmethod
        @prompt
        def stop() -> str:
            return "Stop"

    box = Toolbox(Bundle())

    assert [found.name for found in box.prompts] == ["start", "stop"]
    assert [found.name for found in box.tools] == ["work"]
    assert box.prompt_sync("start")[0].text == "Go"


def test_a_bundle_may_hold_prompts_only():
    class Bundle:
        @prompt
        def start(self) -> str:
            return "Go"

    box = Toolbox(Bundle())

    assert [found.name for found in box.prompts] == ["start"]
    assert len(box) == 0


def test_a_prompt_is_no_tool():
    box = Toolbox(review)

    assert "review" not in box
    assert box.call_sync("review", {"language": "Go"}).error.code == "unknown_tool"


def test_the_prompts_are_sorted_by_name():
    @prompt
    def b() -> str:
        return ""

    @prompt
    def a() -> str:
        return ""

    assert [found.name for found in Toolbox(b, a).prompts] == ["a", "b"]


# --- prompts and resources that hang -----------------------------------------------------------------


@pytest.fixture
def release():
    """An event that functions that hang wait for; set at the end of the test, whatever happens."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hanging(release):
    @prompt
    def hang() -> str:
        release.wait(30)
        return "late"

    @resource("hang://now")
    def hang_too() -> str:
        release.wait(30)
        return "late"

    return [hang, hang_too]


@pytest.mark.parametrize("kind", ["prompt", "resource"])
async def test_sync_functions_that_hang_leave_threads_for_the_application(hanging, kind):
    """07-redesign.md, opening: hanging prompts starved `asyncio.to_thread`."""
    box = Toolbox(*hanging)
    calls = [
        box.prompt("hang") if kind == "prompt" else box.read("hang://now") for _ in range(EngineSettings().threads)
    ]
    waiting = [asyncio.ensure_future(call) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)

    assert await asyncio.wait_for(asyncio.to_thread(lambda: "ran"), 5) == "ran"

    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting, timeout=5)


@pytest.mark.parametrize("kind", ["prompt", "resource"])
async def test_a_function_that_hangs_ends_at_the_time_out_of_the_toolbox(hanging, kind):
    box = Toolbox(*hanging, timeout=0.05)

    with pytest.raises(ToolTimeout):
        await asyncio.wait_for(box.prompt("hang") if kind == "prompt" else box.read("hang://now"), 5)


@pytest.mark.parametrize("kind", ["prompt", "resource"])
async def test_a_function_that_hung_gives_its_slot_back(hanging, kind):
    box = Toolbox(*hanging, review, timeout=0.05, max_concurrency=1)
    with pytest.raises(ToolTimeout):
        await asyncio.wait_for(box.prompt("hang") if kind == "prompt" else box.read("hang://now"), 5)

    [message] = await asyncio.wait_for(box.prompt("review", {"language": "Python"}), 5)

    assert "Python" in message.text


@pytest.mark.row("MA-21", "P16")
async def test_a_chat_starts_from_a_prompt_of_the_default_role():
    @prompt
    def summarize(topic: str) -> str:
        return f"Summarize {topic}."

    model = ScriptedModel(["Tea is a drink."])
    chat = Chat(model, Toolbox(summarize))

    reply = await chat.send(await chat.box.prompt("summarize", {"topic": "tea"}))

    assert reply.text == "Tea is a drink."
    assert [message.role for message in model.requests[0].messages] == ["user"]


@pytest.mark.row("AJ-16")
@pytest.mark.parametrize(
    "decorate", [lambda fn: tool(prompt(fn)), lambda fn: prompt(tool(fn))], ids=["tool outside", "prompt outside"]
)
async def test_a_function_is_a_tool_and_a_prompt_if_both_decorate_it(decorate):
    def say(text: str) -> str:
        return f"say {text}"

    box = Toolbox(decorate(say))

    assert [item.name for item in box.tools] == [item.name for item in box.prompts] == ["say"]
    assert (await box.call("say", {"text": "a"})).text == "say a"
    assert [message.text for message in await box.prompt("say", {"text": "a"})] == ["say a"]


@pytest.mark.row("AJ-16")
def test_a_method_keeps_all_its_roles_and_their_words():
    class Bundle:
        @tool(name="run", read_only=True)
        @prompt(name="ask", role="system")
        @resource("note://now")
        def now(self) -> str:
            return "12:00"

    class Later(Bundle):
        def now(self) -> str:
            return "13:00"

    box = Toolbox(Later())

    assert [(item.name, item.options.read_only) for item in box.tools] == [("run", True)]
    assert [(item.name, item.role) for item in box.prompts] == [("ask", "system")]
    assert [item.uri for item in box.resources] == ["note://now"]
    assert [item.name for item in tools_from(Later())] == ["run"]
