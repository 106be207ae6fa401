"""Read a docstring into the text of a tool and the texts of its parameters.

Lives here: the Google, NumPy and Sphinx forms of a parameter section, found line by line.
Not here: types (they come from hints), and which names the function really has: a caller that
does not know a name in `Docstring.parameters` still owes its description to the reader.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import NamedTuple

# Kept as text: `re` compiles each at its first use and remembers it, so that an import does not pay for them.
_SECTION = r"(?i)(?:other |keyword )?(?:args|arguments|params|parameters)\s*:?"
_UNDERLINE = r"\s*(?:-{3,}|={3,})\s*"

# With a capital these are titles of other sections and no parameters, wherever they stand.
_TITLE = r"Attributes|Examples?|Important|Notes?|Raises|References|Returns?|Tip|Todo|Warn(?:ings?|s)|Yields?"

# Possessive, so that a long line without the last colon fails in one pass.
_FIELD = (
    r":(param|parameter|arg|argument|key|keyword|kwarg|kwparam|type|kwtype|paramtype)"
    r"\s++([^:]++):(.*)"
)
_KIND = r"((?:[^()]++|\([^()]*+\))*+)\)\s*+:"

_MARKER = r"(?:[-*+•]|\d{1,3}[.)])\s"
_LITERAL = r">>>|```|\|"

# Where a type may stand some write prose, and prose is kept: only what is surely a type is dropped.
_BETWEEN_TYPES = r"[\s,|()\[\]{}<>]+"
_TYPE = r"""(?x)
    any|array(?:-like)?|bool(?:ean)?|bytes|callable|class|date(?:time)?|dict(?:ionary)?|float|frozenset|function
    |int(?:eger)?|iterable|iterator|keyword-only|list|mapping|ndarray|none|null|number|object|of|optional|or
    |path(?:-like)?|required|sequence|set|shape|str(?:ing)?|time|to|tuple|type|defaults?(?:[=:].*)?|-|[a-z]|\.\.\.
    |[A-Z]\w*|\w*_\w*|\w+(?:\.\w+)+|[-+]?\d[\d.e]*|['"`].*|.*['"`]"""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring, split into what describes the tool and what describes its parameters."""

    text: str
    """All that is not a parameter's entry, in the order of the docstring."""

    parameters: Mapping[str, str]
    """Descriptions by name, in order; empty where the docstring names a parameter and says no more."""


class _Head(NamedTuple):
    names: tuple[str, ...] = ()  # empty: an entry by its shape, whose name cannot be a parameter's
    kind: str = ""
    rest: str = ""
    is_type: bool = False
    spaced: bool = False


class _Entry(NamedTuple):
    lines: Sequence[str]  # what the text keeps when there is no name to hold the description
    names: tuple[str, ...] = ()
    description: str = ""


def read(doc: str | None) -> Docstring:
    """Split a docstring, whatever its style; what has no known form stays in `text`, so nothing is lost."""
    text = _clean(doc) if doc else ""
    low = text.lower()
    # Every form of section holds one of these; a loop over them costs three times as much.
    if not ("args" in low or "argument" in low or "param" in low or ":arg" in low or ":k" in low or ":type" in low):
        return Docstring(text, {})
    first, *others = text.split("\n")
    # The indent of the first line is not known: a title there may have lost the indent of its entries.
    if first.endswith(":") and re.fullmatch(_SECTION, first) and others and _indent(others[0]) == 0:
        others = [f"    {line}" for line in others]
    return _split([first, *others])


def _clean(doc: str) -> str:
    if "\n" not in doc and "\r" not in doc:
        return doc.expandtabs().strip()
    doc = doc.replace("\r\n", "\n").replace("\r", "\n")
    # `cleandoc` drops leading blank lines with `pop(0)`, which is quadratic: leave it one.
    blank = len(doc) - len(doc.lstrip())
    return cleandoc(doc[max(doc.rfind("\n", 0, blank), 0) :]).rstrip()


def _split(lines: Sequence[str]) -> Docstring:
    parameters: dict[str, str] = {}
    blocks: list[list[str]] = [[]]
    at, inside = 0, False
    while at < len(lines):
        indented = (line := lines[at])[:1].isspace()
        # What is indented under a line with a colon belongs to it: an example may hold a docstring.
        found = None if inside and indented else _section(lines, at)
        if found is None:
            blocks[-1].append(line)
            at += 1
            if line and not indented:
                inside = line.rstrip().endswith(":")
            continue
        at, entries = found
        for entry in entries:
            fresh = [name for name in entry.names if not parameters.get(name)]
            parameters.update(dict.fromkeys(fresh, entry.description))
            if entry.lines and (len(fresh) < len(entry.names) or not fresh):
                margin = min(_indent(line) for line in entry.lines if line.strip())
                blocks.append([line[margin:] for line in entry.lines])
        blocks.append([])
    texts = ("\n".join(block).strip() for block in blocks)
    return Docstring("\n\n".join(filter(None, texts)), parameters)


def _section(lines: Sequence[str], at: int) -> tuple[int, list[_Entry]] | None:
    """Read what starts at a line: where it ends, and its entries; nothing when it is plain text."""
    bare = lines[at].strip()
    if bare.startswith(":"):
        head = _field(bare)
        end = _block_end(lines, at) if head.names else at
        return (end, [_entry(head, lines[at:end])]) if head.names else None
    if not re.fullmatch(_SECTION, bare):
        return None
    if at + 1 < len(lines) and re.fullmatch(_UNDERLINE, lines[at + 1]):
        end, entries = _numpy(lines, at + 2, _indent(lines[at]))
    else:
        end = _block_end(lines, at)
        entries = _google(lines[at + 1 : end]) if bare.endswith(":") else []
    return (end, entries) if any(entry.names for entry in entries) else None


def _google(lines: Sequence[str]) -> list[_Entry]:
    chunks: list[tuple[_Head | None, list[str]]] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        end = _block_end(lines, at)
        head = _head(lines[at].strip())
        if head is None and chunks and chunks[-1][0] is not None and lines[at - 1].strip():
            chunks[-1][1].extend(lines[at:end])  # a description that goes on without a hanging indent
        else:
            chunks.append((head, list(lines[at:end])))
        at = end
    return [_entry(head, chunk) for head, chunk in chunks]


def _numpy(lines: Sequence[str], at: int, indent: int) -> tuple[int, list[_Entry]]:
    """Read entries until a line that is none: the next title, or text after the section."""
    entries: list[_Entry] = []
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        if not entries:
            indent = max(indent, _indent(line))
        after = lines[at + 1] if at + 1 < len(lines) else ""
        has_body = bool(after.strip()) and _indent(after) > indent
        head = _head(line.strip(), name_alone=has_body)
        if _indent(line) != indent or head is None or not head.names or re.fullmatch(_UNDERLINE, after):
            break
        end = _block_end(lines, at)
        if not head.kind and _is_type(head.rest) and (has_body or head.spaced):
            head = head._replace(rest="")
        entries.append(_entry(head, lines[at:end]))
        at = end
    return at, entries


def _entry(head: _Head | None, lines: Sequence[str]) -> _Entry:
    if head is None or not head.names:
        return _Entry(lines)
    if head.is_type:
        return _Entry([] if _is_type(_fold(head.rest, lines[1:])) else lines)
    aside = "" if _is_type(head.kind) else f"({head.kind}) "
    return _Entry(lines, head.names, _fold(aside + head.rest.strip(), lines[1:]))


def _head(bare: str, *, name_alone: bool = False) -> _Head | None:
    """Read the line that starts an entry: `name: rest`, `name (kind): rest`; nothing when it is prose."""
    if bare.startswith(":"):
        return _field(bare)
    (names, colon, rest), kind = bare.partition(":"), ""
    if "(" in names:
        names, _, rest = bare.partition("(")
        if (match := re.match(_KIND, rest)) is None:
            return None
        kind, rest = match.group(1), rest[match.end() :]
    known = _names(names)
    prose = not known and len(names.split()) != 1
    if prose or not (colon or name_alone) or rest.startswith((":", "//")):
        return None
    return _Head(known, kind, rest, spaced=names.endswith(" "))


def _field(bare: str) -> _Head:
    role, subject, rest = match.groups() if (match := re.match(_FIELD, bare)) else ("", "", "")
    kind, _, last = ("", "", subject) if _names(subject) else subject.rstrip().rpartition(" ")
    return _Head(_names(last), kind, rest, is_type=role.endswith("type"))


def _names(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(part.strip().strip("`").lstrip("\\*") for part in text.split(","))
    return tuple(names) if all(name.isidentifier() and not re.fullmatch(_TITLE, name) for name in names) else ()


def _is_type(text: str) -> bool:
    return all(re.fullmatch(_TYPE, word) for word in re.split(_BETWEEN_TYPES, text) if word)


def _fold(first: str, lines: Sequence[str]) -> str:
    """Join lines into one paragraph, but keep blank lines, lists, code and deeper blocks apart."""
    if not lines:
        return first.strip()
    base = min((_indent(line) for line in lines if line.strip()), default=0)
    parts = [first.strip()]
    item, last, blank, literal, fenced = -1, 0, False, False, False
    for line in lines:
        bare = line.strip()
        if not bare:
            blank, literal = True, False
            continue
        depth = _indent(line) - base
        marked = re.match(_MARKER, bare) is not None
        literal = literal or re.match(_LITERAL, bare) is not None
        goes_on = depth > item if item >= 0 else depth == last == 0
        if blank or marked or literal or fenced or not goes_on:
            parts.append(("\n\n" if blank else "\n") + " " * depth)
            item = depth if marked else -1
        else:
            parts.append(" ")
        parts.append(bare)
        fenced ^= bare.startswith("```")
        last, blank = depth, False
    return "".join(parts).strip()


def _block_end(lines: Sequence[str], at: int) -> int:
    """Find the end of a line and of all that is indented under it, without the blank lines after."""
    indent, end = _indent(lines[at]), at + 1
    for index in range(at + 1, len(lines)):
        if lines[index].strip() and _indent(lines[index]) <= indent:
            break
        end = index + 1 if lines[index].strip() else end
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
