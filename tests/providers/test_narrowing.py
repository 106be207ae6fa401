"""A schema is narrowed to what a provider takes; what gets lost is told, with its place."""

import json
import re
from dataclasses import asdict
from typing import Any

import pytest
from pydantic import BaseModel

from providers.body_checks import check_body
from providers.samples import CHATS
from toolmason import Message, Tool, Toolbox, ToolDefinition, tool
from toolmason.models import ModelRequest
from toolmason.providers import codec, verdict
from toolmason.providers.schema.narrow import SharedParts
from toolmason.providers.schema.strict import fit_anthropic, fit_gemini, fit_openai


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def definition(schema: dict[str, Any], name: str = "t"):
    return ToolDefinition(name, "d", schema)


def told(losses):
    return [str(loss) for loss in losses]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({}, "$.a: any value is allowed here"),
        ({"type": "object"}, "$.a: any key is allowed here"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "$.a: any key is allowed here"),
        ({"type": "array"}, "$.a: any item is allowed here"),
        ({"type": "array", "items": {}}, "$.a: any item is allowed here"),
        ({"type": "string", "minLength": 2}, "$.a: `minLength` is described but not enforced"),
        ({"type": "string", "pattern": "^(?!x)"}, "$.a: `pattern` is described but not enforced"),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "$.a: `uniqueItems` is described but not enforced",
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}]},
            "$.a: the order of the items is described but not enforced",
        ),
        ({"$ref": "#/$defs/gone"}, "$.a: the reference '#/$defs/gone' cannot be resolved"),
        ({"enum": [str(n) for n in range(1001)]}, "$: the schema has more than 1,000 enum values"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_auto_is_not_strict_where_something_gets_lost_and_says_why(part, reason):
    made = fit_openai(of(a=part), "auto")

    assert (made.strict, made.reason) == (False, reason)
    assert made.losses == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "pattern": "^[a-z]+$"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uri"},
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"allOf": [{"type": "string"}, {"description": "d"}]},
        {"const": "x"},
        {"enum": ["a", 1, None]},
        {"type": "string", "default": "x", "title": "T", "examples": ["y"]},
        {"type": "object", "properties": {"b": {"type": "string"}}},
    ],
    ids=lambda value: str(value)[:40],
)
def test_auto_is_strict_where_nothing_gets_lost(part):
    made = fit_openai(of(a=part), "auto")

    assert (made.strict, made.reason, made.losses) == (True, "", ())
    body = {"tools": [{"type": "function", "name": "t", "parameters": made.schema, "strict": True}]}
    assert check_body("openai", body) == []


def test_a_rule_that_cannot_be_held_is_told_in_the_description():
    schema = of(a={"type": "string", "minLength": 2, "maxLength": 5, "description": "A code"})

    made = fit_openai(schema, strict=True)

    assert made.schema["properties"]["a"] == {
        "type": "string",
        "description": "A code. At least 2 characters. At most 5 characters.",
    }
    assert told(made.losses) == [
        "$.a: `minLength` is described but not enforced",
        "$.a: `maxLength` is described but not enforced",
    ]
    assert not any(loss.changes_meaning for loss in made.losses)


@pytest.mark.parametrize(
    ("part", "kind", "subject"),
    [
        ({"type": "string", "minLength": 2}, "unenforced", "`minLength`"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "unenforced", "the order of the items"),
        ({"type": "array"}, "unrestricted", "any item"),
        ({"type": "object"}, "unrestricted", "any key"),
        ({}, "unrestricted", "any value"),
        ({"$ref": "#/$defs/gone"}, "other", ""),
    ],
    ids=["constraint", "order", "any item", "any key", "any value", "other"],
)
def test_the_kind_of_a_loss_does_not_depend_on_its_text(part, kind, subject):
    loss = fit_openai(of(a=part), strict=True).losses[0]

    assert (loss.kind, loss.subject) == (kind, subject)
    assert json.loads(json.dumps(asdict(loss))) == asdict(loss)


