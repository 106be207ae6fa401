"""What a model, a document and a server may try. CVE-2026-32871 of another library was a path parameter with `../`."""

import gzip

import httpx2
import pytest

from openapi.apis import Recorder, document, operation, parameter
from toolmason import Toolbox
from toolmason.errors import InvalidArguments, RemoteError
from toolmason.openapi import ApiError, http_calls

KEY = {"components": {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}}}
SECRET = "s3cret-of-the-application"  # noqa: S105 - of the test
ESCAPES = {
    "parent": "..",
    "parent and more": "../admin",
    "parent of the base path": "../../admin",
    "itself": ".",
    "slash": "a/b",
    "backslash": "..\\admin",
    "encoded dots": "%2e%2e",
    "encoded slash": "..%2fadmin",
    "encoded upper case": "%2E%2E%2Fadmin",
    "twice encoded": "%252e%252e%252fadmin",
    "many times encoded": "%25252525252e",
    "encoded backslash": "%5cadmin",
    "overlong UTF-8": "%c0%ae%c0%ae%c0%afadmin",
    "matrix parameter": "..;/admin",
    "matrix parameter alone": "..;x=1",
    "query": "1?admin=true",
    "encoded query": "1%3Fadmin=true",
    "fragment": "1#x",
    "empty": "",
    "null byte": "1\x00",
    "line break": "1\r\nHost: evil.test",
    "encoded line break": "1%0d%0aX: 1",
    "full-width dots": "\uff0e\uff0e\uff0fadmin",
    "one dot leader": "‥",
    "division slash": "a\uff0fb",
    "other origin": "//evil.test",
    "whole URL": "https://evil.test/",
    "blanks and dots": " .. ",
}


def files_api(path="/files/{name}", **fields):
    names = [name for name in ("name", "a", "b") if f"{{{name}}}" in path]
    entries = [parameter(name, "path", **fields) for name in names]
    return document({path: {"get": operation(operationId="read", parameters=entries)}})


@pytest.mark.parametrize("value", ESCAPES.values(), ids=ESCAPES)
@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
async def test_a_path_parameter_cannot_change_the_path(value, style):
    server = Recorder()
    box = Toolbox.from_openapi(files_api(style=style), client=server.client)

    result = await box.call("read", {"name": value})

    assert isinstance(result.error, InvalidArguments)
    assert server.requests == []


@pytest.mark.parametrize("value", [["..", "x"], {"..": "x"}, {"x": "../y"}, [], {}, None], ids=repr)
async def test_a_list_or_an_object_cannot_change_the_path(value):
    server = Recorder()
    box = Toolbox.from_openapi(files_api(), client=server.client)

    result = await box.call("read", {"name": value})

    assert isinstance(result.error, InvalidArguments)
    assert server.requests == []


async def test_two_parameters_cannot_make_a_parent_segment_together():
    server = Recorder()
    box = Toolbox.from_openapi(files_api("/files/{a}{b}/x"), client=server.client)

    result = await box.call("read", {"a": ".x", "b": "y"})
    escape = await box.call("read", {"a": "%2e", "b": "%2e"})

    assert result.ok
    assert isinstance(escape.error, InvalidArguments)


@pytest.mark.parametrize("value", ["a b", "100%", "né", "a+b", "v1.2", "...", "a..b", "x;y=1", "a:b@c"])
async def test_ordinary_text_is_one_encoded_segment(value):
    server = Recorder()
    box = Toolbox.from_openapi(files_api(), client=server.client)

    await box.call("read", {"name": value})

    [_, version, files, segment] = server.requests[0].url.raw_path.decode().split("/")
    assert (version, files) == ("v1", "files")
    assert httpx2.URL(f"https://a/{segment}").path == f"/{value}"


async def test_a_parameter_of_several_segments_cannot_leave_its_place():
    server = Recorder()
    box = Toolbox.from_openapi(files_api(**{"x-multi-segment": True}), client=server.client)

    assert (await box.call("read", {"name": "docs/a.md"})).ok
    assert server.sent == "/files/docs/a.md"
    for value in ("docs/../../x", "/x", "a//b", "%2e%2e/x", "a/"):
        assert isinstance((await box.call("read", {"name": value})).error, InvalidArguments)
    assert len(server.requests) == 1


async def test_an_object_in_the_query_cannot_set_a_field_of_the_application():
    entries = [parameter("filter"), parameter("role")]
    api = document({"/x": {"get": operation(operationId="go", parameters=entries)}}, security=[{"key": []}], **KEY)
    server = Recorder()
    box = Toolbox.from_openapi(api, client=server.client, auth={"key": SECRET})

    assert isinstance((await box.call("go", {"filter": {"api_key": "mine"}})).error, InvalidArguments)
    assert isinstance((await box.call("go", {"filter": {"role": "admin"}})).error, InvalidArguments)
    assert (await box.call("go", {"filter": {"a": 1}})).ok
    assert server.sent == f"/x?a=1&api_key={SECRET}"


