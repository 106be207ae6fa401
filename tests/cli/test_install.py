"""`toolmason install` and `uninstall`: the file of each client, what is asked, and what is never overwritten."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from cli.sample_tools import COMMAND, environment
from toolmason.cli.clients import CLIENTS, ServerCommand, add_server, check_name, hide_secrets, remove_server
from toolmason.errors import ConfigError

SERVER = ServerCommand("/bin/toolmason", ("serve", "office:box", "--folder", "/srv"), {"KEY": "sesame"})
TOML = CLIENTS["codex"]
HOSTILE = ["", "-x", "a b", "a.b", "a/b", "../a", "a\nb", 'a"]\n[x]', "a]", "é", "x" * 65, "a\x00"]


def load(client, text):
    return tomllib.loads(text) if client.file.endswith(".toml") else json.loads(text)


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture
def install(run, home):
    def install(*words, client="cursor", command="install"):
        return run(command, *words, "--client", client, HOME=str(home), APPDATA=str(home))

    return install


@pytest.mark.parametrize("name", CLIENTS)
def test_a_server_is_added_started_and_removed(install, home, office, forks, name):
    client = CLIENTS[name]

    done = install("office:box", "--yes", client=name)

    assert done.returncode == 0, done.stderr
    files = [path for path in home.rglob("*") if path.name == client.file]
    entry = load(client, files[0].read_text())[client.key]["office"]
    assert entry["args"] == ["serve", "office:box", "--folder", str(office)]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    answered = forks.run([COMMAND, *entry["args"]], cwd=home, env=environment(), stdin=json.dumps(request) + "\n")
    assert json.loads(answered.stdout)["id"] == 1

    assert install("office", "--yes", client=name, command="uninstall").returncode == 0
    assert "office" not in load(client, files[0].read_text()).get(client.key, {})


def test_the_change_is_shown_and_written_after_yes(terminal, home):
    shell = terminal("install", "office:box", "--client", "cursor", "--env", "KEY=sesame", HOME=str(home))
    shell.expect("Write this change?")
    assert '"KEY": "***"' in shell.text
    assert not (home / ".cursor").exists()
    shell.type("y")

    assert shell.end() == 0
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["office"]
    assert entry["env"] == {"KEY": "sesame"}
    assert "sesame" not in shell.text


def test_nothing_is_written_after_no(terminal, home):
    shell = terminal("install", "office:box", "--client", "cursor", HOME=str(home))
    shell.expect("Write this change?")
    shell.type("n")

    assert shell.end() == 0
    assert not (home / ".cursor").exists()


def test_nothing_is_written_in_a_trial_or_without_a_terminal(install, home):
    trial = install("office:box", "--dry-run")
    silent = install("office:box")

    assert (trial.returncode, silent.returncode) == (0, 2)
    assert '+    "office": {' in trial.stdout
    assert "Run it in a terminal, or with --yes." in silent.stderr
    assert not (home / ".cursor").exists()


def test_the_rest_of_a_file_stays_and_a_copy_is_kept(install, home):
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    before = '{\n    "theme": "dark",\n    "mcpServers": {"other": {"command": "x", "env": {"T": "sesame"}}}\n}\n'
    file.write_text(before)
    file.chmod(0o640)

    done = install("office:box", "--yes", "--name", "mine")
    again = install("office:box", "--yes", "--name", "mine")

    after = json.loads(file.read_text())
    assert done.returncode == 0
    assert list(after) == ["theme", "mcpServers"]
    assert list(after["mcpServers"]) == ["other", "mine"]
    assert "sesame" not in done.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.with_name("mcp.json.before-toolmason").read_text() == before
    assert again.stdout == f"{file} has this server already.\n"


def test_a_link_to_a_file_stays_a_link(install, home):
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").symlink_to(real)

    assert install("office:box", "--yes").returncode == 0
    assert (home / ".cursor" / "mcp.json").is_symlink()
    assert "office" in real.read_text()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("// mine\n{}", "not plain JSON"),
        ('{"a": 1, "a": 2}', "a key appears twice"),
        ("[]", "is not an object"),
        ('{"mcpServers": []}', "is not an object"),
        ("[" * 100_000, "not plain JSON"),
        ("\ud800".encode("utf-8", "surrogatepass"), "Cannot read"),
    ],
    ids=["comments", "twice", "array", "servers", "deep", "bytes"],
)
def test_a_file_that_cannot_be_changed_is_left_as_it_is(install, home, text, told):
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    data = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(data)

    done = install("office:box", "--yes")

    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_bytes() == data
    assert os.listdir(file.parent) == ["mcp.json"]  # noqa: PTH208 - names only


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_a_client_may_read_otherwise_is_refused(name):
    with pytest.raises(ConfigError, match="cannot name a server"):
        check_name(name)


@pytest.mark.parametrize("value", ['"]\n[evil]\nx = "', "\\", "\x7f\x01", "'''", "€ 😀", "a\rb"])
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_any_value_is_read_back_as_it_was(client, value):
    server = ServerCommand(value, ("serve", value), {"KEY": value})

    text = add_server(client, "", "shop", server)

    assert load(client, text) == {client.key: {"shop": {**dict(client.extra), **server.to_json()}}}
    assert (
        load(client, remove_server(client, text, "shop") or "{}" * (not text.startswith("["))).get(client.key, {}) == {}
    )


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers.shop = {command = 'x'}\n",
        "[mcp_servers]\nshop = {command = 'x'}\n",
        '[a]\ntext = """\n[mcp_servers.shop]\n"""\n',
        "not toml",
    ],
)
def test_toml_in_an_unusual_form_is_left_as_it_is(text):
    with pytest.raises(ConfigError, match="left as it is"):
        add_server(TOML, text, "shop", SERVER)


def test_comments_of_toml_stay():
    first, last = '# mine\nmodel = "m" # the best\n\n', "[z]\ny = 1 # last\n"
    before = f'{first}[mcp_servers.shop] # old\ncommand = "x"\n\n[mcp_servers.shop.env]\nA = "b"\n\n{last}'

    after = add_server(TOML, before, "shop", SERVER)

    assert after.startswith(f"{first}{last}\n[mcp_servers.shop]\n")
    assert remove_server(TOML, after, "shop") == first + last


def test_an_unknown_server_is_not_removed(install):
    done = install("shop", "--yes", command="uninstall")

    assert (done.returncode, done.stderr) == (2, "Error: Cursor has no server 'shop'.\n")


def test_a_target_that_does_not_load_is_not_installed(install, home):
    done = install("nothing.py:box", "--yes")

    assert done.returncode == 3
    assert not (home / ".cursor").exists()


def test_secrets_of_other_servers_are_hidden():
    text = "[mcp_servers.a.env]\nT = \"sesame\"\nU = 'open'\n"

    assert hide_secrets(TOML, 'T = "sesame"', text) == 'T = "***"'
    assert hide_secrets(TOML, "U = 'open'", text) == "U = '***'"


def test_the_folder_is_found_on_each_platform(monkeypatch):
    monkeypatch.setenv("APPDATA", "/roaming")
    monkeypatch.setattr("sys.platform", "win32")
    assert CLIENTS["claude-desktop"].find_file() == Path("/roaming/Claude/claude_desktop_config.json")
    monkeypatch.setattr("sys.platform", "darwin")
    assert "Library/Application Support/Code/User/mcp.json" in str(CLIENTS["vscode"].find_file())
