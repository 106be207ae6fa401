"""The gate: who is asked, what an answer does, and decisions that come later (demand.md 8 and 19)."""

import asyncio
import datetime as dt
import json
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import pytest

from policy.samples import BOUND, leaves_a_file, noting
from toolmason import Allow, Deny, Edit, Tool, Toolbox, ToolCall
from toolmason._core.call import approval
from toolmason.errors import ApprovalDenied, ApprovalRequired, ConfigError, DefinitionError, InvalidArguments
from toolmason.extend import ApprovalRequest, EngineSettings

KEY = "a secret of sixteen bytes or more"


def asked(result):
    return isinstance(result.error, ApprovalRequired)


# --- who is asked --------------------------------------------------------------------------------


def test_a_rule_that_is_none_is_refused():
    with pytest.raises(DefinitionError, match='"destructive", "writes", "all"'):
        Toolbox(approve="sometimes")


def test_a_tool_that_overrides_a_builtin_must_not_skip_the_rule():
    with pytest.raises(DefinitionError, match="skip_permission"):
        noting([], skip_permission=True, overrides_builtin=True)


def for_etc(arguments, context):
    return arguments["path"].startswith("/etc")


async def for_etc_async(arguments, context):
    await asyncio.sleep(0)
    return for_etc(arguments, context)


@pytest.mark.parametrize("predicate", [for_etc, for_etc_async], ids=["sync", "async"])
async def test_a_predicate_decides_from_the_arguments(predicate):
    ran = []
    box = Toolbox(noting(ran, approval=predicate))

    harmless, harmful = await box.call_all([("delete", {"path": "x"}), ("delete", '{"path": "/etc/x"}')])

    assert (asked(harmless), asked(harmful)) == (False, True)
    assert ran == ["x"]


async def test_a_predicate_sees_the_context_of_the_call():
    box = Toolbox(noting([], approval=lambda _, context: context["user"] != "admin"))

    admin = await box.call("delete", {"path": "a"}, context={"user": "admin"})
    guest = await box.call("delete", {"path": "a"}, context={"user": "guest"})

    assert (asked(admin), asked(guest)) == (False, True)


@pytest.mark.parametrize("error", [KeyError, SystemExit], ids=lambda error: error.__name__)
async def test_a_predicate_that_fails_means_ask(error):
    ran = []

    def predicate(arguments, context):
        raise error

    try:
        result = await Toolbox(noting(ran, approval=predicate)).call("delete", {"path": "a"})
    except BaseException as escaped:  # noqa: BLE001 - a SystemExit would end the test run
        pytest.fail(f"{type(escaped).__name__} came out of the call")

    assert asked(result)
    assert ran == []


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "a", "force": "true"}', {"path": "a", "force": "True"}, '{"path": "a", "force": true}'],
    ids=["JSON, a word", "mapping, a word", "JSON, a boolean"],
)
async def test_a_predicate_sees_the_values_that_would_run_not_what_they_were_repaired_from(arguments):
    ran = []

    def remove(path: str, force: bool = False) -> str:
        ran.append(force)
        return path

    tool = Tool.from_function(remove, approval=lambda given, _: given.get("force") is True)
    result = await Toolbox(tool).call("remove", arguments)

    assert asked(result)
    assert ran == []


async def test_a_predicate_or_preview_that_changes_the_arguments_changes_nothing_that_is_shown():
    def meddling(arguments, context=None):
        arguments["path"] = "harmless"
        return True

    for options in ({"approval": meddling}, {"approval": True, "preview": meddling}):
        result = await Toolbox(noting([], **options)).call("delete", {"path": "/etc"})

        assert result.error.request.arguments == {"path": "/etc"}


