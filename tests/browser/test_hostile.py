"""The page with tools, results and files of an attacker, and with addresses that are not those of the page."""

import json
import re
import shutil

import pytest

from browser.conftest import HERE, Served, expect, send

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page of tools of an attacker, for all tests that do not change it."""
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copy(HERE / "hostile_bundle.py", folder)
    served = Served(folder, ("hostile_bundle.py:box",))
    yield served
    served.stop()


def run(page):
    page.get_by_role("button", name="Run", exact=True).click()
    return page.get_by_role("region", name="Result")


def open_tool(page, name):
    page.evaluate("name => { location.hash = `/tools/${encodeURIComponent(name)}` }", name)
    page.get_by_role("tab", name="Run").wait_for()


def test_markup_in_names_texts_schemas_and_results_is_text(hostile, visit):
    page = visit(hostile.address)

    page.get_by_role("option").filter(has_text="markup").click()
    expect(page.get_by_role("heading", name=re.compile("^markup<img src=x"))).to_be_visible()
    for tab in ("Schema", "Providers", "Copy", "Run"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel").first).to_be_visible()
    open_tool(page, "answers")
    expect(run(page)).to_contain_text("\\u202e\\u200b\\u001b]0;broken\\u0007")

    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.title() != "broken"


def test_a_link_shows_its_address_and_not_the_one_that_its_name_claims(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "links")

    result = run(page)

    expect(result.get_by_role("link")).to_have_text(["https://evil.example/login"])
    assert result.get_by_role("link").get_attribute("rel") == "noopener noreferrer"


def test_thousands_of_hidden_characters_do_not_freeze_the_page(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "hidden")

    result = run(page)

    expect(result).to_contain_text("\\u200b\\u200b")
    expect(page.locator(".description")).to_contain_text("180,000 more characters")
    assert page.locator(".hidden-character").count() < 20


def test_a_schema_that_is_too_large_for_a_form_is_filled_in_as_json(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "many_fields")

    page.get_by_role("button", name="Write the arguments as JSON").click()
    page.get_by_label("Arguments as JSON").fill("{}")

    expect(run(page)).to_contain_text("ok")


def test_a_schema_that_refers_to_itself_is_drawn_one_level_at_a_time(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "itself")

    page.get_by_role("button", name="Expand Cycle").click()

    expect(page.get_by_role("button", name="Expand Cycle")).to_have_count(1)
    expect(run(page)).to_contain_text("ok")


def test_a_list_that_wants_many_items_is_drawn_without_them(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "many_items")

    expect(page.get_by_role("button", name="Add an item to a")).to_be_visible()


def test_a_parameter_cannot_change_the_objects_of_the_page(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "prototype")

    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill('{"__proto__": "x", "constructor": "y"}')
    expect(run(page)).to_contain_text("constructor")
    page.get_by_role("button", name="Form").click()

    assert page.evaluate("Object.keys(Object.prototype).concat(Object.prototype.__errors ?? [])") == []


def test_large_integers_keep_their_digits(hostile, visit):
    page = visit(hostile.address)
    open_tool(page, "identify")

    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill('{"number": 9007199254740993}')

    expect(run(page)).to_contain_text("9007199254740993")


def test_a_shared_chat_has_every_result_and_runs_nothing(hostile, visit, tmp_path):
    page = visit(hostile.address, "/chat")
    page.get_by_label("Model").select_option("offline")
    send(page, "answers")
    expect(page.get_by_role("region", name="Facts of the run")).to_contain_text("stop")

    with page.expect_download() as sharing:
        page.get_by_role("button", name="Share as HTML").click()
    shared = tmp_path / "shared.html"
    sharing.value.save_as(shared)
    reader = page.context.new_page()
    reader.goto(shared.as_uri())

    expect(reader.locator(".card .content")).to_contain_text("<script>document.title='broken'</script>")
    expect(reader.locator("script, img, button, input, textarea")).to_have_count(0)
    assert reader.title() == "A chat with tools"
    assert "token" not in shared.read_text("utf-8").replace("Tokens", "")


def test_a_chat_file_of_another_author_cannot_break_the_page_or_ask_for_approval(hostile, visit, tmp_path):
    page = visit(hostile.address, "/chat")
    request = {"id": "x", "tool": "pay", "arguments": {}, "preview": "Harmless", "effects": [], "reason": ""}
    items = [
        None,
        5,
        {"kind": "other"},
        {"kind": "text", "text": {"a": 1}},
        {"kind": "answer"},
        {"kind": "card"},
        {"kind": "card", "id": 1, "name": {}, "args": [], "content": [{"type": "text"}, None, {"type": "image"}]},
        {"kind": "card", "name": "pay", "args": "{}", "state": "waiting", "request": request, "content": "x"},
        {"kind": "text", "text": "The end."},
    ]
    saved = {"format": "toolmason-page-chat", "version": 1, "model": "offline", "messages": [], "items": items}
    (tmp_path / "chat.json").write_text(json.dumps(saved), "utf-8")

    page.get_by_label("Chat to load").set_input_files(tmp_path / "chat.json")

    expect(page.get_by_text("The end.")).to_be_visible()
    expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    expect(page.get_by_text("saved before this call was answered")).to_be_visible()


def test_an_address_that_is_not_one_of_the_page_leaves_the_page_usable(hostile, visit):
    page = visit(hostile.address)

    for route in ("/%", "/tools/%E0%A4%A", "/runs/%", "/nothing", "/tools/..", "/tools/constructor"):
        page.evaluate("route => { location.hash = route }", route)
        page.reload()
        expect(page.get_by_role("navigation")).to_be_visible()


def test_the_address_of_a_new_start_works_in_the_same_tab(serve, visit):
    first = serve("bundle.py:box", "--port", "0")
    port = re.search(r":(\d+)/", first.address)[1]
    page = visit(first.address)
    first.stop()
    second = serve("bundle.py:box", "--port", port)

    page.evaluate("address => { location.href = address }", second.address)

    expect(page.get_by_role("banner")).to_contain_text("bundle.py:box")
    expect(page.locator(".banner.error")).to_have_count(0)
    assert "token" not in page.url


def test_no_request_carries_the_token_in_its_address_or_referer(serve, visit):
    served = serve("bundle.py:box")
    token = served.address.partition("token=")[2]
    seen = []
    page = visit(served.address)
    page.on("request", lambda request: seen.append(request.url + json.dumps(request.headers.get("referer", ""))))

    open_tool(page, "quote_price")
    page.get_by_label(re.compile("^sku")).fill("TEA-01")
    expect(run(page)).to_contain_text("4.5")

    assert seen
    assert not [each for each in seen if token in each]
    assert token not in served.text.replace(served.address, "")
