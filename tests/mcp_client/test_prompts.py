"""Prompts of several servers: the rule for the names of tools is theirs too."""

from mcp import Client

from toolmason import McpServer, Toolbox, prompt


@prompt(name="hello")
def first(name: str) -> str:
    """Say hello, the first way."""
    return f"first {name}"


@prompt(name="hello")
def second(name: str) -> str:
    """Say hello, the second way."""
    return f"second {name}"


@prompt(name="hello")
def own(name: str) -> str:
    """Say hello, our way."""
    return f"own {name}"


def servers():
    return McpServer.of("a", Toolbox(first)), McpServer.of("b", Toolbox(second))


async def said(box, name):
    return [message.text for message in await box.prompt(name, {"name": "Ada"})]


async def test_of_two_servers_the_first_keeps_the_name_of_a_prompt():
    async with Toolbox(*servers()) as box:
        names = [prompt.name for prompt in box.prompts]
        texts = [await said(box, name) for name in names]
        other = box.prompts[0]

    assert names == ["b__hello", "hello"]
    assert texts == [["second Ada"], ["first Ada"]]
    assert (other.description, other.origin) == ("Say hello, the second way.", "server 'b'")
    assert other.input_schema["required"] == ["name"]


async def test_a_local_prompt_keeps_its_name_and_the_servers_can_be_had():
    async with Toolbox(own, *servers()) as box:
        texts = {prompt.name: await said(box, prompt.name) for prompt in box.prompts}

    assert texts == {"a__hello": ["first Ada"], "b__hello": ["second Ada"], "hello": ["own Ada"]}


async def test_every_prompt_of_a_server_can_have_its_full_name():
    async with Toolbox(*servers(), on_conflict="prefix") as box:
        names = [prompt.name for prompt in box.prompts]

    assert names == ["a__hello", "b__hello"]


async def test_a_name_of_a_prompt_stays_with_the_server_that_had_it():
    async with Toolbox(*servers()) as box:
        before = [prompt.name for prompt in box.prompts]
        box._state.remotes.sources[0].clear_cache()  # noqa: SLF001 - one server that goes away
        names = [prompt.name for prompt in box.prompts]

    assert before == ["b__hello", "hello"]
    assert names == ["b__hello"]


async def test_a_gateway_lists_and_fetches_both():
    async with Toolbox(*servers()) as box, Client(box.__mcp_server__()) as client:
        listed = [(entry.name, entry.description) for entry in (await client.list_prompts()).prompts]
        fetched = await client.get_prompt("b__hello", {"name": "Ada"})

    assert listed == [("b__hello", "Say hello, the second way."), ("hello", "Say hello, the first way.")]
    assert fetched.messages[0].content.text == "second Ada"