@pytest.mark.parametrize(
    "arguments",
    ['{"path": ', "no JSON", '["a"]', '{"path": 7, "path": "a"}', {"path": object()}, b"\xff", "{}"],
    ids=["cut off", "no JSON", "array", "key twice", "object", "not UTF-8", "missing"],
)
@pytest.mark.parametrize("in_a_run", [False, True], ids=["call", "run"])
async def test_unreadable_arguments_never_run_and_are_never_put_to_an_approver(arguments, in_a_run):
    ran, questions = [], []
    box = Toolbox(noting(ran, destructive=True), approve="all", approver=questions.append)

    result = await (box.run() if in_a_run else box).call("delete", arguments)

    assert isinstance(result.error, InvalidArguments)
    assert (ran, questions) == ([], [])


# --- what an answer does -------------------------------------------------------------------------


def box_with(ran, answer, **options):
    """A toolbox with one tool that needs approval, and an approver that gives this answer."""
    return Toolbox(noting(ran, approval=True, **options), approver=lambda request: answer)


@pytest.mark.parametrize("answer", [Allow(), True], ids=repr)
async def test_allow_runs_the_call(answer):
    ran = []

    result = await box_with(ran, answer).call("delete", {"path": "a"})

    assert (result.ok, ran) == (True, ["a"])


async def test_an_async_approver_gets_the_request():
    requests = []

    async def approver(request):
        await asyncio.sleep(0)
        requests.append(request)
        return Allow()

    box = Toolbox(noting([], destructive=True, open_world=True), approve="destructive", approver=approver)
    result = await box.call(ToolCall("7", "delete", '{"path": "a"}'), context={"user": "ann"})

    (request,) = requests
    assert result.ok
    assert (request.tool, request.call_id, request.arguments) == ("delete", "7", {"path": "a"})
    assert request.effects == ("destructive", "open_world")
    assert "ann" in request.identity


async def test_deny_does_not_run_and_the_reason_reaches_the_model():
    ran = []

    result = await box_with(ran, Deny("it is Friday")).call("delete", {"path": "a"})

    assert isinstance(result.error, ApprovalDenied)
    assert "it is Friday" in result.text
    assert ran == []


@pytest.mark.parametrize(
    "answer",
    [None, 1, "yes", Allow, {"verdict": "allow"}, False, Edit(None), Edit("x"), Edit('{"path": "b"}'), Edit([1])],
    ids=repr,
)
async def test_an_answer_that_makes_no_sense_is_a_refusal(answer):
    ran = []

    result = await box_with(ran, answer).call("delete", {"path": "a"})

    assert not result.ok
    assert ran == []


@pytest.mark.parametrize("error", [RuntimeError, SystemExit], ids=lambda error: error.__name__)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_an_approver_that_fails_has_refused(error, is_async):
    ran = []

    def fails(request):
        raise error("out of order")

    async def fails_later(request):
        await asyncio.sleep(0)
        raise error("out of order")

    box = Toolbox(noting(ran, approval=True), approver=fails_later if is_async else fails)
    try:
        result = await box.call("delete", {"path": "a"})
    except BaseException as escaped:  # noqa: BLE001 - a SystemExit would end the test run
        pytest.fail(f"{type(escaped).__name__} came out of the call")

    assert isinstance(result.error, ApprovalDenied)
    assert ran == []


async def test_an_edit_runs_with_the_other_arguments():
    ran = []

    result = await box_with(ran, Edit({"path": "b"})).call("delete", {"path": "a"})

    assert (result.text, ran) == ("delete b", ["b"])


async def test_an_edit_is_judged_again():
    ran, questions = [], []

    def approver(request):
        questions.append(request.arguments["path"])
        return Edit({"path": "/etc/b"}) if len(questions) == 1 else Deny()

    box = Toolbox(noting(ran, approval=for_etc), approver=approver)
    result = await box.call("delete", {"path": "/etc/a"})

    assert isinstance(result.error, ApprovalDenied)
    assert (ran, questions) == ([], ["/etc/a", "/etc/b"])


@pytest.mark.parametrize("edit", [{}, {"path": 7}, {"path": None}], ids=str)
async def test_an_edit_that_does_not_fit_does_not_run(edit):
    ran = []

    result = await box_with(ran, Edit(edit)).call("delete", {"path": "a"})

    assert isinstance(result.error, InvalidArguments)
    assert ran == []


