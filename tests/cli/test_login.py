"""`toolmason mcp login`, `logout` and `status`, against the SDK's own authorization server."""

import json
import re
import stat

import pytest
from click.testing import CliRunner

from mcp_client.authorization_server import protected
from toolmason.cli.commands.use_tools import login as login_module
from toolmason.cli.commands.use_tools.mcp import command
from toolmason.mcp_client.auth import flows


@pytest.fixture
def servers():
    with protected() as started:
        yield started


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str):
        return CliRunner().invoke(command, words)

    return invoke


@pytest.fixture
def signed_in(servers, run, monkeypatch):
    monkeypatch.setattr(login_module, "show_address", servers.visit)
    done = run("login", servers.url)
    assert done.exit_code == 0, done.output
    return done


def test_a_user_signs_in_uses_the_server_and_signs_out(servers, run, signed_in, tmp_path):
    used = run("call", "whoami", "--url", servers.url)
    shown = run("status")
    ended = run("logout", servers.url)
    refused = run("list", "--url", servers.url)

    assert f"Signed in to {servers.url}. The tokens are in" in signed_in.output
    assert used.output.strip() == "ada"
    assert re.search(rf"{servers.url}  signed in, the token expires in 3\d\d\d s", shown.output)
    assert ended.output.strip() == f"Deleted the tokens of {servers.url}."
    assert refused.exit_code == 1
    assert "Sign in with `toolmason mcp login`" in refused.output
    path = tmp_path / "state" / "toolmason" / "tokens.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert servers.url not in json.loads(path.read_text("utf-8"))


def test_no_token_is_printed(servers, run, signed_in):
    outputs = signed_in.output + run("status").output + run("status", "--json").output

    for token in (*servers.provider.tokens, *servers.provider.refresh_tokens):
        assert token not in outputs


def test_a_configured_server_is_found_by_its_name(servers, run, signed_in, tmp_path):
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": {"url": servers.url}}}), "utf-8")

    used = run("list", "--config", "mcp.json")
    ended = run("logout", "notes", "--config", "mcp.json")
    unknown = run("login", "other", "--config", "mcp.json")

    assert "whoami" in used.output
    assert ended.exit_code == 0
    assert unknown.exit_code == 3
    assert "No server 'other' with a URL. Configured: notes." in unknown.output


def test_a_sign_in_that_fails_keeps_the_old_tokens(servers, run, signed_in):
    servers.provider.metadata["code_challenge_methods_supported"] = None

    failed = run("login", servers.url)
    used = run("call", "whoami", "--url", servers.url)

    assert failed.exit_code == 1
    assert "Not signed in: " in failed.output
    assert "PKCE" in failed.output
    assert used.output.strip() == "ada"


def test_an_address_can_be_printed_only(servers, run, monkeypatch):
    printed = []
    monkeypatch.setattr(login_module, "echo", lambda text, **_: printed.append(text) or _browse(servers, text))

    done = run("login", servers.url, "--no-browser")

    assert done.exit_code == 0, done.output
    assert printed[0].startswith(f"To sign in, open {servers.provider.address}/authorize?")


def _browse(servers, text: str) -> None:
    if text.startswith("To sign in, open "):
        servers.visit(text.removeprefix("To sign in, open "), "")


def test_a_code_is_shown_for_another_device(servers, run, monkeypatch):
    monkeypatch.setattr(flows, "MIN_POLL_SECONDS", 0.0)
    done = run("login", servers.url, "--device", "--no-browser")

    assert f"To sign in, open {servers.provider.address}/device and enter the code ABCD-EFGH" in done.output
    assert done.exit_code == 0


def test_tokens_may_be_bound_to_a_key_if_the_server_can(servers, run, monkeypatch):
    monkeypatch.setattr(login_module, "show_address", servers.visit)

    done = run("login", servers.url, "--dpop")

    assert done.exit_code == 1
    assert "did not bind the token to the key of this client (DPoP)" in done.output


def test_nothing_to_sign_out_of_is_said(run):
    assert run("logout", "https://mcp.example.com/mcp").exit_code == 3
    assert "No tokens are stored." in run("status").output
