"""Documents that are broken, hostile or odd: a typed error, or an operation that is left out with its reason."""

import json

import pytest

from openapi.apis import Recorder, document, operation, parameter
from toolmason import Toolbox
from toolmason.errors import ConfigError, PluginError
from toolmason.openapi import OpenApi
from toolmason.openapi import document as documents

BROKEN = {
    "an empty file": "",
    "not JSON": "{",
    "not YAML": "a: [",
    "a list": "[]",
    "text": '"openapi"',
    "null": "null",
    "no version": "{}",
    "Swagger": '{"swagger": "2.0"}',
    "a later version": '{"openapi": "4.0.0"}',
    "a version as a list": '{"openapi": []}',
    "paths as a list": '{"openapi": "3.1.0", "paths": []}',
    "components as text": '{"openapi": "3.1.0", "components": "x"}',
    "no server": '{"openapi": "3.1.0"}',
    "a relative server": '{"openapi": "3.1.0", "servers": [{"url": "/v1"}]}',
    "another scheme": '{"openapi": "3.1.0", "servers": [{"url": "file:///etc"}]}',
    "a scheme that refers elsewhere": json.dumps(
        document({}, components={"securitySchemes": {"a": {"$ref": "other.yaml"}}})
    ),
    "an alias that contains itself": "a: &a [*a]",
    "a billion laughs": "\n".join(
        ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
    ),
    "deeply nested JSON": "[" * 100_000,
    "deeply nested YAML": "- " * 3_000,
    "bytes that are not UTF-8": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_document_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_NODES", 100_000)
    path = tmp_path / "api.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(ConfigError):
        Toolbox.from_openapi(path)


def test_a_document_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Toolbox.from_openapi(tmp_path / "none.json")


def test_a_document_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 10)
    (tmp_path / "api.json").write_text(json.dumps(document({})))

    with pytest.raises(ConfigError, match="more than 10 bytes"):
        Toolbox.from_openapi(tmp_path / "api.json")


def body(content):
    return {"requestBody": {"content": content}}


DEEP = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "array", "items": DEEP}

UNUSABLE = {
    "an operation that is a list": ({"/x": {"get": []}}, "is not an object"),
    "a path item that is text": ({"/x": "y"}, "is not an object"),
    "a path without a slash": ({"x": {"get": operation()}}, "does not start with '/'"),
    "a path item elsewhere": ({"/x": {"$ref": "https://evil.test/x"}}, "only references within the document"),
    "parameters that are an object": ({"/x": {"get": operation(parameters={})}}, "is not a list"),
    "a parameter that is text": ({"/x": {"get": operation(parameters=["a"])}}, "is not an object"),
    "a parameter without a place": ({"/x": {"get": operation(parameters=[{"name": "a"}])}}, "is in 'None'"),
    "a parameter in the body": ({"/x": {"get": operation(parameters=[parameter("a", "body")])}}, "is in 'body'"),
    "an unknown style": (
        {"/x": {"get": operation(parameters=[parameter("a", style="fancy")])}},
        "has the style 'fancy'",
    ),
    "a style as a list": ({"/x": {"get": operation(parameters=[parameter("a", style=[])])}}, "has the style"),
    "a header with a colon": (
        {"/x": {"get": operation(parameters=[parameter("a:b", "header")])}},
        "HTTP does not allow",
    ),
    "an undeclared path parameter": ({"/x/{id}": {"get": operation()}}, "is not declared"),
    "an open brace": ({"/x/{id": {"get": operation()}}, "a brace that is not closed"),
    "a missing reference": (
        {"/x": {"get": operation(parameters=[{"$ref": "#/components/parameters/none"}])}},
        "which is not in the document",
    ),
    "a remote schema": (
        {"/x": {"get": operation(parameters=[parameter("a", schema={"$ref": "other.json#/x"})])}},
        "refers to 'other.json#/x'",
    ),
    "references in a circle": (
        {"/x": {"get": operation(parameters=[parameter("a", schema={"$ref": "#/components/schemas/A"})])}},
        "form a circle",
    ),
    "a schema that is text": (
        {"/x": {"get": operation(parameters=[parameter("a", schema="text")])}},
        "is not an object",
    ),
    "properties that are a list": (
        {"/x": {"get": operation(parameters=[parameter("a", schema={"properties": []})])}},
        "is not an object",
    ),
    "anyOf that is an object": (
        {"/x": {"get": operation(parameters=[parameter("a", schema={"anyOf": {}})])}},
        "is not a list",
    ),
    "a schema that is too deep": (
        {"/x": {"get": operation(parameters=[parameter("a", schema=DEEP)])}},
        "nested deeper",
    ),
    "a body of any image": ({"/x": {"post": operation(**body({"image/*": {}}))}}, "no media type that can be written"),
    "a body without content": ({"/x": {"post": operation(requestBody={})}}, "is not an object"),
    "responses that are a list": ({"/x": {"get": operation(responses=["a"])}}, "is not an object"),
    "a server of its own": (
        {"/x": {"get": operation(servers=[{"url": "https://uploads.test"}])}},
        "it is on another server, 'https://uploads.test'",
    ),
}
CIRCLE = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}


