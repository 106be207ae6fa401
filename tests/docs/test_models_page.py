"""The tables of the page of models are those of the table of services; run as a program, this file writes them."""

from pathlib import Path

import pytest

from toolmason._core.toolbox.exchange import OPTIONS
from toolmason._services import SERVICES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "models.md"
FORMATS = {
    "openai": "Responses",
    "openai-chat": "Chat Completions",
    "anthropic": "Messages",
    "gemini": "generateContent",
}
TRANSLATED = sorted({option for service in SERVICES.values() for option in service.options}, key=[*OPTIONS].index)
STRICT = {"mixed": "per tool", "uniform": "all tools or none", "never": "no"}


def yes(value):
    return "yes" if value else "**no**"


def code(text):
    return f"`{text}`" if text else "-"


def providers():
    yield "| Name | Format | Address | Variable of the address | Key |"
    yield "|---|---|---|---|---|"
    for name, service in SERVICES.items():
        keys = " or ".join(map(code, service.key_variables)) + ("" if service.needs_key else ", not required")
        address = "the SDK's" if name == "vertex" else code(service.base_url)
        api = FORMATS.get(service.format, "generateContent")
        yield f"| `{name}:` | {api} | {address} | {code(service.url_variable)} | {keys} |"


def options():
    names = [*SERVICES]
    for part in (names[:6], names[6:12], names[12:]):
        yield "| Option | " + " | ".join(f"`{name}`" for name in part) + " |"
        yield "|---" * (len(part) + 1) + "|"
        for option in TRANSLATED:
            cells = [describe(option, SERVICES[name]) for name in part]
            yield f"| `{option}` | {' | '.join(cells)} |"
        yield ""


def describe(option, service):
    field = service.options.get(option)
    if field is None:
        return "always on" if option == "parallel" else "refused"
    if not field:
        return "nothing to send"
    if option == "reasoning" and service.efforts != ("low", "medium", "high"):
        return f"`{field}`: {', '.join(service.efforts)}"
    if option == "reasoning" and service.budget_field:
        return f"`{field}`, also tokens"
    return f"`{field}`"


def differences():
    yield "| Name | Strict tools | `stream_options` | Call IDs | User message after results | Keys sent back |"
    yield "|---|---|---|---|---|---|"
    for name, service in SERVICES.items():
        if service.format != "openai-chat":
            continue
        ids = "nine letters and digits" if service.short_call_ids else "any"
        back = ", ".join(map(code, service.returned_keys)) or "none"
        cells = [
            STRICT[service.strict],
            yes(service.has_stream_options),
            ids,
            yes(service.allows_user_after_tool),
            back,
        ]
        yield f"| `{name}` | {' | '.join(cells)} |"


TABLES = {"providers": providers, "options": options, "differences": differences}


def marks(name):
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_on_the_page_is_that_of_the_services(name):
    start, end = marks(name)

    shown = PAGE.read_text("utf-8").partition(start)[2].partition(end)[0]

    assert shown.splitlines() == "\n".join(TABLES[name]()).strip().splitlines()


def test_every_option_of_a_request_is_on_the_page():
    page = PAGE.read_text("utf-8")

    assert [option for option in OPTIONS if f"`{option}`" not in page] == []


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    for table, make in TABLES.items():
        first, last = marks(table)
        before, _, rest = text.partition(first)
        text = before + first + "\n".join(make()).strip() + "\n" + last + rest.partition(last)[2]
    PAGE.write_text(text, "utf-8")
