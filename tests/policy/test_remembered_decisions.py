"""A decision with `remember` holds for later calls of the same tool and user, until it is revoked."""

import json
import sqlite3
from contextlib import closing

import pytest

from toolmason import Allow, Deny, Toolbox, tool
from toolmason.errors import ConfigError

KEY = "k" * 32
ASKED: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    ASKED.clear()


@tool(approval=True)
def delete(path: str = "a") -> str:
    """Delete a file."""
    return f"deleted {path}"


def answer(verdict):
    def approve(request):
        ASKED.append(request.tool)
        return verdict

    return approve


def make_box(folder, *tools, **options):
    return Toolbox(*(tools or (delete,)), approval_key=KEY, approvals_file=folder / "approvals.db", **options)


async def remember(box, verdict, context=None):
    """Let a call wait, and decide about it."""
    waiting = await box.call("delete", {"path": "a"}, context=context)
    return box.approvals.decide(waiting.error.request, verdict)


@pytest.mark.parametrize(
    ("scope", "asked"),
    [
        pytest.param(None, 4, id="once"),
        pytest.param("tool", 1, id="tool"),
        pytest.param("arguments", 2, id="arguments"),
        pytest.param("conversation", 2, id="conversation"),
    ],
)
async def test_an_approver_is_asked_as_often_as_its_answer_says(scope, asked):
    box = Toolbox(delete, approver=answer(Allow(remember=scope)))

    for path, session in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2")):
        assert (await box.call("delete", {"path": path}, context={"session_id": session})).ok

    assert len(ASKED) == asked


async def test_a_denial_is_remembered_with_its_reason():
    box = Toolbox(delete, approver=answer(Deny("not today", remember="tool")))

    results = [await box.call("delete", {"path": path}) for path in ("a", "b")]

    assert [result.error.code for result in results] == ["approval_denied"] * 2
    assert all("not today" in result.text for result in results)
    assert len(ASKED) == 1


async def test_a_denial_counts_more_than_a_permission(tmp_path):
    box = make_box(tmp_path)
    await remember(box, Deny("never", remember="arguments"))
    waiting = await box.call("delete", {"path": "b"})
    box.approvals.decide(waiting.error.request, Allow(remember="tool"))

    assert (await box.call("delete", {"path": "a"})).error.code == "approval_denied"
    assert (await box.call("delete", {"path": "c"})).ok


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"user": "ann"}, {"user": "bob"}, id="user"),
        pytest.param({"user": "ann"}, None, id="no-user"),
        pytest.param({"user": "ann", "tenant": "a"}, {"user": "ann", "tenant": "b"}, id="tenant"),
        pytest.param({"user": 1}, {"user": "1"}, id="kind"),
    ],
)
async def test_a_decision_holds_for_one_identity(tmp_path, first, second):
    box = make_box(tmp_path)
    await remember(box, Allow(remember="tool"), first)

    assert (await box.call("delete", context={**first, "session_id": "other"})).ok
    assert (await box.call("delete", context=second)).error.code == "approval_required"


async def test_a_changed_tool_is_asked_about_again(tmp_path):
    await remember(make_box(tmp_path), Allow(remember="tool"))

    @tool(approval=True, name="delete")
    def changed(path: str = "a") -> str:
        """Delete a file for good."""
        return path

    assert (await make_box(tmp_path).call("delete")).ok
    assert (await make_box(tmp_path, changed).call("delete")).error.code == "approval_required"


async def test_a_tool_with_other_effects_is_asked_about_again(tmp_path):
    clean = make_effects_tool(read_only=True)
    box = make_box(tmp_path, clean)
    await remember(box, Allow(remember="tool"))
    waiting = await make_box(tmp_path / "more", clean).call("delete")

    changed = make_box(tmp_path, make_effects_tool(destructive=True))
    decision = box.approvals.decide(waiting.error.request, Allow())
    resumed = await changed.approvals.resume(decision)

    assert (await box.call("delete")).ok
    assert (await changed.call("delete")).error.code == "approval_required"
    assert "the tool has changed since it was approved" in resumed.text


async def test_a_decision_holds_for_the_hidden_values_that_it_was_made_for():
    ran = []

    @tool(approval=True)
    def query(sql: str, database: str) -> str:
        ran.append(database)
        return "done"

    box = Toolbox(query)
    views = {name: box.override("query", arguments={"database": name}) for name in ("sandbox", "production")}
    waiting = await views["sandbox"].call("query", {"sql": "DROP TABLE users"})
    decision = box.approvals.decide(waiting.error.request, Allow(remember="tool"))

    elsewhere = await views["production"].approvals.resume(decision)
    results = {name: (await view.call("query", {"sql": "SELECT 1"})).ok for name, view in views.items()}
    resumed = await views["sandbox"].approvals.resume(decision)

    assert "the tool has changed since it was approved" in elsewhere.text
    assert results == {"sandbox": True, "production": False}
    assert resumed.ok
    assert ran == ["sandbox", "sandbox"]


