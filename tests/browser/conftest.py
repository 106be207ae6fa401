"""Start the page of a target as a user does, and open it in Debian's Chromium."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/#token=[\w-]+")
SECONDS = 10_000
"""Milliseconds that a step of a test may take; a loaded machine is slow."""


def expect(locator):
    from playwright.sync_api import expect as expect_locator

    expect_locator.set_options(timeout=SECONDS)
    return expect_locator(locator)


def send(page, text):
    """Send a message in the chat."""
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


class Served:
    """The command `toolmason ui` in a folder of its own."""

    def __init__(self, folder: Path, words: tuple[str, ...]) -> None:
        self.folder = folder
        command = [str(Path(sys.executable).with_name("toolmason")), "ui", *words]
        environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        self.log = (folder / "page.log").open("w+")
        self.process = subprocess.Popen(
            command, cwd=folder, stderr=self.log, stdout=self.log, env=environment, start_new_session=True
        )
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := ADDRESS.search(self.text):
                return found[0]
            time.sleep(0.05)
        raise AssertionError(f"The page did not start:\n{self.text}")

    @property
    def text(self) -> str:
        return (self.folder / "page.log").read_text("utf-8")

    def kill(self) -> None:
        """End the command as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(15)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(15)
        self.log.close()


@pytest.fixture
def serve(tmp_path):
    """Start `toolmason ui` with these words in a folder with the example bundle."""
    for name in ("bundle.py", "library_server.py"):
        shutil.copy(HERE / name, tmp_path / name)
    started = []

    def start(*words: str) -> Served:
        started.append(Served(tmp_path, words))
        return started[-1]

    yield start
    for served in started:
        served.stop()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "No Chromium. `make test-browser` installs it."
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser):
    """Open the address of a page; the test fails if the page breaks its policy or throws."""
    contexts, problems = [], []

    def open_page(address: str, route: str = "", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None,
        )
        page.goto(address)
        page.get_by_role("navigation").wait_for()
        if route:
            page.evaluate("route => { location.hash = route }", route)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
