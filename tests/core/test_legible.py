"""What a person reads before deciding about a call."""

import pytest

from toolmason._core.toolbox.approvals import format_arguments
from toolmason._text import escape_hidden


def test_short_arguments_are_shown_as_they_are():
    shown = format_arguments({"path": "/srv/é 猫", "n": 1, "deep": {"a": [True, None, 1.5]}})

    assert shown == '{"path": "/srv/é 猫", "n": 1, "deep": {"a": [true, null, 1.5]}}'


def test_a_long_value_says_so_and_hides_no_other():
    shown = format_arguments({"note": "n" * 3000, "path": "p", "in": {"note": "m" * 3000, "path": "q"}, "x" * 9000: 1})

    assert "2500 of 3000 characters left out" in shown
    assert '"path": "p"' in shown
    assert '"path": "q"' in shown
    assert "8500 of 9000 characters left out" in shown
    assert len(shown) < 3000


def test_both_ends_of_a_long_value_are_shown():
    shown = format_arguments({"path": "begin" + "x" * 3000 + "end"})

    assert shown.startswith('{"path": "begin')
    assert shown.endswith('end"}')


def test_a_long_list_says_how_many_there_are():
    shown = format_arguments({"paths": [str(number) for number in range(1000)], "force": True})

    assert "950 more of 1000 items" in shown
    assert '"force": true' in shown


def test_many_keys_are_cut_at_a_length():
    shown = format_arguments({f"key {number}": number for number in range(100_000)})

    assert '"key 199": 199' in shown
    assert shown.endswith("more characters …]")
    assert len(shown) < 101_000


def test_objects_of_objects_are_cut():
    wide = {f"key {number}": "x" * 400 for number in range(200)}
    shown = format_arguments({f"outer {number}": wide for number in range(200)})

    assert len(shown) < 101_000
    assert shown.endswith("more characters …]")


def test_a_long_number_says_so():
    assert "4500 of 5000 characters left out" in format_arguments({"n": [1] * 2 + ["9" * 5000]})


@pytest.mark.parametrize(
    "hidden",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\u00ad",
        "\x1b",
        "\x9b",
        "\u2028",
        "\u3164",
        "\ufe0f",
        "\U000e0041",
        "\ud800",
        "\u2800",
        "\u00a0",
    ],
)
def test_what_is_not_seen_is_shown_by_its_number(hidden: str):
    shown = format_arguments({f"k{hidden}": f"a{hidden}b"})

    assert hidden not in shown
    assert hidden not in escape_hidden(hidden)
    assert f"{ord(hidden):04x}" in shown.lower()


def test_what_only_looks_like_the_note_stays_inside_its_quotes():
    shown = format_arguments({"a": 'x", "path": "safe'})

    assert shown == '{"a": "x\\", \\"path\\": \\"safe"}'