@pytest.mark.parametrize(("paths", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_operation_that_cannot_be_a_tool_is_left_out_with_its_reason(paths, reason):
    api = document({**paths, "/fine": {"get": operation(operationId="fine")}}, components={"schemas": CIRCLE})

    box = Toolbox.from_openapi(api)

    assert [tool.name for tool in box] == ["fine"]
    assert len(box.problems) == 1
    assert isinstance(box.problems[0], PluginError)
    assert reason in box.problems[0].reason


@pytest.mark.parametrize("value", [None, 5, "x", [], [5], {"a": 5}, {"a": {"a": 5}}], ids=repr)
@pytest.mark.parametrize("key", ["tags", "security", "summary", "operationId", "deprecated", "servers", "parameters"])
def test_a_key_of_any_value_is_survived(key, value):
    box = Toolbox.from_openapi(document({"/x": {"get": operation(**{key: value})}}))

    assert len(box.tools) + len(box.problems) == 1


def test_two_operations_of_one_name_both_become_tools():
    paths = {"/a": {"get": operation(operationId="go")}, "/b/{id}": {"get": operation(operationId="go")}}
    paths["/b/{id}"]["parameters"] = [parameter("id", "path")]

    box = Toolbox.from_openapi(document(paths))

    assert [tool.name for tool in box] == ["get_b_by_id", "go"]


def test_names_fit_every_provider():
    paths = {"/a": {"get": operation(operationId="repos/list é")}, "/b": {"get": operation(operationId="x" * 100)}}

    short, long = sorted((tool.name for tool in Toolbox.from_openapi(document(paths))), key=len)

    assert short == "repos_list"
    assert len(long) == 64


def test_rules_choose_and_rename():
    paths = {
        "/pets": {"get": operation(operationId="list", tags=["a"]), "post": operation(operationId="add")},
        "/shops": {"get": operation(operationId="shops", tags=["b"])},
    }

    def names(**rules):
        return [tool.name for tool in Toolbox.from_openapi(document(paths), **rules)]

    assert names(include=["GET *"]) == ["list", "shops"]
    assert names(include=["* /pets"]) == ["add", "list"]
    assert names(include=["tag:b", "add"]) == ["add", "shops"]
    assert names(exclude=[lambda operation: operation.method == "GET"]) == ["add"]
    assert names(rename={"POST /pets": "create", "shops": "list_shops"}) == ["create", "list", "list_shops"]
    assert names(rename=lambda operation: f"api_{operation.id}") == ["api_add", "api_list", "api_shops"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rename": {"lst": "x"}}, "no operation has this name"),
        ({"include": "GET *"}, "is a string"),
        ({"auth": {"key": "x"}}, "no such security scheme"),
        ({"base_url": "ftp://x"}, "http or https"),
        ({"base_url": "https://x/?a=1"}, "without a query"),
        ({"base_url": "http://[::1/"}, "http or https"),
        ({"client": 5}, "httpx2.AsyncClient"),
    ],
    ids=str,
)
def test_an_option_that_does_not_fit_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        OpenApi(document({"/x": {"get": operation(operationId="list")}}), **options)


def test_a_malformed_address_is_refused():
    api = document({"/x": {"get": operation()}}, servers=[{"url": "http://[::1/"}])

    with pytest.raises(ConfigError, match="names no server that can be used"):
        OpenApi(api)
    for url in ("http://[::1/openapi.json", "http://..", "http://\u2100.com"):
        with pytest.raises(ConfigError, match="cannot be fetched"):
            OpenApi(url)


def test_a_document_in_yaml_is_read(tmp_path):
    (tmp_path / "api.yaml").write_text(
        "openapi: 3.0.0\nservers: [{url: 'https://{region}.test', variables: {region: {default: eu}}}]\n"
        "paths:\n  /x:\n    get:\n      operationId: go\n      responses:\n        200: {description: x}\n"
        "      parameters: [{name: day, in: query, example: 2026-01-01, schema: {type: string, default: 2026-01-01}}]\n"
    )

    api = OpenApi(tmp_path / "api.yaml")
    [tool] = api.__tools__()

    assert api.base_url == "https://eu.test"
    assert tool.definition.input_schema["properties"]["day"]["default"] == "2026-01-01"


async def test_every_request_goes_to_the_server_that_the_developer_fixed():
    server = Recorder()
    api = document({"/x": {"get": operation(operationId="go")}}, servers=[{"url": "https://other.test"}])

    await Toolbox.from_openapi(api, client=server.client, base_url="https://fixed.test/a/").call("go", {})

    assert str(server.requests[0].url) == "https://fixed.test/a/x"