async def test_the_model_cannot_send_a_credential():
    entries = [parameter("api_key"), parameter("Authorization", "header"), parameter("Host", "header")]
    api = document({"/x": {"get": operation(operationId="go", parameters=entries)}}, security=[{"key": []}], **KEY)
    server = Recorder()
    box = Toolbox.from_openapi(api, client=server.client, auth={"key": SECRET})

    await box.call("go", {"api_key": "mine", "Authorization": "mine", "Host": "evil.test"})

    assert box["go"].definition.input_schema["properties"] == {}
    assert server.sent == f"/x?api_key={SECRET}"
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "location",
    ["https://evil.test/", "//evil.test/x", "http://api.test/v1/x", "https://api.test:444/", "https://u:p@api.test/"],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(location, status):
    server = Recorder(httpx2.Response(status, headers={"location": location}))
    box = Toolbox.from_openapi(files_api(), client=server.client)

    result = await box.call("read", {"name": "a"})

    assert isinstance(result.error, RemoteError)
    assert "was not followed" in result.text
    assert len(server.requests) == 1


async def test_a_redirect_within_the_origin_is_followed():
    server = Recorder(httpx2.Response(307, headers={"location": "/v1/other"}), httpx2.Response(200, json={"a": 1}))
    box = Toolbox.from_openapi(files_api(), client=server.client)

    result = await box.call("read", {"name": "a"})

    assert result.value == {"a": 1}


async def test_redirects_end():
    server = Recorder(*(httpx2.Response(302, headers={"location": "/v1/x"}) for _ in range(20)))
    box = Toolbox.from_openapi(files_api(), client=server.client)

    result = await box.call("read", {"name": "a"})

    assert "redirects more than 5 times" in result.text
    assert len(server.requests) == 6


async def test_a_post_is_not_turned_into_another_request_by_a_redirect():
    api = document({"/x": {"post": operation(operationId="go")}})
    server = Recorder(httpx2.Response(302, headers={"location": "/v1/y"}))

    result = await Toolbox.from_openapi(api, client=server.client).call("go", {})

    assert isinstance(result.error, RemoteError)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [200, 500])
async def test_a_response_that_is_too_large_is_not_read_to_its_end(status, monkeypatch):
    monkeypatch.setattr(http_calls, "MAX_RESPONSE_BYTES", 100_000)
    read = []

    async def flood():
        for number in range(1_000):
            read.append(number)
            yield b"x" * 10_000

    server = Recorder(httpx2.Response(status, content=flood()))

    result = await Toolbox.from_openapi(files_api(), client=server.client).call("read", {"name": "a"})

    assert isinstance(result.error, RemoteError)
    assert "the response exceeds 100,000 bytes" in result.text
    assert len(read) < 20


async def test_a_small_response_that_expands_is_bounded(monkeypatch):
    monkeypatch.setattr(http_calls, "MAX_RESPONSE_BYTES", 100_000)
    bomb = gzip.compress(b"x" * 10_000_000)
    server = Recorder(httpx2.Response(200, content=bomb, headers={"content-encoding": "gzip"}))

    result = await Toolbox.from_openapi(files_api(), client=server.client).call("read", {"name": "a"})

    assert "the response exceeds" in result.text


async def test_an_error_shows_neither_credentials_nor_the_whole_body():
    api = document({"/x": {"get": operation(operationId="go")}}, security=[{"key": []}], **KEY)
    server = Recorder(httpx2.Response(403, text=f"{'x' * 1_990} {SECRET} {'y' * 100_000}"))

    result = await Toolbox.from_openapi(api, client=server.client, auth={"key": SECRET}).call("go", {})

    assert isinstance(result.error, ApiError)
    assert result.error.status == 403
    assert SECRET[:8] not in result.text
    assert len(result.text) < 3_000


async def test_the_log_of_the_http_library_shows_no_credentials(caplog):
    caplog.set_level("DEBUG")
    api = document({"/x": {"get": operation(operationId="go")}}, security=[{"key": []}], **KEY)
    server = Recorder()

    await Toolbox.from_openapi(api, client=server.client, auth={"key": lambda context: SECRET}).call("go", {})

    assert "https://api.test" in caplog.text
    assert SECRET not in caplog.text


async def test_an_error_of_the_connection_shows_no_credentials():
    def fail(request):
        raise httpx2.ReadError(f"broken: {request.url}")

    api = document({"/x": {"get": operation(operationId="go")}}, security=[{"key": []}], **KEY)
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(fail))

    result = await Toolbox.from_openapi(api, client=client, auth={"key": SECRET}).call("go", {})

    assert isinstance(result.error, RemoteError)
    assert SECRET not in result.text
    assert SECRET not in repr(result)
