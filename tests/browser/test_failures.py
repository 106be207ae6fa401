"""What the page shows if a program ends in the middle of a call."""

import os
import re
import signal
import time

import pytest

from browser.conftest import expect, send

pytestmark = pytest.mark.browser


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} was not written"
        time.sleep(0.02)
    return path.read_text("utf-8")


def read_pid(served):
    return int((served.folder / "server.pid").read_text("utf-8"))


def test_a_server_that_is_killed_inside_a_call_is_reported_and_used_again(serve, visit):
    served = serve("bundle.py:served")
    page = visit(served.address, "/tools/lend")
    server, result = page.get_by_role("article", name="Server library"), page.get_by_role("region", name="Result")

    page.get_by_label(re.compile("^title")).fill("Emma")
    page.get_by_role("button", name="Run", exact=True).click()
    assert wait_for(served.folder / "lending") == "Emma"
    killed = read_pid(served)
    os.kill(killed, signal.SIGKILL)
    expect(result).to_contain_text("remote_error")
    expect(result).to_contain_text("Server 'library', call: the connection was closed")

    page.get_by_role("link", name="Servers").click()
    expect(server.locator("header")).to_contain_text("up")
    expect(server).to_contain_text("Last error")
    expect(server).to_contain_text("the connection was closed")

    (served.folder / "go").touch()
    page.evaluate("location.hash = '/tools/lend'")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(result).to_contain_text("Emma is lent.")
    assert read_pid(served) != killed


def test_a_server_that_cannot_start_again_after_a_kill_inside_a_call_is_down(serve, visit):
    served = serve("bundle.py:served")
    page = visit(served.address, "/tools/lend")
    server, program = page.get_by_role("article", name="Server library"), served.folder / "library_server.py"

    page.get_by_label(re.compile("^title")).fill("Emma")
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(served.folder / "lending")
    program.rename(served.folder / "gone.py")
    os.kill(read_pid(served), signal.SIGKILL)
    expect(page.get_by_role("region", name="Result")).to_contain_text("remote_error")
    page.get_by_role("link", name="Servers").click()
    expect(server.locator("header")).to_contain_text("down")
    expect(server.get_by_role("alert").first).to_contain_text("library_server.py")

    (served.folder / "gone.py").rename(program)
    (served.folder / "go").touch()
    page.get_by_role("button", name="Reconnect all").click()
    expect(server.locator("header")).to_contain_text("up")
    page.evaluate("location.hash = '/tools/lend'")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Result")).to_contain_text("Emma is lent.")


def kill_in_a_payment(serve, visit):
    """Start a chat that pays, end the page's process inside the call, and return the page of another start."""
    first = serve("bundle.py:bank", "--durable")
    page = visit(first.address, "/chat")
    page.get_by_label("Model").select_option("offline")
    send(page, "pay a bill to 'Anna'")
    wait_for(first.folder / "payments")
    first.kill()
    (first.folder / "go").touch()
    page = visit(serve("bundle.py:bank", "--durable").address, "/runs")
    page.get_by_role("link", name=re.compile("pay a bill")).click()
    expect(page.locator(".run-list .badge").first).to_have_text("interrupted")
    return page, first.folder / "payments"


def resume(page):
    page.locator(".resume").get_by_label("Model").select_option("offline")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".run-list .badge").first).to_have_text("stop")


def test_an_interrupted_call_is_repeated_if_the_reader_says_that_it_did_not_run(serve, visit):
    page, payments = kill_in_a_payment(serve, visit)
    call = page.get_by_role("region", name="Interrupted call of pay")
    expect(call).to_contain_text("Anna")

    call.get_by_role("button", name="It did not run: repeat it").click()
    expect(call).to_have_count(0)
    resume(page)

    assert payments.read_text("utf-8") == "Anna\nAnna\n"
    expect(page.get_by_role("region", name="Answer")).to_contain_text("Paid Anna.")


def test_an_interrupted_call_gets_the_result_that_the_reader_knows(serve, visit):
    page, payments = kill_in_a_payment(serve, visit)
    call = page.get_by_role("region", name="Interrupted call of pay")

    call.get_by_label("Result").fill("Paid, says the bank.")
    call.get_by_role("button", name="It ran, with this result").click()
    resume(page)

    assert payments.read_text("utf-8") == "Anna\n"
    expect(page.get_by_role("region", name="Answer")).to_contain_text("Paid, says the bank.")


def test_an_interrupted_call_without_an_answer_is_not_repeated(serve, visit):
    page, payments = kill_in_a_payment(serve, visit)

    resume(page)

    assert payments.read_text("utf-8") == "Anna\n"
    expect(page.locator(".card").first).to_contain_text("unknown_outcome")
