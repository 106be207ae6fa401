"""Find secrets in data and text, and mask them: one mechanism for logs, error messages and recordings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolmason._text import escape_hidden, safe_str, to_line

if TYPE_CHECKING:
    import logging

MASK: Final = "…"
MAX_SECRETS: Final = 100
"""Maximum number of secrets of a call that are searched in text. If there are more, all of it is masked."""
MAX_FIELDS: Final = 20_000
"""Maximum number of values of a call in which secrets are searched. If there are more, all text is masked."""
MAX_SCRUBBED_CHARS: Final = 32_768
"""Maximum length of text in which secrets are searched; the rest is left out."""
MAX_KNOWN: Final = 1000
"""Maximum number of secrets of settings that are remembered; the oldest are forgotten."""
MIN_SECRET_CHARS: Final = 4
"""Minimum length of a secret that is masked in text. Shorter strings occur by chance."""
MIN_SETTING_CHARS: Final = 8
"""The same for values of the environment and of settings, which hold many ordinary words."""
_MIN_PREFIX_CHARS: Final = 8
"""Minimum length of a prefix of a secret that is masked as well, because text may be truncated within the secret."""

# Compiled if needed: 1 ms at start-up.
SECRET_NAMES: Final = (
    r"(?i)authori[sz]ation|cookie|credential|token|secret|passw|passphrase|api[_-]?key|(private|access)[_-]?key"  # noqa: S105 - names, no value
)
"""Names of fields whose values are secret."""
LOGGED_NAMES: Final = rf"{SECRET_NAMES}|\bkey\b"
_SETTING_NAMES: Final = rf"{SECRET_NAMES}|(\b|_)key$|[._-](pwd|dsn|auth)$"
SECRET_PATTERNS: Final = (
    r"\bsk-[\w-]{8,}",
    r"(?i)\bbearer\s+[\w.~+/=-]{8,}",
    r"(?i)\bbasic\s+[\w+/]{12,}=*",
    r"\bgh[pousr]_\w{20,}",
    r"\bgithub_pat_\w{20,}",
    r"\bxox[abeoprs]-[\w-]{10,}",
    r"\bAKIA[A-Z0-9]{16}\b",
    r"\bAIza[\w-]{30,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*",
)
"""Patterns of keys and credentials, which are masked in any string."""
_ASSIGNED: Final = (
    r"(?i)((?:api[_-]?key|token|passw(?:or)?d|pwd|secret|signature|\bsig)[\"']?"
    r"(?:=|\s*[=:](?!//)\s*(?=[\"']?[^\s\"'&,;]*\d))[\"']?)[^\s\"'&,;)}]{4,}"
)
"""A name and its value, as in `password=…` and `"token": "…1"`."""
_URL_PASSWORD: Final = r"://[^/\s:@]*:([^/\s@]+)@"  # noqa: S105 - a pattern
_URL_PARAMETER: Final = r"(?i)[?&][^=&#]*(?:key|token|secret|passw|sig)[^=&#]*=([^&#\s]+)"
_known: dict[str, None] = {}


def iter_secrets(content: Any, names: str = LOGGED_NAMES) -> Iterator[str]:
    """Yield the strings in fields whose names say that they are secret, at any depth.

    Yield an empty string instead of the rest if there are more than `MAX_FIELDS` values.
    """
    found, spare = [(content, False)], MAX_FIELDS
    while found:
        value, is_secret = found.pop()
        if isinstance(value, Mapping | list | tuple):
            spare -= len(value)
            if spare < 0:
                yield ""
                return
            pairs = value.items() if isinstance(value, Mapping) else (("", item) for item in value)
            found += ((item, is_secret or bool(re.search(names, str(key)))) for key, item in pairs)
        elif (get_secret := getattr(type(value), "get_secret_value", None)) is not None:  # a `SecretStr`
            found.append((get_secret(value), True))
        elif is_secret and isinstance(value, str | bytes) and len(value) >= MIN_SECRET_CHARS:
            yield value if isinstance(value, str) else value.decode("utf-8", "replace")


def remember_secrets(settings: Any, url: str | None = None) -> None:
    """Mask from now on the values of settings whose names say that they are secret, and the secret parts of a URL."""
    found = [*iter_secrets(settings, _SETTING_NAMES)]
    found += [secret for pattern in (_URL_PASSWORD, _URL_PARAMETER) for secret in re.findall(pattern, url or "")]
    found += [secret.rpartition(" ")[2] for secret in found]  # a header is `Bearer …`
    _known.update((secret, None) for secret in found if len(secret) >= MIN_SETTING_CHARS)
    for oldest in list(islice(_known, max(0, len(_known) - MAX_KNOWN))):
        del _known[oldest]


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """Return text without secrets, without their escaped forms, and without prefixes left by truncation."""
    from pydantic_core import to_json  # noqa: PLC0415 - a model is made without it

    for secret in sorted({*secrets}, key=len, reverse=True):
        if len(secret) < MIN_SECRET_CHARS:
            continue
        for form in (secret, repr(secret)[1:-1], to_json(secret).decode()[1:-1]):
            text = text.replace(form, MASK)
        if len(secret) > _MIN_PREFIX_CHARS and secret[:_MIN_PREFIX_CHARS] in text:
            text = _mask_prefixes(text, secret)
    return text


def _mask_prefixes(text: str, secret: str) -> str:
    """Mask the beginnings of a secret. Each character is compared once, whatever a client calls its secret."""
    parts: list[str] = []
    position, start = 0, secret[:_MIN_PREFIX_CHARS]
    while (found := text.find(start, position)) >= 0:
        end = found + _MIN_PREFIX_CHARS
        while end < len(text) and end - found < len(secret) and text[end] == secret[end - found]:
            end += 1
        parts += (text[position:found], MASK)
        position = end
    return "".join((*parts, text[position:]))


def scrub(text: str, *data: Any) -> str:
    """Return text without what looks like a key, without secrets of the settings, and without those in `data`."""
    secrets = set(islice((secret for item in data for secret in iter_secrets(item)), MAX_SECRETS + 1))
    if len(secrets) > MAX_SECRETS or "" in secrets:
        return MASK
    if not text:
        return text
    if len(text) > MAX_SCRUBBED_CHARS:  # cut between words, so that no part of a secret is left
        end = max(text.rfind(space, 0, MAX_SCRUBBED_CHARS) for space in " \n")
        text = f"{text[: max(0, end)]} […{len(text) - max(0, end)} characters…]"
    secrets.update(secret for secret in _known if secret in text)
    for name, value in os.environ.items():
        if len(value) >= MIN_SETTING_CHARS:
            # `Path.exists` raises for some strings that are no path.
            if value in text and re.search(_SETTING_NAMES, name) and not os.path.exists(value):  # noqa: PTH110
                secrets.add(value)
            elif "@" in value:
                secrets.update(re.findall(_URL_PASSWORD, value))
    text = mask_values(text, secrets)
    for pattern in SECRET_PATTERNS:
        text = re.sub(pattern, MASK, text)
    return re.sub(_ASSIGNED, rf"\1{MASK}", text)


def write_private(path: str | Path, data: bytes, *, new: bool = False) -> None:
    """Write a file that only its owner can read. With `new`, fail if it exists."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if new else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def make_record_safe(record: logging.LogRecord) -> bool:
    """Make a log record one line without secrets: its message may hold text of a server or a tool. A filter."""
    record.msg = _to_safe(record.msg)
    if isinstance(record.args, tuple):
        record.args = tuple(map(_to_safe, record.args))
    elif record.args:
        record.args = {name: _to_safe(value) for name, value in record.args.items()}
    if record.exc_info and record.exc_text is None:
        record.exc_text = format_stack(record.exc_info[1])
    return True


def _to_safe(value: object) -> Any:
    return value if isinstance(value, int | float) else to_line(scrub(safe_str(value)))


def format_stack(error: BaseException | None, *data: Any) -> str:
    """Return the stack of an exception for a log."""
    import traceback  # noqa: PLC0415 - 2 ms at start-up, needed only for a failure

    # Each line is marked, so that a line break in a message cannot forge a record.
    text = scrub("".join(traceback.format_exception(error)).rstrip(), *data)
    return f"| {escape_hidden(text)}".replace("\n", "\n| ")
