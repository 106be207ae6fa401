"""What the log says of calls: one line for each, failures once and with an id, and nothing that forges a record."""

import asyncio
import contextlib
import json
import logging
from typing import Annotated

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field, SecretStr, model_validator

from toolmason import Allow, Chat, McpServer, Tool, Toolbox, ToolCall, ToolContext, ToolError, tool
from toolmason.errors import (
    ExecutionError,
    InvalidArguments,
    LimitExceeded,
    RemoteError,
    ResultError,
    ToolCallError,
    ToolTimeout,
    UnknownOutcome,
    UnknownTool,
)
from toolmason.extend import StaticResolver
from toolmason.mcp_client.calls.result_marks import ERROR_META_KEY, ServerFailure, make_error_data, restore_error
from toolmason.models import ScriptedModel


@tool
def echo(text: str) -> str:
    """Repeat."""
    return text


@tool
def boom(text: str = "bad\nWARNING forged \x1b[31m") -> str:
    """Fail."""
    raise RuntimeError(text)


@tool
def sold_out() -> str:
    """Say no."""
    raise ToolError("sold out\nforged")


@tool
async def hang() -> None:
    """Hang."""
    await asyncio.Event().wait()


def read(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "toolmason")
    return caplog


async def in_chat(box, name):
    await Chat(ScriptedModel([[(name, {})], "x"]), box).send("x")


WAYS = {
    "call": lambda box, name: box.call(name),
    "call_all": lambda box, name: box.call_all([(name, {})]),
    "chat": in_chat,
    "run": lambda box, name: box.run().call(name),
    "limited": lambda box, name: box.call(name, retry=None),
}


@pytest.mark.row("MA-8", "SP-59")
@pytest.mark.parametrize("on_error", ["message", "redact"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_failure_is_logged_once_with_an_id_then_its_message_then_its_stack(log, way, on_error):
    await way(Toolbox(boom, on_error=on_error), "boom")

    [warning] = read(log, logging.WARNING)
    [message] = read(log, logging.INFO)
    [stack] = [line for line in read(log, logging.DEBUG) if "stack:" in line]
    error_id = warning.partition("id ")[2][:12]
    assert warning.startswith("boom [")
    assert f"failed, id {error_id}: RuntimeError at " in warning
    assert __file__ in warning
    assert message.endswith(f"failure {error_id}: bad\\nWARNING forged \\u001b[31m")
    assert error_id in stack
    assert "in boom" in stack
    assert all(line.startswith("| ") for line in stack.splitlines()[1:])
    assert "\x1b" not in log.text


async def test_a_redacted_failure_has_the_id_of_the_log(log):
    result = await Toolbox(boom, on_error="redact").call("boom")

    [warning] = read(log, logging.WARNING)
    shown = json.loads(result.text)["error"]["id"]
    assert f"id {shown}:" in warning
    assert result.error.log_id == shown


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize(("fails", "levels"), [(boom, ["WARNING", "INFO"]), (sold_out, ["INFO"])])
async def test_a_served_toolbox_logs_a_failure_once(log, fails, levels, era):
    served = Toolbox(McpServer.of("s", Toolbox(fails), era=era))
    async with Toolbox(McpServer.of("gateway", served)) as box:
        result = await box.call(fails.__name__)

    told = [record for record in log.records if record.name == "toolmason.calls" and record.levelno > logging.DEBUG]
    assert [record.levelname for record in told] == levels
    assert result.error.log_id in told[0].getMessage()


def make_foreign_server():
    server = MCPServer("foreign")

    @server.tool()
    def refuse() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="not\ntoday")], is_error=True)

    return server


@pytest.mark.parametrize("is_behind_a_gateway", [False, True])
async def test_an_error_of_a_foreign_server_is_a_failure(log, is_behind_a_gateway):
    source = McpServer.of("foreign", make_foreign_server())
    if is_behind_a_gateway:
        source = McpServer.of("gateway", Toolbox(source))
    async with Toolbox(source) as box:
        result = await box.call("refuse")

    [warning], [message] = read(log, logging.WARNING), read(log, logging.INFO)
    assert warning.startswith("refuse [")
    assert f"failed, id {result.error.log_id}: " in warning
    assert message.endswith(f"failure {result.error.log_id}: not\\ntoday")
    assert isinstance(result.error, ToolError)
    assert result.error.message == "not\ntoday"


