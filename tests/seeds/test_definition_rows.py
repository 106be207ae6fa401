"""Rows about what a tool gets and what it may raise."""

from pathlib import Path
from typing import Annotated

import pytest

from toolmason import McpServer, Param, Tool, Toolbox, errors, tool
from toolmason.errors import ArgumentProblem


def ping() -> str:
    """Say that it runs."""
    return "pong"


def count(text: str = "ab") -> int:
    """Count letters."""
    return len(text)


@pytest.mark.row("L4-29", "SP-30", "L4-16")
@pytest.mark.parametrize("text", ["null", " null\n", "", "  "], ids=repr)
async def test_null_as_the_text_of_arguments_means_none(text):
    schema_tool = Tool.from_schema("show", "Show", {}, lambda arguments, context: str(arguments))
    async with Toolbox(count, schema_tool, McpServer.of("far", Toolbox(ping))) as box:
        results = [await box.call(name, text) for name in ("count", "show", "ping")]

    assert [result.text for result in results] == ["2", "{}", "pong"]


@pytest.mark.row("L4-29")
async def test_null_for_a_tool_with_a_required_parameter_says_what_is_missing():
    def find(name: str) -> str:
        return name

    result = await Toolbox(find).call("find", "null")

    assert [problem.path for problem in result.error.problems] == ["$.name"]


@pytest.mark.row("L4-30", "L4-17")
async def test_a_missing_field_of_a_hand_written_schema_is_told_at_its_path():
    schema = {
        "properties": {
            "s": {"type": "string"},
            "t": {"type": "string"},
            "inner": {"type": "object", "required": ["x"]},
        },
        "required": ["s", "t"],
    }
    box = Toolbox(Tool.from_schema("show", "Show", schema, lambda arguments, context: "ok"))

    result = await box.call("show", {"inner": {}})

    assert sorted(problem.path for problem in result.error.problems) == ["$.inner.x", "$.s", "$.t"]


def raising(error):
    def work() -> str:
        raise error

    return work


class Refused(errors.ToolCallError):
    """An error of the application."""

    code = "refused"


@pytest.mark.row("L4-14")
@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArguments([ArgumentProblem("$.a", "too old", "a later date", "1999")]),
        errors.UnknownTool("work", []),
        errors.ToolTimeout("work", 3),
        errors.RemoteError("crm", "call", "the server is gone"),
        Refused("not today"),
    ],
    ids=lambda error: error.code,
)
async def test_a_typed_error_of_a_tool_is_the_error_of_its_result(error):
    result = await Toolbox(raising(error)).call("work")

    assert result.error is error
    assert result.error.tool


@pytest.mark.row("L4-14")
@pytest.mark.parametrize(
    "error", [errors.ApprovalDenied("other", "no"), errors.ToolCancelled("other")], ids=lambda error: error.code
)
async def test_what_the_engine_says_about_an_inner_call_is_a_failure_of_the_tool(error):
    """The result of the outer call must not look like a decision about it."""
    result = await Toolbox(raising(error)).call("work")

    assert result.error.code == "execution_error"
    assert result.error.__cause__ is error


@pytest.mark.row("L4-14")
@pytest.mark.parametrize("on_error", ["message", "raise"])
async def test_the_error_of_an_inner_call_is_a_failure_of_the_tool(on_error):
    inner = Toolbox(count, on_error=on_error)

    async def outer() -> int:
        return (await inner.call("conut")).unwrap()

    result = await Toolbox(outer).call("outer")

    assert result.error.code == "execution_error"
    assert isinstance(result.error.__cause__, errors.UnknownTool)


@pytest.mark.row("MA-24")
async def test_a_result_expands_every_resolved_parameter():
    @tool(substitute_result=True)
    def show(project_dir: Path, text: Annotated[str, Param(name="label")], times: int = 2) -> str:
        return "${project_dir} ${label} ${text} ${times} ${other}"

    result = await Toolbox(show, project_dir="/srv").call("show", {"label": "${times}"})

    assert result.text == f"{Path('/srv')} ${{times}} ${{times}} 2 ${{other}}"
