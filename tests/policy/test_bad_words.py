"""What a developer gives wrongly, or whatever wrote the JSON of a decision: typed errors that say what to give."""

import json

import pytest

from toolmason import Allow, Limits, Toolbox, tool
from toolmason._core.call.approval import ApprovalRequest, Decision
from toolmason.errors import ApprovalDenied, DefinitionError


@tool(destructive=True)
def drop(table: str) -> str:
    """Drop a table."""
    return f"dropped {table}"


@pytest.fixture
def box():
    return Toolbox(drop)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"timeout": "x"}, "timeout='x': must be a positive number"),
        ({"timeout": True - 1}, "timeout=0: must be a positive number"),
        ({"retry": 3}, "retry=3: must be Retry"),
        ({"context": 7}, "context=7: must be a ToolContext"),
    ],
)
async def test_what_a_call_says_for_itself_is_checked(box, words, reason):
    with pytest.raises(DefinitionError, match=reason):
        await box.call("drop", {"table": "a"}, **words)


@pytest.mark.parametrize("call", [7, None, b"drop", ["drop"], (), (7, {}), ("drop", {}, 1), {"name": "drop"}])
async def test_what_is_no_call_is_refused(box, call):
    with pytest.raises(DefinitionError, match="is not a call"):
        await box.call(call)
    with pytest.raises(DefinitionError, match="is not a call"):
        await box.call_all([call])


async def test_what_is_no_strategy_is_refused(box):
    with pytest.raises(DefinitionError, match="strategy='all': must be Parallel"):
        await box.call_all([("drop", {"table": "a"})], strategy="all")


def test_what_is_no_function_is_refused(box):
    with pytest.raises(DefinitionError, match="approver=7: must be a function"):
        Toolbox(drop, approver=7)
    with pytest.raises(DefinitionError, match="7 is not middleware"):
        box.use(7)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"steps": -1}, r"Limits\(steps=-1\): must be at least 0, or None for no limit"),
        ({"calls": -5}, r"Limits\(calls=-5\): must be at least 0, or None for no limit"),
        ({"seconds": "x"}, "Limits: seconds= is of type 'str': it must be a number or None"),
        ({"per_tool": 1.5}, "Limits: per_tool= is of type 'float': it must be a whole number or None"),
    ],
)
def test_limits_are_numbers(words, text):
    with pytest.raises(DefinitionError, match=text):
        Limits(**words)


async def decided(box):
    result = await box.call("drop", {"table": "a"})
    return box.approvals.decide(result.error.request, Allow())


async def test_a_decision_may_be_resumed_as_the_data_it_was_written_as():
    box = Toolbox(drop, approve="all")

    result = await box.approvals.resume(json.loads(json.dumps((await decided(box)).to_dict())))

    assert result.text == "dropped a"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda data: data.pop("request"), "request: Field required"),
        (lambda data: data["request"].pop("tool"), "request.tool: Field required"),
        (lambda data: data["request"].update(arguments="x"), "request.arguments: "),
        (lambda data: data["request"].update(expires="soon"), "request.expires: "),
        (lambda data: data.update(verdict="maybe"), "verdict: "),
        (lambda data: data.update(more=1), "more: "),
    ],
)
async def test_a_decision_that_cannot_be_read_runs_nothing_and_says_where(change, where):
    box = Toolbox(drop, approve="all")
    data = (await decided(box)).to_dict()
    change(data)

    result = await box.approvals.resume(data)

    assert result.error.code == "approval_denied"
    assert f"the decision is invalid: {where}" in result.error.message
    with pytest.raises(ApprovalDenied):
        Decision.from_dict(data)


@pytest.mark.parametrize("data", [7, None, "x", [], {}])
async def test_what_is_no_decision_at_all_is_refused(box, data):
    result = await box.approvals.resume(data)

    assert result.error.code == "approval_denied"
    with pytest.raises(ApprovalDenied, match="the request is invalid"):
        ApprovalRequest.from_dict(data)
