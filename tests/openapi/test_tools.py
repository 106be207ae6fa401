"""What an operation becomes: schema, effects, description, output, and the body of its request."""

import base64
import json
from email import message_from_bytes
from email.policy import HTTP

import httpx2
import pytest

from openapi.apis import Recorder, document, operation, parameter
from toolmason import Toolbox
from toolmason.errors import InvalidArguments, RemoteError, ToolError
from toolmason.openapi import ApiError

PET = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string"},
        "password": {"type": "string", "writeOnly": True},
        "parent": {"$ref": "#/components/schemas/Pet"},
    },
}
COMPONENTS = {"components": {"schemas": {"Pet": PET}}}
REF = {"$ref": "#/components/schemas/Pet"}


def responding(schema, status="200"):
    return {"responses": {status: {"description": "x", "content": {"application/json": {"schema": schema}}}}}


def taking(schema, media="application/json", **fields):
    return {"requestBody": {"required": True, "content": {media: {"schema": schema, **fields}}}}


def only_tool(node, method="get", version="3.1.0", path="/x", **options):
    api = document({path: {method: {"operationId": "go", **node}}}, **COMPONENTS) | {"openapi": version}
    box = Toolbox.from_openapi(api, **options)
    assert box.problems == ()
    return box["go"]


@pytest.mark.parametrize(
    ("method", "read_only", "idempotent", "destructive"),
    [
        ("get", True, True, None),
        ("head", True, True, None),
        ("post", None, None, None),
        ("put", None, True, None),
        ("patch", None, None, None),
        ("delete", None, True, True),
    ],
)
def test_effects_follow_the_method(method, read_only, idempotent, destructive):
    options = only_tool(operation(tags=["pets"]), method).options

    assert (options.read_only, options.idempotent, options.destructive) == (read_only, idempotent, destructive)
    assert options.tags == {"pets"}


def test_a_recursive_schema_stands_alone_and_hides_what_the_server_fills():
    schema = only_tool(operation(**taking(REF)), "post").definition.input_schema

    assert schema == {
        "type": "object",
        "properties": {"body": {"$ref": "#/$defs/Pet"}},
        "required": ["body"],
        "additionalProperties": False,
        "$defs": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "password": {"type": "string"},
                    "parent": {"$ref": "#/$defs/Pet"},
                },
            }
        },
    }


def test_an_output_schema_hides_what_only_the_client_sends():
    schema = only_tool(operation(**responding(REF))).definition.output_schema

    assert schema["type"] == "object"
    assert "password" not in schema["properties"]
    assert "id" in schema["properties"]


def test_a_list_is_wrapped_in_an_object():
    schema = only_tool(operation(**responding({"type": "array", "items": REF}))).definition.output_schema

    assert schema["properties"] == {"result": {"type": "array", "items": {"$ref": "#/$defs/Pet"}}}


def test_the_dialect_of_3_0_becomes_json_schema():
    given = {
        "type": "integer",
        "nullable": True,
        "minimum": 3,
        "exclusiveMinimum": True,
        "enum": [4, 5],
        "example": 4,
        "x-odd": 1,
        "required": True,
    }

    tool = only_tool(operation(parameters=[parameter("a", schema=given)]), version="3.0.3")

    assert tool.definition.input_schema["properties"]["a"] == {
        "type": ["integer", "null"],
        "exclusiveMinimum": 3,
        "enum": [4, 5, None],
        "examples": [4],
    }


def test_a_type_that_no_allowed_value_has_is_left_out():
    tool = only_tool(operation(parameters=[parameter("a", schema={"type": "string", "enum": [1, 2]})]))

    assert tool.definition.input_schema["properties"]["a"] == {"enum": [1, 2]}


def test_alternatives_may_overlap():
    parts = [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]

    tool = only_tool(operation(**taking({"oneOf": parts})), "post")

    assert tool.definition.input_schema["properties"]["body"] == {"anyOf": parts}


