"""A server over HTTP that misbehaves: the edge table of the MCP page, and the rows of the fault table, by name."""

import asyncio
import itertools
import logging
import time
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from adversaries.raw_http import served
from mcp_server.sample_server import Running, running
from toolmason import McpServer, Toolbox, resource
from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import RemoteError
from toolmason.mcp_client import pool


def at(server, **words):
    return McpServer.http("raw", server.url, **words)


async def echoed(box, **words):
    return await box.call("echo", {"text": "hello"}, **words)


@pytest.mark.row("L4-31")
@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "legacy 400 empty",
        "legacy 400 json",
        "legacy 404",
        "500 on probe",
        "503 once",
        "429 once",
        "no result type",
    ],
)
async def test_a_server_is_spoken_to_in_the_era_it_speaks(case):
    with served(case) as server:
        async with Toolbox(at(server)) as box:
            result = await echoed(box)

    assert result.text == "hello"


async def test_a_session_that_the_server_forgot_is_begun_anew_and_the_call_made_once():
    with served("session") as server:
        async with Toolbox(at(server)) as box:
            result = await echoed(box)

    assert result.text == "hello"
    assert server.seen.count("initialize") == 2
    assert server.seen.count("tools/call") == 2


async def test_a_session_that_the_server_forgot_is_no_illness():
    with served("session") as server:
        async with Toolbox(at(server)) as box:
            health = await box.health()

    assert health["raw"].ok
    assert server.seen.count("initialize") == 2
    assert server.seen.count("ping") == 2


async def test_health_says_since_when_it_is_so(monkeypatch):
    clock = itertools.count(1000.0)
    monkeypatch.setattr(pool, "time", SimpleNamespace(time=lambda: next(clock), monotonic=time.monotonic))
    with served("plain") as server:
        box = Toolbox(at(server))
        well = [(await box.health())["raw"] for _ in range(2)]
    ill = [(await box.health())["raw"] for _ in range(2)]
    await box.aclose()

    assert [each.ok for each in (*well, *ill)] == [True, True, False, False]
    assert well[0].since == well[1].since
    assert well[1].since < ill[0].since == ill[1].since


async def test_a_server_is_told_who_calls():
    with served("plain") as server:
        async with Toolbox(McpServer.http("raw", server.url)) as box:
            await box.call("echo", {"text": "x"})

    call = next(body for body in server.bodies if body["method"] == "tools/call")
    client = call["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]
    assert client == {"name": "toolmason", "version": version("toolmason")}


async def test_an_unknown_result_type_is_no_result():
    with served("unknown result type") as server:
        async with Toolbox(at(server)) as box:
            result = await echoed(box)

    assert "unknown type 'surprise'" in result.error.reason


@pytest.mark.parametrize("case", ["cut once", "502 once"])
async def test_f10_a_call_that_may_have_run_is_not_made_again(case):
    """A proxy answers with 502 if the replica that got the call was killed."""
    with served(case) as server:
        async with Toolbox(at(server)) as box:
            cut = await echoed(box)
            after = await echoed(box)

    assert cut.error.code == "remote_error"
    assert after.text == "hello"
    assert server.seen.count("tools/call") == 2


@pytest.mark.parametrize("case", ["cut once", "502 once"])
async def test_a_call_that_changes_nothing_is_made_again(case):
    with served(case) as server:
        async with Toolbox(at(server)) as box:
            result = await box.call("look", {})

    assert result.text == "look"
    assert server.seen.count("tools/call") == 2


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("half a body", "interrupted"),
        ("another id", "the response is for another request"),
        ("huge body", "longer than the limit of 16777216 bytes"),
        ("not json", "the response is for another request"),
    ],
)
async def test_f10_f17_f51_an_answer_that_is_none_fails_its_call_and_no_other(case, reason):
    with served(case) as server:
        async with Toolbox(at(server, timeout=30)) as box:
            results = await asyncio.gather(echoed(box), echoed(box), box.refresh())

    assert [reason in result.error.reason for result in results[:2]] == [True, True]


@pytest.mark.parametrize("case", ["silent on initialize", "silent on probe"])
async def test_f04_a_server_that_never_answers_initialize_costs_its_connect_timeout(case):
    with served(case) as server:
        box = Toolbox(at(server, connect_timeout=0.3, required=True))

        with pytest.raises(RemoteError, match=r"no response within connect_timeout=0\.3 s") as caught:
            async with asyncio.timeout(10), box:
                pass

    assert caught.value.phase == "connect"