def test_a_foreign_failure_stays_a_failure_across_processes():
    sent = make_error_data(ServerFailure("not today"))
    answered = make_error_data(ToolError("not today"))

    assert restore_error("not today", {ERROR_META_KEY: sent}, "s").log_kind == "failure"
    assert restore_error("not today", {ERROR_META_KEY: answered}, "s").log_kind == "answer"


@pytest.mark.parametrize(
    "error",
    [
        UnknownTool("other", ["x"]),
        InvalidArguments([], tool="other"),
        ToolTimeout("other", 3),
        UnknownOutcome("other"),
        ResultError("other", "a cycle"),
        ExecutionError("other", ValueError("x")),
        LimitExceeded("other", "limit", "Wait."),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("wrap", [Toolbox, lambda box: Toolbox(McpServer.of("s", Toolbox(box)))], ids=["", "served"])
async def test_an_error_about_another_tool_is_a_failure_of_the_called_one(log, wrap, error):
    @tool
    def borrow() -> int:
        """Borrow a book."""
        raise error

    async with wrap(borrow) as box:
        result = await box.call("borrow")

    [warning] = read(log, logging.WARNING)
    assert warning.startswith("borrow [")
    assert (result.error.code, result.error.tool) == ("execution_error", "borrow")
    assert json.loads(result.text)["error"]["tool"] == "borrow"


async def test_an_error_of_a_server_has_the_name_of_the_called_tool():
    error = RemoteError("s", "call", "gone", tool="other", retryable=True)

    def make(name):
        @tool(name=name)
        def fetch() -> int:
            """Fetch."""
            raise error from OSError("x")

        return fetch

    results = await Toolbox(make("a"), make("b")).call_all([ToolCall("1", "a"), ToolCall("2", "b")])

    assert [(result.error.tool, result.error.code) for result in results] == [("a", error.code), ("b", error.code)]
    assert all(type(result.error.__cause__) is OSError for result in results)


async def test_a_time_out_is_a_failure(log):
    await Toolbox(hang).call("hang", timeout=0.01)

    [warning] = read(log, logging.WARNING)
    assert "ToolTimeout" in warning


@pytest.mark.parametrize("on_error", ["raise", str], ids=["raise", "function"])
async def test_a_failure_is_logged_whatever_becomes_of_it(log, on_error):
    with contextlib.suppress(ToolCallError):
        await Toolbox(boom, on_error=on_error).call("boom")

    assert len(read(log, logging.WARNING)) == 1


async def test_an_answer_that_says_no_is_no_failure(log):
    await Toolbox(sold_out).call(ToolCall("c1", "sold_out"))

    assert read(log, logging.WARNING) == []
    assert read(log, logging.INFO) == ["sold_out [c1] answered with an error: sold out\\nforged"]


async def test_nothing_is_logged_below_the_level(caplog):
    caplog.set_level(logging.ERROR, "toolmason")

    result = await Toolbox(boom).call("boom")

    assert caplog.text == ""
    assert result.error.log_id == ""


@pytest.mark.row("MA-36", "SP-59")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_each_call_is_one_line_in_a_chat_as_elsewhere(log, way):
    @tool
    def work() -> str:
        """Work."""
        return "done"

    await way(Toolbox(work), "work")

    [line] = [line for line in read(log, logging.DEBUG) if line.startswith("work [")]
    assert "] ok in " in line


@pytest.mark.row("SP-59", "SP-40")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_call_of_an_unknown_tool_is_logged(log, way):
    await way(Toolbox(echo), "no\npe")

    [line] = [line for line in read(log, logging.DEBUG) if "unknown_tool" in line]
    assert line.startswith("no\\npe [")


@pytest.mark.row("SP-59")
async def test_resolving_approval_turns_and_connections_are_logged(log):
    inner = Toolbox(boom)
    box = Toolbox(
        McpServer.of("s", inner), resolvers=[StaticResolver(echo)], approve="all", approver=lambda request: Allow()
    )
    async with box:
        await box.call("echo", {"text": "x"})
        await Chat(ScriptedModel(["hello"]), box).send("x")

    lines = "\n".join(read(log, logging.DEBUG))
    assert "StaticResolver resolved 'echo'" in lines
    assert "needs approval: request " in lines
    assert "was answered with Allow" in lines
    assert "server 's': connecting" in lines
    assert "server 's': connected in " in lines
    assert "turn 1: an answer in " in lines


# --- contents --------------------------------------------------------------------------------------


@tool
def login(name: str, password: str, note: str = "") -> dict[str, object]:
    """Log in."""
    return {"user": name, "token": "t0p", "seen": [{"api_key": "k3y"}], "note": note}


@pytest.mark.row("MA-36")
@pytest.mark.parametrize("text", [False, True], ids=["mapping", "JSON"])
async def test_with_the_setting_the_log_has_arguments_and_results_without_secrets(log, text):
    arguments = {"name": "ada", "password": "hunter2", "note": "a\nb"}
    box = Toolbox(login, config={"tools": {"include_content": True}})

    await box.call(ToolCall("c1", "login", json.dumps(arguments) if text else arguments))

    [line] = [line for line in read(log, logging.DEBUG) if line.startswith("login [c1] ok")]
    assert '{"name":"ada","password":"…","note":"a\\nb"} -> ' in line
    assert '"user":"ada","token":"…"' in line
    assert "\n" not in line
    assert not any(secret in log.text for secret in ("hunter2", "t0p", "k3y"))


async def test_without_the_setting_it_has_neither(log):
    await Toolbox(echo).call("echo", {"text": "private"})

    assert "private" not in log.text


async def test_logged_contents_are_short(log):
    box = Toolbox(echo, config={"tools.include_content": "yes"})

    await box.call("echo", {"text": "x" * 5000})

    [line] = [line for line in read(log, logging.DEBUG) if line.startswith("echo [")]
    assert len(line) < 1200


# --- fields ----------------------------------------------------------------------------------------


async def test_records_have_the_fields_that_spans_have(log, spans):
    box = Toolbox(echo, broken_tool)

    await box.call(ToolCall("c1", "echo", {"text": "x"}))
    failed = await box.call(ToolCall("c2", "broken_tool", {}))

    done, *failure = [vars(record) for record in log.records if "gen_ai.tool.name" in vars(record)]
    assert (done["gen_ai.tool.name"], done["gen_ai.tool.call.id"]) == ("echo", "c1")
    assert done["toolmason.duration"] > 0
    assert {fields["toolmason.error.id"] for fields in failure} == {failed.error.log_id}
    assert {fields["error.type"] for fields in failure} == {"execution_error"}
    assert spans[-1].attributes["toolmason.error.id"] == failed.error.log_id


@tool
async def broken_tool() -> str:
    """Fail."""
    raise OSError("down")


async def test_one_id_ties_log_span_result_and_the_text_that_the_model_reads(log, spans):
    result = await Toolbox(broken_tool, on_error="redact").call("broken_tool")

    error_id = result.error.log_id
    assert error_id in result.text
    assert error_id in log.text
    assert spans[-1].attributes["toolmason.error.id"] == error_id


@tool
async def unlock(pin: SecretStr) -> str:
    """Unlock."""
    raise ValueError(f"wrong: {pin.get_secret_value()}")


async def test_an_argument_of_a_secret_type_is_masked_in_the_message_of_a_failure(log):
    await Toolbox(unlock).call("unlock", {"pin": "90817263"})

    assert "wrong: …" in log.text
    assert "90817263" not in log.text


class Account(BaseModel):
    """An account."""

    user: str
    pins: list[SecretStr] = []


@tool
async def unlock_all(
    *,
    maybe: SecretStr | None = None,
    named: dict[str, list[SecretStr]] = {},  # noqa: B006 - the binder copies it
    pair: tuple[int, SecretStr] = (0, ""),
    short: Annotated[SecretStr, Field(max_length=8)] = "",
    account: Account | None = None,
    number: Annotated[int, Field(json_schema_extra={"writeOnly": True})] = 0,
    password: str = "",
) -> str:
    """Unlock."""
    raise ValueError("wrong: 90817263")


@tool
async def unlock_any(**pins: SecretStr | None) -> str:
    """Unlock."""
    raise ValueError("wrong: 90817263")


@tool
async def show_account(account: Account) -> str:
    """Show."""
    return account.user


CONTENT = {"tools": {"include_content": True}}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("unlock_all", {"maybe": "90817263"}, id="optional"),
        pytest.param("unlock_all", {"named": {"a": ["90817263"]}}, id="in a mapping of lists"),
        pytest.param("unlock_all", {"pair": [1, "90817263"]}, id="in a tuple"),
        pytest.param("unlock_all", {"account": {"user": "ada", "pins": ["90817263"]}}, id="in a model"),
        pytest.param("unlock_any", {"other": "90817263"}, id="under any name"),
    ],
)
async def test_a_secret_type_is_masked_wherever_it_stands_in_a_type(name, arguments, log, spans):
    result = await Toolbox(unlock_all, unlock_any, config=CONTENT).call(name, arguments)

    assert "wrong: …" in log.text
    assert "90817263" not in log.text + result.text + spans[-1].to_json()


