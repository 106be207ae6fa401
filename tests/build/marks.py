"""Python source with marks where findings are expected: `def f(⟦TM103⟧x)`.

Lives here: taking the marks out, and telling the places that they stood at. Codes share a mark: `⟦TM101,TM305⟧`.
"""

import re

MARK = re.compile(r"⟦([\w,]*)⟧")


def unmarked(text: str) -> str:
    """Return the source without its marks."""
    return MARK.sub("", text)


def expected(text: str) -> list[str]:
    """Return what is expected as `line:column code`, in the order of a report."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        gone = 0
        for match in MARK.finditer(line):
            found += [(number, match.start() - gone + 1, code) for code in match[1].split(",")]
            gone += len(match[0])
    return [f"{line}:{column} {code}" for line, column, code in sorted(found)]