async def test_f09_a_server_that_never_answers_costs_its_time_out():
    with served("never answers") as server:
        async with Toolbox(at(server, timeout=0.3)) as box:
            result = await echoed(box)

    assert result.error.code == "timeout"


async def test_f10_a_server_that_was_restarted_is_found_again():
    with served("plain") as server:
        port = server.server_address[1]
        box = Toolbox(at(server))
        first = await echoed(box)
    gone = await echoed(box)
    with served("plain", port):
        again = await echoed(box)
        await box.aclose()

    assert first.text == again.text == "hello"
    assert gone.error.code == "remote_error"


async def test_a_server_that_wants_authorization_says_so():
    with served("401") as server:
        box = Toolbox(at(server, required=True))
        with pytest.raises(Exception, match=r"requires authorization \(HTTP 401\)"):
            async with box:
                pass


REFUSED = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Token expired.", "data": {"a": 1}}}'
OF_GATEWAY = b'{"error": {"code": "rate_limited", "message": "Slow down"}}'
AS_JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("era", ["status", "legacy status"])
@pytest.mark.parametrize(
    ("answer", "phase", "reason", "retryable"),
    [
        ((401,), "authorize", "Server returned an error response (HTTP 401)", False),
        ((403, AS_JSON, b"{}"), "authorize", "Server returned an error response (HTTP 403)", False),
        ((401, AS_JSON, REFUSED), "authorize", "Token expired (HTTP 401)", False),
        ((429, {"Retry-After": "99999"}), "call", "error response (HTTP 429, retry after 99999 s)", True),
        ((500,), "call", "Server returned an error response (HTTP 500)", False),
        ((500, AS_JSON, REFUSED), "call", "Token expired", False),
        ((401, AS_JSON, OF_GATEWAY), "authorize", "Slow down (HTTP 401)", False),
        ((429, AS_JSON, OF_GATEWAY), "call", "Slow down (HTTP 429)", True),
        ((504, AS_JSON, OF_GATEWAY), "call", "HTTP 504", False),
        ((202, AS_JSON), "call", "server answered a request with 202 Accepted", False),
        (
            (307, {**AS_JSON, "Location": "http://127.0.0.1:1/"}),
            "call",
            "Redirect to http://127.0.0.1:1/ not followed",
            False,
        ),
    ],
    ids=str,
)
async def test_the_http_status_of_a_call_is_told(era, answer, phase, reason, retryable):
    with served(era) as server:
        server.states = [answer]
        async with Toolbox(at(server)) as box:
            error = (await echoed(box)).error

    assert (error.phase, error.retryable) == (phase, retryable)
    assert reason in error.reason


@pytest.mark.parametrize("case", ["legacy 404", "plain"])
async def test_an_endpoint_that_is_gone_is_not_well(case):
    with served(case) as server:
        async with Toolbox(at(server, cache_ttl=0)) as box:
            await box.list()
            server.case = "gone"
            health = (await box.health())["raw"]

    assert not health.ok


async def test_a_status_that_the_server_wrote_into_its_error_is_not_that_of_the_response():
    with served("error") as server:
        server.states = [{"code": -32000, "message": "upstream", "data": {"httpStatus": 401, "a": 1}}]
        async with Toolbox(at(server)) as box:
            error = (await echoed(box)).error

    assert (error.phase, error.retryable, error.reason) == ("call", False, "upstream")


async def test_health_knows_that_a_login_has_expired():
    with served("legacy 400 empty") as server:
        async with Toolbox(at(server)) as box:
            await box.list()
            server.case = "401"
            health = (await box.health())["raw"]

    assert (health.ok, health.needs_auth) == (False, True)


async def test_f50_a_redirect_elsewhere_is_not_followed_and_the_token_stays_here():
    with served("plain") as other, served("redirect") as server:
        server.elsewhere = other.url
        box = Toolbox(McpServer.http("raw", server.url, headers={"Authorization": "Bearer secret"}))
        async with box:
            names = [tool.name for tool in box.tools]

    assert names == []
    assert other.tokens == []


async def test_each_identity_has_a_session_of_its_own():
    def who(context):
        return context.get("token")

    with served("session") as server:
        server.once.add("expired")
        async with Toolbox(at(server, auth=who)) as box:
            await echoed(box, context={"token": "alice"})
            await echoed(box, context={"token": "bob"})
            await echoed(box, context={"token": "alice"})

    calls = [token for body, token in zip(server.bodies, server.tokens, strict=True) if body["method"] == "tools/call"]
    assert calls == ["Bearer alice", "Bearer bob", "Bearer alice"]
    assert server.seen.count("initialize") == 3