async def test_fields_beside_a_secret_type_are_shown(log):
    await Toolbox(show_account, config=CONTENT).call("show_account", {"account": {"user": "ada", "pins": ["90817263"]}})

    assert '{"account":{"user":"ada","pins":"…"}} -> ada' in log.text


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        pytest.param({"short": "9081726354"}, "string of length 10", id="too long"),
        pytest.param({"account": {"user": "ada", "pins": "9081726354"}}, "string of length 10", id="in a model"),
        pytest.param({"number": 9081726354.5}, "number", id="number"),
        pytest.param({"password": 90817}, "integer", id="by name"),
        pytest.param('{"short": "9081726354', "text of length 21", id="truncated"),
        pytest.param('{"short": "9081726354"]', "text of length 23", id="damaged"),
        pytest.param(json.dumps('{"short": "9081726354"}'), "string of length 23", id="encoded twice"),
    ],
)
async def test_an_invalid_argument_of_a_secret_type_is_described_without_its_value(arguments, got, log):
    result = await Toolbox(unlock_all, config=CONTENT).call("unlock_all", arguments)

    assert [problem.got for problem in result.error.problems] == [got]
    assert "9081" not in log.text + result.text


async def test_text_in_place_of_an_object_with_a_secret_is_described_without_its_value():
    box = Toolbox(unlock_all)
    by_schema = Toolbox(Tool.from_schema("unlock_all", "", box.tools[0].definition.input_schema, print))

    for each in (box, by_schema):
        result = await each.call("unlock_all", {"account": "ada 9081726354"})

        assert [problem.got for problem in result.error.problems] == ["string of length 14"]
        assert "9081" not in result.text


