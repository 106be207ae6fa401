"""Every error text that the source can raise has a heading in the troubleshooting page, and every heading a text.

A text is told by its stable beginning: the words as they stand in the source, with `…` for each value.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from house.source import PACKAGE, ROOT, parse_tree, read_package
from toolmason import errors

PAGE = ROOT / "docs" / "troubleshooting.md"
VALUE = "…"
FEWEST_LETTERS = 6
"""A heading with fewer says nothing that a reader could search for."""

BUILT_IN = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)}
OTHERS = {
    "FrozenInstanceError",
    "OAuthFlowError",
    "ServerFailure",
    "SystemExit",
    "UnreadableBody",
    "UnusablePart",
    "UsageError",
}
OURS = set(errors.__all__)
RAISED = OURS | BUILT_IN | OTHERS
"""Calls of these build an error, or a part of one."""
PARTS = {
    "ArgumentProblem": 1,
    "ErrorResponse": 1,
    "LimitExceeded": 1,
    "_fail": 2,
    "_make_unauthorized": 0,
    "fail": 0,
    "refuse": 1,
    "reject": 2,
}
"""What says more than one thing, and which of its arguments tells what is wrong."""
LOGGED = {"_log.warning", "_log.error", "CALL_LOG.warning"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Found(NamedTuple):
    """An error text and where it is written."""

    place: str
    text: str


def template(node: ast.expr) -> str | None:
    """Return a text as it is written, with a mark for each value; nothing where it is not a text."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%[\d.]*[a-z]", VALUE, node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = template(node.left)
        return None if left is None else left + VALUE
    return None


def texts_of(tree: ast.Module, name: str = "source") -> Iterator[Found]:
    """Yield the texts of every error that a module builds, raises or logs."""
    around = {id(node): function for function in _all(tree, Function) for node in ast.walk(function)}
    ours = [kind for kind in _all(tree, ast.ClassDef) if {ast.unparse(base) for base in kind.bases} & OURS]
    inside = {id(node) for kind in ours for node in ast.walk(kind)}
    for call in _all(tree, ast.Call):
        for argument in _words_of(call, of_ours=id(call) in inside):
            meant = _assigned(around.get(id(call)), argument.id) if isinstance(argument, ast.Name) else [argument]
            texts = {text for text in map(template, meant) if text and _letters(text) >= FEWEST_LETTERS}
            yield from (Found(f"{name}:{call.lineno}", text) for text in sorted(texts) if " " in text)
    # A reply names the limit that ended its run.
    for node in _all(tree, ast.Constant | ast.JoinedStr):
        text = template(node)
        if text is not None and re.match(r"(cost )?limit of", text) and len(text) > len("limit of "):
            yield Found(f"{name}:{node.lineno}", text.replace("{}", VALUE))


def _all(tree: ast.AST, kind: Any) -> list[Any]:
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def _words_of(call: ast.Call, *, of_ours: bool) -> list[ast.expr]:
    """Return the arguments of a call that are the words of an error."""
    called = _name_of(call.func)
    last = called.rpartition(".")[2]
    if last in PARTS:
        return call.args[PARTS[last] : PARTS[last] + 1]
    is_own_message = of_ours and called == "super().__init__"
    return call.args if is_own_message or last in RAISED or called in LOGGED else []


def _name_of(node: ast.expr) -> str:
    """Return the source of a name, as `ast.unparse` does; most are a name or two, for which that is slow."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ast.unparse(node)


def _assigned(function: ast.AST | None, name: str) -> list[ast.expr]:
    """Return everything that a name is set to in a function."""
    sets = _all(function, ast.Assign) if function else []
    return [node.value for node in sets if any(isinstance(to, ast.Name) and to.id == name for to in node.targets)]


def _letters(text: str) -> int:
    return sum(letter.isalpha() for letter in text)


def headings_of(page: str) -> list[str]:
    """Return the error texts that a page has headings for."""
    return re.findall(r"^#{2,4} `+ ?(.*?) ?`+$", page, re.MULTILINE)


def is_told_by(text: str, heading: str) -> bool:
    """Tell whether a heading is the beginning of a text."""
    return text.startswith(heading.rstrip(VALUE)) and _letters(heading) >= FEWEST_LETTERS


@pytest.fixture(scope="module")
def texts():
    modules = {
        **read_package(PACKAGE),
        **read_package(ROOT / "packages" / "toolmason-local" / "src" / "toolmason_local"),
    }
    return [found for module in modules.values() for found in texts_of(module.tree, module.name)]


@pytest.fixture(scope="module")
def headings():
    return headings_of(PAGE.read_text("utf-8"))


def test_there_are_texts_and_headings(texts, headings):
    assert len(texts) > 50
    assert len(headings) > 50


def test_every_error_text_has_a_heading(texts, headings):
    assert [found for found in texts if not any(is_told_by(found.text, heading) for heading in headings)] == []


def test_every_heading_is_an_error_text(texts, headings):
    assert [heading for heading in headings if not any(is_told_by(found.text, heading) for found in texts)] == []


def test_no_heading_stands_twice(headings):
    assert sorted(headings) == sorted(set(headings))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param('raise ConfigError("there is no file")', "there is no file", id="plain"),
        pytest.param('raise ConfigError(f"{a!r}: no file {b}.")', "…: no file ….", id="values"),
        pytest.param('raise errors.ConfigError("there is " "no file")', "there is no file", id="two parts"),
        pytest.param('return ResultError(tool, f"it is {a}, not sent")', "it is …, not sent", id="second argument"),
        pytest.param('raise click.UsageError("there is no file")', "there is no file", id="of another package"),
        pytest.param('def f():\n    m = f"no file {a}"\n    _fail(t, "$", m, "b")', "no file …", id="by a name"),
        pytest.param(
            'class A(ToolCallError):\n    def __init__(self):\n        super().__init__("there is no file")',
            "there is no file",
            id="in a class",
        ),
        pytest.param('ArgumentProblem("$.a", f"no file {a}", "a file name")', "no file …", id="one problem"),
        pytest.param('ErrorResponse(404, f"no file {a}")', "no file …", id="answered over HTTP"),
        pytest.param('fail(f"no file {a}", NOT_FOUND)', "no file …", id="printed by a command"),
        pytest.param('_log.warning("dropped %s after %d", a, b)', "dropped … after …", id="logged"),
    ],
)
def test_an_error_text_is_found(source, text):
    assert [found.text for found in texts_of(parse_tree(source))] == [text]


def test_what_is_no_error_is_not_found():
    assert list(texts_of(parse_tree('print("there is no file")\nraise ValueError(name)'))) == []


@pytest.mark.parametrize(
    ("heading", "told"),
    [
        pytest.param("…: there is no file", True, id="beginning"),
        pytest.param("…: there is no file ….", True, id="whole"),
        pytest.param("…: there is no folder", False, id="other words"),
        pytest.param("there is no file", False, id="from the middle"),
        pytest.param("…: t", False, id="says nothing"),
    ],
)
def test_a_heading_tells_a_text_by_its_beginning(heading, told):
    assert is_told_by("…: there is no file ….", heading) is told


def test_headings_are_read_off_a_page():
    assert headings_of("# Title\n\n## Part\n\n### `no file …`\n\ntext\n\n### `` a `b` … ``\n") == [
        "no file …",
        "a `b` …",
    ]