def test_every_optional_property_may_be_null_in_strict_mode():
    class Inner(BaseModel):
        a: int = 1

    @tool
    def t(x: Inner | None = None, y: list[Inner] = (), z: float = 0.5) -> None:
        """Do."""

    made = fit_openai(Toolbox(t)["t"].definition.input_schema, "auto")

    assert made.strict
    assert made.schema["required"] == ["x", "y", "z"]
    assert made.schema["properties"]["z"]["type"] == ["number", "null"]
    assert {"type": "null"} in made.schema["properties"]["x"]["anyOf"]
    assert made.schema["properties"]["y"]["type"] == ["array", "null"]


def test_a_type_that_contains_itself_stays_strict():
    class Node(BaseModel):
        value: int
        children: list["Node"] = []

    @tool
    def t(root: Node) -> None:
        """Do."""

    made = fit_openai(Toolbox(t)["t"].definition.input_schema, "auto")

    assert made.strict, made.reason
    body = {"tools": [{"type": "function", "name": "t", "parameters": made.schema, "strict": True}]}
    assert check_body("openai", body) == []


def test_a_description_beside_a_reference_is_kept():
    schema = {**of(a={"$ref": "#/$defs/X", "description": "Where"}), "$defs": {"X": of(b={"type": "string"})}}

    made = fit_openai(schema, "auto")

    assert made.schema["properties"]["a"] == {"anyOf": [{"$ref": "#/$defs/X"}], "description": "Where"}


@pytest.mark.parametrize("fit", [fit_openai, fit_anthropic], ids=["openai", "anthropic"])
def test_alternatives_at_the_top_become_one_object(fit):
    schema = {
        "type": "object",
        "anyOf": [of(a={"type": "string"}, c={"type": "integer"}), of(b={"type": "string"}, c={"type": "integer"})],
    }

    made = fit(schema, "auto")

    assert "anyOf" not in made.schema
    assert set(made.schema["properties"]) == {"a", "b", "c"}
    assert "a, c; b, c" in made.schema["description"]
    assert told(made.losses) == ["$: `anyOf` at the root is merged into one object"]


@pytest.mark.parametrize("fit", [fit_openai, fit_anthropic], ids=["openai", "anthropic"])
@pytest.mark.parametrize(
    "branch",
    [{"allOf": [of(a={"type": "string"})]}, {"oneOf": [of(a={"type": "string"}), {"$ref": "#/$defs/C"}]}],
    ids=["allOf", "oneOf"],
)
def test_alternatives_within_alternatives_at_the_top_keep_their_properties(fit, branch):
    named = {"C": of(c={"type": "string"})}

    made = fit({"type": "object", "anyOf": [branch, of(b={"type": "string"})], "$defs": named}, "auto")

    assert {"a", "b"} <= set(made.schema["properties"])
    assert "c" in made.schema["properties"] or "allOf" in branch


@pytest.mark.parametrize("fit", [fit_openai, fit_anthropic, fit_gemini], ids=["openai", "anthropic", "gemini"])
def test_a_schema_that_refers_to_itself_as_a_whole_gets_a_name(fit):
    """The name was empty: `#/$defs/`."""
    made = fit(of(a={"anyOf": [{"$ref": "#"}, {"type": "null"}]}), True)

    assert made.schema["properties"]["a"]["anyOf"][0] == {"$ref": "#/$defs/root"}
    assert made.schema["$defs"]["root"]["properties"] == made.schema["properties"]


@pytest.mark.parametrize("fit", [fit_openai, fit_anthropic, fit_gemini], ids=["openai", "anthropic", "gemini"])
def test_very_many_values_are_narrowed_in_linear_time(fit):
    """Each value was looked up in a list of all values."""
    values = [f"value {number}" for number in range(200_000)]

    made = fit(of(a={"type": "string", "enum": values}), True)

    assert made.schema["properties"]["a"]["enum"] == values


