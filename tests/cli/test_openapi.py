"""An OpenAPI document is a target of `list`, `call` and `serve`; address and credentials are in the environment."""

import json
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from fastapi.security import APIKeyHeader

from cli.sample_tools import COMMAND, environment
from openapi.apis import running
from toolmason import McpServer, Toolbox

KEY = "key-of-the-shop-1234"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with the document of an API that runs, and its address."""
    app = FastAPI()

    @app.get("/pets/{id}", operation_id="get_pet", summary="Return a pet.")
    def get_pet(
        id: int,  # noqa: A002 - the name of the parameter
        key: Annotated[str, Depends(APIKeyHeader(name="X-Key", scheme_name="shop key"))],
    ) -> dict[str, str]:
        return {"id": str(id), "known": str(key == KEY)}

    folder = tmp_path_factory.mktemp("shop")
    (folder / "api.json").write_text(json.dumps(app.openapi()), "utf-8")
    with running(app) as url:
        yield folder, {"TOOLMASON_API_URL": url, "TOOLMASON_API_AUTH_SHOP_KEY": KEY}


def test_the_tools_of_a_document_are_listed(run, shop):
    folder, variables = shop

    done = run("list", "api.json", cwd=folder, **variables)

    assert "get_pet" in done.stdout
    assert "Return a pet." in done.stdout


def test_an_operation_is_called(run, shop):
    folder, variables = shop

    done = run("call", "api.json", "get_pet", "id=7", cwd=folder, **variables)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"id": "7", "known": "True"}


async def test_a_document_is_served_over_mcp(shop):
    folder, variables = shop
    server = McpServer.stdio("api", COMMAND, ["serve", "api.json"], cwd=folder, env=environment(**variables))

    async with Toolbox(server) as box:
        result = await box.call("get_pet", {"id": 7})

    assert result.structured == {"id": "7", "known": "True"}


def test_a_document_at_a_url_is_a_target(run, shop):
    folder, variables = shop

    done = run("list", f"{variables['TOOLMASON_API_URL']}/openapi.json", cwd=folder)

    assert "get_pet" in done.stdout


@pytest.mark.parametrize("text", ['{"openapi": "3.1.0"}', '{"swagger": "2.0"}'], ids=["no server", "Swagger"])
def test_a_document_that_cannot_be_used_is_an_error_of_one_line(run, tmp_path, text):
    (tmp_path / "api.json").write_text(text, "utf-8")

    done = run("list", "api.json", cwd=tmp_path)

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "api.json" in done.stderr
