"""Every rule has a page, and what the page shows is what the checker finds."""

import re
import sys
import tomllib
from types import ModuleType

import pytest

from house.source import ROOT
from toolmason import Toolbox
from toolmason._text import DOCUMENTATION
from toolmason.build.check.rules import RULES, UNUSED_IGNORE, parse_codes
from toolmason.errors import ConfigError, DefinitionError

PAGES = ROOT / "docs" / "reference" / "rules"
SETTINGS = {"TM203": {"max_description": 60}, "TM401": {"budget": 40}, "TM402": {"tool_budget": 40}}
REFUSED = [
    *("TM103", "TM104", "TM105", "TM106", "TM107", "TM108", "TM109", "TM110", "TM112", "TM114", "TM116", "TM117"),
    *("TM119", "TM121", "TM122", "TM123", "TM124", "TM127", "TM128", "TM301", "TM302"),
]
"""Rules about what the core refuses when a tool is defined or a toolbox is built."""


def make_index_page() -> str:
    """Return the docs page that lists every rule, as Markdown."""
    families = {"1": "Definition", "2": "Providers", "3": "Safety", "4": "Tokens"}
    lines = [
        "# Rules of `toolmason check`",
        "",
        "```console",
        "$ toolmason check --explain TM101",
        "TM101",
        "...",
        "```",
        "",
        "This page is generated from the rule table. An *error* fails a check, a *warning* fails a strict check, and a",
        "*note* never fails one. A rule marked *loads* runs only if a target is loaded (`module:name` or `--dynamic`).",
    ]
    for digit, family in families.items():
        lines += ["", f"## {family}: `TM{digit}xx`", "", "| Rule | Name | Severity | Finds |", "|---|---|---|---|"]
        for rule in RULES.values():
            if rule.code[2] == digit:
                kind = f"{rule.severity}, loads" if rule.dynamic else rule.severity
                lines.append(f"| [{rule.code}]({rule.code}.md) | {rule.name} | {kind} | {rule.what} |")
    return "\n".join(lines) + "\n"


def snippets(code):
    bad, good = re.findall(r"^```py\n(.*?)^```$", (PAGES / f"{code}.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return bad, good


def found_in(folder, code, text):
    rule = RULES[code]
    mode = "dynamic" if rule.dynamic else "static"
    return folder.codes(text, mode=mode, strict=code == UNUSED_IGNORE, **SETTINGS.get(code, {}))


def build(text):
    """Run a snippet and give all that it holds to a toolbox, as an application would."""
    module = ModuleType("snippet")
    sys.modules["snippet"] = module
    try:
        exec(compile(text, "snippet.py", "exec"), vars(module))  # noqa: S102 - the text is our own page
        shop = vars(module).get("Shop")
        return vars(module).get("box") or Toolbox(shop() if shop is not None else module)
    finally:
        del sys.modules["snippet"]


def test_there_are_more_than_25_rules_in_four_families():
    assert len(RULES) > 25
    assert {code[:3] for code in RULES} == {"TM1", "TM2", "TM3", "TM4"}


@pytest.mark.parametrize("code", RULES)
def test_a_rule_says_what_why_and_how_to_fix_it(code):
    rule = RULES[code]

    assert re.fullmatch(r"TM[1-4]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert all(text.endswith(".") for text in (rule.what, rule.why, rule.fix))


def test_names_of_rules_are_not_used_twice():
    assert len({rule.name for rule in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("code", RULES)
def test_the_page_of_a_rule_says_what_the_table_says(code):
    page, rule = (PAGES / f"{code}.md").read_text("utf-8"), RULES[code]

    assert page.startswith(f"# {code}: {rule.name}\n")
    assert f"Severity: **{rule.severity}**" in page
    assert all(text in page for text in (rule.what, rule.why, rule.fix))


def test_the_page_of_a_rule_is_in_the_documentation_that_the_package_names():
    """A relative path cannot be opened by a user who has installed the package."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Documentation"]

    assert declared == DOCUMENTATION
    assert RULES["TM309"].page == f"{declared}/{PAGES.relative_to(ROOT / 'docs').as_posix()}/TM309.md"


def test_every_page_is_of_a_rule_and_the_index_is_made_from_the_table():
    assert {path.stem for path in PAGES.glob("TM*.md")} == set(RULES)
    assert (PAGES / "README.md").read_text("utf-8") == make_index_page()


@pytest.mark.parametrize("code", RULES)
def test_the_bad_example_of_a_page_is_found_and_the_good_one_is_not(folder, code):
    bad, good = snippets(code)

    assert code in found_in(folder, code, bad)
    assert code not in found_in(folder, code, good)


@pytest.mark.parametrize("code", [code for code in RULES if not RULES[code].dynamic])
def test_the_good_example_of_a_page_has_nothing_else_to_tell(folder, code):
    _, good = snippets(code)

    assert found_in(folder, code, good) == []


@pytest.mark.parametrize("code", REFUSED)
def test_what_a_check_calls_an_error_is_refused_at_run_time(code):
    bad, good = snippets(code)

    with pytest.raises((DefinitionError, TypeError)):
        build(bad)
    assert RULES[code].severity == "error"
    assert build(good) is not None


@pytest.mark.parametrize(
    ("selectors", "count"), [(["TM101"], 1), (["tm101", "TM102"], 2), (["ALL"], len(RULES)), ([], 0)], ids=str
)
def test_codes_are_chosen_by_code_or_family(selectors, count):
    assert len(parse_codes(selectors, "--select")) == count


def test_a_family_chooses_all_of_its_codes():
    assert parse_codes(["TM3"], "--select") == {code for code in RULES if code.startswith("TM3")}


@pytest.mark.parametrize("selector", ["TM999", "X", "", "T", "101"], ids=repr)
def test_a_selector_that_matches_nothing_is_named(selector):
    with pytest.raises(ConfigError, match=re.escape(f"--select: no rule matches {selector!r}")):
        parse_codes([selector], "--select")
