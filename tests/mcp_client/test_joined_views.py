"""Views of one toolbox that meet in another: nothing is lost, and no version of a tool takes the place of another."""

import pytest
from pydantic import BaseModel

from toolmason import Limits, McpServer, Rate, Toolbox, tool
from toolmason.errors import DuplicateTool

paid: list[tuple[str, int]] = []


@tool
def pay(amount: int = 1, account: str = "open") -> str:
    """Pay."""
    paid.append((account, amount))
    return "paid"


@tool
def other() -> str:
    """Do something else."""
    return "other"


class Thought(BaseModel):
    why: str = ""


VIEWS = {
    "itself": lambda box: box,
    "select": lambda box: box.select("pay"),
    "select another": lambda box: box.select("other"),
    "exclude": lambda box: box.exclude("pay"),
    "prefixed": lambda box: box.prefixed("x_"),
    "renamed": lambda box: box.renamed({"pay": "give"}),
    "renamed and back": lambda box: box.renamed({"pay": "give"}).renamed({"give": "pay"}),
    "given another name": lambda box: box.override("pay", name="give"),
    "approval": lambda box: box.override("pay", approval=True),
    "limit": lambda box: box.override("pay", max_calls=1),
    "rate": lambda box: box.override("pay", rate=Rate(1, per=60)),
    "hidden": lambda box: box.override("pay", arguments={"account": "sandbox"}),
    "description": lambda box: box.override("pay", description="Other."),
    "augmented": lambda box: box.augmented(Thought),
    "run": lambda box: box.run(Limits(calls=3)),
    "nested": Toolbox,
    "nested select": lambda box: Toolbox(box).select("pay"),
    "joined": lambda box: box.select("pay") | box.select("other"),
    "joined select": lambda box: (box.select("other") | box.select("pay")).select("pay"),
}
JOINS = {
    "|": lambda first, second: first | second,
    "Toolbox": Toolbox,
    "add": lambda first, second: Toolbox(first).add(second),
    "three": lambda first, second: first | Toolbox() | second,
}
CHANGED = ("approval", "limit", "rate", "hidden", "description", "augmented")


def join(name, *views):
    try:
        return JOINS[name](*views)
    except DuplicateTool:
        return DuplicateTool


async def describe(joined):
    if joined is DuplicateTool:
        return "DuplicateTool"
    return [(tool.name, tool.definition.input_schema["properties"].keys()) for tool in await joined.list()]


@pytest.mark.parametrize("name", ["|", "Toolbox", "three"])
@pytest.mark.parametrize("second", VIEWS)
async def test_views_of_a_server_meet_as_those_of_local_tools_do(name, second):
    local = Toolbox(pay, other)
    async with Toolbox(McpServer.of("far", local)) as remote:
        await remote.list()
        for first, view in VIEWS.items():
            outcomes = [await describe(join(name, view(box), VIEWS[second](box))) for box in (local, remote)]

            assert outcomes[0] == outcomes[1], first


@pytest.mark.parametrize("kind", ["local", "remote"])
@pytest.mark.parametrize("name", ["|", "Toolbox"])
@pytest.mark.parametrize("change", CHANGED)
async def test_two_versions_of_a_tool_are_refused_in_any_order(change, name, kind):
    local = Toolbox(pay, other)
    async with Toolbox(McpServer.of("far", local)) as remote:
        await remote.list()
        box = {"local": local, "remote": remote}[kind]
        plain, changed, again = box.select("pay"), *(VIEWS[change](box) for _ in range(2))

        for pair in ((plain, changed), (changed, plain), (changed, again)):
            with pytest.raises(DuplicateTool):
                JOINS[name](*pair)
        once = await describe(JOINS[name](changed, changed))

    assert [tool for tool, _ in once] == ["other", "pay"]


@pytest.mark.parametrize("order", [1, -1], ids=["plain first", "changed first"])
@pytest.mark.parametrize("name", ["|", "Toolbox"])
@pytest.mark.parametrize("change", CHANGED)
async def test_two_versions_are_withheld_if_the_server_lists_its_tools_later(change, name, order, caplog):
    paid.clear()
    box = Toolbox(McpServer.of("far", Toolbox(pay, other)))
    joined = JOINS[name](*(box, VIEWS[change](box))[::order])
    async with box:
        names = [tool.name for tool in await joined.list()]
        result = await joined.call("pay", {"amount": 5})

    assert "pay" not in names
    assert result.error.code == "unknown_tool"
    assert "joined have different tools of this name" in result.text
    assert not paid
    assert caplog.text.count("Two tools are named 'pay'") == 1


async def test_a_name_that_is_withheld_is_so_in_every_further_join():
    box = Toolbox(McpServer.of("far", Toolbox(pay, other)))
    joined = box | box.override("pay", approval=True)
    async with box:
        await joined.list()

        assert [tool.name for tool in await (joined | box).list()] == ["other"]


async def test_joined_views_of_a_server_follow_its_list():
    far = Toolbox(pay)
    async with Toolbox(McpServer.of("far", far)) as box:
        joined = box.select("pay") | box.prefixed("x_")
        before = [tool.name for tool in await joined.list()]
        far.add(other)
        await joined.refresh()
        after = [tool.name for tool in await joined.list()]
        results = [await joined.call(name) for name in ("pay", "x_pay", "x_other")]

    assert before == ["pay", "x_pay"]
    assert after == ["pay", "x_other", "x_pay"]
    assert [result.text for result in results] == ["paid", "paid", "other"]


@pytest.mark.parametrize("mode", ["shadow", "prefix", "error"])
async def test_joined_views_keep_the_names_of_their_toolbox(mode):
    async with Toolbox(McpServer.of("far", Toolbox(pay, other)), on_conflict=mode) as box:
        names = [tool.name for tool in await box.list()]
        joined = box.select(names[0]) | box.select(names[1])

        assert [tool.name for tool in await joined.list()] == names