def test_gemini_gets_words_for_what_it_ignores_and_strings_and_numbers_for_enums():
    schema = of(
        a={"type": "string", "pattern": "^x", "minLength": 1},
        b={"const": "x"},
        c={"enum": ["u", None]},
        d={"type": "boolean", "enum": [True]},
        e={"allOf": [{"type": "object", "properties": {"f": {"type": "string"}}}, {"required": ["f"]}]},
    )

    made = fit_gemini(schema, "auto").schema["properties"]

    assert made["a"] == {"type": "string", "description": "Matches the pattern ^x. At least 1 characters."}
    assert made["b"] == {"type": "string", "enum": ["x"]}
    assert made["c"] == {"type": ["string", "null"], "enum": ["u"]}
    assert made["d"] == {"type": "boolean", "description": "One of [true]."}
    assert made["e"] == {"type": "object", "properties": {"f": {"type": "string"}}, "required": ["f"]}


@pytest.mark.parametrize("strict", ["auto", True, False])
def test_a_property_name_that_anthropic_refuses_is_sent_under_another_one(strict):
    inner = {"type": "object", "properties": {"@id": {"type": "string", "description": "Which"}}, "required": ["@id"]}
    box = Toolbox(Tool.from_schema("t", "d", of(**{"$filter": {"type": "string"}, "c": inner}), lambda a, c: None))

    (made,) = box.definitions("anthropic", strict)

    schema = made["input_schema"]
    sent, nested = schema["properties"], schema["properties"]["c"]["properties"]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in [*sent, *nested])
    assert schema["required"] == list(sent)
    assert schema["properties"]["c"]["required"] == list(nested)
    assert [part["description"] for part in nested.values()] == ["Which. Original name: '@id'."]
    assert verdict(box["t"].definition, "anthropic", strict).status == "accepted"
    assert list(box.definitions("openai")[0]["parameters"]["properties"]) == ["$filter", "c"]


def test_arguments_under_another_name_come_back_under_their_own_and_go_out_as_they_came():
    box = Toolbox(Tool.from_schema("t", "d", of(**{"$filter": {"type": "string"}}), lambda a, c: None))
    made = codec("anthropic")
    request = ModelRequest("x", box)
    names = made.fit_request_tools(request).names
    sent = next(iter(made.encode(request, "m")["tools"][0]["input_schema"]["properties"]))
    given = {sent: "a", "rows": [{sent: "b", "_filter": "c"}]}

    reply = made.decode({"content": [{"type": "tool_use", "id": "1", "name": "t", "input": given}]}, names)
    again = made.encode(ModelRequest([Message("user", "x"), Message("assistant", calls=reply.calls)], box), "m")

    assert reply.calls[0].arguments == {"$filter": "a", "rows": [{"$filter": "b", "_filter": "c"}]}
    assert again["messages"][1]["content"][0]["input"] == given


@pytest.mark.parametrize("provider", CHATS)
def test_a_schema_that_is_no_object_is_rejected_by_every_provider(provider):
    assert verdict(definition({"type": "array", "items": {}}), provider).status == "rejected"


def test_a_verdict_says_all_there_is_to_say():
    found = verdict(definition(of(a={"type": "string", "minLength": 1}), "my.tool"), "gemini")

    assert (found.provider, found.tool, found.status, found.alias) == ("gemini", "my.tool", "lossy", None)
    assert verdict(definition(of(), "my.tool"), "openai").alias == "my_tool"


def test_an_array_that_says_nothing_of_its_items_gets_what_openai_insists_on():
    made = fit_openai(of(a={"type": "array"}, b={"type": "object"}, c={"type": ["array", "null"]}), strict=False)

    assert made.schema["properties"] == {
        "a": {"type": "array", "items": {}},
        "b": {"type": "object", "properties": {}},
        "c": {"type": ["array", "null"], "items": {}},
    }


@pytest.mark.parametrize("provider", CHATS)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": True, "b": False}},
        {"type": "object", "properties": {"a": {"type": "array", "items": True}}},
        {"type": "object", "properties": {"a": {"anyOf": []}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}, {"type": "integer"}]}}},
        {"type": "object", "properties": {"a": {"not": {"type": "null"}}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"$ref": "#/$defs/r", "$defs": {"r": {"type": "object", "properties": {"a": {"$ref": "#/$defs/r"}}}}},
        {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"if": {"const": 1}, "then": {"minimum": 0}}}},
        {"type": "object", "properties": {"a": {"type": ["string", "object", "array"]}}},
        {"type": "object", "properties": {}, "required": ["gone"], "anyOf": [{"required": ["x"]}]},
        {"type": "object", "properties": {"a": {"enum": [{"x": 1}, [1], True, None, "s", 2.5]}}},
        {"definitions": {"a/b": {"type": "string"}}, **of(a={"$ref": "#/definitions/a~1b"})},
    ],
    ids=lambda value: str(value)[:50],
)
@pytest.mark.parametrize("strict", ["auto", True, False])
def test_odd_schemas_are_narrowed_without_a_fall(provider, schema, strict):
    found = verdict(definition({"type": "object", **schema}), provider, strict)

    assert found.narrowed.schema["type"] == "object"
    assert found.status in ("accepted", "lossy", "rejected")


