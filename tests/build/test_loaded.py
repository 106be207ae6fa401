"""Dynamic rules: what loaded tools cost, and what each provider makes of them."""

import sys

import pytest

from toolmason import Tool, Toolbox, ToolDefinition
from toolmason.build.check.portability import check_providers
from toolmason.build.check.provider_limits import PROVIDERS, find_refusing_providers
from toolmason.errors import ConfigError

APP = '''
from typing import Annotated, Any
from pydantic import Field
from toolmason import Tool, Toolbox, tool

@tool
def plain(x: Annotated[int, "How many"] = 5) -> None:
    """Do it."""

@tool
def mapped(
    x: Annotated[dict[str, int], "Counts"],
) -> None:
    """Do it."""

@tool(name="shop.quote")
def dotted(x: Annotated[str, Field(description="Which", pattern="^a")]) -> None:
    """Do it."""

made = Tool.from_schema("made", "Do it.", {"properties": {"unit price": {"type": "string"}}}, print)
both = {"allOf": [{"properties": {"x": {"type": "string"}}}, {"properties": {"x": {"type": "integer"}}}]}
torn = Tool.from_schema("torn", "Do it.", both, print)
box = Toolbox(plain, mapped, dotted, made, torn)
'''


@pytest.fixture(autouse=True)
def forget_modules(folder):
    """What a test loads must not be found by the next one."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in set(sys.modules) - before if name.startswith("shop_")]:
        del sys.modules[name]


def told(report, code):
    return [(found.location.line, found.message) for found in report.findings if found.code == code]


def test_a_target_with_a_name_is_loaded_and_others_are_not(folder):
    folder.write({"shop_app.py": APP})

    assert [tool.name for tool in folder.check("shop_app.py:box", mode="auto").tools] == [
        "made",
        "mapped",
        "plain",
        "shop.quote",
        "torn",
    ]
    assert folder.check("shop_app.py", mode="auto").tools == ()
    assert folder.check("shop_app.py:box", mode="static").tools == ()
    assert "shop_app" not in sys.modules or folder.check("shop_app.py", mode="dynamic").tools


def test_each_tool_is_told_with_its_cost_and_what_each_provider_makes_of_it(folder):
    folder.write({"shop_app.py": APP})

    tools = {tool.name: tool for tool in folder.check("shop_app.py:box", mode="auto").tools}

    assert {name: tool.location.line for name, tool in tools.items()} == {
        "made": 1,
        "mapped": 11,
        "plain": 7,
        "shop.quote": 17,
        "torn": 1,
    }
    assert all(tool.tokens > 10 for tool in tools.values())
    assert [verdict.provider for verdict in tools["plain"].verdicts] == list(PROVIDERS)
    assert {verdict.status for verdict in tools["plain"].verdicts} == {"accepted"}
    assert all(verdict.strict for verdict in tools["plain"].verdicts)
    assert {verdict.status for verdict in tools["made"].verdicts} == {"accepted"}
    assert [[key.partition(" sent as ")[0] for key in verdict.keys] for verdict in tools["made"].verdicts] == [
        [],
        ["'unit price'"],
        [],
    ]
    assert [verdict.status for verdict in tools["shop.quote"].verdicts] == ["accepted", "accepted", "lossy"]
    assert [verdict.alias for verdict in tools["shop.quote"].verdicts] == ["shop_quote", "shop_quote", None]


def test_what_providers_reject_lose_or_cannot_hold_is_found_at_the_tool(folder):
    folder.write({"shop_app.py": APP})

    report = folder.check("shop_app.py:box", mode="auto")

    assert sorted(told(report, "TM204")) == [
        (1, f"{provider} rejects 'torn': `allOf` cannot be merged into one schema: type differs")
        for provider in ("anthropic", "gemini", "openai")
    ]
    assert told(report, "TM205") == [
        (17, "gemini does not fully enforce 'shop.quote': `pattern` at $.x is not enforced")
    ]
    strict = [message for _, message in told(report, "TM206")]
    open_keys = "openai: any key is allowed at $.x; anthropic: any key is allowed at $.x"
    assert f"'mapped' cannot be sent in strict mode ({open_keys})" in strict
    assert "'shop.quote' cannot be sent in strict mode (anthropic: `pattern` at $.x has no strict form)" in strict
    assert {found.severity for found in report.findings if found.code in ("TM205", "TM206")} == {"note"}
    assert {found.tool: found.hint for found in report.findings if found.code == "TM206"} == {
        "mapped": "Use closed types: no bare `dict`, no `Any`, no mappings.",
        "shop.quote": "State the constraint in the description instead of the type.",
    }


def test_strict_mode_may_be_demanded_of_every_tool(folder):
    folder.write({"shop_app.py": APP})

    report = folder.check("shop_app.py:box", mode="auto", require_strict=("openai",))

    wrong = [found.tool for found in report.findings if found.code == "TM206" and found.severity == "error"]
    assert wrong == ["mapped"]


@pytest.mark.parametrize(("budget", "found"), [(10, 1), (10_000, 0)])
def test_a_budget_is_a_gate(folder, budget, found):
    folder.write({"shop_app.py": APP})

    report = folder.check("shop_app.py:box", mode="auto", budget=budget)

    assert len(told(report, "TM401")) == found
    assert len(told(folder.check("shop_app.py:plain", mode="auto", tool_budget=budget), "TM402")) == found


def test_the_message_of_a_budget_tells_the_numbers(folder):
    folder.write({"shop_app.py": APP})

    [(_, message)] = told(folder.check("shop_app.py:plain", mode="auto", budget=10), "TM401")

    assert message.startswith("1 tool of 'shop_app.py:plain' takes about ")
    assert message.endswith(" tokens; the budget is 10")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("raise RuntimeError('broken')", "broken"),
        ("raise SystemExit(3)", "3"),
        ("from toolmason import *\n@tool\ndef f(x): 'Do.'\nbox = Toolbox(f)", "parameter 'x' has no type"),
        ("box = 5", "is not a source of tools"),
        ("class Odd(BaseException): ...\nraise Odd", "Odd"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_a_finding_and_its_source_is_still_checked(folder, source, words):
    folder.write({"shop_app.py": f"{source}\nfrom toolmason import tool\n@tool\ndef g(y): 'Do.'\n"})

    report = folder.check("shop_app.py:box", mode="auto")

    [(line, message)] = told(report, "TM198")
    assert words in message
    assert line == 1
    assert any("'y' has no type" in found.message for found in report.findings)


def test_a_name_that_is_not_there_is_no_finding_but_a_wrong_target(folder):
    folder.write({"shop_app.py": APP})

    with pytest.raises(ConfigError, match=r"'shop_app\.py' has no 'bax'\. Check the name after the colon"):
        folder.check("shop_app.py:bax", mode="auto")


def test_what_a_module_prints_does_not_go_to_standard_output(folder, capsys):
    folder.write({"shop_app.py": f"print('hello')\n{APP}"})

    folder.check("shop_app.py:box", mode="auto")

    assert capsys.readouterr() == ("", "hello\n")


def test_a_whole_package_is_loaded_on_demand(folder):
    folder.write(
        {
            "shop_pkg/__init__.py": "",
            "shop_pkg/base.py": "PRICE = 5\n",
            "shop_pkg/tools.py": (
                "from toolmason import tool\nfrom .base import PRICE\n"
                "@tool\ndef quote() -> int:\n    'Do.'\n    return PRICE\n"
            ),
            "shop_pkg/again.py": "from .tools import quote\n",
        }
    )

    report = folder.check("shop_pkg", mode="dynamic")

    assert [tool.name for tool in report.tools] == ["quote"]
    assert [str(tool.location) for tool in report.tools] == ["shop_pkg/tools.py:4:5"]
    assert report.findings == ()


def definition(schema, name="act"):
    return ToolDefinition(name, "Do it.", schema)


@pytest.mark.parametrize(
    ("schema", "statuses"),
    [
        ({"type": "object", "properties": {}}, ("accepted", "accepted", "accepted")),
        ({"type": "string"}, ("rejected", "rejected", "rejected")),
        ({"type": "object", "anyOf": [{"type": "object"}]}, ("lossy", "lossy", "accepted")),
        ({"type": "object", "properties": {"a b": {"type": "string"}}}, ("accepted", "accepted", "accepted")),
        ({"type": "object", "properties": {"x": {"enum": [None]}}}, ("accepted", "accepted", "lossy")),
        (
            {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "array"}}}},
            ("accepted", "accepted", "accepted"),
        ),
        (
            {"type": "object", "properties": {"x": {"type": "string", "minLength": 1}}},
            ("accepted", "accepted", "lossy"),
        ),
    ],
    ids=["empty", "no object", "union at the top", "odd key", "null in an enum", "bare array", "length"],
)
def test_a_schema_is_accepted_lossy_or_rejected(schema, statuses):
    assert tuple(verdict.status for verdict in check_providers(definition(schema))) == statuses


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "openai", "anthropic"),
    [
        (closed(x={"type": "string"}), "", ""),
        (closed(x={"$ref": "#/$defs/A"}) | {"$defs": {"A": closed()}}, "", ""),
        (closed(x={}), "any value is allowed at $.x", "any value is allowed at $.x"),
        (closed(x={"type": "object"}), "any key is allowed at $.x", "any key is allowed at $.x"),
        (closed(x={"type": "integer", "minimum": 1}), "", "`minimum` at $.x has no strict form"),
        (
            closed(x={"type": "string", "minLength": 1}),
            "`minLength` at $.x has no strict form",
            "`minLength` at $.x has no strict form",
        ),
        (closed(x={"type": "array", "items": {}}), "any item is allowed at $.x", "any item is allowed at $.x"),
        (
            closed(x={"enum": list(range(1001))}),
            "the schema has more than 1,000 enum values",
            "",
        ),
    ],
    ids=["closed", "reference", "anything", "any key", "minimum", "length", "any item", "large enum"],
)
def test_strict_mode_is_possible_or_the_reason_is_told(schema, openai, anthropic):
    verdicts = {verdict.provider: verdict for verdict in check_providers(definition(schema))}

    assert (verdicts["openai"].not_strict, verdicts["anthropic"].not_strict) == (openai, anthropic)
    assert verdicts["openai"].strict is (openai == "")
    assert verdicts["gemini"].strict


@pytest.mark.parametrize("part", [{"enum": [True, "a"]}, {"const": True}], ids=["enum", "const"])
def test_a_fixed_value_that_gemini_does_not_enforce_is_named_with_its_path(part):
    verdict = check_providers(definition(closed(x=part)))[2]

    assert verdict.reasons == (f"`{next(iter(part))}` at $.x is not enforced",)


def test_a_schema_of_many_levels_is_looked_through():
    schema = {"type": "string"}
    for _ in range(2_000):
        schema = closed(x=schema)

    assert check_providers(definition(schema))[0].not_strict.startswith("the schema is more than 10 levels deep")


def test_a_type_that_contains_itself_is_looked_at_once():
    def act(node: "Node") -> None:
        """Do it."""

    from dataclasses import dataclass

    @dataclass
    class Node:
        children: list["Node"]

    act.__annotations__ = {"node": Node}
    globals()["Node"] = Node
    try:
        verdicts = check_providers(Tool.from_function(act).definition)
    finally:
        del globals()["Node"]

    assert [verdict.status for verdict in verdicts] == ["accepted", "accepted", "accepted"]


@pytest.mark.parametrize("name", ["shop.quote", "a b", "größe", "x" * 300, "1st", "💡", "\udc80"], ids=repr)
def test_an_alias_is_taken_by_every_provider(name):
    sent = [verdict.alias or name for verdict in check_providers(definition({"type": "object"}, name))]

    assert [find_refusing_providers(alias) for alias in sent[:2]] == [[], []] or name == "1st"
    assert "gemini" not in find_refusing_providers(sent[2])


def test_an_alias_is_the_name_that_is_sent():
    names = ["a.b", "a_b", "a b", "c d", "a" * 70]
    box = Toolbox([Tool.from_schema(name, "Do it.", {"type": "object"}, print) for name in names])

    told = [check_providers(tool.definition, names)[1].alias or tool.name for tool in box.tools]

    assert told == [made["name"] for made in box.definitions("anthropic")]
