"""A tool knows its run, has a key for the API that it calls, and its results say where they come from."""

from pathlib import Path

import pytest

from toolmason import Allow, McpServer, Message, Retry, Toolbox, ToolCall, ToolContext, ToolError, ToolResult, tool
from toolmason.errors import ConfigError

SEEN: list[tuple[str, str | None]] = []


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


def look(ctx: ToolContext) -> tuple[str, str | None]:
    """Return the key and the run."""
    return ctx.idempotency_key, ctx.run_id


def look_elsewhere(ctx: ToolContext) -> tuple[str, str | None]:
    """Return the key and the run."""
    return look(ctx)


@tool(retry=Retry(attempts=3, delay=0.001, on=(ConnectionError,)))
def fail_twice(ctx: ToolContext) -> str:
    """Fail twice."""
    SEEN.append((ctx.idempotency_key, ctx.run_id))
    if ctx.attempt < 3:
        raise ConnectionError
    return "done"


@tool(read_only=True, open_world=True, repeats="allow")
def fetch(n: int = 0) -> str:
    """Fetch a page."""
    if n:
        raise ToolError("the page says no")
    return "a page"


# --- keys and runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_on", ["loop", "thread", "process"])
async def test_a_key_is_the_same_in_each_attempt_and_differs_between_calls(runs_on):
    box = Toolbox(tool(look, runs_on=runs_on), fail_twice)

    first, second = (await box.call("look")).value, (await box.call("look")).value
    await box.call("fail_twice")

    assert first[0] != second[0]
    assert len(SEEN) == 3
    assert len(set(SEEN)) == 1
    assert {run for _, run in (*SEEN, tuple(first))} == {None}


async def test_a_key_is_the_same_in_the_processes_of_all_attempts(tmp_path):
    log = tmp_path / "keys"
    box = Toolbox(write_key, context={"log": str(log)})

    result = await box.call("write_key")

    assert result.attempts == 2
    assert len(set(log.read_text().split())) == 1


@tool(runs_on="process", retry=Retry(attempts=2, delay=0.001, on=(ValueError,)))
def write_key(ctx: ToolContext) -> str:
    """Write the key to a file; fail once."""
    with Path(ctx["log"]).open("a") as log:
        log.write(f"{ctx.idempotency_key}\n")
    if ctx.attempt == 1:
        raise ValueError("again")
    return "done"


async def test_a_run_without_a_chat_has_an_id():
    box = Toolbox(tool(look, repeats="allow"), tool(look_elsewhere, runs_on="process"))
    run, another = box.run(), box.run()

    results = [(await run.call("look")).value, (await run.call("look")).value, (await run.call("look_elsewhere")).value]
    other = (await another.call("look")).value

    assert len({key for key, _ in results}) == 3
    assert len({run_id for _, run_id in results}) == 1
    assert other[1] not in (None, results[0][1])


def test_a_context_without_a_call_has_no_key():
    with pytest.raises(ConfigError, match="does not belong to a call"):
        ToolContext().idempotency_key  # noqa: B018 - the access raises

    assert ToolContext().run_id is None
    assert ToolContext().origins == frozenset()


async def test_a_served_tool_has_the_key_and_the_run_of_its_client():
    """The client retries: for the server, these are two calls."""
    server = McpServer.of("far", Toolbox(flaky), send_context=["idempotency_key", "run_id"])
    async with Toolbox(server) as box:
        result = await box.run().call("flaky", retry=Retry(attempts=2, delay=0.001))

    assert result.attempts == 2
    assert len(set(SEEN)) == 1
    assert SEEN[0][1]


async def test_a_client_cannot_use_the_key_of_another_user():
    found = []
    for user in ("ann", "ann", "bob"):
        box = Toolbox(tool(look), context={"user": user, "toolmason.idempotency_key": "1"})
        found.append((await box.call("look")).value[0])

    assert found[0] == found[1] != found[2]


@tool
def flaky(ctx: ToolContext) -> str:
    """Fail the first time."""
    SEEN.append((ctx.idempotency_key, ctx.run_id))
    if len(SEEN) == 1:
        raise ToolError("busy", retryable=True)
    return "done"


async def test_a_server_gets_no_key_unless_its_options_name_it():
    async with Toolbox(McpServer.of("far", Toolbox(tool(look)))) as box:
        result = await box.run().call("look")

    assert result.value[1] is None


# --- origins -------------------------------------------------------------------------------------


async def test_results_have_the_origin_of_their_tool():
    far = Toolbox(McpServer.of("far", Toolbox(fetch, fail_twice)))
    async with far, Toolbox(fetch, tool(look), far.prefixed("far_")) as box:
        names = {"fetch": {}, "look": {}, "far_fail_twice": {}, "far_fetch": {}}
        origins = {name: (await box.call(name, arguments)).origin for name, arguments in names.items()}

    assert origins == {"fetch": "web", "look": "own", "far_fail_twice": "server:far", "far_fetch": "web"}


async def test_an_error_of_a_tool_has_its_origin_and_a_refusal_has_not():
    box = Toolbox(fetch)

    assert (await box.call("fetch", {"n": 1})).origin == "web"
    assert (await box.call("fetch", {"n": "x"})).origin == "own"


async def test_a_renamed_tool_keeps_the_origin():
    assert (await Toolbox(fetch).prefixed("a_").call("a_fetch")).origin == "web"


async def test_the_origin_survives_json():
    result = await Toolbox(fetch).call("fetch")
    message = Message("tool", results=[result, ToolResult("1", "look", value="x")])

    restored = Message.from_dict(message.to_dict())

    assert [result.origin for result in restored.results] == ["web", "own"]
    assert restored.origins == {"web", "own"}
    assert ToolResult("1", "x", origin="server:a").origin == "server:a"


@pytest.mark.parametrize(
    ("item", "origins"),
    [
        pytest.param({"type": "web_search_call"}, {"web"}, id="openai-search"),
        pytest.param({"type": "mcp_call", "server_label": "crm"}, {"server:crm"}, id="openai-server"),
        pytest.param({"type": "web_search_tool_result"}, {"web"}, id="anthropic-search"),
        pytest.param({"type": "mcp_tool_use", "server_name": "crm"}, {"server:crm"}, id="anthropic-server"),
        pytest.param({"type": "reasoning"}, set(), id="reasoning"),
        pytest.param("damaged", set(), id="damaged"),
    ],
)
def test_what_a_provider_ran_has_an_origin(item, origins):
    message = Message("assistant", "text", provider_state={"provider": "x", "items": [item]})

    assert message.origins == origins


async def test_a_rule_sees_what_the_run_has_read():
    requests = []

    def approver(request):
        requests.append(request)
        return Allow()

    @tool(approval=lambda arguments, ctx: "web" in ctx.origins, repeats="allow")
    def mail() -> str:
        """Send a mail."""
        return "sent"

    run = Toolbox(fetch, mail, approver=approver).run()
    await run.call("mail")
    before = len(requests)
    await run.call("fetch")
    await run.call(ToolCall("2", "mail"))

    assert before == 0
    assert [request.origins for request in requests] == [("web",)]
