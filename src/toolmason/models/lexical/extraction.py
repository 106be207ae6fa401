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
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORDS: Final = {word: number for number, word in enumerate(_SMALL_NUMBERS)} | {
    word: number for number, word in zip(range(20, 100, 10), _TENS, strict=True)
}
_MULTIPLIERS: Final = {"dozen": 12, "hundred": 100}
_ONE_WORD: Final = rf"(?:{'|'.join([*_NUMBER_WORDS, *_MULTIPLIERS, *_SCALES])})\b"
_NUMBER_PHRASE: Final = re.compile(rf"(?<!\d\s)\b{_ONE_WORD}(?:[\s-]+(?:and\s+)?{_ONE_WORD})*", re.IGNORECASE)
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
    return [*found, *(number for phrase in _NUMBER_PHRASE.findall(text) for number in _read_words(phrase))]


def _read_words(phrase: str) -> list[float]:
    """Return the numbers that words express: "two hundred and five thousand" is one number, "two and five" are two."""
    numbers: list[float] = []
    done, part, last = 0.0, 0, ""  # "two hundred thousand and five": done is 200,000, part is 5
    for word in _WORD.findall(phrase.lower()):
        number, before = _NUMBER_WORDS.get(word, 0), _NUMBER_WORDS.get(last, 0)
        if word == "and":
            continue
        if word in _SCALES:
            if 0 < done < 1_000 * _SCALES[word]:  # "five thousand and two thousand"
                numbers.append(done)
                done = 0.0
            done, part = done + (part or 1) * _SCALES[word], 0
        elif word in _MULTIPLIERS and (not last or 0 < before < 20):  # noqa: PLR2004 - not "fifty hundred"
            if part > before:  # "one hundred and two hundred"
                numbers.append(done + part - before)
                done = 0.0
            part = (before or 1) * _MULTIPLIERS[word]
        elif last in _SCALES or last in _MULTIPLIERS or (last in _TENS and 0 < number < 10):  # noqa: PLR2004 - "forty-one"
            part += number
        else:
            numbers += [done + part] if last else []
            done, part = 0.0, number or _MULTIPLIERS.get(word, 0)
        last = word
    return [*numbers, done + part]


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
