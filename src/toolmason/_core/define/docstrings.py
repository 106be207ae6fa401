"""Split a docstring in Google, NumPy or Sphinx style into the tool's text and its parameter descriptions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import NamedTuple

from toolmason._value import Value

# Sets, because each pattern that the first docstring compiles takes a tenth of the time of a first tool.
_SECTIONS = {
    kind + name for kind in ("", "other ", "keyword ") for name in ("args", "arguments", "params", "parameters")
}

# Capitalized, these are titles of other sections, never parameters.
_TITLES = {
    *("Attributes", "Example", "Examples", "Important", "Note", "Notes", "Raises", "References", "Return", "Returns"),
    *("Tip", "Todo", "Warning", "Warnings", "Warns", "Yield", "Yields"),
}

# Stored as strings: `re` compiles and caches each on first use, so importing this module stays cheap.
# Possessive, so that a long line without the last colon fails in one pass.
_FIELD = (
    r":(param|parameter|arg|argument|key|keyword|kwarg|kwparam|type|kwtype|paramtype)"
    r"\s++([^:]++):(.*)"
)
_KIND = r"((?:[^()]++|\([^()]*+\))*+)\)\s*+:"

_MARKER = r"(?:[-*+•]|\d{1,3}[.)])\s"
_LITERAL = r">>>|```|\|"

# Some authors write prose in the type position, so only text that is certainly a type is dropped.
_BETWEEN_TYPES = r"[\s,|()\[\]{}<>]+"
_TYPE = r"""(?x)
    any|array(?:-like)?|bool(?:ean)?|bytes|callable|class|date(?:time)?|dict(?:ionary)?|float|frozenset|function
    |int(?:eger)?|iterable|iterator|keyword-only|list|mapping|ndarray|none|null|number|object|of|optional|or
    |path(?:-like)?|required|sequence|set|shape|str(?:ing)?|time|to|tuple|type|defaults?(?:[=:].*)?|-|[a-z]|\.\.\.
    |[A-Z]\w*|\w*_\w*|\w+(?:\.\w+)+|[-+]?\d[\d.e]*|['"`].*|.*['"`]"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Docstring(Value):
    """A docstring, split into the tool's description and its parameter descriptions."""

    text: str
    """Everything except the parameter entries, in order."""

    parameters: Mapping[str, str]
    """Descriptions by name, in order; empty if a parameter is listed without one. May include unknown names."""


class _EntryHead(NamedTuple):
    names: tuple[str, ...] = ()  # empty if it looks like an entry but the name cannot be a parameter's
    kind: str = ""  # text in the type position
    rest: str = ""  # text after the colon
    is_type: bool = False  # a Sphinx field with a type, such as `:type name: int`
    spaced: bool = False  # a space before the colon, as NumPy style writes `name : type`


class _DocstringEntry(NamedTuple):
    lines: Sequence[str]  # kept as text if no parameter can hold the description
    names: tuple[str, ...] = ()
    description: str = ""


def parse_docstring(doc: str | None) -> Docstring:
    """Split a docstring of any style. Unrecognized text stays in `text`, so nothing is lost."""
    text = _normalize(doc) if doc else ""
    lowered = text.lower()
    # Every section style contains one of these; a loop over them costs three times as much.
    if not (
        "args" in lowered
        or "argument" in lowered
        or "param" in lowered
        or ":arg" in lowered
        or ":k" in lowered
        or ":type" in lowered
    ):
        return Docstring(text, {})
    first, *others = text.split("\n")
    # The first line has no known indent: a title there may have lost the indent of its entries.
    if first.endswith(":") and _is_section(first) and others and _measure_indent(others[0]) == 0:
        others = [f"    {line}" for line in others]
    return _parse_lines([first, *others])


def _normalize(doc: str) -> str:
    if "\n" not in doc and "\r" not in doc:
        return doc.expandtabs().strip()
    doc = doc.replace("\r\n", "\n").replace("\r", "\n")
    # `cleandoc` drops leading blank lines with `pop(0)`, which is quadratic: leave it only one.
    blank = len(doc) - len(doc.lstrip())
    return cleandoc(doc[max(doc.rfind("\n", 0, blank), 0) :]).rstrip()


def _parse_lines(lines: Sequence[str]) -> Docstring:
    parameters: dict[str, str] = {}
    blocks: list[list[str]] = [[]]
    index = 0
    inside_block = False
    while index < len(lines):
        indented = (line := lines[index])[:1].isspace()
        # Lines indented under a line with a colon belong to it: an example may contain a docstring.
        found = None if inside_block and indented else _parse_section(lines, index)
        if found is None:
            blocks[-1].append(line)
            index += 1
            if line and not indented:
                inside_block = line.rstrip().endswith(":")
            continue
        index, entries = found
        for entry in entries:
            new_names = [name for name in entry.names if not parameters.get(name)]
            parameters.update(dict.fromkeys(new_names, entry.description))
            if entry.lines and (len(new_names) < len(entry.names) or not new_names):
                margin = min(_measure_indent(line) for line in entry.lines if line.strip())
                blocks.append([line[margin:] for line in entry.lines])
        blocks.append([])
    texts = ("\n".join(block).strip() for block in blocks)
    return Docstring("\n\n".join(filter(None, texts)), parameters)


def _parse_section(lines: Sequence[str], start: int) -> tuple[int, list[_DocstringEntry]] | None:
    """Parse the section that starts at a line into its end and its entries, or return None for plain text."""
    stripped = lines[start].strip()
    if stripped.startswith(":"):
        head = _parse_field(stripped)
        if not head.names:
            return None
        end = _find_block_end(lines, start)
        return end, [_make_entry(head, lines[start:end])]
    if not _is_section(stripped):
        return None
    if start + 1 < len(lines) and _is_underline(lines[start + 1]):
        end, entries = _parse_numpy(lines, start + 2, _measure_indent(lines[start]))
    else:
        end = _find_block_end(lines, start)
        entries = _parse_google(lines[start + 1 : end]) if stripped.endswith(":") else []
    return (end, entries) if any(entry.names for entry in entries) else None


def _parse_google(lines: Sequence[str]) -> list[_DocstringEntry]:
    chunks: list[tuple[_EntryHead | None, list[str]]] = []
    index = 0
    while index < len(lines):
        if not lines[index].strip():
            index += 1
            continue
        end = _find_block_end(lines, index)
        head = _parse_head(lines[index].strip())
        if head is None and chunks and chunks[-1][0] is not None and lines[index - 1].strip():
            chunks[-1][1].extend(lines[index:end])  # a description that continues without a hanging indent
        else:
            chunks.append((head, list(lines[index:end])))
        index = end
    return [_make_entry(head, chunk) for head, chunk in chunks]


def _parse_numpy(lines: Sequence[str], index: int, indent: int) -> tuple[int, list[_DocstringEntry]]:
    """Parse entries up to the first other line: the next title, or text after the section."""
    entries: list[_DocstringEntry] = []
    while index < len(lines):
        line = lines[index]
        if not line.strip():
            index += 1
            continue
        if not entries:
            indent = max(indent, _measure_indent(line))
        after = lines[index + 1] if index + 1 < len(lines) else ""
        has_body = bool(after.strip()) and _measure_indent(after) > indent
        head = _parse_head(line.strip(), name_alone=has_body)
        if _measure_indent(line) != indent or head is None or not head.names or _is_underline(after):
            break
        end = _find_block_end(lines, index)
        if not head.kind and _is_type(head.rest) and (has_body or head.spaced):
            head = head._replace(rest="")
        entries.append(_make_entry(head, lines[index:end]))
        index = end
    return index, entries


def _make_entry(head: _EntryHead | None, lines: Sequence[str]) -> _DocstringEntry:
    if head is None or not head.names:
        return _DocstringEntry(lines)
    if head.is_type:
        return _DocstringEntry([] if _is_type(_join_lines(head.rest, lines[1:])) else lines)
    type_note = "" if _is_type(head.kind) else f"({head.kind}) "
    return _DocstringEntry(lines, head.names, _join_lines(type_note + head.rest.strip(), lines[1:]))


def _parse_head(stripped: str, *, name_alone: bool = False) -> _EntryHead | None:
    """Parse the first line of an entry, `name: rest` or `name (kind): rest`; return None for prose."""
    if stripped.startswith(":"):
        return _parse_field(stripped)
    names, colon, rest = stripped.partition(":")
    kind = ""
    if "(" in names:
        names, _, rest = stripped.partition("(")
        if (match := re.match(_KIND, rest)) is None:
            return None
        kind = match.group(1)
        rest = rest[match.end() :]
    parsed_names = _parse_names(names)
    prose = not parsed_names and len(names.split()) != 1
    if prose or not (colon or name_alone) or rest.startswith((":", "//")):
        return None
    return _EntryHead(parsed_names, kind, rest, spaced=names.endswith(" "))


def _parse_field(stripped: str) -> _EntryHead:
    role, subject, rest = match.groups() if (match := re.match(_FIELD, stripped)) else ("", "", "")
    kind, _, last = ("", "", subject) if _parse_names(subject) else subject.rstrip().rpartition(" ")
    return _EntryHead(_parse_names(last), kind, rest, is_type=role.endswith("type"))


def _parse_names(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(part.strip().strip("`").lstrip("\\*") for part in text.split(","))
    return tuple(names) if all(name.isidentifier() and name not in _TITLES for name in names) else ()


def _is_section(line: str) -> bool:
    return line.removesuffix(":").rstrip().lower() in _SECTIONS


def _is_underline(line: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= 3 and (not stripped.strip("-") or not stripped.strip("="))  # noqa: PLR2004 - as NumPy says


def _is_type(text: str) -> bool:
    return not text or all(re.fullmatch(_TYPE, word) for word in re.split(_BETWEEN_TYPES, text) if word)


def _join_lines(first: str, lines: Sequence[str]) -> str:
    """Join lines into one paragraph, but keep blank lines, lists, code and deeper blocks separate."""
    if not lines:
        return first.strip()
    base = min((_measure_indent(line) for line in lines if line.strip()), default=0)
    parts = [first.strip()]
    list_depth = -1  # depth of the current list item, or -1 outside of a list
    last_depth = 0
    after_blank = in_literal = in_fence = False
    for line in lines:
        stripped = line.strip()
        if not stripped:
            after_blank = True
            in_literal = False
            continue
        depth = _measure_indent(line) - base
        is_list_item = re.match(_MARKER, stripped) is not None
        in_literal = in_literal or re.match(_LITERAL, stripped) is not None
        continues = depth > list_depth if list_depth >= 0 else depth == last_depth == 0
        if after_blank or is_list_item or in_literal or in_fence or not continues:
            parts.append(("\n\n" if after_blank else "\n") + " " * depth)
            list_depth = depth if is_list_item else -1
        else:
            parts.append(" ")
        parts.append(stripped)
        in_fence ^= stripped.startswith("```")
        last_depth = depth
        after_blank = False
    return "".join(parts).strip()


def _find_block_end(lines: Sequence[str], start: int) -> int:
    """Return the end of a line and everything indented under it, without trailing blank lines."""
    indent = _measure_indent(lines[start])
    end = start + 1
    for index in range(start + 1, len(lines)):
        if lines[index].strip() and _measure_indent(lines[index]) <= indent:
            break
        end = index + 1 if lines[index].strip() else end
    return end


def _measure_indent(line: str) -> int:
    return len(line) - len(line.lstrip())
