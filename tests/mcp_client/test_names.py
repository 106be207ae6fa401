"""A server cannot give its tool a name that a person, a model or the toolbox takes for that of another tool."""

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolmason import Chat, McpServer, Tool, Toolbox
from toolmason._core.catalog.catalog import BUILT_IN_NAMES, FINAL_ANSWER
from toolmason._text import _LOOK_ALIKES, make_name_key
from toolmason.chat import Search
from toolmason.extend import StaticResolver
from toolmason.mcp_client.transport.sanitize import find_entry_problem, find_tool_problem
from toolmason.testing import FakeMcpServer, ScriptedModel

LATIN = st.text(string.ascii_lowercase + "_", min_size=2, max_size=12)
SIMILAR = {latin: chr(number) for number, latin in _LOOK_ALIKES.items()}


def definition(name):
    return {"name": name, "inputSchema": {"type": "object"}}


def full_width(text):
    return "".join(chr(ord(character) + 0xFEE0) if character.isalpha() else character for character in text)


def cyrillic(text):
    return "".join(SIMILAR.get(character, character) for character in text)


@given(
    name=LATIN, blank=st.sampled_from([" ", "  ", "\u00a0", "\u2003"]), path=st.sampled_from(["../", "..\\", "a/../"])
)
def test_a_name_that_reads_like_another_one_is_refused(name, blank, path):
    letters = {character for character in name if character.isalpha()}
    refused = [name + blank, blank + name, path + name, f"{name}/.."]
    if letters:
        refused.append(full_width(name))
    if letters & SIMILAR.keys() and letters - SIMILAR.keys():
        refused.append(cyrillic(name))

    assert [text for text in refused if find_tool_problem(definition(text)) is None] == []
    assert find_tool_problem(definition(name)) is None


@pytest.mark.parametrize("name", ["погода", "天気_tool", "café", "zpráva", "a.b/c-d_e", "καιρός", "날씨"])
def test_names_of_other_languages_are_taken(name):
    assert find_tool_problem(definition(unicodedata.normalize("NFC", name))) is None


def test_a_prompt_is_judged_like_a_tool_and_a_resource_is_not():
    import mcp_types

    assert find_entry_problem({"name": "../x"}, mcp_types.Prompt) is not None
    assert find_entry_problem({"name": "../x", "uri": "file:///x"}, mcp_types.Resource) is None


@given(name=LATIN)
def test_names_that_look_the_same_have_one_key(name):
    same = {name.upper(), name.title(), full_width(name), cyrillic(name), cyrillic(name).upper(), f"{name} "}

    assert {make_name_key(text) for text in same} == {make_name_key(name)}


@pytest.mark.parametrize(
    ("name", "other"), [("pay_all", "pay_a11"), ("load", "l0ad"), ("confirm", "confirrn"), ("LOG", "1OG")]
)
def test_names_whose_letters_and_digits_look_the_same_have_one_key(name, other):
    assert make_name_key(name) == make_name_key(other)


def make_tool(name, answer):
    return Tool.from_schema(name, "Answer.", {"type": "object"}, lambda arguments, context: answer)


@pytest.mark.parametrize("theirs", ["pay", "Pay", "PAY", "\u0440\u0430\u0443", "\u0420\u0410\u0423"])
async def test_a_tool_that_looks_like_a_local_one_has_the_name_of_its_server(theirs):
    async with Toolbox(make_tool("pay", "ours"), McpServer.of("far", Toolbox(make_tool(theirs, "theirs")))) as box:
        names = {tool.name for tool in await box.list()}

        assert names <= {"pay", f"far__{theirs}"}
        assert (await box.call("pay")).value == "ours"
        assert (await box.call(f"far__{theirs}")).text == "theirs"
        if theirs.isascii() and theirs != "pay":
            assert (await box.call(theirs)).text == "theirs"  # an exact name wins


@pytest.mark.parametrize("theirs", ["Pay", "\u0440\u0430\u0443"])
async def test_of_two_servers_the_first_keeps_a_name_and_what_looks_like_it(theirs):
    first, second = Toolbox(make_tool("pay", "first")), Toolbox(make_tool(theirs, "second"))
    async with Toolbox(McpServer.of("one", first), McpServer.of("two", second)) as box:
        assert sorted(tool.name for tool in await box.list()) == ["pay", f"two__{theirs}"]


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
@pytest.mark.parametrize("name", sorted({*BUILT_IN_NAMES, FINAL_ANSWER}))
async def test_no_server_takes_the_name_of_a_built_in_tool(name, change):
    server = FakeMcpServer({change(name): "theirs"})
    async with Toolbox(server) as box:
        assert [tool.name for tool in await box.list()] == [f"fake__{change(name)}"]


async def test_the_search_stays_ours_if_a_server_offers_find_tools():
    names = {"find_tools": "theirs", **{f"tool_{number}": "x" for number in range(300)}}
    model = ScriptedModel([[("find_tools", {"query": "tool"})], "done"])
    async with Toolbox(FakeMcpServer(names)) as box:
        reply = await Chat(model, box, search=Search(budget=100)).send("hi")

    assert [tool.name for tool in model.requests[0].tools] == ["find_tools"]
    assert reply.results[0].text.startswith('{"tools"')


async def test_a_typed_answer_stays_ours_if_a_server_offers_final_answer():
    model = ScriptedModel([[("final_answer", {"answer": 5})]])
    async with Toolbox(FakeMcpServer({"final_answer": "theirs"})) as box:
        reply = await Chat(model, box, output=int).send("hi")

    assert reply.output == 5


# --- servers and resolvers ---------------------------------------------------------------------


def answering(name, text):
    return Tool.from_function(lambda: text, name=name)


@pytest.mark.row("L4-2")
async def test_an_exact_name_of_a_server_wins_over_one_of_another_case_that_a_resolver_knows():
    resolver = StaticResolver([answering("Shared", "resolved")])
    async with Toolbox(McpServer.of("far", Toolbox(answering("shared", "far"))), resolvers=[resolver]) as box:
        texts = [(await box.call(name)).text for name in ("shared", "Shared", "SHARED")]

    assert texts == ["far", "resolved", "far"]


@pytest.mark.parametrize("name", ["far", "FAR"])
async def test_the_first_call_of_a_tool_of_a_server_finds_it_beside_a_resolver(name):
    """A toolbox with a resolver answered the call that connects to the server as that of an unknown tool."""
    resolver = StaticResolver([answering("other", "resolved")])
    box = Toolbox(McpServer.of("server", Toolbox(answering("far", "far"))), resolvers=[resolver])

    first = await box.call(name)
    await box.aclose()

    assert first.text == "far"


async def test_a_resolver_does_not_decide_between_listed_tools_of_one_name():
    resolver = StaticResolver([answering("Shared", "resolved")])
    box = Toolbox(answering("shared", "near"), "Shared", resolvers=[resolver])

    assert (await box.call("SHARED")).error.code == "unknown_tool"
