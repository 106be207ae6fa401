"""`build`, `lock` and `diff` as a shell runs them: what they print where, and how they end."""

import json
import os
import pty
import subprocess
import sys
import textwrap

import pytest

from fork_server import COMMAND

ORDERS = '''
from toolmason import prompt, tool


@tool(read_only=True)
def find(text: str, limit: int = 3) -> list[str]:
    """Find orders."""
    return [text] * limit


@tool(destructive=True)
def drop(order: str) -> str:
    """Drop an order."""
    return f"dropped {order}"
'''


@pytest.fixture
def shop(tmp_path):
    """A package in an empty folder, and a way to run the command there."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "orders.py").write_text(ORDERS, "utf-8")
    return tmp_path


@pytest.fixture
def run(forks):
    """Run the command in a folder."""

    def run(folder, *arguments, text=""):
        environment = {**os.environ, "NO_COLOR": "1"}
        return forks.run([COMMAND, *map(str, arguments)], cwd=folder, env=environment, stdin=text)

    return run


def change(folder, old, new):
    file = folder / "shop" / "orders.py"
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")


# --- build -----------------------------------------------------------------------------------


def test_build_writes_the_manifest_and_says_so(run, shop):
    first, second = run(shop, "build", "shop"), run(shop, "build", "shop")

    assert (first.returncode, first.stdout) == (0, "Wrote _toolmason.json of shop: 2 tools from 1 module.\n")
    assert second.stdout == "_toolmason.json of shop is up to date: 2 tools from 1 module.\n"
    assert [path.name for path in shop.rglob("*.json")] == ["_toolmason.json"]


def test_build_check_fails_on_drift_and_says_which_tool_changed_and_how(run, shop):
    run(shop, "build", "shop")
    fresh = run(shop, "build", "shop", "--check")
    before = (shop / "shop" / "_toolmason.json").read_bytes()
    change(shop, "limit: int = 3", "limit: int")

    stale = run(shop, "build", "shop", "--check")

    assert fresh.returncode == 0
    assert stale.returncode == 1
    assert "find  input $.limit: now required\n" in stale.stdout
    assert "Run `toolmason build shop`" in stale.stderr
    assert (shop / "shop" / "_toolmason.json").read_bytes() == before


def test_build_says_as_json_what_it_did(run, shop):
    change(shop, "@tool(read_only=True)", "@tool(read_only=True, meta={'x': object()})")

    done = run(shop, "build", "shop", "--json")

    report = json.loads(done.stdout)
    assert (report["package"], report["tools"], report["written"]) == ("shop", 2, True)
    assert report["notes"] == ["shop.orders:find: meta['x'] has no JSON form, so it is available only after loading"]
    assert report["changes"] == [{"name": "_toolmason.json", "text": "the manifest does not exist yet"}]


def test_build_tells_what_is_not_listed(run, shop):
    (shop / "shop" / "box.py").write_text("from toolmason import Toolbox\nbox = Toolbox()\n", "utf-8")

    done = run(shop, "build", "shop")

    assert done.stderr == "Note: shop.box:box: a Toolbox; the policy for its tools is code and not listed: none\n"


def test_build_takes_a_folder_in_another_place(run, shop, tmp_path_factory):
    done = run(tmp_path_factory.mktemp("else"), "build", str(shop / "shop"))

    assert done.returncode == 0
    assert (shop / "shop" / "_toolmason.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["build", "no_such"], 3, "Package 'no_such' not found", id="no package"),
        pytest.param(["build", "no/such"], 3, "Folder 'no/such' does not exist", id="no folder"),
        pytest.param(["build"], 2, "Missing argument 'PACKAGE'", id="nothing"),
        pytest.param(["build", "keyword"], 2, "is a single module", id="a module"),
        pytest.param(["lock"], 2, "Name a target", id="lock of nothing"),
        pytest.param(["lock", "--check"], 3, "No lock file at", id="no lock to check"),
        pytest.param(["lock", "no_such:box"], 3, "module 'no_such' not found", id="lock of nowhere"),
        pytest.param(["diff", "a.json", "b.json"], 3, "Cannot read 'a.json'", id="no file"),
        pytest.param(["diff", "-", "-"], 2, "Only one of A and B", id="two standard inputs"),
        pytest.param(["diff", "no_such:box", "shop"], 3, "module 'no_such' not found", id="diff of nowhere"),
        pytest.param(["list", "no/_toolmason.json"], 3, "No manifest at", id="list of no manifest"),
    ],
)
def test_a_wrong_command_ends_with_its_code(run, shop, arguments, code, words):
    done = run(shop, *arguments)

    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_two_tools_of_one_name_stop_the_build(run, shop):
    (shop / "shop" / "more.py").write_text(ORDERS, "utf-8")

    done = run(shop, "build", "shop")

    assert done.returncode == 2
    assert "Two tools are named 'find'" in done.stderr
    assert not (shop / "shop" / "_toolmason.json").exists()


# --- a manifest as a target --------------------------------------------------------------------


@pytest.mark.parametrize("target", ["shop", "shop/", "shop/_toolmason.json"])
def test_a_manifest_is_a_target_to_list_and_call(run, shop, target):
    run(shop, "build", "shop")

    listed, called = run(shop, "list", target), run(shop, "call", target, "find", "text=a", "limit=2")

    assert [line.split("(")[0] for line in listed.stdout.splitlines()] == ["drop", "find"]
    assert called.stdout == '["a","a"]\n'


@pytest.mark.parametrize("wrong", [{"properties": 5}, {"required": None}, {"properties": {"limit": {"type": [5]}}}])
@pytest.mark.parametrize("words", [["list", "shop"], ["list", "shop", "--json"], ["call", "shop", "find", "text=a"]])
def test_a_manifest_with_a_damaged_schema_is_refused(run, shop, wrong, words):
    run(shop, "build", "shop")
    file = shop / "shop" / "_toolmason.json"
    form = json.loads(file.read_text("utf-8"))
    form["tools"][-1]["input_schema"] |= wrong
    file.write_text(json.dumps(form), "utf-8")

    done = run(shop, *words)

    assert done.returncode == 3
    assert "has the wrong type. Rebuild the file." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stale_manifest_is_told_on_standard_error(run, shop):
    run(shop, "build", "shop")
    change(shop, "limit: int = 3", "limit: int = 4")

    done = run(shop, "list", "shop")

    assert done.stderr.startswith("Warning: the source of 'shop.orders' has changed since the manifest of 'shop'")
    assert "toolmason build" in done.stderr
    assert len(done.stdout.splitlines()) == 2


# --- lock --------------------------------------------------------------------------------------


def test_lock_writes_definitions_and_remembers_its_targets(run, shop):
    done = run(shop, "lock", "shop.orders")

    lock = json.loads((shop / "toolmason.lock").read_text("utf-8"))
    assert done.returncode == 0
    assert "Locked 2 tools in toolmason.lock." in done.stdout
    assert lock["targets"] == ["shop.orders"]
    assert list(lock["tools"]) == ["drop", "find"]
    assert lock["servers"] == {}
    assert run(shop, "lock", "--check").returncode == 0


@pytest.mark.parametrize("text", ["{", '{"format": "toolmason-lock", "version": 9}'])
def test_a_damaged_lock_says_that_it_has_to_go_before_it_is_written(run, shop, text):
    (shop / "toolmason.lock").write_text(text, "utf-8")

    done = run(shop, "lock", "shop.orders")

    assert done.returncode == 2
    assert "Restore or delete the file first, because `toolmason lock` reads it." in done.stderr


def test_lock_check_fails_and_prints_what_changed(run, shop):
    run(shop, "lock", "shop.orders")
    change(shop, "Find orders.", "Find orders, and mail them to me.")
    change(shop, "read_only=True", "read_only=False")

    done = run(shop, "lock", "--check")

    assert done.returncode == 1
    assert (
        "compatible  find  description  changed from 'Find orders.' to 'Find orders, and mail them to me.'\n"
        in done.stdout
    )
    assert "breaking  find  effects  read_only changed from true to false\n" in done.stdout
    assert "The lock is out of date" in done.stderr


def test_lock_keeps_the_pins_of_servers(run, shop):
    run(shop, "lock", "shop.orders")
    file = shop / "toolmason.lock"
    form = json.loads(file.read_text("utf-8"))
    pin = {key: value for key, value in form["tools"]["find"].items() if key != "digest"}
    form["servers"] = {"github": {"tools": {"find": pin}}}
    file.write_text(json.dumps(form), "utf-8")
    change(shop, "limit: int = 3", "limit: int = 4")

    done = run(shop, "lock", "--json")

    kept = json.loads(file.read_text("utf-8"))
    assert json.loads(done.stdout)["written"] is True
    assert kept["servers"]["github"]["tools"]["find"]["input_schema"]["properties"]["limit"]["default"] == 3
    assert kept["tools"]["find"]["input_schema"]["properties"]["limit"]["default"] == 4


def test_lock_takes_several_targets_and_another_file(run, shop):
    (shop / "extra.py").write_text(ORDERS.replace("find", "seek").replace("drop", "toss"), "utf-8")

    done = run(shop, "lock", "shop.orders", "extra.py", "--file", "my.lock")

    assert "Locked 4 tools in my.lock." in done.stdout
    assert run(shop, "lock", "--check", "--file", "my.lock").returncode == 0


# --- diff --------------------------------------------------------------------------------------


def test_diff_of_equal_lists_is_quiet_and_good(run, shop):
    run(shop, "build", "shop")

    done = run(shop, "diff", "shop/_toolmason.json", "shop.orders")

    assert (done.returncode, done.stdout) == (0, "No tool changed.\n")


def test_diff_tells_a_breaking_change_from_a_compatible_one(run, shop):
    run(shop, "build", "shop")
    run(shop, "lock", "shop.orders")
    change(shop, "limit: int = 3", "limit: float = 3, page: int = 0")
    compatible = run(shop, "diff", "toolmason.lock", "shop.orders")
    change(shop, "text: str", "text: int")

    breaking = run(shop, "diff", "shop/_toolmason.json", "shop.orders", "--json")

    assert compatible.returncode == 0
    assert "compatible  find  input  $.limit  type changed from integer to number\n" in compatible.stdout
    assert "compatible  find  input  $.page  new and optional\n" in compatible.stdout
    report = json.loads(breaking.stdout)
    assert breaking.returncode == 1
    assert report["breaking"] is True
    assert {"part": "input", "path": "$.text", "text": "type changed from string to integer", "breaking": True} in (
        report["tools"][0]["changes"]
    )


def test_diff_reads_a_file_from_standard_input(run, shop):
    run(shop, "build", "shop")
    old = (shop / "shop" / "_toolmason.json").read_text("utf-8")
    change(shop, "def drop(", "def toss(")

    done = run(shop, "diff", "-", "shop.orders", text=old)

    assert done.returncode == 1
    assert done.stdout == "breaking  drop  removed\ncompatible  toss  added\n"


def test_on_a_terminal_the_changes_are_a_table(run, shop):
    # A new interpreter: it shows that `diff` imports what it needs.
    run(shop, "build", "shop")
    change(shop, "text: str", "text: int")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    command = [COMMAND, "diff", "shop/_toolmason.json", "shop.orders"]

    done = subprocess.run(command, cwd=shop, env=environment, stdout=theirs, stderr=theirs, check=False, timeout=60)
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)

    assert done.returncode == 1
    assert b"Effect" in shown
    assert b"Path" in shown
    assert b"\x1b[1;31mbreaking" in shown


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""


# --- the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_no_tool_machinery_and_no_sdk(arguments):
    # A new interpreter: its imports are under test.
    code = textwrap.dedent(
        f"""
        import sys
        from toolmason.cli.main import main

        sys.argv = ["toolmason", *{arguments}]
        try:
            main()
        except SystemExit as end:
            assert not end.code, end.code
        print()
        print(sorted(sys.modules))
        """
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )

    loaded = done.stdout.splitlines()[-1]
    assert "'toolmason.cli.main'" in loaded
    for name in (
        "toolmason._core.define.schema",
        "toolmason.build",
        "rich",
        "jsonschema",
        "openai",
        "anthropic",
        "mcp",
        "httpx",
    ):
        assert f"'{name}'" not in loaded
