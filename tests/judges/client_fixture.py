"""The client that the conformance suite drives, written on the public API: `python client_fixture.py URL`.

The suite says in the environment which scenario it plays, and which protocol version.
"""

import asyncio
import json
import os
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

from toolmason import McpServer, Toolbox

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "tools_call")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}") or "{}")
REDIRECT = "http://localhost:3000/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"


class Kept:
    """Tokens, for as long as the process lives."""

    def __init__(self, client=None):
        self.tokens, self.client = None, client

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


def oauth(url):
    """A user who says yes at once: the authorization address is fetched, and its redirect read."""
    answer = {}

    async def redirect(address):
        async with httpx2.AsyncClient() as client:
            reply = await client.get(address, follow_redirects=False)
        answer.update({key: values[0] for key, values in parse_qs(urlsplit(reply.headers["location"]).query).items()})

    async def callback():
        return AuthorizationCodeResult(code=answer.get("code"), state=answer.get("state"), iss=answer.get("iss"))

    client = None
    if "client_id" in CONTEXT:
        client = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"],
            client_secret=CONTEXT.get("client_secret"),
            token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - the name of a method
            redirect_uris=[REDIRECT],
        )
    metadata = OAuthClientMetadata(
        client_name="toolmason-conformance",
        redirect_uris=[REDIRECT],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    return OAuthClientProvider(url, metadata, Kept(client), redirect, callback, client_metadata_url=DOCUMENT)


def accepted(question):
    """Answer what a server asks with the defaults of its form."""
    properties = (question.schema or {}).get("properties", {})
    return {name: part["default"] for name, part in properties.items() if "default" in part}


def sampled(question):
    return "An answer."


async def call(box, name, arguments):
    result = await box.call(name, arguments)
    if not result.ok and SCENARIO != "http-invalid-tool-headers":
        print(f"{name}: {result.text}", file=sys.stderr)
    return result


async def play(box):  # noqa: C901, PLR0912 - one branch for each scenario
    tools = {tool.name: tool for tool in await box.list()}
    if SCENARIO in {"tools_call", "request-metadata", "http-standard-headers"}:
        for name in tools:
            await call(box, name, {"a": 5, "b": 3})
        for prompt in box.prompts:
            await box.prompt(prompt.name, {})
        for link in box.resources:
            await box.read(link.uri)
    elif SCENARIO == "sse-retry":
        await call(box, "test_reconnection", {})
    elif SCENARIO.startswith("elicitation"):
        await call(box, "test_client_elicitation_defaults", {})
    elif SCENARIO == "sep-2322-client-request-state":
        for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
            await call(box, name, {})
    elif SCENARIO == "http-custom-headers":
        for wanted in CONTEXT.get("toolCalls", []):
            await call(box, wanted["name"], wanted.get("arguments", {}))
    elif SCENARIO == "http-invalid-tool-headers":
        for name, tool in tools.items():
            required = tool.definition.input_schema.get("properties", {})
            await call(box, name, dict.fromkeys(required, "x"))
    elif SCENARIO == "json-schema-2020-12-preservation":
        for name, tool in tools.items():
            if name != "json_schema_echo":
                await call(box, "json_schema_echo", {"schema": tool.definition.input_schema})
    elif SCENARIO.startswith("auth/") and tools:
        await call(box, next(iter(tools)), {})


async def main():
    url = sys.argv[-1]
    auth = oauth(url) if SCENARIO.startswith("auth/") else None
    server = McpServer.http("suite", url, auth=auth, connect_timeout=30, timeout=30, required=True)
    async with Toolbox(server, on_elicit=accepted, on_sample=sampled) as box:
        await play(box)


asyncio.run(main())