def test_a_schema_as_deep_as_a_well_is_narrowed_without_a_fall():
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(150):
        schema = of(a=schema)

    assert fit_openai(schema, "auto").strict is False
    assert fit_openai(schema, "auto").reason == "$: the schema is more than 10 levels deep"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([{"type": ["string", "null"]}, {"type": "string"}], {"type": "string"}),
        (
            [{"type": "integer", "minimum": 1}, {"minimum": 3, "maximum": 9}, {"maximum": 5}],
            {"minimum": 3, "maximum": 5},
        ),
        ([{"enum": ["a", "b"]}, {"enum": ["b", "c"]}], {"enum": ["b"]}),
        ([of(a={"type": "string"}), of(a={"description": "d"}, b={"type": "integer"})], {"required": ["a", "b"]}),
    ],
    ids=["types", "bounds", "values", "properties"],
)
def test_schemas_that_hold_together_become_one(parts, expected):
    made = fit_openai(of(x={"allOf": parts}), strict=True)

    assert made.losses == ()
    assert {key: made.schema["properties"]["x"][key] for key in expected} == expected


def test_schemas_that_cannot_hold_together_are_told():
    made = fit_openai(of(x={"allOf": [{"type": "string"}, {"type": "integer"}]}), strict=True)

    assert made.losses[0].changes_meaning
    assert "`allOf` cannot be merged into one schema" in made.losses[0].what


TEXT = {"type": "string"}
PAIR = {"type": "object", "properties": {"x": TEXT}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize("fit", [fit_openai, fit_gemini], ids=["openai", "gemini"])
def test_schemas_within_schemas_that_hold_together_become_one(fit):
    inner = {"allOf": [{"$ref": "#/$defs/C"}, {"properties": {"y": TEXT}, "required": ["y"]}]}
    named = {"A": inner, "B": PAIR, "C": {"$ref": "#/$defs/B"}}

    made = fit({**of(a={"allOf": [{"$ref": "#/$defs/A"}]}), "additionalProperties": False, "$defs": named}, "auto")

    both = {"type": "object", "properties": {"x": TEXT, "y": TEXT}, "required": ["x", "y"]}
    assert made.losses == ()
    assert made.schema["properties"]["a"] == {**both, "additionalProperties": False}


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"allOf": [{"$ref": "#/$defs/Gone"}, TEXT]}, "$.a: a reference within `allOf` cannot be resolved"),
        ({"allOf": [{"$ref": "#/$defs/Loop"}]}, "$.a: nested `allOf` does not end"),
        ({"anyOf": [TEXT, {"type": "null"}], "oneOf": [TEXT]}, "$.a: `oneOf` is described but not enforced"),
    ],
    ids=["gone", "loop", "both kinds of alternatives"],
)
def test_what_cannot_become_one_is_told(part, reason):
    made = fit_gemini({**of(a=part), "$defs": {"Loop": {"allOf": [{"$ref": "#/$defs/Loop"}]}}}, "auto")

    assert told(made.losses) == [reason]


def test_a_reference_into_the_schema_itself_is_followed():
    """As zod-to-json-schema writes types that are used twice."""
    schema = of(
        a=PAIR, b={"$ref": "#/properties/a"}, c={"type": "array", "items": {"$ref": "#/properties/a/properties/x"}}
    )
    schema["$defs"] = {"properties_a": TEXT}

    for made in (fit_openai({**schema, "additionalProperties": False}, "auto"), fit_gemini(schema, "auto")):
        assert made.losses == ()
        assert made.schema["properties"]["b"] == {"$ref": "#/$defs/properties_a_"}
        assert made.schema["$defs"] == {"properties_a_": PAIR, "properties_a_properties_x": TEXT}


