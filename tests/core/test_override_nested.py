"""`Toolbox.override` of a tool of another toolbox or server: what that one limits or hides stays so."""

import asyncio
import logging
import re
from base64 import b64encode
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import mcp_types
import pytest
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field, model_validator

from toolmason import EmbeddedResource, Image, Inject, McpServer, Param, Tool, Toolbox, ToolDefinition, ToolError, tool
from toolmason.errors import ArgumentProblem, ConfigError, InvalidArguments, LimitExceeded, RemoteError
from toolmason.extend import EngineSettings

TEXT = {"type": "string"}


# --- keys that appear twice -------------------------------------------------------------------------


@tool
def search(q: str, tenant: str, limit: int = 5, unit: str = "c") -> str:
    return f"{q} {tenant} {limit} {unit}"


CHANGES = {
    "fixed": {"unit": "f"},
    "default": {"unit": Param(default="f")},
    "injected": {"tenant": Inject("tenant")},
    "renamed": {"limit": Param(name="count")},
    "narrowed": {"limit": Literal[1, 2]},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("text", ['{"q":"tea","q":"rum"', '{"q":"tea","\\u0071":"rum"', '{"q": "tea", "q" : "tea"'])
async def test_a_key_that_appears_twice_is_refused(is_remote, changes, text):
    source = McpServer.of("s", Toolbox(search)) if is_remote else search
    async with Toolbox(source, context={"tenant": "t"}) as box:
        view = box.override("search", arguments=changes)
        rest = "}" if "tenant" in changes else ',"tenant":"t"}'

        assert "the key 'q' appears twice" in (await view.call("search", text + rest)).text
        assert (await view.call("search", '{"q":"tea: \\"q\\":"' + rest)).ok


# --- limits of inner toolboxes -------------------------------------------------------------------


@tool(destructive=True)
async def send(text: str = "") -> str:
    await asyncio.sleep(0.3)
    return "sent " * 1000


LIFTED = {
    "time-out": ({"timeout": 0.05}, {"timeout": 9}),
    "no time-out": ({"timeout": 0.05}, {"timeout": None}),
    "size": ({"settings": EngineSettings(result_bytes=1000)}, {"max_result_bytes": 1_000_000}),
    "not destructive": ({"approve": "destructive"}, {"destructive": False}),
    "read-only": ({"approve": "writes"}, {"read_only": True}),
    "no permission": ({"approve": "all"}, {"skip_permission": True}),
}


@pytest.mark.parametrize(("policy", "options"), LIFTED.values(), ids=LIFTED)
async def test_what_an_inner_toolbox_limits_no_override_lifts(policy, options):
    def limits(result):
        return "in full" if result.error is None and result.text == "sent " * 1000 else "limited"

    outer = Toolbox(Toolbox(send, **policy))
    views = [outer.override("send", **options), Toolbox(outer).override("send", **options)]
    renamed = outer.prefixed("my_").override("my_send", **options)

    assert [limits(await view.call("send")) for view in views] == ["limited", "limited"]
    assert limits(await renamed.call("my_send")) == "limited"
    own = Toolbox(send, **policy).override("send", **options)
    assert limits(await own.call("send")) == "in full"


async def test_the_error_function_of_an_inner_toolbox_stays():
    @tool
    def fail() -> None:
        raise ValueError("detail")

    outer = Toolbox(Toolbox(fail, on_error=lambda error: "It failed."))

    assert (await outer.override("fail", on_error="message").call("fail")).text == "It failed."


async def test_the_override_of_an_outer_toolbox_does_not_make_a_server_trusted():
    async with Toolbox(McpServer.of("s", Toolbox(send), trust=False)) as inner:
        own, outer = inner.override("send", read_only=True), Toolbox(inner).override("send", read_only=True)

        async def is_asked_about(view):
            with view.run() as run:
                return (await run.call("send")).error is not None

        assert await is_asked_about(outer)
        assert not await is_asked_about(own)


# --- errors of servers -----------------------------------------------------------------------------


@tool
def read(token: Annotated[str, Field(pattern="^tok-")], path: Annotated[str, Field(max_length=3)]) -> str:
    return path


async def listed(*_):
    schema = {"type": "object", "properties": {"token": TEXT, "path": TEXT}}
    return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="read", input_schema=schema)])


async def refuse(_, params):
    text = f"no access for {params.arguments['token']}"
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=text)],
        structured_content={"why": [text]},
        _meta={"example.com/why": text},
        is_error=True,
    )


