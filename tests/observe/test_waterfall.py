"""Spans as one HTML page: well-formed, self-contained, and everything from outside is text."""

from html.parser import HTMLParser

import pytest

from toolmason.observe import ATTRIBUTES, SpanRecord, to_html
from toolmason.observe.span_record import MAX_SHOWN

HOSTILE = [
    "<script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "$rows ${title} {0}",
    "a\u202eb\x00\x1b[31m",
    "&lt;b&gt;",
]


class Page(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.text, self.open = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "html"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "html":
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def span(name, parent=None, *, failed=False, start=0, end=1_000_000, **attributes):
    return SpanRecord(name, name, parent, start, end, attributes, "f" * 32, failed=failed)


def test_each_span_is_a_row_that_opens_to_its_attributes():
    page = Page(to_html([span("run"), span("chat", "run", **{"gen_ai.request.model": "m"})], "One run"))

    assert [tag for tag, _ in page.elements].count("details") == 2
    assert {"One run", "run", "chat", "gen_ai.request.model", "m"} <= set(page.text)
    assert {"title": ATTRIBUTES["gen_ai.request.model"].meaning} in [attributes for _, attributes in page.elements]
    assert page.open == []


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_stays_text(text):
    plain = Page(to_html([span("a", x="b")], "title"))

    page = Page(to_html([span(text, failed=True, **{text: text, "error.type": text})], text))

    extra = [(tag, sorted(attributes)) for tag, attributes in page.elements]
    known = [(tag, sorted(attributes)) for tag, attributes in plain.elements]
    assert {tag for tag, _ in extra} <= {tag for tag, _ in known}
    assert not [name for _, names in extra for name in names if name.startswith("on") or name in ("src", "href")]
    assert not {"\u202e", "\x00", "\x1b"} & set("".join(page.text))


def test_a_page_loads_nothing_and_runs_nothing():
    html = to_html([span("run")])

    assert "default-src 'none'" in html
    assert not [tag for tag, _ in Page(html).elements if tag in ("script", "link", "img", "iframe")]
    assert "http" not in html.replace("http-equiv", "")


def test_bars_stand_in_their_place_and_failures_are_marked():
    page = Page(to_html([span("run", end=200), span("tool", "run", start=50, end=150, failed=True)]))

    bars = [attributes for tag, attributes in page.elements if tag == "i"]
    assert bars[1] == {"class": "bar failed", "style": "left:25.000%;width:50.000%"}
    assert "2 spans in 0.0 ms, 1 failed" in page.text


def test_no_spans_and_too_many_spans_make_a_page():
    assert "0 spans in 0.0 ms, 0 failed" in Page(to_html([])).text

    many = Page(to_html([span(f"s{number}") for number in range(MAX_SHOWN + 1)]))
    assert any("1 more are not shown" in text for text in many.text)
