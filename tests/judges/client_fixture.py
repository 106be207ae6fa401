"""The client that the conformance suite drives, written on the public API: `python client_fixture.py URL`.

The suite says in the environment which scenario it plays, and which protocol version.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from toolmason import McpServer, Toolbox
from toolmason.mcp import FileTokens, OAuth, client_credentials, enterprise_identity, workload_identity

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "tools_call")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}") or "{}")
DOCUMENT = "https://conformance-test.local/client-metadata.json"


async def visit(address, code):
    """A user who says yes at once: the browser goes where the authorization server sends it."""
    del code
    async with httpx2.AsyncClient() as client:
        reply = await client.get(address, follow_redirects=False)
    VISITS.append(asyncio.create_task(come_back(reply.headers["location"])))


async def come_back(address):
    async with httpx2.AsyncClient() as client:
        await client.get(address)


VISITS = []


async def find_issuer(url):
    """What the administrator of a service knows: the authorization server of an MCP server."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient() as client:
        reply = await client.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
        return reply.json()["authorization_servers"][0]


async def make_auth(url):
    """The credentials of a scenario."""
    name = SCENARIO.removeprefix("auth/")
    if name == "client-credentials-basic":
        return client_credentials(url, CONTEXT["client_id"], CONTEXT["client_secret"], issuer=await find_issuer(url))
    if name == "client-credentials-jwt":
        key, algorithm = CONTEXT["private_key_pem"], CONTEXT["signing_algorithm"]
        issuer = await find_issuer(url)
        return client_credentials(url, CONTEXT["client_id"], issuer=issuer, private_key=key, algorithm=algorithm)
    if name == "wif-jwt-bearer":
        token = CONTEXT["valid_jwt"]
        return workload_identity(url, CONTEXT["client_id"], lambda audience: token, issuer=await find_issuer(url))
    if name == "enterprise-managed-authorization":
        return enterprise_identity(
            url,
            CONTEXT["client_id"],
            CONTEXT["client_secret"],
            issuer=await find_issuer(url),
            id_token=lambda: CONTEXT["idp_id_token"],
            idp_token_endpoint=CONTEXT["idp_token_endpoint"],
            idp_client_id=CONTEXT["idp_client_id"],
        )
    known = {name: CONTEXT[name] for name in ("client_id", "client_secret", "issuer") if name in CONTEXT}
    tokens = FileTokens(Path(tempfile.mkdtemp()) / "tokens.json", url)
    document = DOCUMENT if not known else None
    dpop = name.startswith("dpop")
    return OAuth(sign_in=visit, client_metadata_url=document, tokens=tokens, dpop=dpop, **known)


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
    auth = await make_auth(url) if SCENARIO.startswith("auth/") else None
    server = McpServer.http("suite", url, auth=auth, connect_timeout=30, timeout=30, required=True)
    async with Toolbox(server, on_elicit=accepted, on_sample=sampled) as box:
        await play(box)


asyncio.run(main())
