"""Extract numbers, quoted strings, codes, names and choices from text.

Values are taken literally or by their plain meaning ("two", "5%").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

_NUMBER: Final = re.compile(
    r"(?<![\w.,/^-])(?P<sign>-?)[$€£]?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?P<part>\.\d+)?"
    r"(?P<scale>\s?(?:%|percent\b|thousand\b|million\b|billion\b))?(?![\d/])(?!-\d|x\d)",
    re.IGNORECASE,
)
_SCALES: Final = {"thousand": 1e3, "million": 1e6, "billion": 1e9}
_SMALL_NUMBERS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen"),
)
_LARGER_NUMBERS: Final = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "hundred": 100, "dozen": 12}
_NUMBER_WORDS: Final = {word: number for number, word in enumerate(_SMALL_NUMBERS)} | _LARGER_NUMBERS
_NUMBER_WORD: Final = re.compile(r"\b(" + "|".join(_NUMBER_WORDS) + r")\b", re.IGNORECASE)
_CODE: Final = re.compile(r"\b(?=[A-Z0-9-]*[A-Z])(?=[A-Z0-9-]*\d)[A-Z0-9]+(?:-[A-Z0-9]+)*\b")
_QUOTED: Final = re.compile(r"\"([^\"\n]{1,200})\"|(?<!\w)'([^'\n]{1,200})'(?!\w)|“([^”\n]{1,200})”")
_CAPITALIZED: Final = re.compile(r"(?<!^)(?<![.!?]\s)\b[A-Z][\w-]+(?:\s+[A-Z][\w-]+)*")
_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)


def find_numbers(text: str) -> list[float]:
    """Return the numbers in the text in order, spelled-out ones last; "5%" yields 0.05, then 5."""
    found: list[float] = []
    for match in _NUMBER.finditer(_CODE.sub(lambda code: "_" * len(code[0]), text)):
        plain = float(match["sign"] + match["whole"].replace(",", "") + (match["part"] or ""))
        scale = (match["scale"] or "").strip().lower()
        if scale in ("%", "percent"):
            found.append(round(plain / 100, 10))
        found.append(plain * _SCALES.get(scale, 1))
    return [*found, *(float(_NUMBER_WORDS[word.lower()]) for word in _NUMBER_WORD.findall(text))]


def find_quoted(text: str) -> list[str]:
    """Return the strings in quotation marks."""
    return [next(filter(None, groups)) for groups in _QUOTED.findall(text)]


def find_codes(text: str) -> list[str]:
    """Return codes such as article, order or flight numbers: capitals with digits."""
    return list(dict.fromkeys(_CODE.findall(text)))


def find_names(text: str) -> list[str]:
    """Return capitalized words that do not start a sentence, such as city names."""
    return _CAPITALIZED.findall(text)


def find_choices(text: str, choices: Iterable[Any]) -> list[Any]:
    """Return the choices that the text mentions, longest first."""
    words = [word.casefold() for word in _WORD.findall(text)]
    named = []
    for choice in choices:
        choice_words = [word.casefold() for word in _WORD.findall(str(choice))]
        if isinstance(choice, str) and choice_words and _contains_sequence(words, choice_words):
            named.append((len(choice_words), choice))
    return [choice for _, choice in sorted(named, key=lambda pair: -pair[0])]


def _contains_sequence(words: Sequence[str], choice_words: Sequence[str]) -> bool:
    size = len(choice_words)
    return any(words[start : start + size] == list(choice_words) for start in range(len(words) - size + 1))
