"""Options and prompts of a request that have a wrong type."""

import asyncio

import pytest

from toolmason import Toolbox, tool
from toolmason.chat import Chat, Message, SqliteBudget, SqliteMemory, SqliteRuntime, WindowMemory
from toolmason.errors import ConfigError, DefinitionError
from toolmason.models import ScriptedModel, ToolChoice, model


@tool
def wipe() -> str:
    """Wipe the disk."""
    return "wiped"


WRONG = [
    pytest.param({"limits": 5}, "limits= is of type 'int': it must be Limits or None", id="limits"),
    pytest.param({"limits": {"steps": 3}}, "limits= is of type 'dict': it must be Limits or None", id="mapping"),
    pytest.param({"options": 5}, "options= is of type 'int': it must be a mapping or None", id="options"),
]


async def request(chat, method, first, options):
    made = getattr(chat, method)(first, **options)
    return await made if asyncio.iscoroutine(made) else [event async for event in made]


@pytest.mark.parametrize("method", ["send", "step", "stream", "resume", "stream_resumed"])
@pytest.mark.parametrize(
    ("given", "message"),
    [*WRONG, pytest.param({"context": "u"}, "context='u': must be a ToolContext or a mapping", id="context")],
)
async def test_every_way_to_make_a_request_refuses_an_option_of_a_wrong_type(method, given, message):
    chat = Chat(ScriptedModel([[("wipe", {})]]), Toolbox(wipe, approve="all"))
    first = (await chat.send("Wipe.")).save() if "resume" in method else "Hi"

    with pytest.raises((ConfigError, DefinitionError), match=message):
        await request(chat, method, first, given)


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_a_chat_refuses_the_same_option_in_the_same_words(given, message):
    with pytest.raises(DefinitionError, match=message):
        Chat(ScriptedModel([]), **given)


@pytest.mark.parametrize("name", ["conversation", "run"])
async def test_a_name_that_is_not_a_string_is_refused(name):
    with pytest.raises(DefinitionError, match=f"{name}= is of type 'dict': it must be a string or None"):
        await Chat(ScriptedModel(["Hi"])).send("Hi", **{name: {}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory": SqliteMemory}, r"memory=SqliteMemory is a class. Pass an object, such as SqliteMemory\(\.\.\.\)"),
        ({"memory": WindowMemory}, "memory=WindowMemory is a class"),
        ({"runtime": SqliteRuntime}, "runtime=SqliteRuntime is a class"),
        ({"budget": SqliteBudget}, "budget=SqliteBudget is a class"),
        ({"advisors": print}, "advisors= is of type 'builtin_function_or_method': it must be a list"),
    ],
    ids=["memory", "window", "runtime", "budget", "advisors"],
)
def test_a_class_in_place_of_an_object_is_refused(given, message):
    with pytest.raises((ConfigError, DefinitionError), match=message):
        Chat(ScriptedModel([]), **given)


@pytest.mark.parametrize("prompt", [{"role": "user", "content": "Hi"}, {}, b"Hi"], ids=["message", "empty", "bytes"])
async def test_a_prompt_that_python_iterates_is_shown_whole_in_the_error(prompt):
    with pytest.raises(ConfigError) as caught:
        await Chat(ScriptedModel(["Hi"])).send(prompt)

    assert f"send() takes a str, a Message, a list of Message or parts, not {prompt!r}" in str(caught.value)


@pytest.mark.parametrize("content", [{"type": "text", "text": "Hi"}, b"Hi"], ids=["mapping", "bytes"])
def test_a_message_refuses_content_that_is_neither_text_nor_parts(content):
    with pytest.raises(ConfigError, match="content must be text or parts"):
        Message("user", content)


@pytest.mark.parametrize("saved", [None, 3, [], {}], ids=repr)
async def test_a_value_that_is_not_a_saved_run_is_named_so(saved):
    with pytest.raises(ConfigError, match="This is not a saved run"):
        await Chat(ScriptedModel([])).resume(saved, [])


@pytest.mark.parametrize(
    ("given", "message"),
    [({"decisions": 5}, "5 is not a decision"), ({"results": 5}, "5 is not a ToolResult")],
    ids=["decisions", "results"],
)
async def test_a_number_in_place_of_a_list_is_refused(given, message):
    chat = Chat(ScriptedModel([[("wipe", {})]]), Toolbox(wipe, approve="all"))
    held = await chat.send("Wipe.")

    with pytest.raises(ConfigError, match=message):
        await chat.resume(held.save(), **given)


def test_a_toolbox_refuses_a_context_of_a_wrong_type_as_a_request_does():
    with pytest.raises(DefinitionError, match="context='u': must be a ToolContext or a mapping"):
        Toolbox(wipe, context="u")


@pytest.mark.parametrize("name", ["scripted", "offline", "streamed"])
@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ([wipe], "requird", r"tool_choice names 'requird', which is not offered. Available: \['wipe'\]"),
        ([wipe], ToolChoice("auto", ("wipe", "wash")), "tool_choice names 'wash', which is not offered"),
        ([], "required", 'tool_choice="required" needs at least one tool'),
    ],
    ids=["misspelt", "one of two", "no tool"],
)
async def test_every_model_refuses_a_tool_choice_that_cannot_be_met(name, tools, choice, message):
    chat = Chat(model("offline") if name == "offline" else ScriptedModel(["Hi"]), tools)

    with pytest.raises(ConfigError, match=message):
        await request(chat, "stream" if name == "streamed" else "send", "Wipe.", {"tool_choice": choice})


async def test_a_typed_answer_and_a_tool_of_the_request_can_be_required():
    wiped = await Chat(ScriptedModel([[("wipe", {})], "Done."])).send("Wipe.", tool_choice="wipe", add_tools=[wipe])
    typed = await Chat(ScriptedModel([[("final_answer", {"answer": 3})]]), output=int).send("x", tool_choice="required")

    assert (wiped.text, typed.output) == ("Done.", 3)
