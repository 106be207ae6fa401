"""Decisions that outlive a process: valid once in all of them, and not for ever."""

import json
import os
import sqlite3
import stat
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fork_server import ForkServer
from policy.samples import noting
from toolmason import Allow, Chat, Deny, Edit, Toolbox
from toolmason._core.call import approval
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.errors import Abort, ApprovalRequired
from toolmason.extend import ApprovalRequest, Decision, EngineSettings
from toolmason.models.scripted import ScriptedModel

KEY = "a key of a decent size"
WEEK = 7 * 24 * 3600.0
PROGRAM = """
import json, sys
from toolmason import Toolbox, tool

@tool(approval=True)
def pay(amount: int) -> str:
    "Pay."
    open(sys.argv[1], "a").write("paid\\n")
    return "paid"

words = {"approvals_file": sys.argv[2]} if len(sys.argv) > 2 else {}
box = Toolbox(pay, approval_key="a key of a decent size", **words)
if sys.stdin.isatty() or not (given := sys.stdin.read()):
    print(json.dumps(box.call_sync("pay", {"amount": 5}).error.request.to_dict()))
else:
    print(box.approvals.resume_sync(json.loads(given)).text)
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that makes this process forget what it used, as a new one would."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def forget() -> None:
        monkeypatch.setattr(approval, "USED_DECISIONS", type(approval.USED_DECISIONS)())

    forget()
    return forget


async def decide(box: Toolbox, verdict: Any = None) -> Decision:
    pending = await box.call("delete", {"path": "a"})
    assert isinstance(pending.error, ApprovalRequired)
    return box.approvals.decide(pending.error.request, verdict or Allow())


@pytest.mark.parametrize("own", [False, True], ids=["file of the user", "file of the application"])
def test_d6_three_processes_use_a_decision_once(own: bool, tmp_path: Path, forks: ForkServer):
    # Processes of their own: what one of them remembers must not help the next.
    program, paid = tmp_path / "program.py", tmp_path / "paid"
    program.write_text(PROGRAM, "utf-8")
    command = [sys.executable, str(program), str(paid), *([str(tmp_path / "own.db")] if own else [])]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(given: str = "") -> str:
        done = forks.run(command, stdin=given, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    request = ApprovalRequest.from_dict(json.loads(run()))
    decision = Toolbox(approval_key=KEY).approvals.decide(request, Allow())
    texts = [run(json.dumps(decision.to_dict())) for _ in range(3)]

    assert paid.read_text() == "paid\n"
    assert texts[0].strip() == "paid"
    assert all("the decision was already used" in text for text in texts[1:])


@pytest.mark.parametrize("verdict", [Allow(), Deny("no"), Edit({"path": "b"})], ids=["allow", "deny", "edit"])
async def test_d6_whatever_was_decided_is_used_once(verdict: Any, fresh: Any):
    ran: list[Any] = []
    decision = await decide(Toolbox(noting(ran), approve="all", approval_key=KEY), verdict)

    texts = []
    for _ in range(3):
        fresh()
        box = Toolbox(noting(ran), approve="all", approval_key=KEY)
        texts.append((await box.approvals.resume(Decision.from_dict(decision.to_dict()))).text)

    assert len(ran) == (not isinstance(verdict, Deny))
    assert all("the decision was already used" in text for text in texts[1:])


async def test_d6_other_decisions_are_not_touched_and_the_file_is_the_owners_alone(fresh: Any, tmp_path: Path):
    box = Toolbox(noting(ran := []), approve="all", approval_key=KEY)

    for _ in range(3):
        fresh()
        assert (await box.approvals.resume(await decide(box))).ok

    file = tmp_path / "state" / "toolmason" / "approvals.db"
    assert len(ran) == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_d6_without_a_key_nothing_is_written(fresh: Any, tmp_path: Path):
    box = Toolbox(noting(ran := []), approve="all")

    assert (await box.approvals.resume(await decide(box))).ok
    assert len(ran) == 1
    assert not (tmp_path / "state").exists()


async def test_d6_only_this_process_is_told_of_if_there_is_no_place_for_a_file(
    fresh: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "state").write_text("no folder")
    box = Toolbox(noting(ran := []), approve="all", approval_key=KEY)

    assert (await box.approvals.resume(await decide(box))).ok
    assert len(ran) == 1
    assert "decisions are valid once in this process only" in caplog.text


@pytest.mark.parametrize("text", ["no database, and longer than a header of one. " * 20, None], ids=["text", "folder"])
async def test_d6_a_file_of_the_application_that_is_none_refuses(text: str | None, fresh: Any, tmp_path: Path):
    path = tmp_path / "own.db"
    path.mkdir() if text is None else path.write_text(text)
    box = Toolbox(noting(ran := []), approve="all", approval_key=KEY, approvals_file=path)

    result = await box.approvals.resume(await decide(box))

    assert ran == []
    assert "its use cannot be recorded" in result.text


@pytest.mark.parametrize(("seconds", "lasts"), [(None, WEEK), (60.0, 60.0), (2 * WEEK, 2 * WEEK)])
async def test_d6_a_decision_expires(seconds: Any, lasts: float, fresh: Any, monkeypatch: pytest.MonkeyPatch):
    box = Toolbox(noting(ran := []), approve="all", settings=EngineSettings(approval_seconds=seconds))
    decisions = [await decide(box) for _ in range(2)]
    now = time.time()
    results = []
    for decision, later in zip(decisions, (lasts - 10, lasts + 10), strict=True):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        results.append(await box.approvals.resume(decision))

    assert len(ran) == 1
    assert "the request has expired" in results[1].text


async def test_d6_a_request_without_an_end_has_one_all_the_same(fresh: Any, monkeypatch: pytest.MonkeyPatch):
    box = Toolbox(noting(ran := []), approve="all", approval_key=KEY)
    request = (await decide(box)).request
    endless = approval.ApprovalSigner(KEY.encode()).sign_request(replace(request, expires=None))
    decision = box.approvals.decide(endless, Allow())
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + WEEK + 10)

    assert "the request has expired" in (await box.approvals.resume(decision)).text
    assert ran == []


async def test_d6_a_decision_whose_use_could_not_be_recorded_is_still_valid(fresh: Any, tmp_path: Path):
    ran: list[Any] = []
    path = tmp_path / "used.db"
    box = Toolbox(noting(ran), approve="all", approval_key=KEY, approvals_file=path)
    await box.approvals.resume(await decide(box))
    decision = await decide(box)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        refused = await box.approvals.resume(decision)

    results = [await box.approvals.resume(decision) for _ in range(2)]

    assert "its use cannot be recorded" in refused.text
    assert [result.ok for result in results] == [True, False]
    assert len(ran) == 2


@pytest.mark.parametrize("in_other_process", [True, False])
async def test_d6_a_run_in_a_journal_may_go_on_and_nobody_else_use_its_decision(
    fresh: Any, tmp_path: Path, in_other_process: bool
):
    ran: list[Any] = []
    failures = ["killed"]

    def delete(path: str) -> str:
        """Delete."""
        ran.append(path)
        if failures:
            raise Abort(failures.pop())
        return "gone"

    def chat(script: list[Any]) -> Chat:
        box = Toolbox(approve="all", approval_key=KEY)
        box.add(approval.Tool.from_function(delete, idempotent=True))
        return Chat(ScriptedModel(script), box, runtime=SqliteRuntime(tmp_path / "runs.db"))

    held = await chat([[("delete", {"path": "a"})]]).send("Delete a.", run="r")
    saved = held.save()
    decision = chat([]).box.approvals.decide(held.pending[0], Allow())
    with pytest.raises(Abort):
        await chat(["Done."]).resume(saved, [decision])
    if in_other_process:
        fresh()
    reply = await chat(["Done."]).resume(saved, [decision])
    fresh()
    elsewhere = await chat([]).box.approvals.resume(decision)

    assert reply.text == "Done."
    assert ran == ["a", "a"]
    assert "the decision was already used" in elsewhere.text