async def test_identities_that_are_not_seen_any_more_give_their_connection_back(monkeypatch):
    monkeypatch.setattr(pool, "MAX_IDENTITIES", 3)

    with served("plain") as server:
        async with Toolbox(at(server, auth=lambda context: context.get("token"))) as box:
            for number in range(10):
                await echoed(box, context={"token": f"t{number}"})
            links = box._state.remotes.sources[0].pool.sessions  # noqa: SLF001 - what must stay small is inside
            again = await echoed(box, context={"token": "t0"})
            held = len(links)

    assert held == 3
    assert again.ok


async def test_only_named_context_goes_to_the_server():
    with served("plain") as server:
        async with Toolbox(at(server, send_context=("tenant",)), context={"tenant": "acme", "secret": "s"}) as box:
            await echoed(box)

    call = next(body for body in server.bodies if body["method"] == "tools/call")
    assert call["params"]["_meta"]["tenant"] == "acme"
    assert "secret" not in str(call)


async def test_a_failure_is_never_cached_as_an_empty_list(caplog):
    with served("plain") as server:
        port = server.server_address[1]
    box = Toolbox(McpServer.http("raw", f"http://127.0.0.1:{port}/mcp"))
    with caplog.at_level(logging.WARNING):
        before = await box.list()
        with served("plain", port):
            after = await box.list()
        await box.aclose()

    assert before == []
    assert [tool.name for tool in after] == ["echo", "look"]
    assert "server 'raw' cannot be used" in caplog.text


async def test_whoever_hears_of_changes_hears_of_them_after_a_restart_too():
    def one() -> int:
        """One."""
        return 1

    def two() -> int:
        """Two."""
        return 2

    first = Running(Toolbox(one))
    first.start()
    async with Toolbox(McpServer.http("web", first.url, timeout=2)) as box:
        before = [tool.name for tool in await box.list()]
        await asyncio.to_thread(first.stop)
        second = Running(Toolbox(one, two), port=first.port)
        second.start()
        async with asyncio.timeout(30):
            while len(after := [tool.name for tool in await box.list()]) < 2:  # noqa: ASYNC110 - a process elsewhere has no event of ours
                await asyncio.sleep(0.05)
        await asyncio.to_thread(second.stop)

    assert before == ["one"]
    assert after == ["one", "two"]


class Cutting:
    """An application that ends the first stream of changes of resources as soon as it has begun."""

    def __init__(self, app):
        self.app, self.streams = app, 0

    async def __call__(self, scope, receive, send):
        if dict(scope.get("headers", ())).get(b"mcp-method") != b"subscriptions/listen":
            await self.app(scope, receive, send)
            return
        asked, begun = await receive(), asyncio.Event()
        read = [asked]

        async def received():
            return read.pop() if read else await receive()

        async def sent(message):
            await send(message)
            if message.get("body"):
                begun.set()

        answering = asyncio.create_task(self.app(scope, received, sent))
        if b"resourceSubscriptions" in asked["body"]:
            self.streams += 1
        if b"resourceSubscriptions" in asked["body"] and self.streams == 1:
            await begun.wait()
            answering.cancel()
            await asyncio.wait((answering,))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        await asyncio.wait((answering,))


async def test_whoever_hears_of_a_resource_hears_of_it_again_after_the_stream_was_cut():
    @resource("config://app")
    def config() -> str:
        """Say how it is set up."""
        return "{}"

    behind, heard = Toolbox(config), []
    server = Running(behind)
    server.server.config.app = cutting = Cutting(server.app)
    server.start()
    async with Toolbox(McpServer.http("web", server.url, timeout=5)) as box, asyncio.timeout(30):
        await box.list()
        box.servers.watch(heard.append)
        await Gateway(get_state(box).remotes).subscribe(frozenset({"config://app"}))
        # A server in another thread has no event of ours.
        while cutting.streams < 2 or "config://app" not in heard:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        missed = heard.count("config://app")
        while heard.count("config://app") == missed:
            behind.servers.notify_resource_changed("config://app")
            await asyncio.sleep(0.05)
    await asyncio.to_thread(server.stop)

    assert missed == 1


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_d22_an_answer_as_an_event_may_be_as_long_as_one_without(era):
    with running() as server:
        async with Toolbox(McpServer.http("far", server.url, era=era)) as box:
            plain = await box.call("big")
            streamed = await box.call("big", on_progress=lambda report: None)

    assert plain.ok
    assert len(streamed.content[0].data) == len(plain.content[0].data) > 2 * 1024 * 1024
