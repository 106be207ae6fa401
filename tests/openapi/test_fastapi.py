"""A real FastAPI application behind a real server, used through the document that it writes itself."""

import asyncio
import json
from typing import Annotated

import pytest
from fastapi import Cookie, Depends, FastAPI, File, Form, Header, HTTPException, Query, Response
from fastapi.responses import RedirectResponse
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from openapi.apis import running
from toolmason import Deny, McpServer, Toolbox
from toolmason.errors import ApprovalDenied, ConfigError, InvalidArguments, RemoteError, ToolTimeout
from toolmason.openapi import ApiError, http_calls

TOKEN = "token-of-the-application"  # noqa: S105 - of the test


class Pet(BaseModel):
    name: str
    tags: list[str] = []
    parent: "Pet | None" = None


def make_app():  # noqa: C901 - one route for each case
    app = FastAPI()
    pets = {1: Pet(name="Rex")}
    key = Depends(APIKeyHeader(name="X-Key", scheme_name="key"))
    token = Depends(HTTPBearer(scheme_name="bearer"))

    @app.get("/pets", operation_id="list_pets", tags=["pets"])
    def list_pets(tag: Annotated[list[str] | None, Query()] = None, page: int = 1) -> list[Pet]:
        return [pet for pet in pets.values() if not tag or set(tag) & set(pet.tags)]

    @app.get("/pets/{id}", operation_id="get_pet")
    def get_pet(id: int) -> Pet:  # noqa: A002 - the name of the parameter
        if id not in pets:
            raise HTTPException(404, f"no pet {id}")
        return pets[id]

    @app.post("/pets", operation_id="add_pet")
    def add_pet(pet: Pet) -> int:
        pets[len(pets) + 1] = pet
        return len(pets)

    @app.delete("/pets/{id}", operation_id="delete_pet", status_code=204)
    def delete_pet(id: int) -> None:  # noqa: A002 - as above
        del pets[id]

    @app.get("/echo", operation_id="echo")
    def echo(x_trace: Annotated[str, Header()], sid: Annotated[str, Cookie()]) -> dict[str, str]:
        return {"trace": x_trace, "sid": sid}

    @app.post("/form", operation_id="form")
    def form(name: Annotated[str, Form()], age: Annotated[int, Form()]) -> dict[str, str | int]:
        return {"name": name, "age": age}

    @app.post("/upload", operation_id="upload")
    def upload(file: Annotated[bytes, File()], note: Annotated[str, Form()]) -> dict[str, str | int]:
        return {"bytes": len(file), "note": note}

    @app.get("/secret", operation_id="secret")
    def secret(given: Annotated[str, key]) -> str:
        return "known" if given == TOKEN else "unknown"

    @app.get("/bearer", operation_id="bearer")
    def bearer(given: Annotated[HTTPAuthorizationCredentials, token]) -> str:
        return given.credentials

    @app.get("/away", operation_id="away")
    def away() -> RedirectResponse:
        return RedirectResponse("http://127.0.0.1:9/steal")

    @app.get("/slow", operation_id="slow")
    async def slow() -> str:
        await asyncio.sleep(60)
        return "late"

    @app.get("/large", operation_id="large")
    def large() -> Response:
        return Response("x" * 200_000, media_type="text/plain")

    @app.get("/files/{name}", operation_id="read_file")
    def read_file(name: str) -> str:
        return f"file {name}"

    @app.get("/admin", include_in_schema=False)
    def admin() -> str:
        return "the inner sanctum"

    return app


@pytest.fixture(scope="module")
def url():
    with running(make_app()) as address:
        yield address


@pytest.fixture
async def box(url, anyio_backend):
    async with Toolbox.from_openapi(f"{url}/openapi.json", auth={"key": TOKEN, "bearer": TOKEN}) as opened:
        yield opened


async def test_every_operation_of_the_document_is_a_tool(box):
    assert box.problems == ()
    assert len(box.tools) == 13


async def test_calls_reach_the_application(box):
    assert (await box.call("add_pet", {"body": {"name": "Tom", "tags": ["cat"]}})).value == 2
    assert (await box.call("list_pets", {"tag": ["cat", "dog"]})).value == [
        {"name": "Tom", "tags": ["cat"], "parent": None}
    ]
    assert (await box.call("get_pet", {"id": 1})).structured == {"name": "Rex", "tags": [], "parent": None}
    assert (await box.call("delete_pet", {"id": 2})).ok
    assert (await box.call("echo", {"x-trace": "t", "sid": "a b"})).value == {"trace": "t", "sid": "a%20b"}
    assert (await box.call("form", {"body": {"name": "Anna", "age": 3}})).value == {"name": "Anna", "age": 3}
    assert (await box.call("upload", {"body": {"file": "aGk=", "note": "n"}})).value == {"bytes": 2, "note": "n"}


async def test_credentials_come_from_the_application(box):
    assert (await box.call("secret", {})).value == "known"
    assert (await box.call("bearer", {})).value == TOKEN
    assert "X-Key" not in json.dumps([tool.definition.input_schema for tool in box])


async def test_errors_of_the_application_are_results(box):
    missing, invalid = await box.call("get_pet", {"id": 9}), await box.call("get_pet", {"id": "x"})

    assert isinstance(missing.error, ApiError)
    assert (missing.error.status, "no pet 9" in missing.text) == (404, True)
    assert isinstance(invalid.error, InvalidArguments)


async def test_a_path_parameter_reaches_no_other_route(box):
    for name in ("../admin", "..%2Fadmin", "..", "a/../../admin", "%2e%2e/admin", "..\\admin"):
        result = await box.call("read_file", {"name": name})
        assert isinstance(result.error, InvalidArguments)
        assert "sanctum" not in result.text


async def test_a_redirect_to_another_port_is_not_followed(box):
    result = await box.call("away", {})

    assert isinstance(result.error, RemoteError)
    assert "was not followed" in result.text


async def test_the_policy_of_the_toolbox_holds(url, monkeypatch):
    def deny(request):
        return Deny("not today")

    monkeypatch.setattr(http_calls, "MAX_RESPONSE_BYTES", 1_000)
    calls = (("slow", {}), ("delete_pet", {"id": 1}), ("large", {}))

    async with Toolbox.from_openapi(f"{url}/openapi.json", timeout=0.5, approve="destructive", approver=deny) as box:
        slow, deleted, large = [await box.call(name, given) for name, given in calls]

    assert isinstance(slow.error, ToolTimeout)
    assert isinstance(deleted.error, ApprovalDenied)
    assert isinstance(large.error, RemoteError)


async def test_the_tools_can_be_served_over_mcp(box):
    async with Toolbox(McpServer.of("pets", box)) as client:
        result = await client.call("get_pet", {"id": 1})

    assert result.structured["name"] == "Rex"


def test_a_document_from_the_network_cannot_choose_another_server():
    app = FastAPI(servers=[{"url": "https://evil.test"}])
    with running(app) as address, pytest.raises(ConfigError, match="names no server that can be used"):
        Toolbox.from_openapi(f"{address}/openapi.json")


def test_a_document_that_is_not_there_is_refused(url):
    with pytest.raises(ConfigError, match="answered 404"):
        Toolbox.from_openapi(f"{url}/none.json")
    with pytest.raises(ConfigError, match="cannot be fetched"):
        Toolbox.from_openapi("http://127.0.0.1:9/openapi.json")
