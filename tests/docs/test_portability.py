"""The table of what becomes of each keyword is what the narrowing does; run as a program, this file writes it."""

from pathlib import Path

from toolmason.providers.schema.strict import fit_anthropic, fit_gemini, fit_openai

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "providers.md"
START, END = "<!-- table -->\n", "<!-- end -->\n"
TEXT, NUMBER, LIST = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}
SAMPLES = {
    "`enum`": {**TEXT, "enum": ["a"]},
    "`const`": {**TEXT, "const": "a"},
    "`anyOf`": {"anyOf": [TEXT, NUMBER]},
    "`oneOf`": {"oneOf": [TEXT, NUMBER]},
    "`allOf`": {"allOf": [TEXT, {"description": "d"}]},
    "`default`": {**TEXT, "default": "a"},
    "`examples`": {**TEXT, "examples": ["a"]},
    "`format: date`": {**TEXT, "format": "date"},
    "`format: uri`": {**TEXT, "format": "uri"},
    "`pattern`": {**TEXT, "pattern": "^a"},
    "`pattern` that looks around": {**TEXT, "pattern": "^(?=a)"},
    "`minLength`, `maxLength`": {**TEXT, "minLength": 1},
    "`minimum`, `maximum`": {**NUMBER, "minimum": 1},
    "`exclusiveMinimum`, `multipleOf` …": {**NUMBER, "multipleOf": 2},
    "`minItems`": {**LIST, "minItems": 2},
    "`uniqueItems`": {**LIST, "uniqueItems": True},
    "`prefixItems`": {"type": "array", "prefixItems": [TEXT, NUMBER]},
    "array without `items`": {"type": "array"},
    "free-form object": {"type": "object", "additionalProperties": TEXT},
    "no type at all": {},
    "`not`": {**TEXT, "not": {"const": "a"}},
}


def fate(fit, strict, part):
    made = fit({"type": "object", "properties": {"a": part}, "required": ["a"], "additionalProperties": False}, strict)
    if any(loss.changes_meaning for loss in made.losses):
        return "**changes the meaning**"
    if made.losses:
        return "described"
    return "kept" if made.schema["properties"]["a"] == part else "kept in another form"


def table():
    yield "| Keyword | `openai`, strict | `anthropic`, strict | `gemini` |"
    yield "|---|---|---|---|"
    for name, part in SAMPLES.items():
        cells = [fate(fit_openai, True, part), fate(fit_anthropic, True, part), fate(fit_gemini, "auto", part)]
        yield f"| {name} | {' | '.join(cells)} |"


def test_the_table_on_the_page_is_what_the_narrowing_does():
    page = PAGE.read_text("utf-8")

    shown = page.partition(START)[2].partition(END)[0]

    assert shown.splitlines() == list(table())


if __name__ == "__main__":
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    PAGE.write_text(before + START + "\n".join(table()) + "\n" + END + rest.partition(END)[2], "utf-8")