async def test_an_edit_that_a_validator_of_the_tool_fails_on_is_a_result():
    from typing import Annotated

    from pydantic import AfterValidator

    def check(path):
        if path == "b":
            raise RuntimeError("no such disk")
        return path

    def remove(path: Annotated[str, AfterValidator(check)]) -> str:
        return path

    box = Toolbox(Tool.from_function(remove, approval=True), approver=lambda request: Edit({"path": "b"}))
    result = await box.call("remove", {"path": "a"})

    assert result.error.code == "execution_error"


async def test_a_call_that_is_edited_again_and_again_is_refused():
    ran, questions = [], []

    def approver(request):
        questions.append(request)
        return Edit({"path": f"{len(questions)}"})

    result = await Toolbox(noting(ran, approval=True), approver=approver).call("delete", {"path": "a"})

    assert isinstance(result.error, ApprovalDenied)
    assert (ran, len(questions)) == ([], approval.MAX_EDIT_ROUNDS)


async def test_each_call_of_a_batch_is_decided_by_itself():
    ran = []
    answers = {"a": Allow(), "b": Deny(), "c": Edit({"path": "C"}), "d": None, "C": Allow()}
    box = Toolbox(noting(ran, approval=True), approver=lambda request: answers[request.arguments["path"]])

    results = await box.call_all([("delete", {"path": path}) for path in "abcd"])

    assert [result.ok for result in results] == [True, False, True, False]
    assert sorted(ran) == ["C", "a"]


async def test_a_call_that_waits_for_a_decision_does_not_hold_up_its_siblings():
    ran, decided = [], asyncio.Event()

    async def approver(request):
        await decided.wait()
        return Allow()

    def remove(path: str) -> str:
        decided.set()
        return path

    box = Toolbox(noting(ran, approval=True), Tool.from_function(remove, runs_on="loop"), approver=approver)
    async with asyncio.timeout(BOUND):
        results = await box.call_all([("delete", {"path": "a"}), ("remove", {"path": "b"})])

    assert [result.ok for result in results] == [True, True]


# --- a request that waits, and what it shows -----------------------------------------------------


async def pending(box, arguments=None, **words):
    result = await box.call("delete", arguments or {"path": "a"}, **words)
    assert asked(result)
    return result.error.request


def through_json(value):
    return type(value).from_dict(json.loads(json.dumps(value.to_dict())))


async def test_without_an_approver_the_request_is_in_the_result_and_survives_json():
    ran = []
    box = Toolbox(noting(ran, approval=True, preview=lambda given: f"rm {given['path']}"), approve="all")

    request = await pending(box, context={"user": "ann"})

    assert through_json(request) == request
    assert isinstance(request, ApprovalRequest)
    assert request.preview == "rm a"
    assert ran == []


async def test_a_request_is_json_also_where_the_arguments_are_not():
    def book(day: dt.date) -> str:
        return day.isoformat()

    box = Toolbox(Tool.from_function(book, approval=True))
    request = (await box.call("book", {"day": dt.date(2026, 1, 2)})).error.request

    assert json.loads(json.dumps(request.to_dict()))["arguments"] == {"day": "2026-01-02"}
    assert (
        await box.approvals.resume(through_json(box.approvals.decide(through_json(request), Allow())))
    ).text == "2026-01-02"


@pytest.mark.parametrize(
    ("preview", "shown"),
    [
        pytest.param(lambda given: f"rm {given['path']}", "rm a", id="arguments"),
        pytest.param(lambda given, context: f"{context['user']}: rm", "ann: rm", id="with the context"),
        pytest.param(lambda given, *, verb="rm": f"{verb} {given['path']}", "rm a", id="with a keyword"),
        pytest.param(None, None, id="none"),
        pytest.param(lambda given: 1 / 0, "(the preview failed: ZeroDivisionError)", id="fails"),
    ],
)
async def test_a_preview_is_shown_and_never_runs_the_tool(preview, shown):
    ran = []
    box = Toolbox(noting(ran, approval=True, preview=preview))

    assert (await pending(box, context={"user": "ann"})).preview == shown
    assert (await box.approvals.dry_run("delete", {"path": "a"}, context={"user": "ann"})).preview == shown
    assert ran == []