@pytest.mark.parametrize("ref", ["#/properties/z", "#/required/9", "#/required/x", "#anchor", "http://x/y", 5, "#/"])
def test_a_reference_that_points_to_nothing_is_told(ref):
    made = fit_gemini(of(a={"$ref": ref}), "auto")

    assert told(made.losses) == [f"$.a: the reference {ref!r} cannot be resolved"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "array", "items": [TEXT]}, {"type": "array", "prefixItems": [TEXT]}),
        (
            {"type": "array", "items": [TEXT], "additionalItems": False},
            {"type": "array", "prefixItems": [TEXT], "items": False},
        ),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": False}, {"type": "number", "maximum": 1}),
        ({"type": "number", "exclusiveMaximum": True}, {"type": "number"}),
    ],
    ids=["tuple", "closed tuple", "above", "up to", "above nothing"],
)
def test_an_older_draft_is_sent_as_the_current_one(old, new):
    made = fit_anthropic(of(a=old), "auto")

    assert made.schema["properties"]["a"] == new


PARTS_IN_COMMON = {
    "a loss, at two places": [of(a={"type": "string", "minLength": 2}), of(b={"type": "string", "minLength": 2})],
    "one type, with and without a text": [
        of(a={"type": "string", "default": "x", "description": "First."}),
        of(a={"type": "string", "default": "x"}, b={"type": "string", "default": "x", "description": " "}),
        of(a={"type": "string", "default": "x", "description": "Second. Default: x."}),
        {**of(a={"type": "string", "default": "x", "description": "Third"}), "required": ["a"]},
    ],
    "one type with a choice, described": [
        of(
            a={"const": 1, "description": text},
            b={"anyOf": [{"type": "string"}, {"type": "null"}], "description": text},
        )
        for text in ("First.", "Second.")
    ],
    "one default, of two types": [of(a={"type": "number", "default": 1}), of(a={"type": "number", "default": 1.0})],
    "one name, two definitions": [
        {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(x={"type": "string"})}},
        {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(x={"type": "integer"})}},
    ],
    "one definition that refers to another": [
        {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(x={"$ref": "#/$defs/B"}), "B": {"type": kind}}}
        for kind in ("string", "integer")
    ],
    "a key that has an alias": [of(a=of(größe={})), of(größe={}, a=of(größe={}))],
    "enum values beyond the limit": [
        of(a={"enum": list(range(600))}),
        of(**{key: {"enum": list(range(600))} for key in "ab"}),
    ],
}


@pytest.mark.parametrize("strict", [True, "auto"], ids=str)
@pytest.mark.parametrize("fit", [fit_openai, fit_anthropic, fit_gemini], ids=["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("schemas", PARTS_IN_COMMON.values(), ids=PARTS_IN_COMMON)
def test_schemas_with_parts_in_common_are_narrowed_as_each_is_alone(schemas, fit, strict):
    shared = SharedParts()

    together = [fit(schema, strict, shared) for schema in [*schemas, *schemas]]

    assert repr(together) == repr([fit(schema, strict) for schema in [*schemas, *schemas]])


def test_a_part_that_is_too_deep_in_one_schema_may_be_in_another():
    deep = {"type": "string"}
    for _ in range(199):
        deep = {"type": "array", "items": deep}
    inner = {**of(a=of(b=of(c={"$ref": "#/$defs/A"}))), "$defs": {"A": deep}}
    shared = SharedParts()

    made = [fit_gemini(schema, "auto", shared) for schema in (of(a=deep), inner, of(a=deep))]

    assert [told(one.losses) for one in made] == [[], ["$: the schema is more than 200 levels deep"], []]


def test_a_nested_property_name_that_anthropic_refuses_is_sent_under_another_one():
    made = fit_anthropic(of(a=of(größe={"type": "string"})), strict=True)

    assert list(made.keys.values()) == ["größe"]
    assert list(made.schema["properties"]["a"]["properties"]) == list(made.keys)