def test_a_schema_that_is_too_large_allows_any_value_beyond_the_limit():
    chain = {
        f"S{n}": {
            "type": "object",
            "properties": {f"p{i}": {"type": "string"} for i in range(400)}
            | {"next": {"$ref": f"#/components/schemas/S{n + 1}"}},
        }
        for n in range(50)
    }
    chain["S50"] = {"type": "string"}
    api = document({"/x": {"post": operation(operationId="go", **taking({"$ref": "#/components/schemas/S0"}))}})

    schema = Toolbox.from_openapi({**api, "components": {"schemas": chain}})["go"].definition.input_schema

    assert [*schema["$defs"]] == ["S0", "S1", "S2", "S3", "S4"]
    assert schema["$defs"]["S4"] == {"description": "Any value; its schema is too large to show."}


def test_parameters_of_one_name_keep_apart():
    entries = [parameter("id", "path"), parameter("id"), parameter("filter[a]"), parameter("body")]

    tool = only_tool(operation(parameters=entries, **taking({"type": "object"})), "post", path="/x/{id}")

    assert [*tool.definition.input_schema["properties"]] == ["id", "id_query", "filter_a", "body", "request_body"]
    assert tool.definition.input_schema["required"] == ["id", "request_body"]


def test_a_description_says_how_to_turn_pages():
    more = responding({"type": "object", "properties": {"items": {}, "next_cursor": {}}})

    tool = only_tool(operation(summary="List pets.", deprecated=True, parameters=[parameter("cursor")], **more))

    assert tool.description == (
        "List pets.\n\nDeprecated.\n\nResults come in pages. Pass `cursor` for the next page; `next_cursor` of a "
        "result says if there are more."
    )


async def send_body(node, value):
    server = Recorder()
    tool = only_tool(operation(**node), "post", client=server.client)
    result = await Toolbox(tool).call("go", {"body": value})
    return result, server.requests[-1] if server.requests else None


async def test_a_json_body_is_sent():
    _, request = await send_body(taking(REF), {"name": "Rex"})

    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.content) == {"name": "Rex"}


async def test_a_body_that_does_not_match_is_refused():
    result, request = await send_body(taking(REF), {"name": 5})

    assert isinstance(result.error, InvalidArguments)
    assert request is None


async def test_a_form_is_encoded_as_the_document_says():
    node = taking(
        {"type": "object"},
        "application/x-www-form-urlencoded",
        encoding={"meta": {"style": "deepObject", "explode": True}},
    )

    _, request = await send_body(node, {"a b": "c&d", "tags": [1, 2], "meta": {"k": "v"}, "none": None})

    assert request.content == b"a%20b=c%26d&tags=1&tags=2&meta[k]=v"


async def test_files_are_sent_as_parts():
    schema = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}, "note": {"type": "string"}, "data": {}},
    }

    _, request = await send_body(
        taking(schema, "multipart/form-data"),
        {"file": base64.b64encode(b"\x00\r\n--x").decode(), "note": 'a"\r\nb', "data": {"k": 1}},
    )

    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    parts = message_from_bytes(head + request.content, policy=HTTP).get_payload()
    assert [part.get_param("name", header="content-disposition") for part in parts] == ["file", "note", "data"]
    assert parts[0].get_filename() == "file"
    assert b"\x00\r\n--x\r\n" in request.content
    assert b'{"k":1}' in request.content


async def test_a_file_that_is_not_base64_is_refused():
    schema = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}

    result, request = await send_body(taking(schema, "multipart/form-data"), {"file": "!"})

    assert isinstance(result.error, InvalidArguments)
    assert request is None


async def test_text_and_bytes_are_sent_as_they_are():
    _, text = await send_body(taking({"type": "string"}, "text/plain"), "héllo")
    _, xml = await send_body(taking({"type": "object"}, "application/xml"), "<a/>")
    _, data = await send_body(taking({}, "application/octet-stream"), base64.b64encode(b"\xff").decode())

    assert text.content == "héllo".encode()
    assert (xml.content, xml.headers["content-type"]) == (b"<a/>", "application/xml; charset=utf-8")
    assert data.content == b"\xff"


async def answer(response, node=None, method="get", **options):
    server = Recorder(response)
    tool = only_tool(node or operation(), method, client=server.client)
    return await Toolbox(tool, **options).call("go", {})


async def test_json_is_structured():
    result = await answer(httpx2.Response(200, json=[{"id": 1}]), operation(**responding({"type": "array"})))

    assert result.value == [{"id": 1}]
    assert result.structured == {"result": [{"id": 1}]}