async def test_a_preview_may_be_async_and_has_a_sync_face():
    async def preview(given):
        return given["path"]

    box = Toolbox(noting([], preview=preview))

    assert (await box.approvals.dry_run("delete", '{"path": "a"}')).preview == "a"
    assert (await asyncio.to_thread(box.approvals.dry_run_sync, "delete", {"path": "b"})).preview == "b"


async def test_a_preview_refuses_arguments_that_do_not_fit():
    plan = await Toolbox(noting([], preview=str)).approvals.dry_run("delete", {})

    assert isinstance(plan.error, InvalidArguments)
    assert plan.preview is None


# --- decisions that come later -------------------------------------------------------------------


async def test_a_decision_lets_the_call_run_once():
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = through_json(box.approvals.decide(through_json(await pending(box)), Allow()))

    first, second = await box.approvals.resume(decision), await box.approvals.resume(decision)

    assert (first.ok, first.text) == (True, "delete a")
    assert "already used" in second.error.reason
    assert ran == ["a"]


async def test_a_decision_that_is_used_twice_at_once_runs_once():
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = box.approvals.decide(await pending(box), Allow())

    results = await asyncio.gather(*[box.approvals.resume(decision) for _ in range(10)])

    assert sum(result.ok for result in results) == 1
    assert ran == ["a"]


async def test_two_decisions_on_one_request_are_good_for_one_run():
    ran = []
    box = Toolbox(noting(ran, approval=True))
    request = await pending(box)

    await box.approvals.resume(box.approvals.decide(request, Allow()))
    await box.approvals.resume(box.approvals.decide(request, Edit({"path": "b"})))

    assert ran == ["a"]


async def test_a_decision_can_edit_or_deny():
    ran = []
    box = Toolbox(noting(ran, approval=True))

    edited = await box.approvals.resume(through_json(box.approvals.decide(await pending(box), Edit({"path": "b"}))))
    denied = await box.approvals.resume(through_json(box.approvals.decide(await pending(box), Deny("never"))))
    misfit = await box.approvals.resume(box.approvals.decide(await pending(box), Edit({})))

    assert edited.text == "delete b"
    assert (denied.error.code, denied.error.reason) == ("approval_denied", "never")
    assert misfit.error.code == "invalid_arguments"
    assert ran == ["b"]


async def test_a_decision_has_a_sync_face():
    box = Toolbox(noting([], approval=True))
    decision = box.approvals.decide(await pending(box), Allow())

    assert (await asyncio.to_thread(box.approvals.resume_sync, decision)).ok


CHANGED_REQUESTS = {
    "id": "0",
    "call_id": "other",
    "tool": "remove",
    "digest": "0",
    "arguments": {"path": "/etc"},
    "preview": "harmless",
    "effects": ("read_only",),
    "identity": "someone",
    "expires": 9e9,
    "signature": "é",
}


@pytest.mark.parametrize("field", CHANGED_REQUESTS)
async def test_a_request_that_was_changed_is_refused(field):
    ran = []
    box = Toolbox(noting(ran, approval=True), noting(ran, "remove"))
    request = await pending(box)
    changed = replace(request, **{field: CHANGED_REQUESTS[field]})

    with pytest.raises(ApprovalDenied):
        box.approvals.decide(changed, Allow())
    result = await box.approvals.resume(replace(box.approvals.decide(request, Allow()), request=changed))

    assert isinstance(result.error, ApprovalDenied)
    assert ran == []


@pytest.mark.parametrize(
    "change",
    [{"verdict": "allow"}, {"verdict": "edit", "arguments": {"path": "b"}}, {"reason": "x"}, {"signature": ""}],
    ids=", ".join,
)
async def test_a_decision_that_was_changed_is_refused(change):
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = replace(box.approvals.decide(await pending(box), Deny("no")), **change)

    result = await box.approvals.resume(decision)

    assert "changed after it was signed" in result.error.reason
    assert ran == []


