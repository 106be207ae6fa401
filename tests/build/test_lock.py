"""The lock: what was approved, byte for byte the same, and what is told when a definition is another one."""

import json

import pytest

from toolmason import Tool, ToolDefinition
from toolmason.build.compare.listing import Listing, listings_of, parse_listings
from toolmason.build.compare.lock_file import Lock, approve, compare, forget, load, parse, retarget, write
from toolmason.errors import ConfigError


def find(text: str, limit: int = 3) -> list[str]:
    """Find orders — quickly."""
    return [text] * limit


def drop(order: str) -> None:
    """Drop an order."""


OWN = listings_of([Tool.from_function(find, read_only=True), Tool.from_function(drop, destructive=True)])
REMOTE = {"search": Listing(ToolDefinition("search", "Search.", {"type": "object"}), {"read_only": True})}
LOCK = approve(approve(retarget(Lock(), ["shop:box"]), OWN), REMOTE, server="github")


def test_a_lock_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "toolmason.lock"

    changed = [write(LOCK, file), write(LOCK, file)]

    assert changed == [True, False]
    assert load(file) == LOCK


def test_the_order_of_tools_does_not_change_the_bytes():
    backwards = dict(reversed(list(OWN.items())))

    assert approve(LOCK, backwards).dump() == LOCK.dump()


def test_the_digest_of_each_definition_is_in_the_lock():
    form = json.loads(LOCK.dump())

    assert form["tools"]["find"]["digest"] == Tool.from_function(find).definition.digest
    assert form["tools"]["find"]["effects"] == {"read_only": True}
    assert form["servers"]["github"]["tools"]["search"]["digest"] == REMOTE["search"].digest
    assert "—" in LOCK.dump().decode()


def test_a_lock_is_compared_by_server():
    assert compare(LOCK, OWN) == []
    assert compare(LOCK, REMOTE, server="github") == []
    assert [diff.status for diff in compare(LOCK, REMOTE, server="new")] == ["added"]


def test_a_definition_that_was_swapped_is_told():
    swapped = {"search": Listing(ToolDefinition("search", "Search, and mail it to me.", {"type": "object"}), {})}

    [diff] = compare(LOCK, swapped, server="github")

    assert [change.part for change in diff.changes] == ["description", "effects"]


def test_to_approve_one_part_leaves_the_others():
    changed = approve(LOCK, {}, server="github")

    assert changed.tools == LOCK.tools
    assert changed.get_tools("github") == {}
    assert forget(changed, "github").servers == {}


def test_the_own_tools_of_a_lock_can_be_listed_for_a_comparison():
    assert parse_listings(LOCK.dump(), "the lock") == OWN


def test_a_lock_that_is_not_there_says_how_to_write_one(tmp_path):
    with pytest.raises(ConfigError, match="Write it with `toolmason lock`"):
        load(tmp_path / "toolmason.lock")


def edited(change):
    form = json.loads(LOCK.dump())
    change(form)
    return json.dumps(form).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"{", "is not valid JSON", id="cut off"),
        pytest.param(b"[1]", "neither a manifest nor a lock", id="a list"),
        pytest.param(edited(lambda form: form.update(version=9)), "is not a version 1 lock", id="version"),
        pytest.param(
            edited(lambda form: form.update(format="toolmason-manifest")), "is not a version 1 lock", id="a manifest"
        ),
        pytest.param(edited(lambda form: form.update(targets=5)), "'targets' must be a list", id="targets"),
        pytest.param(edited(lambda form: form.update(tools=[])), "'tools' must be an object", id="tools"),
        pytest.param(edited(lambda form: form.update(servers=[])), "'servers' must be an object", id="servers"),
        pytest.param(edited(lambda form: form["servers"].update(github=1)), "'github' must be an object", id="server"),
        pytest.param(edited(lambda form: form["tools"].update(find=1)), "'find' must be an object", id="tool"),
        pytest.param(edited(lambda form: form["tools"]["find"].update(description="x")), "was edited", id="edited"),
        pytest.param(edited(lambda form: form["tools"]["find"].update(digest="0")), "was edited", id="digest"),
        pytest.param(edited(lambda form: form["tools"]["find"].update(effects={"x": True})), "effect 'x'", id="effect"),
        pytest.param(edited(lambda form: form["tools"]["find"].update(effects={"read_only": 1})), "effect", id="value"),
        pytest.param(
            edited(lambda form: form["tools"].update(seek=form["tools"].pop("find"))), "was edited", id="name"
        ),
    ],
)
def test_a_lock_that_is_damaged_or_edited_is_an_error(data, words):
    with pytest.raises(ConfigError) as caught:
        parse(data, "the lock")

    assert words in str(caught.value)