async def test_a_response_that_does_not_match_its_schema_is_an_error_that_shows_it():
    result = await answer(
        httpx2.Response(200, json={"id": "x"}),
        operation(**responding({"type": "object", "properties": {"id": {"type": "integer"}}})),
    )

    assert isinstance(result.error, ToolError)
    assert "not as its document says" in result.text
    assert '\\"id\\":\\"x\\"' in result.text


async def test_nothing_text_and_bytes_are_values():
    nothing = await answer(httpx2.Response(204))
    text = await answer(httpx2.Response(200, text="hello"))
    image = await answer(httpx2.Response(200, content=b"png", headers={"content-type": "image/png"}))
    data = await answer(httpx2.Response(200, content=b"\xff", headers={"content-type": "application/zip"}))

    assert nothing.value is None
    assert text.value == "hello"
    assert image.content[0].data == b"png"
    assert data.content[0].data == b"\xff"


async def test_json_that_is_broken_is_an_error():
    result = await answer(httpx2.Response(200, content=b"{", headers={"content-type": "application/json"}))

    assert "invalid JSON" in result.text


@pytest.mark.parametrize(
    ("method", "status", "retryable"),
    [("get", 503, True), ("get", 404, False), ("post", 503, False), ("post", 429, True), ("put", 500, True)],
)
async def test_an_http_error_is_typed_and_retryable_only_if_nothing_can_happen_twice(method, status, retryable):
    result = await answer(httpx2.Response(status, json={"detail": "no"}, headers={"retry-after": "3"}), method=method)

    assert isinstance(result.error, ApiError)
    assert (result.error.status, result.error.retryable, result.error.retry_after) == (status, retryable, 3.0)
    assert json.loads(result.text)["error"]["status"] == status


async def test_a_server_that_cannot_be_reached_is_a_remote_error():
    def fail(request):
        raise httpx2.ConnectError("refused")

    tool = only_tool(operation(), "post", client=httpx2.AsyncClient(transport=httpx2.MockTransport(fail)))

    result = await Toolbox(tool).call("go", {})

    assert isinstance(result.error, RemoteError)
    assert result.error.retryable


SCHEMES = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
}


@pytest.mark.parametrize(
    ("scheme", "credential", "place", "sent"),
    [
        ("header", "k1", "x-key", "k1"),
        ("cookie", "k1", "cookie", "sid=k1"),
        ("basic", ("user", "word"), "authorization", "Basic dXNlcjp3b3Jk"),
        ("bearer", "k1", "authorization", "Bearer k1"),
        ("oauth", "k1", "authorization", "Bearer k1"),
        ("bearer", lambda context: f"of-{context['user']}", "authorization", "Bearer of-anna"),
    ],
    ids=["header", "cookie", "basic", "bearer", "oauth", "function"],
)
async def test_the_application_fills_a_security_scheme(scheme, credential, place, sent):
    server = Recorder()
    api = document({"/x": {"get": operation(operationId="go", security=[{scheme: []}])}})
    api["components"] = {"securitySchemes": SCHEMES}
    box = Toolbox.from_openapi(api, client=server.client, auth={scheme: credential}, context={"user": "anna"})

    await box.call("go", {})

    assert server.requests[0].headers[place] == sent


async def test_the_first_alternative_that_is_filled_is_used():
    server = Recorder()
    security = [{"header": [], "bearer": []}, {"query": []}, {}]
    api = document({"/x": {"get": operation(operationId="go", security=security)}})
    api["components"] = {"securitySchemes": SCHEMES}

    await Toolbox.from_openapi(api, client=server.client, auth={"header": "a", "query": "b"}).call("go", {})

    assert server.sent == "/x?key=b"
    assert "x-key" not in server.requests[0].headers


async def test_a_missing_credential_is_named_after_a_refusal():
    server = Recorder(httpx2.Response(401))
    api = document({"/x": {"get": operation(operationId="go", security=[{"bearer": []}])}})
    api["components"] = {"securitySchemes": SCHEMES}

    result = await Toolbox.from_openapi(api, client=server.client).call("go", {})

    assert "no credentials for 'bearer'" in result.text
