"""`toolmason run` and `toolmason runs`, as real processes: a run that is kept, shown, cut off and taken up again."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from cli.sample_tools import environment
from fork_server import COMMAND
from toolmason.chat.durable.journal import SqliteRuntime
from toolmason.chat.durable.process_identity import get_process_identity

ROOT = Path(__file__).parents[2]
SHOP = f"{ROOT / 'examples' / 'shop.py'}:box"
OFFLINE = ("--model", "offline")
PAYING = '''
import os, signal
from pathlib import Path
from toolmason import Toolbox, tool

@tool
def pay_invoice(number: int) -> str:
    """Pay an invoice."""
    with Path("log").open("a") as log:
        log.write(f"{number}\\n")
    if Path("kill").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {number}"

box = Toolbox(pay_invoice)
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "bank.py").write_text(PAYING, "utf-8")
    return tmp_path


@pytest.fixture
def command(folder, forks):
    def command(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return forks.run([COMMAND, *words], cwd=folder, env=environment(), stdin=stdin)

    return command


@pytest.fixture
def killed(folder, command):
    """A run that was killed in the middle of a payment."""
    (folder / "kill").touch()
    done = command("run", "bank.py", "Pay invoice 7", "--durable", "--run", "r", "--model", "offline")
    (folder / "kill").unlink()
    assert done.returncode == -signal.SIGKILL
    return folder


def test_a_run_prints_its_answer_and_keeps_nothing_by_itself(command, folder):
    done = command("run", SHOP, "What is the price of 3 TEA-01?", *OFFLINE)

    assert (done.returncode, done.stdout) == (0, "quote_price: 13.5\n")
    assert not list(folder.glob("*.db"))


def test_a_run_is_kept_and_the_same_name_reads_it_back(command):
    first = command("run", "bank.py", "Pay invoice 7", "--durable", "mine.db", "--run", "r", *OFFLINE)
    again = command("run", "bank.py", "--durable", "mine.db", "--run", "r", "--json", *OFFLINE, stdin="Pay invoice 7")

    assert first.stdout == "pay_invoice: paid 7\n"
    assert "Run r in mine.db." in first.stderr
    assert json.loads(again.stdout)["text"] == "pay_invoice: paid 7"


def test_a_killed_payment_is_not_made_again_and_the_model_is_told(command, killed):
    listed = json.loads(command("runs", "list", "runs.db", "--json").stdout)
    shown = command("runs", "show")
    done = command("runs", "resume")

    assert [(run["run"], run["state"], run["asked"]) for run in listed] == [("r", "interrupted", "Pay invoice 7")]
    assert '1/0/pay_invoice  started  pay_invoice {"number": 7}' in shown.stdout
    assert "--done 1/0/pay_invoice=RESULT or --again 1/0/pay_invoice" in shown.stderr
    assert done.returncode == 0
    assert "it is unknown whether it completed" in done.stdout
    assert (killed / "log").read_text() == "7\n"


@pytest.mark.parametrize(
    ("words", "text", "log"),
    [
        (["--done", "1/0/pay_invoice=paid by hand"], "pay_invoice: paid by hand", "7\n"),
        (["--done", '1/0/pay_invoice={"receipt": 3}'], 'pay_invoice: {"receipt":3}', "7\n"),
        (["--again", "1/0/pay_invoice"], "pay_invoice: paid 7", "7\n7\n"),
    ],
    ids=["done", "done, as JSON", "again"],
)
def test_someone_says_what_became_of_it(command, killed, words, text, log):
    done = command("runs", "resume", "runs.db", "r", *words)

    assert (done.returncode, done.stdout) == (0, f"{text}\n")
    assert (killed / "log").read_text() == log


def test_a_run_that_waits_goes_on_with_a_word(command):
    waits = command("run", SHOP, "Cancel order A-17", "--durable", "--run", "r")
    before = json.loads(command("runs", "show", "--json").stdout)
    refused = command("runs", "resume", "runs.db", "r")
    done = command("runs", "resume", "runs.db", "r", "--yes", "--json")
    nothing = command("runs", "resume")

    assert (waits.returncode, refused.returncode, done.returncode) == (1, 1, 0)
    assert (before["state"], [effect["state"] for effect in before["effects"]]) == ("pending", ["done", "waits"])
    assert json.loads(done.stdout)["finish"] == "stop"
    assert (nothing.returncode, nothing.stderr) == (0, "No runs to resume.\n")


def test_the_lists_are_for_people_too(command):
    command("run", SHOP, "What is the price of 3 TEA-01?", "--durable", "--run", "r", "--system", "Be kind.", *OFFLINE)

    listed = command("runs", "list").stdout
    shown = command("runs", "show", "runs.db", "r").stdout

    assert listed.startswith("r  stop  20")
    assert listed.endswith("3 steps  What is the price of 3 TEA-01?\n")
    assert shown.splitlines()[-1] == "quote_price: 13.5"


def test_a_run_that_was_killed_before_it_began_has_its_question(command, folder):
    runtime = SqliteRuntime(folder / "runs.db")
    runtime.add_facts(
        "r", {"command": {"target": SHOP, "model": "offline", "system": "x", "prompt": "Price of 3 TEA-01?"}}
    )
    runtime.close()

    done = command("runs", "resume")

    assert (done.returncode, done.stdout) == (0, "quote_price: 13.5\n")


def test_a_run_of_a_program_needs_a_target_and_a_model(command, folder):
    runtime = SqliteRuntime(folder / "runs.db")
    asked = {"role": "user", "content": [{"type": "text", "text": "Price of 3 TEA-01?"}]}
    runtime.add_facts("r", {"asked": [asked], "before": [], "system": []})
    runtime.close()

    lost = command("runs", "resume", "runs.db", "r")
    found = command("runs", "resume", "runs.db", "r", "--target", SHOP, "--model", "offline")

    assert lost.returncode == 2
    assert "started by a program" in lost.stderr
    assert found.stdout == "quote_price: 13.5\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", SHOP, "x", "--run", "r"], 2, "Add --durable"),
        (["run", SHOP], 2, "Missing argument 'PROMPT'"),
        (["run", "nothing.py", "x"], 3, "nothing.py"),
        (["run", SHOP, "x", "--model", "nonsense"], 2, "Unknown provider"),
        (["run", SHOP, "x", "--durable", "missing/runs.db"], 2, "cannot be opened as a SQLite file"),
        (["runs", "list", "nothing.db"], 3, "No journal at 'nothing.db'"),
        (["runs", "show", "nothing.db", "r"], 3, "No journal at"),
        (["runs", "resume", "nothing.db"], 3, "No journal at"),
    ],
)
def test_what_cannot_be_done_is_said(command, folder, words, code, told):
    done = command(*words)

    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "nothing.db").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["show", "runs.db", "x"], 3, "No run 'x' in 'runs.db'. Available: r."),
        (["resume", "runs.db", "x"], 3, "No run 'x'"),
        (["resume", "runs.db", "--again", "1/0/pay_invoice"], 2, "apply to one run"),
        (["resume", "runs.db", "r", "--done", "1/0/pay_invoice"], 2, "write KEY=RESULT"),
        (["resume", "runs.db", "r", "--again", "9/9/x"], 3, "Unknown call '9/9/x'"),
        (["resume", "runs.db", "r", "--again", "1/model"], 2, "not interrupted"),
    ],
)
def test_what_cannot_be_resumed_is_said(command, killed, words, code, told):
    done = command("runs", *words)

    assert done.returncode == code
    assert told in done.stderr
    assert (killed / "log").read_text() == "7\n"


def test_a_run_that_another_process_drives_is_left_alone(command, killed):
    runtime = SqliteRuntime(killed / "runs.db")
    runtime.tables.transact(
        "r", lambda db: db.execute("UPDATE runs SET holder=?, until=9e9", (get_process_identity(),))
    )
    runtime.close()

    listed = command("runs", "list").stdout
    done = command("runs", "resume", "runs.db", "r")
    reconciled = command("runs", "resume", "runs.db", "r", "--again", "1/0/pay_invoice")

    assert listed.startswith("r  running  ")
    assert (done.returncode, reconciled.returncode) == (1, 1)
    assert "is locked by another process" in done.stderr
    assert (killed / "log").read_text() == "7\n"
