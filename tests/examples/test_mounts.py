"""The examples of frameworks run: a client lists and calls the tools, and the pages of the application stay."""

import importlib
import sys

import httpx2
import pytest

from house.source import ROOT
from openapi.apis import running
from toolmason import McpServer, Toolbox

FOLDER = ROOT / "examples" / "mount"
HOST = "http://tools.example.com"
PLACES = {"starlette_app": "/tools/mcp", "fastapi_app": "/tools/mcp", "django_app": "/mcp", "flask_app": "/mcp"}


@pytest.fixture(scope="module", params=PLACES, ids=str)
def app(request):
    """An application of the folder, imported once: Django can be set up once in a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module(request.param).app, PLACES[request.param]
    sys.modules.pop("tools", None)


def test_every_application_of_the_folder_is_run():
    assert {path.stem for path in FOLDER.glob("*_app.py")} == set(PLACES)


async def test_the_page_of_the_application_stays(app):
    application, _ = app
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=application), base_url=HOST) as client:
        response = await client.get("/")

    assert (response.status_code, response.text) == (200, "Hello from /")


async def test_a_client_calls_a_tool(app):
    application, place = app
    with running(application, lifespan="on") as url:
        server = McpServer.http("desk", f"{url}{place}", headers={"Host": "tools.example.com"})
        async with Toolbox(server) as box:
            result = await box.call("opening_hours", {"day": "Sunday"})

    assert result.text == "closed"


async def test_another_host_is_refused(app):
    application, place = app
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=application), base_url="http://evil.test"
    ) as client:
        response = await client.post(place, json={})

    assert response.status_code in (400, 403, 421)
