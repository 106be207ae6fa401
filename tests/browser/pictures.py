"""Draw every screen of the page in light, dark and phone width, and the pictures of the docs.

Usage: python tests/browser/pictures.py FOLDER [FOLDER_OF_DOCS]
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from conftest import HERE, Served

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1200, "height": 760}},
    "dark": {"viewport": {"width": 1200, "height": 760}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}
DOCS = {"page-run": ("run", "light"), "page-chat": ("approval", "light"), "page-servers": ("servers", "dark")}
"""Pictures of the docs, each with its screen and look."""


def show_tools(page: Page) -> None:
    page.locator("#tool-list [role=option]").first.wait_for()


def show_run(page: Page) -> None:
    page.evaluate("location.hash = '/tools/quote_price'")
    page.get_by_label(re.compile("^sku")).fill("TEA-01")
    page.get_by_label(re.compile("^quantity")).fill("3")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("region", name="Result").wait_for()


def show_form(page: Page) -> None:
    page.evaluate("location.hash = '/tools/place_order'")
    page.get_by_role("button", name="Add an item to lines").click()
    page.locator(".has-error").first.wait_for()


def show_label(page: Page) -> None:
    page.evaluate("location.hash = '/tools/label'")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("region", name="Result").locator("img").scroll_into_view_if_needed()


def show_providers(page: Page) -> None:
    page.evaluate("location.hash = '/tools/place_order'")
    page.get_by_role("tab", name="Providers").click()


def show_schema(page: Page) -> None:
    page.evaluate("location.hash = '/tools/place_order'")
    page.get_by_role("tab", name="Schema").click()
    page.get_by_text("properties", exact=True).first.click()


def show_copy(page: Page) -> None:
    show_run(page)
    page.get_by_role("tab", name="Copy").click()
    page.get_by_role("tab", name="curl").click()


def show_json(page: Page) -> None:
    page.evaluate("location.hash = '/tools/quote_price'")
    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill('{"sku": "TEA-01", "quantity": "2"}')
    page.get_by_text("Valid after repairs.").wait_for()


def show_history(page: Page) -> None:
    show_run(page)
    page.get_by_label(re.compile("^sku")).fill("NO-1")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("History (2)").click()
    for number in (1, 2):
        page.get_by_label(f"Compare call {number}").check()
    page.get_by_label("Difference of the two calls").scroll_into_view_if_needed()


def show_files(page: Page) -> None:
    page.evaluate("location.hash = '/tools/measure'")
    page.get_by_label(re.compile("^data")).fill("some text")


def show_hostile(page: Page) -> None:
    page.evaluate("location.hash = '/tools/strange'")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("region", name="Result").wait_for()


def show_interrupted(page: Page) -> None:
    page.evaluate("location.hash = '/runs'")
    page.locator(".run-list a").last.click()
    page.get_by_role("region", name="Interrupted call of pay").wait_for()


def show_no_tool(page: Page) -> None:
    page.evaluate("location.hash = '/tools/nothing'")
    page.get_by_role("alert").wait_for()


def send(page: Page, text: str) -> None:
    page.get_by_label("Model").first.select_option("offline")
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def show_approval(page: Page) -> None:
    page.evaluate("location.hash = '/chat'")
    send(page, "quote price of the sku 'TEA-01'")
    page.get_by_role("region", name="Facts of the run").get_by_text("stop").wait_for()
    send(page, "cancel order with the order 'A-7'")
    page.get_by_role("region", name="Approval of cancel_order").wait_for()


def show_chat(page: Page) -> None:
    page.evaluate("location.hash = '/chat'")
    send(page, "quote price of the sku 'TEA-01'")
    page.get_by_role("region", name="Facts of the run").get_by_text("stop").wait_for()
    page.locator(".card summary").first.click()
    page.locator(".card .content").first.wait_for()


def show_runs(page: Page) -> None:
    show_chat(page)
    page.evaluate("location.hash = '/runs'")
    page.locator(".run-list a").first.click()
    page.get_by_role("region", name="Steps of the run").wait_for()


def show_servers(page: Page) -> None:
    page.evaluate("location.hash = '/servers'")
    page.get_by_role("button", name="Compare with the lock file").click()
    page.get_by_role("region", name="Changed definitions").wait_for()


SCREENS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "tools": ("served", show_tools),
    "run": ("served", show_run),
    "form": ("served", show_form),
    "label": ("served", show_label),
    "providers": ("served", show_providers),
    "schema": ("served", show_schema),
    "copy": ("served", show_copy),
    "json": ("served", show_json),
    "history": ("served", show_history),
    "hostile": ("served", show_hostile),
    "no-tool": ("served", show_no_tool),
    "approval": ("served", show_approval),
    "chat": ("served", show_chat),
    "runs": ("served", show_runs),
    "servers": ("pinned", show_servers),
    "files": ("files", show_files),
    "interrupted": ("bank", show_interrupted),
}


def draw(browser: Browser, served: Served, target: str, folder: Path) -> None:
    for name, (wanted, prepare) in SCREENS.items():
        if wanted != target:
            continue
        for look, options in LOOKS.items():
            page = browser.new_page(**options)
            page.set_default_timeout(30_000)
            page.goto(served.address)
            page.get_by_role("navigation").wait_for()
            prepare(page)
            page.wait_for_timeout(300)
            page.screenshot(path=folder / f"{name}-{look}.png")
            page.close()


def lock_another_text(folder: Path) -> None:
    """Write a lock file with other definitions, so that the server differs from it."""
    sys.path.insert(0, str(folder))
    from bundle import make_server

    from toolmason._core.run.blocking import run_blocking
    from toolmason.build.compare.lock_file import Lock, approve, write
    from toolmason.mcp_client.lists.pins import fetch_listings

    (folder / "definitions.json").write_text(json.dumps({"look_up": "Look up a word."}), "utf-8")
    found = run_blocking(fetch_listings(make_server()))
    write(approve(Lock(), found, server="library"), folder / "toolmason.lock")
    (folder / "definitions.json").unlink()


def interrupt_a_payment(browser: Browser, place: Path) -> None:
    """Kill the page inside a call, so that its run is interrupted."""
    served = Served(place, ("bundle.py:bank", "--durable", "bank.db"))
    page = browser.new_page()
    page.goto(served.address)
    page.evaluate("location.hash = '/chat'")
    send(page, "pay a bill to 'Anna'")
    while not (place / "payments").exists():
        page.wait_for_timeout(50)
    served.kill()
    served.stop()
    page.close()


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    docs = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        place = Path(name)
        for file in ("bundle.py", "library_server.py"):
            shutil.copy(HERE / file, place / file)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for target in ("served", "pinned", "files", "bank"):
            if target == "pinned":
                os.chdir(place)
                lock_another_text(place)
            if target == "bank":
                interrupt_a_payment(browser, place)
            served = Served(place, (f"bundle.py:{target}", "--durable", "bank.db" if target == "bank" else "runs.db"))
            try:
                draw(browser, served, target, folder)
            finally:
                served.stop()
        browser.close()
    for picture, (screen, look) in DOCS.items() if docs else ():
        shutil.copy(folder / f"{screen}-{look}.png", docs / f"{picture}.png")
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder.name}")


if __name__ == "__main__":
    main()
