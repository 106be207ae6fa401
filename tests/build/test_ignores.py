"""Ignore comments: what they hide, where they count, and which of them are told as unused."""

import pytest

HEAD = "from typing import Annotated\nfrom toolmason import *\n"


@pytest.mark.parametrize(
    "source",
    [
        "@tool\ndef act(x): 'Do.'  # toolmason: ignore[TM103]\n",
        "@tool\ndef act(x): 'Do.'  # toolmason: ignore\n",
        "@tool\ndef act(x): 'Do.'  # toolmason:ignore[tm103]\n",
        "@tool\ndef act(x): 'Do.'  # noqa: X  # toolmason: ignore[TM103]\n",
        "@tool\ndef act(x, y: int): 'Do.'  # toolmason: ignore[TM101, TM103]\n",
        "@tool\ndef act(  # toolmason: ignore[TM103]\n    x,\n): 'Do.'\n",
        "@tool\ndef act(\n    x,  # toolmason: ignore[TM103]\n): 'Do.'\n",
        "@tool\ndef act(\n    a: Annotated[int, 'One'],\n    x,  # toolmason: ignore[ TM103 ]\n): 'Do.'\n",
        "@tool(lock='no')  # toolmason: ignore[TM113]\ndef act(): 'Do.'\n",
        "@tool(lock='no')\ndef act(): 'Do.'  # toolmason: ignore[TM113]\n",
    ],
)
def test_a_comment_on_the_line_or_on_the_def_hides_a_finding(folder, source):
    assert folder.codes(HEAD + source, strict=True) == []


@pytest.mark.parametrize(
    "source",
    [
        "@tool\ndef act(x): 'Do.'  # toolmason: ignore[TM101]\n",
        "# toolmason: ignore[TM103]\n@tool\ndef act(x): 'Do.'\n",
        "@tool\ndef act(x): 'Do.'  # toolmason: ignored\n".replace("ignored", "skip"),
        "@tool\ndef act(x): '# toolmason: ignore[TM103]'\n",
        "@tool\ndef act(x): 'Do.'  # type: ignore[TM103]\n",
        "@tool\ndef act(x): 'Do.'  # toolmason: ignore[]\n",
    ],
)
def test_other_comments_and_texts_hide_nothing(folder, source):
    assert folder.codes(HEAD + source) == ["TM103"]


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("ignore[TM103]", "unused ignore: TM103 is not reported here"),
        ("ignore[TM103,TM101]", "unused ignore: TM101 is not reported here; TM103 is not reported here"),
        ("ignore", "unused ignore: it hides nothing"),
        ("ignore[]", "unused ignore: it names no code"),
        ("ignore[TM999]", "unused ignore: unknown rule TM999"),
        ("ignore[E501]", "unused ignore: unknown rule E501"),
    ],
)
def test_an_unused_comment_is_a_warning_of_a_strict_check(folder, comment, message):
    folder.write({"app.py": f"{HEAD}@tool\ndef act(): 'Do.'  # toolmason: {comment}\n"})

    [found] = folder.check("app.py", strict=True).findings

    assert (found.code, found.severity, found.message) == ("TM199", "warning", message)
    assert (found.location.line, found.location.column) == (4, 19)
    assert folder.check("app.py").findings == ()


def test_a_code_that_is_not_looked_for_is_not_told_as_unused(folder):
    source = f"{HEAD}@tool\ndef act(x): 'Do.'  # toolmason: ignore[TM103]\n"

    assert folder.codes(source, strict=True, ignore=frozenset({"TM103"})) == []
    assert folder.codes(source.replace("TM103", "TM204").replace("(x)", "()"), strict=True) == []


def test_a_syntax_error_can_not_be_ignored_by_a_comment_in_a_file_that_is_not_read(folder):
    assert folder.codes("def f(:  # toolmason: ignore\n") == ["TM100"]
