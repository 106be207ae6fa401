"""The store of used decisions: it is bounded, and a decision is never used twice."""

import time
from dataclasses import replace
from typing import Any

import pytest

from policy.samples import noting
from toolmason import Allow, Toolbox
from toolmason._core.call import approval
from toolmason.errors import ApprovalRequired
from toolmason.extend import Decision, EngineSettings

BOUND = 5


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store of its own, for few decisions."""
    monkeypatch.setattr(approval, "MAX_USED_DECISIONS", BOUND)
    monkeypatch.setattr(approval, "USED_DECISIONS", type(approval.USED_DECISIONS)())
    return approval.USED_DECISIONS


async def decide(box: Toolbox, path: str) -> Decision:
    pending = await box.call("delete", {"path": path})
    assert isinstance(pending.error, ApprovalRequired)
    return box.approvals.decide(pending.error.request, Allow())


async def test_the_store_does_not_grow_for_ever(store: Any):
    box = Toolbox(noting(ran := []), approve="all")

    for number in range(3 * BOUND):
        assert (await box.approvals.resume(await decide(box, str(number)))).ok

    assert len(ran) == 3 * BOUND
    assert len(store) <= BOUND


async def test_a_decision_that_was_forgotten_is_still_refused():
    box = Toolbox(noting(ran := []), approve="all")
    decisions = [await decide(box, str(number)) for number in range(3 * BOUND)]
    for decision in decisions:
        await box.approvals.resume(decision)

    again = [await box.approvals.resume(decision) for decision in decisions]

    assert [result.ok for result in again] == [False] * len(decisions)
    assert len(ran) == len(decisions)


async def test_a_decision_on_an_old_request_counts_while_nothing_newer_was_forgotten():
    box = Toolbox(noting(ran := []), approve="all")
    old = await decide(box, "old")
    for number in range(BOUND - 1):
        await box.approvals.resume(await decide(box, str(number)))

    assert (await box.approvals.resume(old)).ok
    assert ran[-1] == "old"


async def test_expired_requests_make_room_without_making_others_too_old(store: Any, monkeypatch: pytest.MonkeyPatch):
    brief = Toolbox(noting([]), approve="all", settings=EngineSettings(approval_seconds=100))
    lasting = Toolbox(noting(ran := []), approve="all")
    old = await decide(lasting, "old")
    for number in range(BOUND):
        await brief.approvals.resume(await decide(brief, str(number)))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1000)

    assert (await lasting.approvals.resume(old)).ok
    assert ran == ["old"]
    assert len(store) <= BOUND


async def test_the_time_of_a_request_cannot_be_changed():
    box = Toolbox(noting(ran := []), approve="all")
    decision = await decide(box, "a")

    later = replace(decision, request=replace(decision.request, issued=decision.request.issued + 1000))

    assert not (await box.approvals.resume(later)).ok
    assert ran == []
