"""A report in each form: stable fields, sorted findings, SARIF that fits the official schema."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from toolmason._text import DOCUMENTATION
from toolmason.build.check.report import format_json, format_sarif, format_summary, format_table
from toolmason.build.check.rules import RULES
from toolmason.build.check.run_checks import Report

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0.json").read_text("utf-8"))
WRONG = "from toolmason import *\n@tool\ndef b(x): ...\n@tool(name='b')\ndef a(y): ...\n"


@pytest.fixture
def report(folder):
    folder.write({"z.py": WRONG, "a b/ü.py": WRONG, "c.py": "def f(:\n"})
    return folder.check()


def test_findings_are_sorted_by_place_and_code_and_the_same_in_every_run(folder, report):
    order = [(found.location.path, found.location.line, found.location.column, found.code) for found in report.findings]

    assert order == sorted(order)
    assert len(order) == 11
    assert folder.check() == report


def test_json_has_stable_fields(report):
    entry = json.loads(format_json(report))

    assert set(entry) == {"findings", "tools", "summary"}
    counted = {"files": 3, "tools": 4, "prompts": 0, "resources": 0}
    assert entry["summary"] == {**counted, "errors": 7, "warnings": 4, "notes": 0, "tokens": 0}
    assert entry["findings"][1] == {
        "code": "TM103",
        "name": "untyped-parameter",
        "severity": "error",
        "message": "parameter 'x' has no type",
        "path": "a b/ü.py",
        "line": 3,
        "column": 7,
        "tool": "b",
        "hint": RULES["TM103"].fix,
        "page": "https://github.com/toolmason/toolmason/tree/main/docs/reference/rules/TM103.md",
    }


def test_json_has_what_providers_make_of_loaded_tools(folder):
    source = "from toolmason import *\n@tool(name='a.b')\ndef f(x: dict[str, int]): 'Do.'\nbox = Toolbox(f)\n"
    folder.write({"json_app.py": source})

    [tool] = json.loads(format_json(folder.check("json_app.py:box", mode="auto")))["tools"]

    assert {key: tool[key] for key in ("name", "path", "line")} == {"name": "a.b", "path": "json_app.py", "line": 3}
    assert tool["tokens"] > 0
    assert tool["providers"]["gemini"] == {
        "status": "accepted",
        "reasons": [],
        "strict": True,
        "not_strict": None,
        "alias": None,
        "keys": [],
    }
    assert tool["providers"]["openai"]["not_strict"] == "any key is allowed at $.x"
    assert tool["providers"]["openai"]["alias"] == "a_b"


def test_sarif_fits_its_official_schema(report):
    assert list(Draft7Validator(SCHEMA).iter_errors(json.loads(format_sarif(report)))) == []


def test_sarif_of_nothing_fits_too():
    log = json.loads(format_sarif(Report()))

    assert list(Draft7Validator(SCHEMA).iter_errors(log)) == []
    assert log["runs"][0]["results"] == []


def test_the_official_schema_refuses_what_is_not_sarif(report):
    log = json.loads(format_sarif(report))
    log["runs"][0]["results"][0]["level"] = "fatal"

    assert list(Draft7Validator(SCHEMA).iter_errors(log)) != []


def test_sarif_tells_rule_place_and_level(report):
    run = json.loads(format_sarif(report))["runs"][0]

    result = run["results"][1]
    assert (result["ruleId"], result["level"]) == ("TM103", "error")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "TM103"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/%C3%BC.py"},
        "region": {"startLine": 3, "startColumn": 7},
    }
    assert len(run["results"]) == len(report.findings)


def test_sarif_links_the_docs_and_the_page_of_each_rule(report):
    driver = json.loads(format_sarif(report))["runs"][0]["tool"]["driver"]

    assert driver["informationUri"] == DOCUMENTATION
    assert [rule["helpUri"] for rule in driver["rules"]] == [RULES[rule["id"]].page for rule in driver["rules"]]


def test_a_fingerprint_of_sarif_outlives_a_move_and_is_not_used_twice(folder):
    folder.write({"a.py": "from toolmason import *\n@tool\ndef b(x): 'Do.'\n@tool\ndef a(x): 'Do.'\n"})
    before = fingerprints(folder.check())
    folder.write({"a.py": "from toolmason import *\n\n\n@tool\ndef b(x): 'Do.'\n@tool\ndef a(x): 'Do.'\n"})

    after = fingerprints(folder.check())

    assert len(set(before)) == len(before) == 2
    assert after == before


def fingerprints(report):
    results = json.loads(format_sarif(report))["runs"][0]["results"]
    return [result["partialFingerprints"]["toolmason/v1"] for result in results]


def test_the_table_is_aligned_and_ends_in_reasons(folder):
    folder.write(
        {"table_app.py": "from toolmason import *\n@tool\ndef f(x: dict): 'Do.'\n@tool\ndef longer(): 'Do.'\n"}
    )

    lines = format_table(folder.check("table_app.py", mode="dynamic"))

    assert len(lines) == 6
    assert lines[0].startswith("f       ~")
    assert lines[0].endswith("openai     accepted  not strict  any key is allowed at $.x")
    assert lines[5].endswith("gemini     accepted  strict")


@pytest.mark.parametrize(
    ("source", "summary"),
    [
        ("x = 1\n", "No tools found in 1 file. Decorate a function with `@tool`."),
        ("from toolmason import *\n@tool\ndef f(): 'Do.'\n", "All good: 1 tool in 1 file."),
        ("from toolmason import *\n@tool\ndef f(x): ...\n", "Found 1 error, 1 warning: 1 tool in 1 file."),
    ],
)
def test_the_summary_counts(folder, source, summary):
    folder.write({"app.py": source})

    assert format_summary(folder.check("app.py")) == summary


@pytest.mark.parametrize(
    ("code", "parameters", "hint"),
    [
        ("TM101", "(days: int)", '`days: Annotated[int, "what it means"]`'),
        ("TM126", "(x: dict)", "`dict[str, int]`, a TypedDict or a dataclass"),
        ("TM126", "(x: set)", "`set[str]`"),
        ("TM126", "(x: list)", "`list[str]`"),
    ],
    ids=["type", "dict", "set", "list"],
)
def test_a_hint_has_the_types_of_the_parameter(folder, code, parameters, hint):
    """Review, newcomer 32: the hint for an `int` said `Annotated[str, …]`."""
    folder.write({"app.py": f"from toolmason import *\n@tool\ndef f{parameters}: 'Do.'\n"})

    [found] = [finding for finding in folder.check("app.py").findings if finding.code == code]

    assert hint in found.hint


def test_a_wrong_choice_names_the_nearest(folder):
    folder.write({"app.py": "from toolmason import *\n@tool(extra='alow')\ndef f(): 'Do.'\n"})

    [found] = folder.check("app.py").findings

    assert found.message.endswith("did you mean 'allow'?")


def test_the_help_of_a_rule_in_sarif_names_the_command_that_explains_it(report):
    rules = json.loads(format_sarif(report))["runs"][0]["tool"]["driver"]["rules"]

    assert all(f"toolmason check --explain {rule['id']}" in rule["help"]["text"] for rule in rules)
