"""Tools that need scopes of their caller, whatever way a call takes."""

from typing import Any

import pytest

from toolmason import Allow, McpServer, Tool, Toolbox, ToolCall, ToolContext, tool
from toolmason.errors import DefinitionError, InsufficientScope

WRITER = {"scopes": ["notes:read", "notes:write"]}
READER = {"scopes": ("notes:read",)}


@tool(scopes=["notes:write", "notes:read"])
async def write(text: str) -> str:
    """Write a note."""
    return f"wrote {text}"


async def test_a_call_runs_if_the_caller_has_every_scope():
    result = await Toolbox(write).call("write", {"text": "a"}, context=WRITER)

    assert result.text == "wrote a"


@pytest.mark.parametrize(
    "context",
    [
        None,
        {},
        {"user": "ada"},
        READER,
        {"scopes": ()},
        {"scopes": None},
        {"scopes": "notes:read notes:writer"},
        {"scopes": "notes:read,notes:write"},
        {"scopes": [["notes:read", "notes:write"]]},
        {"scopes": {"notes:read": True, "notes:write": True}},
        {"scopes": 7},
        {"scope": "notes:read notes:write"},
    ],
    ids=str,
)
async def test_a_call_without_a_scope_is_refused_and_nothing_runs(context: Any):
    result = await Toolbox(write).call("write", {"text": "a"}, context=context)

    assert isinstance(result.error, InsufficientScope)
    assert result.attempts == 0
    assert "write was not run: the caller lacks the scope 'notes:" in result.text


async def test_the_error_names_the_missing_scopes_only():
    result = await Toolbox(write).call("write", {"text": "a"}, context=READER)

    assert result.error.missing == ("notes:write",)
    assert result.error.code == "insufficient_scope"


async def test_scopes_may_be_text_as_in_a_token():
    result = await Toolbox(write).call("write", {"text": "a"}, context={"scopes": "notes:read notes:write"})

    assert result.ok


async def test_a_toolbox_may_grant_scopes_to_calls_of_the_application():
    box = Toolbox(write, context=WRITER)

    own, reader = await box.call("write", {"text": "a"}), await box.call("write", {"text": "a"}, context=READER)

    assert own.ok
    assert isinstance(reader.error, InsufficientScope)


WAYS = {
    "a toolbox in a toolbox": lambda: (Toolbox(Toolbox(write)), "write"),
    "another name": lambda: (Toolbox(Toolbox(write).prefixed("n_")), "n_write"),
    "an override": lambda: (Toolbox(write).override("write", scopes=[], name="save"), "save"),
    "a view": lambda: (Toolbox(write).select("write"), "write"),
    "a server in memory": lambda: (Toolbox(McpServer.of("inner", Toolbox(write))), "write"),
    "a server in memory of the session era": lambda: (
        Toolbox(McpServer.of("s", Toolbox(write), era="legacy")),
        "write",
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_to_a_tool_avoids_its_scopes(way: str):
    box, name = WAYS[way]()
    async with box:
        result = await box.call(name, {"text": "a"}, context=READER)

    assert result.error.code == "insufficient_scope", result
    assert "wrote" not in result.text


async def test_a_batch_checks_each_call():
    calls = [ToolCall("1", "write", {"text": "a"}), ToolCall("2", "write", {"text": "b"})]

    results = await Toolbox(write).call_all(calls, context=READER)

    assert [result.error.code for result in results] == ["insufficient_scope"] * 2


async def test_a_run_goes_on_after_calls_that_were_refused():
    async with Toolbox(write).run() as run:
        codes = [(await run.call("write", {"text": "a"}, context=READER)).error.code for _ in range(3)]
        result = await run.call("write", {"text": "b"}, context=WRITER)

    assert codes == ["insufficient_scope", "insufficient_scope", "limit_exceeded"]
    assert result.ok


async def test_an_approval_does_not_replace_a_scope():
    box = Toolbox(write, approve="all")
    asked = await box.call("write", {"text": "a"}, context=WRITER)
    decision = box.approvals.decide(asked.error.request, Allow())

    refused = await box.approvals.resume(decision, context=READER)

    assert refused.error.code == "insufficient_scope"


async def test_a_dry_run_says_that_the_call_would_be_refused():
    found = await Toolbox(write).approvals.dry_run("write", {"text": "a"}, context=READER)

    assert found.error.code == "insufficient_scope"


async def test_an_override_adds_scopes():
    box = Toolbox(write).override("write", scopes="notes:admin")

    result = await box.call("write", {"text": "a"}, context=WRITER)

    assert result.error.missing == ("notes:admin",)


async def test_a_model_cannot_send_scopes():
    @tool(scopes=["admin"], extra="allow")
    def wipe(ctx: ToolContext, **extra: Any) -> str:
        """Wipe a disk."""
        return "wiped"

    result = await Toolbox(wipe).call("wipe", {"scopes": ["admin"], "context": {"scopes": ["admin"]}})

    assert result.error.code == "insufficient_scope"


@pytest.mark.parametrize("scope", ["", "a b", 'a"b', "a\\b", "a\r\nX: y", "é"], ids=repr)
def test_a_scope_that_a_header_cannot_carry_is_refused(scope: str):
    with pytest.raises(DefinitionError, match="must be text without spaces, quotes and backslashes"):
        Tool.from_function(lambda: "x", name="x", scopes=[scope])
