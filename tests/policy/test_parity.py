"""One policy whichever way: the same outcome for the same fault, and no way round the gate (reliability.md T24, 4C)."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from policy import samples
from policy.samples import AT_ONCE, WAYS, Thought, hooked_twice, leaves_a_file, noting
from toolmason import Abort, Allow, Deny, Rate, Tool, Toolbox, ToolError
from toolmason.errors import ApprovalDenied, ApprovalRequired, InvalidArguments, ResultError
from toolmason.extend import Decision

FAULTS = {
    "none": (samples.answers, {}, None),
    "raises": (samples.raises, {}, "execution_error"),
    "ToolError": (samples.complains, {}, "tool_error"),
    "slow": (samples.stays, {"timeout": 0.05}, "timeout"),
    "huge": (samples.floods, {}, None),
    "not JSON": (samples.mumbles, {}, "result_error"),
    "SystemExit": (samples.exits, {}, "execution_error"),
    "denied": (samples.answers, {"approval": True}, "approval_denied"),
    "over its calls": (samples.answers, {"max_calls": 1}, "limit_exceeded"),
    "over its rate": (samples.answers, {"rate": Rate(1, per=1000)}, "limit_exceeded"),
    "bad arguments": (samples.answers, {}, "invalid_arguments"),
}
"""A function, how its tool is declared, and the code of the error that it comes to."""


async def outcome(box, name, fault, way):
    reach = WAYS[way](box, name)
    if fault.startswith("over"):
        assert (await reach({"path": "a"})).ok
    return await reach({} if fault == "bad arguments" else {"path": "a"})


def box_of(fault, **options):
    function, own, _ = FAULTS[fault]
    return Toolbox(Tool.from_function(function, **own, **options), approver=lambda request: Deny("no")), function


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_comes_to_the_same_whichever_way_it_is_reached(fault, way):
    box, function = box_of(fault)

    result = await outcome(box, function.__name__, fault, way)

    code = FAULTS[fault][2]
    assert (result.ok, result.error and result.error.code) == (code is None, code)


@pytest.mark.parametrize("way", ["call", "run", "augmented", "middleware"])
@pytest.mark.parametrize(
    ("fault", "runs_on"),
    # A sync tool on the loop cannot be interrupted.
    [(fault, where) for fault in FAULTS for where in ("loop", "process") if (fault, where) != ("slow", "loop")],
)
async def test_a_fault_comes_to_the_same_wherever_the_tool_runs(fault, runs_on, way):
    box, function = box_of(fault, runs_on=runs_on)

    result = await outcome(box, function.__name__, fault, way)

    code = FAULTS[fault][2]
    assert (result.ok, result.error and result.error.code) == (code is None, code)


@pytest.mark.parametrize("way", WAYS)
async def test_an_async_tool_that_hangs_is_called_off_whichever_way(way):
    async def hang(path: str) -> str:
        await asyncio.Event().wait()
        return path

    result = await WAYS[way](Toolbox(Tool.from_function(hang, timeout=0.05)), "hang")({"path": "a"})

    assert result.error.code == "timeout"


@pytest.mark.parametrize("way", WAYS)
async def test_a_huge_result_is_bounded_and_kept_whichever_way(way):
    box, function = box_of("huge")

    result = await outcome(box, function.__name__, "huge", way)

    assert len(result.text.encode()) <= 100 * 1024 + 200
    assert (result.meta["bytes"], "handle" in result.meta) == (1_000_000, True)


@pytest.mark.parametrize("way", WAYS)
async def test_an_abort_passes_through_whichever_way(way):
    async def stop(path: str) -> str:
        raise Abort(path)

    with pytest.raises(Abort):
        await WAYS[way](Toolbox(Tool.from_function(stop)), "stop")({"path": "a"})


RAISED = {
    "ToolError": (samples.complains, {}, ToolError),
    "bad arguments": (samples.answers, {}, InvalidArguments),
    "denied": (samples.answers, {"approval": True}, ApprovalDenied),
    "not JSON": (samples.mumbles, {}, ResultError),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", RAISED)
async def test_an_error_that_is_raised_has_the_same_type_whichever_way(fault, way):
    function, options, kind = RAISED[fault]
    box = Toolbox(Tool.from_function(function, **options), approver=lambda request: Deny(), on_error="raise")

    with pytest.raises(kind):
        await WAYS[way](box, function.__name__)({} if fault == "bad arguments" else {"path": "a"})


ODD_ARGUMENTS = {
    "keys of two kinds": {"data": {1: "a", "b": 2}},
    "bytes": {"data": b"\xff"},
    "an object": {"data": object()},
    "a set": {"data": {1, 2}},
    "a lone surrogate": {"data": "\ud800"},
    "a bytearray": bytearray(b'{"data": 1}'),
}


@pytest.mark.parametrize("way", ["run", "middleware", "locked"])
@pytest.mark.parametrize("kind", ODD_ARGUMENTS)
async def test_arguments_that_an_application_may_send_come_to_the_same_under_a_policy(kind, way):
    async def keep(data: object) -> str:
        return "kept"

    options = {"lock": "data"} if way == "locked" else {}
    plain = await Toolbox(keep).call("keep", ODD_ARGUMENTS[kind])
    box = Toolbox(Tool.from_function(keep, **options))

    result = await WAYS.get(way, WAYS["call"])(box, "keep")(ODD_ARGUMENTS[kind])

    assert (result.ok, result.text) == (plain.ok, plain.text)


@pytest.mark.parametrize("kind", ODD_ARGUMENTS)
async def test_arguments_that_cannot_be_shown_to_an_approver_come_to_a_result(kind):
    async def keep(data: object) -> str:
        return "kept"

    box = Toolbox(Tool.from_function(keep, approval=True), approver=lambda request: Allow())

    result = await box.call("keep", ODD_ARGUMENTS[kind])

    assert result.text == "kept" or result.error.code in {"approval_denied", "invalid_arguments"}


# --- augmentation goes with the tool ----------------------------------------------------------------


@dataclass
class Plan:
    plan: str


@pytest.mark.parametrize("view", ["as it is", "prefixed", "renamed", "selected", "run", "joined"])
async def test_the_extra_fields_are_told_through_every_view(view):
    told, ran = [], []
    box = Toolbox(noting(ran)).augmented(Thought, on_arguments=told.append)
    views = {
        "as it is": (box, "delete"),
        "prefixed": (box.prefixed("x_"), "x_delete"),
        "renamed": (box.renamed({"delete": "other"}), "other"),
        "selected": (box.select("delete"), "delete"),
        "run": (box.run(), "delete"),
        "joined": (Toolbox() | box, "delete"),
    }
    seen, name = views[view]

    await seen.call(name, {"path": "a", "thought": "so"})

    assert [call.arguments for call in told] == [Thought("so")]
    assert ran == ["a"]


async def test_a_toolbox_can_be_augmented_twice():
    first, second, ran = [], [], []
    once = Toolbox(noting(ran)).augmented(Thought, on_arguments=first.append)
    twice = once.augmented(Plan, on_arguments=second.append)

    result = await twice.call("delete", {"path": "a", "thought": "so", "plan": "go"})

    assert (result.text, ran) == ("delete a", ["a"])
    assert [call.arguments for call in first + second] == [Thought("so"), Plan("go")]


# --- a denied call cannot run, whichever way --------------------------------------------------------


def for_etc(arguments, context):
    return arguments["path"].startswith("/etc")


async def pending(box):
    result = await box.call("delete", {"path": "a"})
    assert isinstance(result.error, ApprovalRequired)
    return result.error.request


ALL_WAYS = {**WAYS, "middleware, twice": hooked_twice}


@pytest.mark.parametrize("way", ALL_WAYS)
@pytest.mark.parametrize("answer", [Deny("no"), None], ids=["denied", "undecided"])
async def test_a_denied_call_cannot_run(way, answer):
    ran = []
    approver = None if answer is None else lambda request: answer
    box = Toolbox(noting(ran, approval=True, retry=AT_ONCE), approver=approver)

    result = await ALL_WAYS[way](box, "delete")({"path": "a"})

    assert result.error.code == ("approval_required" if answer is None else "approval_denied")
    assert ran == []


@pytest.mark.parametrize("runs_on", ["thread", "process", "loop"])
async def test_a_denied_call_cannot_run_wherever_the_tool_runs(runs_on, tmp_path):
    trace = tmp_path / "ran"
    box = Toolbox(Tool.from_function(leaves_a_file, runs_on=runs_on, approval=True), approver=lambda request: Deny())

    denied = await box.call("leaves_a_file", {"path": str(trace)}, retry=AT_ONCE)

    assert isinstance(denied.error, ApprovalDenied)
    assert not trace.exists()


async def test_a_middleware_cannot_put_other_arguments_past_the_gate():
    ran = []
    box = Toolbox(noting(ran, approval=for_etc))

    async def swap(call, following):
        return await following(replace(call, arguments={"path": "/etc"}))

    box.use(swap)
    result = await box.call("delete", {"path": "a"})

    assert isinstance(result.error, ApprovalRequired)
    assert ran == []


async def test_a_middleware_cannot_use_a_decision_for_other_arguments_or_twice():
    ran = []
    box = Toolbox(noting(ran, approval=True))
    decision = box.approvals.decide(await pending(box), Allow())

    async def greedy(call, following):
        swapped = await following(replace(call, arguments={"path": "/etc"}))
        first, second = await following(call), await following(call)
        assert [r.ok for r in (swapped, first, second)] == [False, True, False]
        return first

    box.use(greedy)

    assert (await box.approvals.resume(decision)).ok
    assert ran == ["a"]


async def test_an_augmented_view_asks_about_the_same_tool():
    told, ran = [], []
    box = Toolbox(noting(ran, approval=True), approver=lambda request: Deny())

    result = await box.augmented(Thought, on_arguments=told.append).call("delete", {"path": "a", "thought": "so"})

    assert isinstance(result.error, ApprovalDenied)
    assert (ran, told) == ([], [])


@pytest.mark.parametrize("verdict", [Deny("no"), Allow()], ids=["denied", "used before"])
async def test_a_decision_counts_also_where_nobody_would_have_asked(verdict):
    """A run asks about what destroys, a call does not: the decision on the run's request comes back to the box."""
    ran = []
    box = Toolbox(noting(ran, destructive=True))
    decision = box.approvals.decide(await pending(box.run()), verdict)

    if verdict == Allow():
        assert (await box.approvals.resume(decision)).ok
        ran.clear()
    result = await box.approvals.resume(decision)

    assert isinstance(result.error, ApprovalDenied)
    assert ran == []


