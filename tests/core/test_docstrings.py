from dataclasses import FrozenInstanceError
from pickle import dumps, loads

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolmason._core.define.docstrings import Docstring, parse_docstring

GOOGLE = """Move a file.

    It must exist.

    Args:
        source (str): Where it is.
        target: Where it goes,
            with its name.

    Returns:
        The new path.
    """
NUMPY = """Move a file.

    It must exist.

    Parameters
    ----------
    source : str
        Where it is.
    target : str, optional
        Where it goes,
        with its name.

    Returns
    -------
    str
        The new path.
    """
SPHINX = """Move a file.

    It must exist.

    :param source: Where it is.
    :type source: str
    :param str target: Where it goes,
        with its name.
    :returns: The new path.
    """


@pytest.mark.parametrize(
    ("doc", "returns"),
    [
        pytest.param(GOOGLE, "Returns:\n    The new path.", id="google"),
        pytest.param(NUMPY, "Returns\n-------\nstr\n    The new path.", id="numpy"),
        pytest.param(SPHINX, ":returns: The new path.", id="sphinx"),
    ],
)
def test_each_style_is_split_the_same_way(doc: str, returns: str):
    found = parse_docstring(doc)

    assert found.parameters == {"source": "Where it is.", "target": "Where it goes, with its name."}
    assert found.text == f"Move a file.\n\nIt must exist.\n\n{returns}"


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        pytest.param(None, "", id="none"),
        pytest.param("", "", id="empty"),
        pytest.param(" \n\t\n ", "", id="blank"),
        pytest.param("  One line.  ", "One line.", id="one-line"),
        pytest.param("One.\n\n    Two.\n      Three.\n    ", "One.\n\nTwo.\n  Three.", id="indented"),
        pytest.param("One.\r\n\r\n    Two.\r\n", "One.\n\nTwo.", id="windows-line-ends"),
        pytest.param("\n\n\n    One.\n        Two.", "One.\n    Two.", id="starts-with-blank-lines"),
        pytest.param("Takes two arguments: one and two.", "Takes two arguments: one and two.", id="marker-in-prose"),
    ],
)
def test_a_docstring_without_sections_is_its_own_text(doc: str | None, text: str):
    assert parse_docstring(doc) == Docstring(text, {})


@pytest.mark.parametrize(
    "title",
    ["Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments", "Other Parameters", "args"],
)
def test_every_title_of_a_parameter_section_is_known(title: str):
    assert parse_docstring(f"{title}:\n    x: The x.") == Docstring("", {"x": "The x."})
    assert parse_docstring(f"{title}\n{'-' * len(title)}\nx : int\n    The x.") == Docstring("", {"x": "The x."})


@pytest.mark.parametrize(
    ("entry", "parameters"),
    [
        pytest.param("x: The x.", {"x": "The x."}, id="plain"),
        pytest.param("x (int, optional): The x.", {"x": "The x."}, id="type"),
        pytest.param("x (Callable[[int], str] | None): The x.", {"x": "The x."}, id="brackets"),
        pytest.param("x (dict(str, int)): The x.", {"x": "The x."}, id="nested-parentheses"),
        pytest.param("x (:obj:`list` of :obj:`str`, defaults to 'a'): The x.", {"x": "The x."}, id="roles"),
        pytest.param("x (float, in metres): The x.", {"x": "(float, in metres) The x."}, id="unit-kept"),
        pytest.param("*args: More.", {"args": "More."}, id="star"),
        pytest.param("**options: More.", {"options": "More."}, id="two-stars"),
        pytest.param(r"\*\*options: More.", {"options": "More."}, id="escaped-stars"),
        pytest.param("`x`: The x.", {"x": "The x."}, id="backticks"),
        pytest.param("x, y: A point.", {"x": "A point.", "y": "A point."}, id="two-names"),
        pytest.param("x: See (a): b.", {"x": "See (a): b."}, id="colon-in-the-description"),
        pytest.param("x:", {"x": ""}, id="no-description"),
        pytest.param("größe: The size.", {"größe": "The size."}, id="unicode-name"),
        pytest.param("note: A note.", {"note": "A note."}, id="small-letter-title"),
        pytest.param(":param x: The x.", {"x": "The x."}, id="sphinx-inside"),
    ],
)
def test_a_google_entry_gives_name_and_description(entry: str, parameters: dict[str, str]):
    assert parse_docstring(f"Do.\n\nArgs:\n    {entry}\n    last: The last.") == Docstring(
        "Do.", parameters | {"last": "The last."}
    )