async def test_the_arguments_of_an_edit_cannot_be_changed():
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = replace(box.approvals.decide(await pending(box), Edit({"path": "b"})), arguments={"path": "/etc"})

    assert isinstance((await box.approvals.resume(decision)).error, ApprovalDenied)
    assert ran == []


async def test_a_tool_that_was_swapped_needs_a_new_decision():
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = box.approvals.decide(await pending(box), Allow())
    other = Tool.from_function(leaves_a_file, name="delete", approval=True)

    box.add(other, replace=True)
    result = await box.approvals.resume(decision)

    assert "the tool has changed" in result.error.reason


async def test_a_tool_that_is_gone_does_not_run():
    box = Toolbox(noting([], approval=True))
    decision = box.approvals.decide(await pending(box), Allow())

    result = await box.select("no_such*").approvals.resume(decision)

    assert result.error.code == "unknown_tool"


@pytest.mark.parametrize("key", ["tenant", "user", "session_id"])
@pytest.mark.parametrize("other", ["b", None], ids=["other", "nobody"])
async def test_a_decision_is_for_the_identity_that_asked(key, other):
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = box.approvals.decide(await pending(box, context={key: "a"}), Allow())

    refused = await box.approvals.resume(decision, context=other and {key: other})
    granted = await box.approvals.resume(decision, context={key: "a"})

    assert "another identity" in refused.error.reason
    assert granted.ok
    assert ran == ["a"]


@pytest.mark.parametrize(("user", "other"), [(1, "1"), (None, "None"), (True, "True"), (1, True)])
async def test_an_identity_of_another_type_is_another_identity(user, other):
    box = Toolbox(noting([], approval=True))
    decision = box.approvals.decide(await pending(box, context={"user": user}), Allow())

    refused = await box.approvals.resume(decision, context={"user": other})

    assert "another identity" in refused.error.reason


async def test_a_decision_that_comes_too_late_is_refused(monkeypatch):
    ran = []
    box = Toolbox(noting(ran, approval=True), settings=EngineSettings(approval_seconds=60))
    decision = box.approvals.decide(await pending(box), Allow())

    monkeypatch.setattr(approval, "time", SimpleNamespace(time=lambda: decision.request.expires + 1))
    result = await box.approvals.resume(decision)

    assert "expired" in result.error.reason
    assert ran == []


async def test_another_toolbox_has_another_key():
    ran = []
    box, other = (Toolbox(noting(ran, approval=True)) for _ in range(2))
    request = await pending(box)

    with pytest.raises(ApprovalDenied):
        other.approvals.decide(request, Allow())
    result = await other.approvals.resume(box.approvals.decide(request, Allow()))

    assert isinstance(result.error, ApprovalDenied)
    assert ran == []


def test_a_key_that_is_no_secret_is_refused():
    with pytest.raises(ConfigError, match="at least 16"):
        Toolbox(approval_key="short")


PROGRAM = """
import json, sys
from toolmason import Allow, Toolbox, tool
from toolmason.extend import ApprovalRequest, Decision

@tool(approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"{path} is gone"

box = Toolbox(remove, approval_key=sys.argv[2])
if sys.argv[1] == "ask":
    print(json.dumps(box.call_sync("remove", {"path": "a"}).error.request.to_dict()))
elif sys.argv[1] == "decide":
    print(json.dumps(box.approvals.decide(ApprovalRequest.from_dict(json.load(sys.stdin)), Allow()).to_dict()))
else:
    result = box.approvals.resume_sync(Decision.from_dict(json.load(sys.stdin)))
    print(result.text)
"""


def test_a_request_is_decided_and_resumed_in_other_processes_under_one_key(tmp_path, forks):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), "utf-8")

    def run(step, given="", key=KEY):
        done = forks.run([sys.executable, str(program), step, key], stdin=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    decision = run("decide", run("ask"))

    assert run("resume", decision).strip() == "a is gone"
    assert "approval_denied" in run("resume", decision, key=KEY + "!")
