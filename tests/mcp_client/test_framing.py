"""Lines → messages: a key that stands twice is found, however it is written."""

import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from toolmason.mcp_client.transport.framing import UnreadableMessage, has_duplicate_key, parse_json

SPACE = st.sampled_from(["", " ", "\t", "\n", "\r", "  "])
STRINGS = st.sampled_from(["", "a", "b", "a:", '"a":', "\\", ":::", "ä", "\x7f", "\u2028"])


@st.composite
def strings(draw: st.DrawFn) -> str:
    """A string as JSON, plain, with escapes that need not be, or with all of them."""
    text = draw(STRINGS)
    way = draw(st.sampled_from(["plain", "ascii", "escaped"]))
    if way == "escaped":
        return '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'
    return json.dumps(text, ensure_ascii=way == "ascii")


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """A JSON text, with or without keys that stand twice."""
    kind = draw(st.sampled_from(["string", "number", "list", "object", "object"])) if depth else "string"
    if kind == "string":
        return draw(strings())
    if kind == "number":
        return draw(st.sampled_from(["0", "-1.5e3", "12345678901234567890123", "true", "null"]))
    space = draw(SPACE)
    inner = draw(st.lists(texts(depth - 1), max_size=3))
    if kind == "list":
        return f"[{space}{f'{space},{space}'.join(inner)}]"
    return "{" + ",".join(f"{space}{draw(strings())}{draw(SPACE)}:{draw(SPACE)}{part}" for part in inner) + space + "}"


def has_one_twice(text: str) -> bool:
    """Say the same by reading every pair."""
    found = False

    def look(pairs: list[tuple[str, object]]) -> None:
        nonlocal found
        found = found or len({key for key, _ in pairs}) != len(pairs)

    json.loads(text, object_pairs_hook=look)
    return found


@given(texts())
def test_a_key_that_stands_twice_is_found_however_it_is_written(text):
    assert has_duplicate_key(text.encode(), from_json(text)) == has_one_twice(text)


def test_a_space_before_a_colon_hides_no_key():
    text = b'{"a":1,"a":2,"b" :3}'

    assert has_duplicate_key(text, from_json(text))


def test_an_escape_in_a_value_makes_up_for_no_key():
    text = rb'{"a":1,"a":2,"b":"\u003a"}'

    assert has_duplicate_key(text, from_json(text))


@given(
    st.sampled_from(["1e999", "-1E+400", "1e0309", "1" * 400 + ".0", "1" * 300 + "e10", "1" * 215 + ".5E+99"]),
    st.sampled_from(["{}", "[0, {}]", '{{"a": {}}}']),
)
def test_a_number_that_becomes_infinite_makes_a_message_unreadable(number, place):
    found = parse_json(f'{{"id": 7, "x": {place.format(number)}}}'.encode())

    assert isinstance(found, UnreadableMessage)
    assert found.id == 7
    text = place.format(f'"{number} Infinity"')
    assert parse_json(f'{{"x": {text}}}'.encode()) == {"x": json.loads(text)}
