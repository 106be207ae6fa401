"""A user signs in on the command line, and says yes in a real browser."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from browser.conftest import SECONDS
from mcp_client.authorization_server import protected

pytestmark = pytest.mark.browser
COMMAND = str(Path(sys.executable).with_name("toolmason"))


@pytest.fixture
def servers():
    with protected() as started:
        yield started


def test_a_user_says_yes_in_the_browser(servers, browser, tmp_path):
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    line = [COMMAND, "mcp", "login", servers.url, "--no-browser"]
    # A process: the address is read while it waits.
    login = subprocess.Popen(line, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = re.search(r"open (\S+)", login.stderr.readline())[1]
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(SECONDS)

    page.goto(address)
    page.get_by_role("button", name="Yes").click()
    page.get_by_text("You are signed in. You can close this tab.").wait_for()

    output, errors = login.communicate(timeout=60)
    assert login.returncode == 0, errors
    assert f"Signed in to {servers.url}." in output
    used = subprocess.run(
        [COMMAND, "mcp", "call", "whoami", "--url", servers.url],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert used.stdout.strip() == "ada"
    assert re.match(r"http://127\.0\.0\.1:\d+/callback\?", page.url)
    context.close()
