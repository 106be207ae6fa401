"""What a stranger may send: schemas and data that grow with a size, and the functions of the package that walk them."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from httpx2 import Response
from mcp.client.auth.utils import extract_field_from_www_auth

from properties.hostile_sources import REPLIES, STREAMS, read_reply, read_stream
from toolmason import Tool, Toolbox, ToolContext, ToolDefinition, tool
from toolmason._core.arguments.bind import LargeArguments, bind_once
from toolmason._core.arguments.bounds import extract_structure, measure_nesting
from toolmason._core.call.long_results import ResultStore, make_result_reader
from toolmason._core.call.render import convert
from toolmason._core.catalog.uri_templates import UriTemplate, measure_specificity
from toolmason._core.define.bounded_checks import BudgetExceeded, CheckBudget
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.invocation import expand
from toolmason._core.define.schema_nodes import get_json_types
from toolmason._core.define.tool import compile_tool
from toolmason._core.toolbox.approvals import format_arguments
from toolmason._core.values.policy import EngineSettings
from toolmason._secrets import scrub
from toolmason._text import escape_hidden
from toolmason._wire import LineSplitter, load_json, parse_retry_after
from toolmason.build.compare.schema_diff import compare_schemas
from toolmason.errors import DefinitionError, ResultError, ToolmasonError
from toolmason.mcp_client.calls.input_checks import make_remote_inputs
from toolmason.mcp_client.calls.output_checks import find_error, make_validator
from toolmason.mcp_client.transport.framing import parse_large_json, parse_message, prune
from toolmason.mcp_client.transport.sanitize import find_hidden_character, find_tool_problem
from toolmason.models.http.sse import EventStream
from toolmason.models.lexical.index import ToolIndex
from toolmason.providers.registry import verdict

Json = Any


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def root(part: Json, definitions: dict[str, Json] | None = None, **keywords: Json) -> Json:
    return {"type": "object", "properties": {"x": part}, "$defs": definitions or {}, **keywords}


def fan(level: Callable[[int], Json], leaf: Json, size: int) -> dict[str, Json]:
    """Definitions n0, n1, …, of which each names the next one more than once."""
    return {f"n{number}": level(number) for number in range(size)} | {f"n{size}": leaf}


def union(keyword: str, number: int, **keywords: Json) -> Json:
    return {keyword: [ref(f"n{number + 1}"), ref(f"n{number + 1}")], **keywords}


def told_apart(keyword: str, number: int) -> Json:
    return {keyword: [{**ref(f"n{number + 1}"), "description": f"{side} {number}"} for side in "ab"]}


def inherited(number: int) -> Json:
    below = [ref(f"n{number + 1}")]
    return {"allOf": below, "properties": {f"p{number}": {"allOf": [*below, {"title": "t"}]}}}


def both_sides(keyword: str, number: int) -> Json:
    inner = ref(f"n{number + 1}")
    return {keyword: [{"properties": {"a": inner}}, {"properties": {"a": inner, "b": {}}}]}


LEAVES: dict[str, Json] = {
    "objects": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "texts": {"type": "string", "description": "A text.", "minLength": 2},
}
TREE = {"allOf": [{"properties": {side: {"allOf": [ref("tree"), {"title": side}]} for side in ("a", "b")}}]}
SCHEMAS: dict[str, Callable[[int], Json]] = {
    **{
        f"{keyword} fan of {kind}": lambda size, keyword=keyword, leaf=leaf: root(
            ref("n0"), fan(partial(union, keyword), leaf, size)
        )
        for keyword in ("allOf", "anyOf", "oneOf")
        for kind, leaf in LEAVES.items()
    },
    **{
        f"{keyword} fan, told apart": lambda size, keyword=keyword: root(
            ref("n0"), fan(partial(told_apart, keyword), LEAVES["objects"], size)
        )
        for keyword in ("allOf", "anyOf", "oneOf")
    },
    **{
        f"{keyword} of both sides": lambda size, keyword=keyword: root(
            ref("n0"), fan(partial(both_sides, keyword), LEAVES["texts"], size)
        )
        for keyword in ("allOf", "anyOf", "oneOf")
    },
    **{
        f"{keyword} fan at the root": lambda size, keyword=keyword: {
            "type": "object",
            **union(keyword, -1),
            "$defs": fan(partial(union, keyword), LEAVES["objects"], size),
        }
        for keyword in ("allOf", "anyOf", "oneOf")
    },
    "growing descriptions": lambda size: root(
        ref("n0"), fan(lambda n: union("allOf", n, description=f"level {n}"), {"description": "leaf"}, size)
    ),
    "inherited properties": lambda size: root(ref("n0"), fan(inherited, LEAVES["objects"], size)),
    "a tree": lambda size: root(ref("tree"), {"tree": {**TREE, "description": "x" * size}}),
    "a chain": lambda size: root(ref("n0"), fan(lambda n: ref(f"n{n + 1}"), {"type": "string"}, size)),
    "a chain of properties": lambda size: root(
        ref("n0"), fan(lambda n: {"type": "object", "properties": {"a": ref(f"n{n + 1}")}}, {"type": "string"}, size)
    ),
    "pointers": lambda size: {
        "type": "object",
        "properties": {f"p {n}": {"$ref": f"#/properties/p {n + 1}"} for n in range(size)} | {f"p {size}": {}},
    },
    "clashing pointers": lambda size: root(
        {"anyOf": [{"$ref": f"#/x/a{'+- !'[n % 4]}b{n:b}".replace("0", "+").replace("1", "-")} for n in range(size)]},
        x={f"a{'+- !'[n % 4]}b{n:b}".replace("0", "+").replace("1", "-"): {"type": "string"} for n in range(size)},
    ),
    "many properties": lambda size: root({"type": "object", "properties": {f"p{n}": {} for n in range(size)}}),
    "strange names": lambda size: root({"properties": {f"p{n} ü": {"type": "string"} for n in range(size)}}),
    "many values": lambda size: root({"enum": [f"v{n}" for n in range(size)]}),
    "many objects as values": lambda size: root({"enum": [{"v": n} for n in range(size)]}),
    "many branches": lambda size: root({"anyOf": [{"type": "string", "const": f"v{n}"} for n in range(size)]}),
    "many branches at the root": lambda size: {
        "type": "object",
        "anyOf": [{"properties": {"x": {"const": n}}, "required": ["x"]} for n in range(size)],
    },
    "unions of unions": lambda size: root(
        {
            "anyOf": [
                {"properties": {"a": {"anyOf": [{"const": [m, n]} for m in range(int(size**0.5))]}}}
                for n in range(int(size**0.5))
            ]
        }
    ),
    "many items in order": lambda size: root({"prefixItems": [{"const": n} for n in range(size)]}),
    "many parts": lambda size: root({"allOf": [{"properties": {f"p{n}": {"type": "string"}}} for n in range(size)]}),
    "many parts with values": lambda size: root(
        {"allOf": [{"enum": [{"v": n} for n in range(size)]}, {"enum": [{"v": -n} for n in range(size)]}]}
    ),
    "required over and over": lambda size: root(
        {"allOf": [{"required": [f"p{n}" for n in range(size)]}, {"required": [f"q{n}" for n in range(size)]}]}
    ),
    "required objects": lambda size: root({"required": [{"v": n} for n in range(size)]}),
    "many sentences": lambda size: root({"type": "array", **{f"x-{n}": n for n in range(size)}}),
    "a long text": lambda size: root({"type": "string", "description": "a " * size, "default": "x" * size}),
    "deep": lambda size: root(json.loads('{"items":' * min(size, 30) + "{}" + "}" * min(size, 30))),
    "a hostile pattern": lambda size: root({"type": "string", "pattern": "^(a+)+$", "description": "x" * size}),
    "hostile patterns of keys": lambda size: root(
        {"patternProperties": {f"^(a|a){{1,{n + 1}}}$": {} for n in range(size % 40)}, "additionalProperties": False}
    ),
    "a long pattern": lambda size: root({"type": "string", "pattern": "(a|b)" * min(size, 2_000)}),
    "unique items": lambda size: root({"type": "array", "uniqueItems": True, "maxItems": size}),
    "huge numbers": lambda size: root({"type": "number", "minimum": 10 ** min(size, 300), "multipleOf": 1e-9}),
}


def nested(size: int, opening: str, inner: str, closing: str, depth: int = 100) -> str:
    return "[" + ",".join([opening * depth + inner + closing * depth] * max(1, size // depth)) + "]"


def nested_objects(depth: int) -> str:
    return '{"a":' * depth + '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"' + "}" * depth


TEXTS: dict[str, Callable[[int], str]] = {
    "deep lists": lambda size: nested(size, "[", "1", "]"),
    "deep objects": lambda size: nested(size // 3, '{"a":', "1", "}", 50),
    "one deep object": lambda size: nested_objects(min(size, 60)),
    "a wide object": lambda size: json.dumps({f"k{n}": n for n in range(size)}),
    "a long list": lambda size: json.dumps(list(range(size))),
    "a list of texts": lambda size: json.dumps([str(n) for n in range(size)]),
    "a list of nulls": lambda size: json.dumps([None] * size),
    "objects with nulls": lambda size: json.dumps([{"a": None, "b": n} for n in range(size)]),
    "a long text": lambda size: json.dumps("a" * size + "!"),
    "escapes": lambda size: json.dumps('\u0000"\\' * size),
    "the same object": lambda size: json.dumps([{"a": 1, "b": [True]}] * size),
    "different objects": lambda size: json.dumps([{"a": n, "b": [n]} for n in range(size)]),
    "a huge number": lambda size: "1" * min(size, 4_000),
    "quotes": lambda size: '["' * size,
    "brackets": lambda size: "[" * size,
}
"""JSON texts of about `size` values, of which the last two are broken."""
SMALL: dict[str, str] = {
    "object": '{"a": {"a": {"a": "1"}}, "b": null, "z": 1}',
    "deep object": nested_objects(40),
    "text": '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"',
    "list": "[1, null, {}]",
    "true": "true",
}


def values(size: int) -> list[str]:
    return [f"v{number}" for number in range(size)]


def wide(size: int, name: str = "r") -> dict[str, Json]:
    return {"type": "object", "properties": {f"{name}{number}": {"const": number} for number in range(size)}}


PAIRS: dict[str, Callable[[int], tuple[Json, Json]]] = {
    "values of an enum": lambda size: ({"enum": values(size)}, [f"v{size - 1}"] * size),
    "values of an enum in capitals": lambda size: ({"enum": values(size)}, [f"V{size - 1}"] * size),
    "objects of an enum": lambda size: ({"enum": [{"v": n} for n in range(size)]}, [{"v": size - 1}] * size),
    "nulls for an enum": lambda size: (
        {"type": "object", "properties": {"a": {"enum": values(size)}}},
        [{"a": None}] * size,
    ),
    "nulls for alternatives": lambda size: (
        {"type": "object", "properties": {"a": {"anyOf": [{"const": n} for n in range(size)]}}},
        [{"a": None}] * size,
    ),
    "an enum or objects": lambda size: ({"anyOf": [{"enum": values(size)}, {"type": "object"}]}, [{"a": None}] * size),
    "many required": lambda size: ({**wide(size), "required": [f"r{n}" for n in range(size)]}, [{"r0": None}] * size),
    "many properties": lambda size: (wide(size), [{"r1": "1"}] * size),
    "alternatives with many properties": lambda size: ({"oneOf": [wide(size // 9 + 1)] * 9}, [{"z": 1}] * size + ["1"]),
    "wide values for alternatives": lambda size: (
        {"oneOf": [wide(3, name) for name in ("a", "b", "c")]},
        [{f"k{n}": n for n in range(size)}],
    ),
    "many alternatives": lambda size: (
        {"oneOf": [{"type": "object", "properties": {"k": {"const": v}}} for v in values(size)]},
        [{"k": f"v{size - 1}"}] * size,
    ),
    "patterns of keys": lambda size: (
        {"type": "object", "patternProperties": {f"^a{n}$": {"type": "integer"} for n in range(size)}},
        [{f"b{n}": 1 for n in range(size)}],
    ),
    "names of keys": lambda size: ({"propertyNames": {"enum": values(size)}}, [{f"b{n}": 1 for n in range(size)}]),
}
"""Schemas of the items of a list, and lists for them, that grow together: each value could meet each part."""


def bind_pair(pair: tuple[Json, Json], *, remote: bool) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": pair[0]}}}
    with suppress(ToolmasonError):
        own = None if remote else Tool.from_schema("t", "d", schema, lambda arguments, _: "done")
        inputs = make_remote_inputs(schema, "s/t") if own is None else compile_tool(own).inputs
        bind_once(inputs, json.dumps({"x": pair[1]}), "t", EngineSettings())


def export(provider: str, strict: Any, schema: Json) -> None:
    verdict(ToolDefinition("t", "d", schema), provider, strict)


def bind_all(inputs: Inputs) -> None:
    for value in SMALL.values():
        for raw in (f'{{"x": {value}}}', json.loads(f'{{"x": {value}}}')):
            with suppress(ToolmasonError):
                bind_once(inputs, raw, "t", EngineSettings())


def call_own_schema(schema: Json) -> None:
    """Define a tool by a schema that came from elsewhere, and call it."""
    with suppress(DefinitionError):
        bind_all(compile_tool(Tool.from_schema("t", "d", schema, lambda arguments, _: "done")).inputs)


def bind_remote(schema: Json) -> None:
    bind_all(make_remote_inputs(schema, "s/t"))


def check_output(schema: Json) -> None:
    validator = make_validator(json.dumps(schema).encode())
    for value in SMALL.values():
        with suppress(BudgetExceeded):
            find_error(validator, {"x": json.loads(value)}, CheckBudget(50_000))


def difference(schema: Json) -> None:
    other = {**schema, "properties": {**schema.get("properties", {}), "y": {}}, "description": "new"}
    with suppress(DefinitionError):
        compare_schemas(schema, json.loads(json.dumps(other)))


def screen(schema: Json) -> None:
    find_tool_problem({"name": "t", "inputSchema": schema, "outputSchema": schema})


def index(schema: Json) -> None:
    ToolIndex([ToolDefinition("t", "d", schema)] * 3).find("value x of the text")


def types(schema: Json) -> None:
    for part in schema.get("properties", {}).values():
        get_json_types(part, schema)


SCHEMA_WALKERS: dict[str, Callable[[Json], None]] = {
    **{
        f"export to {provider}, strict={strict}": partial(export, provider, strict)
        for provider in ("openai", "openai_chat", "anthropic", "gemini", "mcp")
        for strict in ("auto", True, False)
    },
    "call of Tool.from_schema": call_own_schema,
    "arguments of a remote tool": bind_remote,
    "result of a remote tool": check_output,
    "diff": difference,
    "screen of a server's list": screen,
    "search index": index,
    "types for the command": types,
}


@tool
async def typed(x: list[int] = []) -> str:  # noqa: B006 - as users write
    return "done"


@tool
async def anything(x: Any = None) -> Any:
    return x


@tool
async def nothing(y: str = "") -> str:
    return y


BOX = Toolbox(typed, anything, nothing)


def bind_text(name: str, text: str) -> None:
    inputs = compile_tool(BOX[name]).inputs
    with suppress(ToolmasonError):
        bind_once(inputs, f'{{"x": {text}}}', name, EngineSettings())


def bind_parsed(name: str, text: str) -> None:
    with suppress(ValueError, RecursionError):
        LargeArguments(x=json.loads(text)).bind(compile_tool(BOX[name]).inputs, name, EngineSettings())


def approve(text: str) -> None:
    with suppress(ValueError, RecursionError):
        format_arguments({"x": json.loads(text)})


def feed(text: str) -> None:
    data = f"data: {text}\n\n".encode()
    stream, splitter = EventStream("p"), LineSplitter(1 << 24)
    with suppress(ToolmasonError):
        for start in range(0, len(data), 100):
            list(stream.feed(data[start : start + 100]))
            list(splitter.feed(data[start : start + 100]))


def match(text: str) -> None:
    for template in ("a://{x}/{y}/{z*}", "a://{+x}a{y}a{z}"):
        UriTemplate.parse(template).match(f"a://{text}")
        measure_specificity(template, f"a://{text}")


def match_remote(text: str) -> None:
    """Match the templates of a server: as it sent them, with many placeholders, and with a literal that repeats."""
    for template in (f"a://{text}", "a://" + "{x}a{+y}" * (len(text) // 8), f"a://{{x*}}{text[:200]}{{y}}"):
        measure_specificity(template, f"a://{text}")
        measure_specificity(template, "a://" + "a" * len(text))


def challenge(text: str) -> None:
    for header in (
        text,
        f'Bearer resource_metadata="{text}',
        "Bearer " + 'resource_metadata ="x",' * (len(text) // 24),
    ):
        # httpx decodes and sends only one line.
        response = Response(401, headers={"WWW-Authenticate": header.encode("ascii", "replace").replace(b"\n", b" ")})
        extract_field_from_www_auth(response, "resource_metadata")
        extract_field_from_www_auth(response, "scope")


def render(text: str) -> None:
    with suppress(ValueError, RecursionError, ResultError):
        convert(BOX["anything"], json.loads(text), {})


def hide_secrets(text: str) -> None:
    """Scrub an error that quotes the arguments, one of which a client calls a secret."""
    half = len(text) // 2
    scrub(f"no {text[:half]}!{text[half:]}", {"token": text, "key": [text[:half] * 2], "more": list(text)})


def search_result(text: str) -> None:
    """Search a long result for its first half, which does not end as it does in the result."""
    store = ResultStore(1 << 24)
    read = compile_tool(make_result_reader(store)).function
    for search in (text[: len(text) // 2] + "\0", text[:1]):
        read(store.save(text), search=search, ctx=ToolContext())


def load(text: str) -> None:
    with suppress(ValueError, RecursionError):
        load_json(text)


TEXT_WALKERS: dict[str, Callable[[str], object]] = {
    **{f"text for {name}": partial(bind_text, name) for name in ("typed", "anything", "nothing")},
    **{f"data for {name}": partial(bind_parsed, name) for name in ("typed", "anything", "nothing")},
    "nesting": lambda text: measure_nesting(extract_structure(text.encode()), 128),
    "message": lambda text: parse_message(f'{{"id": 1, "x": {text}}}'.encode()),
    "large message": lambda text: parse_large_json(f'{{"id": 1, "x": {text}}}'.encode()),
    "prune": lambda text: prune(text.encode()),
    "JSON": load,
    "events and lines": feed,
    "URI templates": match,
    "approval": approve,
    "rendering": render,
    "secrets": hide_secrets,
    "read_result": search_result,
    "templates of results": lambda text: expand(f"${{{text}}}${{x}}", {"x": text}),
    "URI templates of a server": match_remote,
    "WWW-Authenticate": challenge,
    **{f"stream of {provider}": partial(read_stream, provider) for provider in STREAMS},
    **{f"reply of {provider}": partial(read_reply, provider) for provider in REPLIES},
    "Retry-After": lambda text: parse_retry_after({"retry-after": text}),
    "hidden characters": lambda text: (find_hidden_character(text), escape_hidden(text)),
}
