"""Phrases that plain technical English does not use, and where they stand in source and docs.

Usage: python tests/house/prose.py [PATH ...]
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

if str(Path(__file__).resolve().parents[1]) not in sys.path:  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from house.source import parse_tree

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "packages", "examples", "benchmarks", "docs")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "VERSIONING.md", "CHANGELOG.md", "AGENTS.md")

_VERB = "(?:is|are|was|were|has|have|does|do|can|may|would|said|says|gives|wants|needs)"
BANNED: dict[str, str] = {
    r"\bwho(?:so)?m?ever\b|\bwhom\b": "name the actor: the caller, the client, the server",
    r"\b(?:some|no|any|every)body\b": "name the actor",
    r"\banew\b": "again, or a new …",
    r"\bof (?:ours|theirs|its own accord)\b|\bours\b|\btheirs\b|\bourselves\b": "name the owner",
    r"\b(?:is|are|was|were|be|been|being|gets?) told\b": "reported, raised, described, passed",
    r"\btold (?:apart|of|about|as|by|with|where|what|so|that|to)\b": "distinguish, describe, report",
    r"\bwithout a word\b": "silently",
    r"\btells? (?:whether|apart|what|how|where|of|about)\b": "return True if; describe; report",
    rf"\bwhere (?:there|it|that|this|they|none|no|nothing|one|some) {_VERB}\b": "if",
    rf"\bwhere (?:a|an|the) \w+ {_VERB}\b": "if",
    r"\bcall(?:ed|s|ing)? off\b": "cancel",
    r"\bin the midst\b": "within, during",
    r"\bgo(?:es)? over\b|\bwent over\b": "overrides",
    r"\bis no (?!longer\b|more than\b|such\b|need\b|way\b|limit\b|list\b)[a-z]+": "is not a …, or has no …",
    r"\btakes? note\b": "note, record",
    r"\bin vain\b": "without success",
    r"\b(?:came|come|comes) of (?:it|them|this|that)\b": "the outcome",
    r"\bhad back\b|\bgive[ns]? (?:back|away)\b|\bgave (?:back|away)\b|\bgiving (?:back|away)\b": "return, release",
    r"\b(?:is|are|was|were|be|been) said\b|\bsaid so\b": "set, stated, configured",
    r"\bmakes? no sense\b": "is invalid; say what is valid",
    r"\bto the letter\b|\bat hand\b|\bin its turn\b|\bof its kind\b|\bits kin\b": "use a plain phrase",
    r"\bis there already\b|\bare there already\b": "already exists",
    r"\bThere are: ": "Available: …",
    r"\bby itself\b|\bby themselves\b": "alone, automatically, separately",
    r"\bno more\b(?! than)": "no longer",
    r"\bwithout leave\b|\bby leave\b|\bgives? leave\b": "permission",
    r"\ba text\b|\btexts\b": "a string, or text without an article",
    r"\bLives here\b|\bNot here\b": "one sentence per module; the border is in the package's docstring",
    r"\bus\b": "name Toolmason or the component",
    r"\bgets? round\b|\bgot round\b": "bypass",
    r"\blet(?:s|ting)? go\b|\bhand(?:s|ed)? (?:on|over|down)\b": "release, pass",
    r"\b(?:in|other|own|few) words\b": "describe it: text, message, keywords",
    r"\b(?:the )?(?:short|long) way\b": "fast path, full path",
    r"\bits (?:say|saying|telling|doing)\b": "use a plain phrase",
}
"""A pattern that is not plain, and what to write instead."""

RELATIVE = re.compile(r"^(?:What|Who|Whose|Where|How much|How many|How long|How often|Whether) ")
ARROW = re.compile(r"^[^\n]*→")
_COMPILED = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in BANNED.items()]


def findings(paths: Iterable[Path] | None = None) -> Iterator[str]:
    """Yield each place that is not plain, as `file:line: phrase (advice)`."""
    for path in paths or tracked():
        for line, found, advice in _places(path.read_text("utf-8"), path.suffix):
            yield f"{path.relative_to(ROOT)}:{line}: {found!r} ({advice})"


def _places(text: str, suffix: str) -> list[tuple[int, str, str]]:
    """Return the line of each place, its phrase and the advice."""
    pieces = _READERS[suffix](text)
    return [
        (line, found, advice)
        for line, piece, is_docstring in pieces
        for found, advice in _check(piece, is_docstring=is_docstring)
    ]


def tracked() -> list[Path]:
    """Return the files that are checked: source, examples, benchmarks and pages."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS, *PAGES]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    # The tables and templates of the package; those of other folders are data of examples and pages.
    checked = [name for name in names if name.endswith((".py", ".md")) or re.fullmatch(r"src/.*\.(?:json|txt)", name)]
    # The licences of libraries are sentences of others.
    return [ROOT / name for name in checked if (ROOT / name).is_file() and not name.endswith("/licenses.md")]


def _check(text: str, *, is_docstring: bool) -> Iterator[tuple[str, str]]:
    flat = " ".join(text.split())
    for pattern, advice in _COMPILED:
        yield from ((match.group(), advice) for match in pattern.finditer(flat))
    if is_docstring and (match := RELATIVE.match(text.strip())):
        yield match.group() + "…", "start with a noun or an imperative verb, not with a relative clause"
    if is_docstring and ARROW.match(text.strip()):
        yield "→", "write a sentence"


def _python(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield docstrings, comments and strings that read as sentences."""
    tree = parse_tree(text)
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docstrings.add(id(statement.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_docstring = id(node) in docstrings
            if is_docstring or node.value.count(" ") > 1:
                yield node.lineno, node.value, is_docstring
    yield from _comments(text)


def _comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the comments; lines that follow each other are one piece."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and block:
            yield start, " ".join(block), False
            block = []
        if not block:
            start = token.start[0]
        block.append(token.string.lstrip("# "))
        last = token.start[0]
    if block:
        yield start, " ".join(block), False


def _markdown(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines outside of code blocks; a paragraph is one piece."""
    fenced, paragraph, start = False, [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced or not line.strip() or line.lstrip().startswith("```"):
            if paragraph:
                yield start, " ".join(paragraph), False
            paragraph = []
            continue
        if not paragraph:
            start = number
        paragraph.append(line)


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines of a table or a template."""
    yield from ((number, line, False) for number, line in enumerate(text.splitlines(), 1))


_READERS = {".py": _python, ".md": _markdown, ".json": _lines, ".txt": _lines}


def main() -> int:
    """Print the places in the files or folders that are named, or in all."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    paths = [path for path in tracked() if not named or any(path == one or one in path.parents for one in named)]
    found = list(findings(paths))
    print(*found, sep="\n")
    print(len(found), "places")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