SERVERS = {
    "a toolbox": lambda: Toolbox(read),
    "of the SDK": lambda: Server("low", version="1", on_list_tools=listed, on_call_tool=refuse),
}
HIDDEN = "hidden-value"


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize("token", [Inject("token"), HIDDEN], ids=["injected", "fixed"])
async def test_the_error_of_a_server_shows_no_hidden_value(server, token, caplog):
    async with Toolbox(McpServer.of("s", server()), context={"token": HIDDEN}, eager=False) as box:
        view = box.override("read", arguments={"token": token, "path": Param(name="file")})
        with caplog.at_level(logging.DEBUG, "toolmason"):
            result = await view.call("read", {"file": "abcd"})

    assert result.error is not None
    assert (
        HIDDEN not in f"{result.text} {result.error} {result.structured} {result.meta} {result.content} {caplog.text}"
    )


class Row(Tool):
    """Tool that a server could have, which fails with data."""

    definition = ToolDefinition("row", "Find a row.", {"type": "object", "properties": {"tenant": {}, "flag": {}}})

    async def invoke(self, arguments, context):
        error = ToolError(f"no row of {arguments.get('tenant')}", retryable=True)
        error.result_fields = {"structured": {"ok": True, "tenant": [arguments.get("tenant")]}}
        raise error


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ({"tenant": 12345}, {"ok": True, "tenant": ["…"]}),
        ({"flag": True}, {"ok": True, "tenant": [None]}),
        ({"tenant": {"id": "hidden-id"}}, {"ok": True, "tenant": [{"id": "…"}]}),
    ],
    ids=str,
)
async def test_the_data_of_an_error_keep_their_form_without_a_hidden_value(hidden, shown):
    result = await Toolbox(Row()).override("row", arguments=hidden).call("row", {})

    assert (result.error.code, result.error.retryable) == ("tool_error", True)
    assert result.structured == shown
    assert "12345" not in result.text
    assert "hidden-id" not in result.text


@pytest.mark.parametrize("value", [UUID(int=77), Decimal("123456.78"), {"id": 987654}, [(7654321,)]], ids=repr)
async def test_the_error_of_a_tool_shows_no_hidden_value_of_another_type(value):
    @tool(runs_on="loop")
    def log_in(path: str, owner: Any) -> str:
        """Log in."""
        raise ToolError(f"{path} is closed for {owner}")

    box = Toolbox(log_in, context={"owner": value}).override("log_in", arguments={"owner": Inject("owner")})
    result = await box.call("log_in", {"path": "abcd"})

    assert "abcd is closed for" in result.text
    assert not re.search(r"0077|000004d|3456|9876|7654", result.text)


async def test_an_error_that_two_views_raise_has_the_hidden_values_of_neither():
    shared = ToolError("tenant-one may not see tenant-two", data=object())

    @tool(runs_on="loop")
    def meet(owner: str) -> str:
        """Meet."""
        raise shared

    texts = [
        (await Toolbox(meet).override("meet", arguments={"owner": owner}).call("meet", {})).error
        for owner in ("tenant-one", "tenant-two")
    ]

    assert [error.message for error in texts] == ["… may not see tenant-two", "tenant-one may not see …"]
    assert str(shared) == "tenant-one may not see tenant-two"
    assert all(error.data is shared.data for error in texts)


@pytest.mark.parametrize("kind", [RuntimeError, ToolError])
@pytest.mark.parametrize(
    "owner", [Inject("owner"), HIDDEN, {"of": [HIDDEN]}], ids=["injected", "fixed", "in an object"]
)
@pytest.mark.parametrize("runs_on", ["loop", "thread"])
async def test_the_error_of_a_tool_shows_no_hidden_value(runs_on, owner, kind, caplog):
    @tool(runs_on=runs_on)
    def log_in(path: str, owner: Any) -> str:
        """Log in."""
        raise kind(f"{path} is closed for {owner!r}")

    context = {"owner": HIDDEN} if isinstance(owner, Inject) else {}
    box = Toolbox(Toolbox(log_in).override("log_in", arguments={"owner": owner}), context=context)
    with caplog.at_level(logging.DEBUG, "toolmason"):
        result = await box.override("log_in", description="Log in.").call("log_in", {"path": "abcd"})

    assert "abcd is closed for" in result.text
    assert HIDDEN not in f"{result.text} {result.error} {caplog.text}"