def make_effects_tool(**effects):
    @tool(approval=True, name="delete", **effects)
    def clean(path: str = "a") -> str:
        """Delete a file."""
        return path

    return clean


async def test_a_revoked_decision_does_not_hold(tmp_path):
    box, other = make_box(tmp_path), make_box(tmp_path)
    await remember(box, Allow(remember="tool"))
    [found] = other.approvals.remembered()

    assert (found.tool, found.scope, found.verdict) == ("delete", "tool", "allow")
    assert other.approvals.revoke(found.id)
    assert not other.approvals.revoke(found.id)
    assert (await box.call("delete")).error.code == "approval_required"
    assert box.approvals.remembered() == []


async def test_a_later_decision_replaces_an_earlier_one(tmp_path):
    box = make_box(tmp_path, approver=None)
    waiting = await box.call("delete")
    box.approvals.decide(waiting.error.request, Allow(remember="tool"))
    box.approvals.decide(waiting.error.request, Deny("no", remember="tool"))

    assert [found.verdict for found in box.approvals.remembered()] == ["deny"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data | {"identity": '{"user":"bob"}'}, id="identity"),
        pytest.param(lambda data: data | {"verdict": "allow"}, id="verdict"),
        pytest.param(lambda data: data | {"signature": ""}, id="unsigned"),
        pytest.param(lambda data: data | {"extra": 1}, id="extra"),
        pytest.param(lambda _: ["not", "a", "decision"], id="damaged"),
    ],
)
async def test_a_forged_entry_is_not_accepted(tmp_path, change):
    box = make_box(tmp_path)
    await remember(box, Deny("no", remember="tool"), {"user": "ann"})
    with closing(sqlite3.connect(tmp_path / "approvals.db")) as db, db:
        [data] = db.execute("SELECT data FROM remembered").fetchone()
        db.execute("UPDATE remembered SET data=?", (json.dumps(change(json.loads(data))),))
    db.close()

    results = [await box.call("delete", context={"user": user}) for user in ("ann", "bob")]

    assert [result.error.code for result in results] == ["approval_required"] * 2
    assert box.approvals.remembered() == []


async def test_a_decision_of_another_key_is_not_accepted(tmp_path):
    await remember(make_box(tmp_path), Allow(remember="tool"))

    other = Toolbox(delete, approval_key="o" * 32, approvals_file=tmp_path / "approvals.db")

    assert (await other.call("delete")).error.code == "approval_required"


async def test_the_approver_of_an_outer_toolbox_does_not_answer_for_an_inner_one():
    inner = Toolbox(delete, approve="all", approver=answer(Allow()))
    outer = Toolbox(inner, approve="all", approver=answer(Allow(remember="tool")))

    for _ in range(2):
        assert (await outer.call("delete")).ok

    assert len(ASKED) == 3


class Approver:
    def __init__(self, verdict):
        self.verdict, self.asked = verdict, 0

    def decide(self, request):
        self.asked += 1
        return self.verdict

    __call__ = decide


@pytest.mark.parametrize("get", [lambda approver: approver, lambda approver: approver.decide], ids=["object", "method"])
async def test_an_inner_approver_is_asked_even_if_it_was_not_asked_about_the_remembered_call(get):
    @tool(approval=lambda arguments, ctx: arguments["amount"] > 100)
    def pay(amount: int) -> str:
        return "paid"

    finance, user = Approver(Deny("too much")), Approver(Allow(remember="tool"))
    outer = Toolbox(Toolbox(pay, approver=get(finance)), approve="all", approver=get(user))

    results = [(await outer.call("pay", {"amount": amount})).ok for amount in (500, 50, 500)]

    assert (results, finance.asked) == ([False, True, False], 2)


async def test_a_damaged_file_means_to_ask_and_is_logged(tmp_path, caplog):
    (tmp_path / "approvals.db").write_text("this is not a database, and it is longer than a header")
    box = make_box(tmp_path)

    await remember(box, Allow(remember="tool"))

    assert (await box.call("delete")).error.code == "approval_required"
    assert "remembered decisions cannot be read" in caplog.text
    assert "a decision about delete cannot be remembered" in caplog.text


@pytest.mark.parametrize(
    ("scope", "message"),
    [("forever", "must be 'tool', 'arguments' or 'conversation'"), ("conversation", "the call belongs to none")],
    ids=["unknown", "no-conversation"],
)
async def test_a_decision_that_cannot_be_remembered_is_refused(tmp_path, scope, message):
    with pytest.raises(ConfigError, match=message):
        await remember(make_box(tmp_path), Allow(remember=scope))
