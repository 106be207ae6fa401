"""Read URLs, and format text for messages and terminals: short, and without characters that hide or reorder others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories that render as nothing, or change the order or the state of a display."""
BLANK_CHARACTERS: Final = frozenset(
    chr(number)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for number in range(first, last + 1)
)
"""Characters that render as blank, although their category is letter or mark."""
DOCUMENTATION: Final = "https://github.com/toolmason/toolmason/tree/main/docs"
MAX_NAMES_SHOWN: Final = 20
"""Maximum number of tool names in an `UnknownTool` message, so that a large toolbox does not fill the context."""
MAX_PROBLEMS_SHOWN: Final = 20
"""Maximum number of argument problems in a message; the error holds all of them."""
MAX_MESSAGE_CHARS: Final = 2000
"""Maximum length of a message in a log."""
_NOT_PLAIN: Final = r"[^\n\x20-\x7e\xa1-\xac\xae-\u024f]"  # compiled with the first text: 0.3 ms at start-up


LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
"""Hosts that other machines cannot reach."""
_LOOK_ALIKES: Final = dict(
    zip(map(ord, "авекмнорстухѕіјԁԛԝһӏαβεικνορτυχωոսօցɡı"), "abekmhopctyxsijdqwhlabeikvoptuxwnuoggi", strict=True)
)
"""Letters of other alphabets that look like Latin ones, in lower case."""


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL; all are empty if the URL is malformed, so that a check of the scheme or host fails."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return SplitResult("", "", "", "", "")
    return parts


def is_safe_endpoint(parts: SplitResult) -> bool:
    """Return True for an address that secrets may be sent to: https, or http on this machine."""
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_NAMES)


def make_name_key(name: str) -> str:
    """Return a key that is the same for names that a reader can take for each other."""
    if not name.isascii():
        from unicodedata import normalize  # noqa: PLC0415 - 1 ms at start-up, needed only for such names

        name = normalize("NFKC", name).casefold().translate(_LOOK_ALIKES)
    return name.strip().lower().replace("1", "l").replace("0", "o").replace("rn", "m")


def pluralize(count: int, what: str) -> str:
    """Return a count with its noun: `1 tool`, `2 tools`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


class ArgumentProblem(NamedTuple):
    """One problem with the arguments of a call."""

    path: str
    """JSON path: `$.items[2].count`."""
    message: str
    """Description of the problem."""
    expected: str
    """Expected type or value, e.g. `integer`."""
    got: str
    """Received value, e.g. `string "abc"`."""

    def to_dict(self) -> dict[str, str]:
        """Return the problem as the JSON object that the model reads."""
        return {"path": self.path, "message": self.message, "expected": self.expected, "got": self.got}


def clip(text: str, limit: int = 80) -> str:
    """Escape and truncate `text` for a message, so that a huge value cannot fill a context or a log."""
    if len(text) <= limit and text.isprintable():
        return text
    text = text[: limit + 1]  # what is cut need not be escaped
    text = text if text.isprintable() else escape_hidden(text).replace("\n", "\\n")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the known names nearest to a misspelt one, or an empty string."""
    matches = find_close_names(name, sorted(known))
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def safe_str(error: object) -> str:
    """Return `str(error)`, or an empty string if its `__str__` fails."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        return ""


def escape_hidden(text: str, *, keep: str = "", strict: bool = True) -> str:
    """Escape invisible and direction-changing characters. Line breaks and the characters in `keep` stay.

    `strict` also escapes unusual spaces and unassigned characters.
    """
    from unicodedata import category  # noqa: PLC0415 - 1 ms at start-up, needed only for text shown to a person

    hidden = HIDDEN_CATEGORIES | {"Cn", "Zs"} if strict else HIDDEN_CATEGORIES

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if character in keep or (category(character) not in hidden and character not in BLANK_CHARACTERS):
            return character
        number = ord(character)
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - `\u` takes four digits

    return re.sub(_NOT_PLAIN, escape, text)


_MAX_CANDIDATES: Final = 32
"""Names that one search compares letter by letter."""
_MAX_SHARED: Final = 4_000
"""Entries of the index that one search reads."""


def find_close_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the names most similar to an unknown one, best first. The cost does not grow with their number."""
    from difflib import get_close_matches  # noqa: PLC0415 - 2 ms at start-up, needed only for an unknown name

    names, wanted = tuple(known), name[:128]
    if len(names) > _MAX_CANDIDATES:
        index = _index_names(names)
        lists = sorted((index[part] for part in _split_name(wanted) if part in index), key=len)  # rare parts first
        shared: Counter[int] = Counter()
        spare = _MAX_SHARED
        for numbers in lists:
            shared.update(numbers[:spare])
            spare = max(0, spare - len(numbers))
        names = tuple(names[number] for number, _ in shared.most_common(_MAX_CANDIDATES))
    return get_close_matches(wanted, names, n=count)


def suggest_name(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question that names the known name most similar to an unknown one, or `otherwise` if none is."""
    close = find_close_names(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def advise_on_provider(name: str, known: Iterable[str], example: str) -> str:
    """Return the advice for an unknown provider: a known one with a similar name, or how to write it."""
    prefix = name.partition(":")[0].strip().lower()
    close = find_close_names(prefix, known, 1)
    near = f" Did you mean {close[0]!r}?" if close else ""
    if "base_url=" in example:
        return f"{near} For a server that speaks Chat Completions, as most do, write {example}."
    # `gemini-3` is a model of the provider that it resembles, and not a misspelt provider.
    is_misspelt = bool(close) and not prefix.startswith(close[0])
    return near if is_misspelt or not example else f" Write {example}."


@lru_cache(maxsize=4)
def _index_names(names: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the positions of the names that contain each part of three letters."""
    index: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        for part in _split_name(name[:128]):
            index.setdefault(part, []).append(number)
    return index


def _split_name(name: str) -> set[str]:
    padded = f" {name.casefold()} "
    return {padded[start : start + 3] for start in range(len(padded) - 2)}


def to_line(text: str) -> str:
    """Return text for one line of a log: shortened, and with line breaks and control characters escaped."""
    short = text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]}…"
    return short if short.isprintable() else escape_hidden(short).replace("\n", "\\n")
