"""Find places of the source that repeat each other: six lines or more, equal but for names, texts and numbers."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from house.source import parse_tree

LEAST = 6
COMMON = 8
"""A run that stands in more places than this is an idiom of the language."""


def duplicate_pairs(folder: Path) -> list[str]:
    """Return the pairs of places that share a run of lines, as `a.py:10 ~ b.py:40`, one for each two files."""
    shapes = {path: list(_shapes(path)) for path in sorted(folder.rglob("*.py"))}
    runs: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, shaped in shapes.items():
        for start in range(len(shaped) - LEAST + 1):
            run = tuple(shape for shape, _ in shaped[start : start + LEAST])
            if not _is_thin(run):
                runs[run].append((path, start))
    found: dict[tuple[Path, Path], str] = {}
    for places in runs.values():
        if not 1 < len(places) <= COMMON:
            continue
        for number, (path, start) in enumerate(places):
            for other, second in places[number + 1 :]:
                if path == other and abs(second - start) < LEAST:
                    continue
                one, two = (f"{p.relative_to(folder)}:{shapes[p][at][1]}" for p, at in ((path, start), (other, second)))
                found.setdefault((path, other), f"{one} ~ {two}")
    return sorted(found.values())


def _import_lines(source: str) -> set[int]:
    """Return the numbers of the lines that import, with those of an import in brackets."""
    nodes = (node for node in ast.walk(parse_tree(source)) if isinstance(node, ast.Import | ast.ImportFrom))
    return {number for node in nodes for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _shapes(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each line of code with its number; names, texts and numbers are replaced by one mark."""
    lines: dict[int, list[str]] = defaultdict(list)
    source = path.read_text("utf-8")
    imports = _import_lines(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            continue
        if token.start[0] in imports:
            continue
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            lines[token.start[0]].append("n")
        elif token.type == tokenize.STRING:
            if token.string.startswith(('"""', 'r"""')):
                continue
            lines[token.start[0]].append("s")
        elif token.type == tokenize.NUMBER:
            lines[token.start[0]].append("1")
        else:
            lines[token.start[0]].append(token.string)
    for number in sorted(lines):
        shape = " ".join(lines[number])
        if shape and not re.match(r"[\W]*$|s : s ,$", shape):  # brackets, tables of texts
            yield shape, number


def _is_thin(run: tuple[str, ...]) -> bool:
    """Return True if most lines of a run are too short to be a repetition: a lone name, a return."""
    return sum(len(shape.split()) >= 4 for shape in run) < LEAST // 2