@pytest.mark.parametrize("forged", [{"signature": "0"}, {"verdict": "allow"}], ids=["signature", "verdict"])
async def test_a_forged_decision_does_not_run_where_nobody_would_have_asked(forged):
    ran = []
    box = Toolbox(noting(ran, destructive=True))
    decision = replace(box.approvals.decide(await pending(box.run()), Deny()), **forged)

    result = await box.approvals.resume(decision)

    assert isinstance(decision, Decision)
    assert isinstance(result.error, ApprovalDenied)
    assert ran == []


async def test_another_attempt_runs_what_was_approved_even_if_the_caller_changed_its_mapping():
    ran, arguments = [], {"path": "a"}

    async def remove(path: str) -> str:
        ran.append(path)
        arguments["path"] = "/etc"
        if len(ran) == 1:
            raise ConnectionError
        return path

    tool = Tool.from_function(remove, approval=True, retry=AT_ONCE)
    await Toolbox(tool, approver=lambda request: Allow()).call("remove", arguments)

    assert ran == ["a", "a"]


async def test_an_approved_call_that_fails_is_not_put_to_the_approver_again():
    questions = []

    def approver(request):
        questions.append(request)
        return Allow()

    tool = Tool.from_function(samples.raises, approval=True, retry=replace(AT_ONCE, on=(ValueError,)))
    result = await Toolbox(tool, approver=approver).call("raises", {"path": "a"})

    assert (result.attempts, len(questions)) == (3, 1)
