"""Approval that waits in one process and comes in another: forged in every way, and then as it should be."""

import json
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("approval_run.py"))


@pytest.fixture
def run(forks):
    def run(folder, what, kind="-"):
        done = forks.run([sys.executable, PROGRAM, str(folder), what, kind])
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def ran(folder):
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


@pytest.fixture(params=["memory", "journal"])
def paused(run, tmp_path, request):
    if request.param == "journal":
        (tmp_path / "durable").touch()
    run(tmp_path, "pause")
    return tmp_path


FORGERIES = {
    "arguments of the request": lambda d: d["request"]["arguments"].update(name="everything"),
    "the tool": lambda d: d["request"].update(tool="look"),
    "the digest": lambda d: d["request"].update(digest="0" * 64),
    "for whom": lambda d: d["request"].update(identity=None),
    "until when": lambda d: d["request"].update(expires=9e9),
    "which call": lambda d: d["request"].update(call_id="call_2_1"),
    "which request": lambda d: d["request"].update(id="0" * 24),
    "edited arguments": lambda d: d.update(verdict="edit", arguments={"name": "everything"}),
    "the reason": lambda d: d.update(reason="because"),
    "the signature": lambda d: d.update(signature="0" * 64),
    "no signature": lambda d: d.update(signature=""),
    "the signature of the request": lambda d: d["request"].update(signature="f" * 64),
}


def test_no_forged_decision_runs_anything_and_the_real_one_still_does(run, paused):
    file = paused / "decisions.json"
    genuine = file.read_text()
    forged = [json.loads(genuine)[0] for _ in FORGERIES]
    for decision, change in zip(forged, FORGERIES.values(), strict=True):
        change(decision)
    file.write_text(json.dumps(forged))

    refused = run(paused, "resume")
    file.write_text(genuine)
    ran_before = ran(paused)
    accepted = run(paused, "resume")

    assert dict(zip(FORGERIES, (answer["finish"] for answer in refused), strict=True)) == dict.fromkeys(
        FORGERIES, "pending"
    )
    assert ran_before == []
    assert accepted == [{"finish": "stop", "text": "erased a"}]
    assert ran(paused) == ["a"]


def test_a_decision_under_another_key_is_none(run, paused):
    [answer] = run(paused, "resume", "another key")

    assert (answer["finish"], ran(paused)) == ("pending", [])


@pytest.mark.parametrize("kind", ["another tool", "another user"])
def test_what_was_allowed_for_something_else_is_refused(run, paused, kind):
    [answer] = run(paused, "resume", kind)

    assert "was not allowed to run" in answer["text"]
    assert ran(paused) == []


def test_a_request_that_was_changed_in_the_file_cannot_be_decided_about(run, paused):
    saved = json.loads((paused / "saved.json").read_text())
    saved["pending"][0]["arguments"]["name"] = "everything"
    (paused / "saved.json").write_text(json.dumps(saved))

    [answer] = run(paused, "decide")

    assert "the request was changed" in answer["raised"]


def test_what_the_saved_conversation_says_is_not_what_runs(run, paused):
    saved = json.loads((paused / "saved.json").read_text())
    saved["messages"][1]["calls"][0]["arguments"] = {"name": "everything"}
    (paused / "saved.json").write_text(json.dumps(saved))

    run(paused, "resume")

    assert "everything" not in ran(paused)


def test_with_a_journal_a_decision_is_good_once_in_all_processes(run, tmp_path):
    (tmp_path / "durable").touch()
    run(tmp_path, "pause")

    answers = [*run(tmp_path, "resume"), *run(tmp_path, "resume")]

    assert ran(tmp_path) == ["a"]
    assert answers[0] == answers[1] == {"finish": "stop", "text": "erased a"}