@pytest.mark.parametrize(
    ("entry", "parameters"),
    [
        pytest.param("x : int\n    The x.", {"x": "The x."}, id="type"),
        pytest.param("x : {'a', 'b'}, default: 'a'\n    The x.", {"x": "The x."}, id="choices"),
        pytest.param("x : array_like of shape (n, 2)\n    The x.", {"x": "The x."}, id="shape"),
        pytest.param("x: int\n    The x.", {"x": "The x."}, id="no-space"),
        pytest.param("x\n    The x.", {"x": "The x."}, id="name-alone"),
        pytest.param("x : int", {"x": ""}, id="type-alone"),
        pytest.param("x: the first number", {"x": "the first number"}, id="description-in-place-of-a-type"),
        pytest.param("x, y : float\n    A point.", {"x": "A point.", "y": "A point."}, id="two-names"),
        pytest.param("*args, **options\n    More.", {"args": "More.", "options": "More."}, id="stars"),
        pytest.param("    x : int\n        The x.", {"x": "The x."}, id="indented-under-the-title"),
    ],
)
def test_a_numpy_entry_gives_name_and_description(entry: str, parameters: dict[str, str]):
    assert parse_docstring(f"Do.\n\nParameters\n----------\n{entry}\n\nNotes\n-----\nEnd.") == Docstring(
        "Do.\n\nNotes\n-----\nEnd.", parameters
    )


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        pytest.param(":param x: The x.", {"x": "The x."}, id="plain"),
        pytest.param(":param int x: The x.", {"x": "The x."}, id="type"),
        pytest.param(":param dict[str, int] x: The x.", {"x": "The x."}, id="type-with-a-comma"),
        pytest.param(":keyword x: The x.", {"x": "The x."}, id="keyword"),
        pytest.param(":arg x: The x.", {"x": "The x."}, id="arg"),
        pytest.param(":param \\*args: More.", {"args": "More."}, id="star"),
        pytest.param(":param x:\n    The x.\n\n    And more.", {"x": "The x.\n\nAnd more."}, id="text-below"),
        pytest.param(":type x: int or None\n:param x: The x.", {"x": "The x."}, id="type-first"),
    ],
)
def test_a_sphinx_field_gives_name_and_description(field: str, parameters: dict[str, str]):
    assert parse_docstring(f"Do.\n\n{field}\n") == Docstring("Do.", parameters)


@pytest.mark.parametrize(
    ("body", "description"),
    [
        pytest.param("One\n    two\n    three.", "One two three.", id="paragraph"),
        pytest.param("One.\n\n    Two\n    three.", "One.\n\nTwo three.", id="two-paragraphs"),
        pytest.param("Of\n    - a: one\n      more\n    - b\n    1. c", "Of\n- a: one more\n- b\n1. c", id="list"),
        pytest.param("Modes\n    fast\n      quick\n    slow", "Modes fast\n  quick\nslow", id="deeper-block"),
        pytest.param("Try\n    >>> f(1)\n    2\n\n    Then.", "Try\n>>> f(1)\n2\n\nThen.", id="doctest"),
        pytest.param("Send\n    ```\n    a\n\n    b\n    ```", "Send\n```\na\n\nb\n```", id="fence"),
        pytest.param("One\nand two: on.", "One and two: on.", id="no-hanging-indent"),
    ],
)  # fmt: skip
def test_a_long_description_becomes_a_paragraph_that_keeps_its_structure(body: str, description: str):
    doc = "Args:\n    x: " + body.replace("\n", "\n    ")

    assert parse_docstring(doc) == Docstring("", {"x": description})


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        pytest.param("Do.\n\nArgs:\n    x: X.\n\nCosts:\n    Much.", "Do.\n\nCosts:\n    Much.", id="unknown-section"),
        pytest.param("Do.\n\nArgs:\n    x: X.\nThen rest.", "Do.\n\nThen rest.", id="text-after-google"),
        pytest.param(
            "Do.\n\nParameters\n----------\nx : int\n    X.\n\nThen rest: it is late.",
            "Do.\n\nThen rest: it is late.",
            id="text-after-numpy",
        ),
        pytest.param("Do.\n\n:param x: X.\nThen rest.", "Do.\n\nThen rest.", id="text-after-sphinx"),
        pytest.param(
            "Do.\n\nArgs:\n    x: X.\n    x.y: A part,\n        to keep.",
            "Do.\n\nx.y: A part,\n    to keep.",
            id="odd-google-name",
        ),
        pytest.param(
            "Args:\n    x: X.\n    Note: Mind the gap.\n    :returns: Y.",
            "Note: Mind the gap.\n\n:returns: Y.",
            id="title-inside",
        ),
        pytest.param("Args:\n    All are read.\n\n    x: X.", "All are read.", id="prose-in-a-section"),
        pytest.param("Do.\n\n:param 2x: Odd.\n:param x: X.", "Do.\n\n:param 2x: Odd.", id="odd-sphinx-name"),
        pytest.param(":param x: X.\n:type x: given in metres", ":type x: given in metres", id="prose-as-a-type"),
        pytest.param("Args:\n    x: X.\n    x: Again.", "x: Again.", id="second-entry"),
        pytest.param("Args:\n    x: X.\n\nAttributes:\n    y: Y.", "Attributes:\n    y: Y.", id="attributes"),
    ],
)
def test_what_is_no_parameter_stays_in_the_text(doc: str, text: str):
    assert parse_docstring(doc) == Docstring(text, {"x": "X."})


