"""`.properties` files, in the syntax that Java reads."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolmason._core.config.properties import BadEscape, parse_properties


def read(text: str) -> dict[str, str]:
    return {key: value for _, key, value in parse_properties(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("  a  =  b c  ", {"a": "b c"}),
        ("a : b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a := b", {"a": "= b"}),
        ("a==b", {"a": "=b"}),
        ("url=https://x/?a=1:2", {"url": "https://x/?a=1:2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("", {}),
        ("\n \n\t\n", {}),
        ("# a=b\n! c=d\n  # e=f", {}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\x0by\u2028z\x85", {"a": "x\x0by\u2028z\x85"}),
    ],
    ids=repr,
)
def test_keys_values_and_separators(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\\\n  c", {"a": "bc"}),
        ("a=b \\\n\tc\\\r\n  d", {"a": "b cd"}),
        ("a\\\n=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\\\n# goes on", {"a": "b# goes on"}),
        ("# no\\\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\\n\\\nb", {"a": "b"}),
    ],
    ids=repr,
)
def test_a_line_goes_on_after_a_backslash(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b:c", {"a:b": "c"}),
        ("a\\ b c", {"a b": "c"}),
        ("\\#a=b", {"#a": "b"}),
        ("a=\\t\\n\\r\\f", {"a": "\t\n\r\f"}),
        ("a=\\x\\q\\\\", {"a": "xq\\"}),
        ("a=\\u010Desk\\u00fd", {"a": "český"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=\\  b", {"a": "  b"}),
        ("a=b\\ ", {"a": "b "}),
        ("a=C:\\\\temp", {"a": "C:\\temp"}),
    ],
    ids=repr,
)
def test_escapes(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize("text", ["a=1\nb=\\u12", "a=1\nb=\\uxyz0", "a=1\n\\u=3", "a=1\nb=x\\\n\\u 123"], ids=repr)
def test_an_escape_that_cannot_be_read_is_told_with_the_line_of_its_entry(text):
    with pytest.raises(BadEscape) as caught:
        read(text)

    assert caught.value.line == 2


def test_half_a_character_does_not_get_out():
    assert read("a=\\ud83d")["a"].encode("utf-8")


def escaped(text: str, *, key: bool) -> str:
    out = re.sub(r"([\\=:#!])", r"\\\1", text)
    for letter, name in (("\n", "n"), ("\r", "r"), ("\t", "t"), ("\f", "f")):
        out = out.replace(letter, f"\\{name}")
    return out.replace(" ", "\\ ") if key else re.sub(r"^ | $", r"\\ ", out)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXTS, TEXTS, max_size=5), st.sampled_from(["=", ":", " = ", " : "]), st.sampled_from("\n\r"))
def test_what_is_written_is_what_is_read(values, separator, end):
    text = end.join(f"{escaped(k, key=True)}{separator}{escaped(v, key=False)}" for k, v in values.items())

    assert read(text) == values


@given(st.text(max_size=200) | st.text("\\u=: \n\r#!ab09", max_size=200))
def test_any_text_is_read_or_refused_with_its_line(text):
    lines = []

    try:
        lines += [item.line for item in parse_properties(text)]
    except BadEscape as bad:
        lines.append(bad.line)

    assert all(1 <= line <= text.count("\n") + text.count("\r") + 1 for line in lines)


def test_a_long_file_takes_one_pass():
    text = "a=" + "\\\n" * 50_000 + "b" + "\\" * 99_999 + "\n"

    assert list(read(text)) == ["a"]
