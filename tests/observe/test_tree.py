"""Spans as a tree in a terminal: in order, in proportion, bounded, and without control characters."""

import io

import pytest

from toolmason.observe import SpanRecord, format_tree, print_tree
from toolmason.observe.span_record import MAX_SHOWN, walk_tree

MS = 1_000_000


def span(name, start, end, parent=None, *, failed=False, **attributes):
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return SpanRecord(name, name, parent, start * MS, end * MS, named, "t", failed=failed)


def test_a_tree_shows_the_order_the_duration_and_the_place_in_time():
    spans = [
        span("tool", 50, 75, "run", failed=True, error__type="timeout"),
        span("chat", 0, 50, "run", gen_ai__usage__input_tokens=1200, gen_ai__usage__output_tokens=30),
        span("run", 0, 100),
        span("inner", 60, 70, "tool"),
    ]

    assert format_tree(spans, width=110).splitlines() == [
        f"run          100.0 ms {'█' * 40}",
        f"├─ chat       50.0 ms {'█' * 20}{' ' * 20} 1,200 → 30 tokens",
        f"└─ tool       25.0 ms {' ' * 20}{'█' * 10}{' ' * 10} ✗ timeout",
        f"   └─ inner   10.0 ms {' ' * 24}{'█' * 4}",
    ]


def test_a_span_whose_parent_is_elsewhere_is_a_root():
    assert [row.lasts for row in walk_tree([span("a", 0, 1, "elsewhere"), span("b", 0, 1, "a")])] == [(), (True,)]


def test_parents_that_form_a_ring_do_not_hang():
    assert list(walk_tree([span("a", 0, 1, "b"), span("b", 0, 1, "a")])) == []
    assert format_tree([span("a", 0, 1, "a")]) == "No spans."


def test_no_span_can_control_the_terminal_or_forge_a_line():
    text = format_tree([span("a\x1b[31m\nforged", 0, 1, toolmason__server="x\n\u202ey")])

    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_large_trace_is_bounded():
    spans = [span(f"s{number}", number, number + 1) for number in range(MAX_SHOWN + 10)]

    assert len(format_tree(spans).splitlines()) == MAX_SHOWN


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    spans = [span("x" * 100, 0, 5), span("y", 1, 2, "x" * 100, toolmason__server="z" * 300)]

    assert max(map(len, format_tree(spans, width).splitlines())) <= width


def test_a_file_without_these_characters_gets_others():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    print_tree([span("a", 0, 2), span("b", 1, 2, "a", failed=True)], file=file)

    file.seek(0)
    assert "`- b" in file.read()


def test_it_prints_to_standard_output(capsys):
    print_tree([span("a", 0, 2000)], width=80)

    assert capsys.readouterr().out.startswith("a    2.00 s ")