@pytest.mark.parametrize(
    "doc",
    [
        pytest.param("Do.\n\nArgs:\nx: not indented", id="section-without-indent"),
        pytest.param("Do.\n\nArgs:\n    nothing to say", id="section-without-entries"),
        pytest.param("Do.\n\nParameters\n----------\nNone of them.", id="numpy-without-entries"),
        pytest.param("Do.\n\nExample:\n    def f(x):\n        Args:\n            x: X.", id="docstring-in-an-example"),
        pytest.param("Do.\n\nParameters", id="title-alone"),
    ],
)
def test_what_only_looks_like_a_section_stays_in_the_text(doc: str):
    assert parse_docstring(doc) == Docstring(doc, {})


def test_styles_may_be_mixed_in_one_docstring():
    doc = "Do.\n\nArgs:\n    a: A.\n\n:param b: B.\n\nOther Parameters\n----------------\nc : int\n    C.\n\nEnd."

    assert parse_docstring(doc) == Docstring("Do.\n\nEnd.", {"a": "A.", "b": "B.", "c": "C."})


def test_tabs_and_windows_line_ends_change_nothing():
    doc = "Do.\r\n\r\n\tArgs:\r\n\t\tx (int): The\r\n\t\t\tx.\r\n\t\ty: The y.\r\n"

    assert parse_docstring(doc) == Docstring("Do.", {"x": "The x.", "y": "The y."})


def test_a_docstring_is_frozen_and_crosses_processes():
    found = parse_docstring(GOOGLE)

    with pytest.raises(FrozenInstanceError):
        found.text = ""
    assert loads(dumps(found)) == found


@pytest.mark.parametrize(
    "unit",
    ["\n", " ", "\t", "(", "a, ", "Args:\n", "Args:\n  ", ":param a", ":param x: y\n", "Args:\n  x: y\n", ":param ",
     "x (",
     " Parameters\n ---\n x\n", "- a\n", "Parameters\n---\n", "Args:\n\n", "x : int\n  y\n", "\r", "\f", "\u2028"],
    ids=repr,
)  # fmt: skip
def test_thirty_kilobytes_of_anything_are_read(unit: str):
    """What is quadratic in one of these runs into the time limit of the suite."""
    many = unit * (30_000 // len(unit))

    for doc in (
        many,
        "Args:\n  x: " + many,
        "Args:\n  x: y\n  " + many,
        "Parameters\n---\nx : int\n  " + many,
        ":param " + many,
    ):
        assert isinstance(parse_docstring(doc), Docstring)


WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta", "(see", "below)", "it's", "e.g.", "50%", "größe"])
PROSE = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)
NAMES = st.sampled_from(["a", "b_c", "*args", "**options", "Note", "x-y", "2nd"])
TYPES = st.sampled_from(["int", "str, optional", "list[int] | None"])
LINES = st.one_of(
    PROSE,
    st.just(""),
    st.sampled_from(
        ["Args:", "Parameters", "----------", "Returns:", "Examples", "Other Parameters:", "```", "Custom:"]
    ),
    st.builds("{}: {}".format, NAMES, PROSE),
    st.builds("{} ({}): {}".format, NAMES, TYPES, PROSE),
    st.builds("{} ({}): {}".format, NAMES, PROSE, PROSE),
    st.builds("{} : {}".format, NAMES, TYPES),
    st.builds("{} : {}".format, NAMES, PROSE),
    st.builds(":param {}: {}".format, NAMES, PROSE),
    st.builds(":param {} {}: {}".format, TYPES, NAMES, PROSE),
    st.builds(":type {}: {}".format, NAMES, PROSE),
    st.builds("- {}".format, PROSE),
)
DOCSTRINGS = st.lists(st.tuples(st.sampled_from(["", "    ", "        ", "\t", "  "]), LINES), max_size=20)


@settings(deadline=None)
@given(DOCSTRINGS)
@example([("", "Args:"), ("        ", "a: alpha"), ("    ", "beta"), ("    ", "a: gamma")])
def test_every_word_of_a_docstring_survives(lines: list[tuple[str, str]]):
    doc = "\n".join(indent + line for indent, line in lines)

    found = parse_docstring(doc)

    left = " ".join([found.text, *found.parameters, *found.parameters.values()])
    for word in (
        "alpha",
        "beta",
        "gamma",
        "delta",
        "see",
        "below",
        "it's",
        "e.g.",
        "50%",
        "größe",
        "Note",
        "x-y",
        "2nd",
    ):
        assert (word in doc) == (word in left)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab:(),-=`*\\ \t\r\n") | st.characters(), max_size=200))
def test_no_text_makes_reading_fail(text: str):
    assert isinstance(parse_docstring(f"Args:\n  a: b\n{text}\n:param c: {text}"), Docstring)
