"""Rules TM2xx that the source alone can tell: names and texts that some provider refuses.

Lives here: the limits that hold for every provider together. Not here: schemas (`portability`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolmason.build.definition_rules import Look
from toolmason.build.findings import Finding
from toolmason.build.hints import text_of
from toolmason.build.limits import PARAMETER_NAME, refused_by
from toolmason.build.parameters import documentation_of

LONGEST_DESCRIPTION: Final = 1024


def check_names(look: Look, longest: int = LONGEST_DESCRIPTION) -> Iterator[Finding]:
    """Yield the names and texts of one tool that some provider refuses."""
    declared = look.declared
    if declared.kind == "prompt":
        return
    if declared.name and declared.inherited is None and (refusing := refused_by(declared.name)):
        yield look.say(
            "TM201", declared.words.get("name"), f"the name {declared.name!r} is refused by {', '.join(refusing)}"
        )
    for taken in look.sent:
        if not re.fullmatch(PARAMETER_NAME, taken.label):
            yield look.say("TM202", taken.node, f"the parameter name {taken.label!r} is refused by anthropic")
    given = declared.word("description")
    text = text_of(given) if given is not None else documentation_of(declared).text
    if text is not None and len(text) > longest:
        message = f"the description of {declared.shown!r} has {len(text):,} characters; {longest:,} are the most"
        yield look.say("TM203", given if given is not None else declared.place, message)
    for taken in look.sent:
        if taken.description and len(taken.description) > longest:
            message = (
                f"the description of {taken.name!r} has {len(taken.description):,} characters; {longest:,} are the most"
            )
            yield look.say("TM203", taken.node, message)