async def test_a_schema_that_is_written_by_hand_hides_its_secrets_too(log):
    secret = {"type": "string", "pattern": "^[a-z]+$", "format": "password"}
    schema = {"properties": {"pins": {"items": {"$ref": "#/$defs/pin"}}}, "$defs": {"pin": secret}, "minProperties": 2}
    box = Toolbox(Tool.from_schema("unlock", "Unlock.", schema, print), config=CONTENT)

    result = await box.call("unlock", {"pins": ["9081726354"]})

    assert [problem.path for problem in result.error.problems] == ["$", "$.pins[0]"]
    assert "9081" not in log.text + result.text


async def test_a_validator_of_a_model_shows_no_secret_of_its_fields(log):
    class Login(BaseModel):
        user: str
        pin: SecretStr
        password: str = ""

        @model_validator(mode="after")
        def check(self) -> "Login":
            raise ValueError(f"{self.user} has no pin {self.pin.get_secret_value()} or {self.password}")

    @tool
    async def sign_in(login: Login) -> None: ...

    login = {"user": "ada", "pin": "9081726354", "password": "90817263"}
    result = await Toolbox(sign_in, config=CONTENT).call("sign_in", {"login": login})

    assert "ada has no pin … or …" in result.text
    assert "9081" not in log.text + result.text


async def test_a_secret_type_in_the_context_is_masked_too(log):
    @tool
    async def send(ctx: ToolContext) -> str:
        """Send."""
        raise ValueError(f"refused with {ctx['credit'].get_secret_value()}")

    result = await Toolbox(send).call("send", context={"credit": SecretStr("90817263")})

    assert "90817263" not in log.text + result.text
