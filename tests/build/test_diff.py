"""Two lists of tools: what was added, removed and changed, and what of it breaks."""

import pytest

from toolmason import Tool, ToolDefinition
from toolmason.build.compare.comparison import compare
from toolmason.build.compare.listing import Listing, listings_of


def listing(name="find", *, schema=None, output=None, description="Find.", title=None, **effects):
    definition = ToolDefinition(name, description, schema or {"type": "object"}, output, title)
    return {name: Listing(definition, effects)}


def told(old, new):
    return [
        (diff.name, diff.status, [change.message for change in diff.changes], diff.breaking)
        for diff in compare(old, new)
    ]


def test_equal_lists_differ_in_nothing():
    assert compare(listing(), listing()) == []


def test_a_tool_that_is_new_is_compatible_and_one_that_is_gone_is_not():
    assert told({}, listing()) == [("find", "added", ["added"], False)]
    assert told(listing(), {}) == [("find", "removed", ["removed"], True)]


def test_a_name_in_another_case_is_one_breaking_change():
    assert told(listing("getItem"), listing("GetItem")) == [
        ("getItem", "changed", ["renamed to 'GetItem'; only the case differs"], True)
    ]


def test_two_names_in_other_cases_are_not_guessed_at():
    old = {**listing("getItem"), **listing("GETITEM")}

    assert [status for _, status, _, _ in told(old, listing("GetItem"))] == ["removed", "added", "removed"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({"description": "a"}, {"description": "b"}, id="description"),
        pytest.param({"title": "a"}, {"title": "b"}, id="title"),
        pytest.param({}, {"output": {"type": "object"}}, id="an output schema is new"),
    ],
)
def test_words_alone_are_compatible(old, new):
    [diff] = compare(listing(**old), listing(**new))

    assert diff.status == "changed"
    assert not diff.breaking


def test_an_output_schema_that_is_gone_breaks_readers():
    [diff] = compare(listing(output={"type": "object"}), listing())

    assert [(change.part, change.breaking) for change in diff.changes] == [("output", True)]


def test_input_and_output_are_judged_the_opposite_way():
    narrow, wide = ({"type": "object", "properties": {"n": {"type": kind}}} for kind in ("integer", "number"))

    [diff] = compare(listing(schema=narrow, output=narrow), listing(schema=wide, output=wide))

    assert {change.part: change.breaking for change in diff.changes} == {"input": False, "output": True}


YES, NO = True, False


@pytest.mark.parametrize(
    ("name", "before", "after", "breaking"),
    [
        ("read_only", True, None, YES),
        ("read_only", True, False, YES),
        ("read_only", None, True, NO),
        ("read_only", None, False, NO),
        ("read_only", False, True, NO),
        ("destructive", None, True, YES),
        ("destructive", False, True, YES),
        ("destructive", False, None, YES),
        ("destructive", True, None, NO),
        ("destructive", None, False, NO),
        ("idempotent", True, None, YES),
        ("idempotent", None, True, NO),
        ("open_world", None, True, YES),
        ("open_world", False, True, YES),
        ("open_world", True, False, NO),
    ],
)
def test_an_effect_that_lets_a_caller_do_less_breaks(name, before, after, breaking):
    old, new = ({} if value is None else {name: value} for value in (before, after))

    [diff] = compare(listing(**old), listing(**new))

    assert [(change.part, change.breaking) for change in diff.changes] == [("effects", breaking)]


def test_a_read_only_tool_that_becomes_destructive_breaks():
    def work(n: int) -> int:
        return n

    old = listings_of([Tool.from_function(work, read_only=True)])
    new = listings_of([Tool.from_function(work, destructive=True)])

    [diff] = compare(old, new)

    assert diff.breaking
    assert [change.message for change in diff.changes] == [
        "read_only changed from true to unset",
        "destructive changed from unset to true",
    ]


def test_a_difference_is_plain_json():
    [diff] = compare(listing(), {})

    assert diff.to_dict() == {
        "tool": "find",
        "status": "removed",
        "breaking": True,
        "changes": [{"part": "tool", "path": "", "text": "removed", "breaking": True}],
    }