async def test_the_error_of_a_server_has_the_names_of_the_model():
    async with Toolbox(McpServer.of("s", Toolbox(read))) as box:
        view = box.override("read", arguments={"token": "tok-1", "path": Param(name="file")})
        result = await view.call("read", {"file": "abcd"})

    assert result.error.problems[0].path == "$.file"
    assert "$.file" in result.text
    assert "$.path" not in result.text


def raise_rpc_error(text):
    raise MCPError(-32602, f"Invalid arguments: {text}", {"token": text})


def raise_parts(text):
    link = mcp_types.ResourceLink(type="resource_link", uri=f"x://{text}", name=text, description=text)
    inner = mcp_types.TextResourceContents(uri=f"x://{text}", text=text)
    blob = mcp_types.BlobResourceContents(uri="x://b", blob=b64encode(b"\xff" + text.encode()).decode())
    resources = [mcp_types.EmbeddedResource(type="resource", resource=each) for each in (inner, blob)]
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="no"), link, *resources], is_error=True)


def raise_code(text):
    code = {"code": f"no_{text.replace(' ', '_')}", "retryable": False, "limit": text}
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text="no")], _meta={"toolmason/error": code}, is_error=True
    )


@pytest.mark.parametrize("fail", [raise_rpc_error, raise_parts, raise_code])
@pytest.mark.parametrize("token", [Inject("token"), HIDDEN], ids=["injected", "fixed"])
async def test_no_form_of_a_servers_error_shows_a_hidden_value(fail, token, caplog):
    async def refuse(_, params):
        return fail(params.arguments["token"])

    server = Server("low", version="1", on_list_tools=listed, on_call_tool=refuse)
    async with Toolbox(McpServer.of("s", server), eager=False) as box:
        view = Toolbox(box.override("read", arguments={"token": token}))
        with caplog.at_level(logging.DEBUG, "toolmason"):
            result = await view.call("read", {"path": "abcd"}, context={"token": HIDDEN})

    assert not result.ok
    shown = [result.text, result.error, result.structured, result.meta, result.content, result.error.to_model()]
    assert HIDDEN not in f"{shown} {vars(result.error)} {caplog.text}"


class Shown(ToolError):
    """Error whose model reads a field of its own."""

    def to_model(self):
        payload = super().to_model()
        payload["error"]["details"] = vars(self)["details"]
        return payload


def make_invalid(text):
    return InvalidArguments([ArgumentProblem("$.token", f"no {text}", text, text)], tool="log_in")


def make_shown(text):
    error = Shown("no")
    cycle = {text: [text]}
    cycle["self"] = cycle
    vars(error).update(details={"of": (text, [text])}, cycle=cycle)
    return error


def make_content(text):
    error = ToolError("no")
    error.result_fields = {"content": (EmbeddedResource(f"x://{text}", text, text.encode()), Image(text.encode()))}
    return error


ERRORS = {
    "InvalidArguments": make_invalid,
    "of its own": make_shown,
    "content": make_content,
    "LimitExceeded": lambda text: LimitExceeded("log_in", text, text),
    "RemoteError": lambda text: RemoteError("s", "call", text, stderr=text),
    "ConfigError": ConfigError,
}


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("place", ["tool", "middleware", "on_error"])
@pytest.mark.parametrize("token", [Inject("token"), HIDDEN], ids=["injected", "fixed"])
async def test_no_kind_of_error_shows_a_hidden_value(make, place, token):
    @tool
    async def log_in(path: str, token: str) -> str:
        """Log in."""
        if place == "middleware":
            return "in"
        raise make(token)

    async def fail(call, call_next):
        await call_next(call)
        raise make(HIDDEN)

    box = Toolbox(log_in, on_error=str if place == "on_error" else "message")
    if place == "middleware":
        box.use(fail)
    view = box.override("log_in", arguments={"token": token})
    result = await view.call("log_in", {"path": "abcd"}, context={"token": HIDDEN})

    assert HIDDEN not in f"{result.text} {result.content} {result.structured} {result.error}"


async def test_an_argument_that_does_not_fit_a_hidden_one_shows_no_value_of_it():
    class Login(BaseModel):
        path: str
        token: str

        @model_validator(mode="after")
        def check(self):
            raise ValueError(f"{self.path} is closed for {self.token}")

    @tool
    def log_in(login: Login) -> str:
        """Log in."""
        return "in"

    flat = Tool.from_function(log_in, flatten=True)
    result = await Toolbox(flat).override("log_in", arguments={"token": HIDDEN}).call("log_in", {"path": "abcd"})

    assert result.error.code == "invalid_arguments"
    assert "abcd is closed for" in result.text
    assert HIDDEN not in result.text
