"""A person signs in to a server with OAuth, against the SDK's own authorization server."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.auth import OAuthClientInformationFull

from mcp_client.authorization_server import protected
from toolmason import McpServer, Toolbox
from toolmason.errors import ConfigError, DefinitionError
from toolmason.mcp import FileTokens, OAuth
from toolmason.mcp_client.auth import flows
from toolmason.mcp_client.auth.loopback import LoopbackCallback
from ui.oauth_server import find_port


@pytest.fixture
def servers(monkeypatch):
    monkeypatch.setattr(flows, "MIN_POLL_SECONDS", 0.0)
    with protected() as started:
        yield started


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "tokens.json"


def toolbox(servers: Any, path: Path, **options: Any) -> Toolbox:
    auth = OAuth(tokens=FileTokens(path, servers.url), **options)
    return Toolbox(McpServer.http("notes", servers.url, auth=auth, connect_timeout=20))


async def call(box: Toolbox, name: str = "whoami", arguments: Any = None) -> Any:
    async with box:
        await box.list()
        error = (await box.health())["notes"].error
        return await box.call(name, arguments or {}), error


async def test_a_user_signs_in_and_the_tokens_are_kept(servers, path):
    first, _ = await call(toolbox(servers, path, sign_in=servers.say_yes))
    second, _ = await call(toolbox(servers, path))

    assert first.text == second.text == "ada"
    assert len(servers.shown) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    [client] = servers.provider.clients.values()
    assert client.token_endpoint_auth_method == "none"  # noqa: S105 - the name of a method


async def test_without_a_sign_in_the_error_names_the_command_and_nothing_is_registered(servers, path):
    _, error = await call(toolbox(servers, path))

    assert f"you are not signed in. Run `toolmason mcp login {servers.url}`" in error
    assert not servers.provider.clients


async def test_the_word_oauth_uses_the_tokens_of_the_user(servers, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = tmp_path / "toolmason" / "tokens.json"
    await call(toolbox(servers, kept, sign_in=servers.say_yes))

    result, _ = await call(Toolbox(McpServer.http("notes", servers.url, auth="oauth")))

    assert result.text == "ada"


async def test_an_expired_token_is_refreshed_at_its_authorization_server_after_a_restart(servers, path):
    await call(toolbox(servers, path, sign_in=servers.say_yes))
    await FileTokens(path, servers.url).save(expires_at=1.0)
    servers.provider.tokens.clear()
    servers.provider.requests.clear()

    result, _ = await call(toolbox(servers, path))

    assert result.text == "ada"
    grants = [form["grant_type"] for name, form in servers.provider.requests if name == "/token"]
    assert grants == ["refresh_token"]
    assert len(servers.shown) == 1


async def test_a_revoked_token_is_refreshed_without_the_user(servers, path):
    await call(toolbox(servers, path, sign_in=servers.say_yes))
    servers.provider.tokens.clear()

    result, _ = await call(toolbox(servers, path))

    assert result.text == "ada"


async def test_two_programs_that_refresh_the_same_token_both_go_on(servers, path):
    await call(toolbox(servers, path, sign_in=servers.say_yes))
    async with toolbox(servers, path) as one, toolbox(servers, path) as two:
        assert (await one.call("whoami")).text == (await two.call("whoami")).text == "ada"
        servers.provider.tokens.clear()

        first, second = await one.call("whoami"), await two.call("whoami")

    assert (first.text, second.text) == ("ada", "ada")


async def test_a_refresh_token_that_is_refused_asks_the_user_again(servers, path):
    await call(toolbox(servers, path, sign_in=servers.say_yes))
    servers.provider.tokens.clear()
    servers.provider.refresh_tokens.clear()

    result, _ = await call(toolbox(servers, path, sign_in=servers.say_yes))

    assert result.text == "ada"
    assert len(servers.shown) == 2


async def test_a_tool_that_needs_another_scope_asks_for_it(servers, path):
    async with toolbox(servers, path, sign_in=servers.say_yes) as box:
        await box.list()
        result = await box.call("write", {"text": "tea"})

    assert result.text == "wrote tea"
    assert len(servers.shown) == 2
    assert "notes%3Awrite" in servers.shown[1][0]


async def test_a_client_with_a_metadata_document_registers_nothing(servers, path):
    document, port = "https://app.example.com/client.json", find_port()
    servers.provider.metadata["client_id_metadata_document_supported"] = True
    servers.provider.clients[document] = OAuthClientInformationFull(
        client_id=document,
        redirect_uris=[f"http://127.0.0.1:{port}/callback"],
        token_endpoint_auth_method="none",  # noqa: S106 - the name of a method
    )

    options = {"client_metadata_url": document, "port": port}
    result, _ = await call(toolbox(servers, path, sign_in=servers.say_yes, **options))

    assert result.text == "ada"
    assert [*servers.provider.clients] == [document]


async def test_a_user_signs_in_on_another_device(servers, path):
    result, _ = await call(toolbox(servers, path, sign_in=servers.say_yes, device=True))

    assert result.text == "ada"
    assert servers.shown == [(f"{servers.provider.address}/device", "ABCD-EFGH")]
    assert [device["polls"] for device in servers.provider.devices.values()] == [3]


async def test_a_device_that_is_denied_ends_the_sign_in(servers, path):
    async def deny(address: str, code: str) -> None:
        for device in servers.provider.devices.values():
            device["denied"] = True

    _, error = await call(toolbox(servers, path, sign_in=deny, device=True))

    assert "access_denied" in error


async def test_an_authorization_server_without_devices_is_named(servers, path):
    servers.provider.metadata["device_authorization_endpoint"] = None

    _, error = await call(toolbox(servers, path, sign_in=servers.say_yes, device=True))

    assert "the authorization server offers no sign-in on another device" in error


async def test_a_user_is_not_asked_again_for_a_token_that_the_server_rejects(servers, path):
    servers.provider.verify = lambda token: None
    with protected() as others:
        others.provider.issue = servers.provider.issue  # its tokens are of another server
        _, error = await call(toolbox(others, path, sign_in=others.say_yes))

    assert "the server rejects the token that its authorization server has just issued" in error
    assert len(others.shown) == 1


async def test_a_secret_is_not_sent_to_the_issuer_of_older_tokens(servers, path):
    await call(toolbox(servers, path, sign_in=servers.say_yes))
    await FileTokens(path, servers.url).save(expires_at=1.0)
    options = {"client_id": "known", "client_secret": "a-secret-of-a-client", "issuer": "https://login.example.com"}

    await call(toolbox(servers, path, **options))

    assert "a-secret-of-a-client" not in str(servers.provider.requests)


# --- attacks -----------------------------------------------------------------------------------


async def test_an_authorization_server_without_pkce_is_refused(servers, path):
    servers.provider.metadata["code_challenge_methods_supported"] = ["plain"]

    _, error = await call(toolbox(servers, path, sign_in=servers.say_yes))

    assert "does not offer PKCE with S256" in error
    assert not servers.shown


@pytest.mark.parametrize("issuer", ["https://evil.example", None], ids=["another", "none"])
async def test_an_answer_of_another_issuer_is_refused(servers, path, issuer):
    """Mix-up: the code was sent by another authorization server (RFC 9207)."""

    async def visit(address: str, code: str) -> None:
        servers.visit(address, code, iss=issuer)

    _, error = await call(toolbox(servers, path, sign_in=visit))

    assert "authorization" in error
    assert [name for name, _ in servers.provider.requests if name == "/token"] == []
    assert not servers.provider.tokens


async def test_an_answer_with_another_state_does_not_end_the_sign_in(servers, path):
    async def visit(address: str, code: str) -> None:
        from urllib.parse import parse_qs, urlsplit

        import httpx2

        back = parse_qs(urlsplit(address).query)["redirect_uri"][0]

        async def attack() -> None:
            async with httpx2.AsyncClient() as client:
                found = await client.get(f"{back}?code=stolen&state=guessed")
                assert (found.status_code, found.text) == (400, "This sign-in is unknown, or has ended.")
            servers.visit(address, code)

        attacks.append(asyncio.create_task(attack()))

    attacks: list[Any] = []
    result, _ = await call(toolbox(servers, path, sign_in=visit))

    assert result.text == "ada"


@pytest.mark.parametrize(
    "endpoint", ["file:///etc/passwd", "javascript:alert(1)", "data:text/html,x"], ids=lambda url: url.split(":")[0]
)
async def test_an_address_that_is_not_of_the_web_is_never_shown(servers, path, endpoint):
    servers.provider.metadata["authorization_endpoint"] = endpoint

    await call(toolbox(servers, path, sign_in=servers.say_yes))

    assert not servers.shown


async def test_a_token_of_one_server_is_not_sent_to_another(servers, path):
    await call(toolbox(servers, path, sign_in=servers.say_yes))
    with protected() as others:
        auth = OAuth(tokens=FileTokens(path, others.url))
        _, error = await call(Toolbox(McpServer.http("notes", others.url, auth=auth)))

    assert "you are not signed in" in error


@pytest.mark.parametrize("is_own", [True, False], ids=["its own", "another"])
async def test_a_secret_is_sent_to_its_issuer_only(servers, path, is_own):
    secret, port, issuer = (
        "a-secret-of-a-client",
        find_port(),
        servers.provider.address if is_own else "https://login.example.com",
    )
    servers.provider.clients["known"] = OAuthClientInformationFull(
        client_id="known",
        client_secret=secret,
        redirect_uris=[f"http://127.0.0.1:{port}/callback"],
        token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - the name of a method
    )
    options = {"client_id": "known", "client_secret": secret, "issuer": issuer, "port": port}

    result, _ = await call(toolbox(servers, path, sign_in=servers.say_yes, **options))

    assert (secret in str(servers.provider.requests)) is is_own
    assert result.text == "ada"


async def get(address: str, request: bytes) -> bytes:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /callback?code=c&state=right&redirect=https://evil.example HTTP/1.1\r\nHost: evil.example",
        "GET /other?code=c&state=right HTTP/1.1\r\nHost: 127.0.0.1:{port}",
        "GET //evil.example/callback?code=c&state=right HTTP/1.1\r\nHost: 127.0.0.1:{port}",
        "POST /callback?code=c&state=right HTTP/1.1\r\nHost: 127.0.0.1:{port}",
        "GET /callback?code=c&state=wrong&state=right HTTP/1.1\r\nHost: 127.0.0.1:{port}",
        "GET http://[::1/ HTTP/1.1\r\nHost: 127.0.0.1:{port}",
        "GET /callback?code=c HTTP/1.1\r\nHost: 127.0.0.1:{port}",
        "nonsense",
        "GET /callback?" + "a" * 20_000 + " HTTP/1.1",
    ],
    ids=[
        "rebound host",
        "path",
        "host in the path",
        "method",
        "two states",
        "malformed URL",
        "no state",
        "nonsense",
        "long",
    ],
)
async def test_the_callback_takes_nothing_but_the_answer(request_line):
    callback = LoopbackCallback()
    waiting = asyncio.create_task(callback.wait("right"))
    place = f"127.0.0.1:{callback.port}"

    wrong = await get(place, request_line.replace("{port}", str(callback.port)).encode() + b"\r\n\r\n")
    right = await get(place, f"GET /callback?code=c&state=right HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())

    assert wrong == b"" or wrong.startswith(b"HTTP/1.1 400 ")
    assert b"ocation:" not in wrong + right
    assert b"evil" not in wrong
    assert right.startswith(b"HTTP/1.1 200 OK")
    assert await waiting == {"code": "c", "state": "right"}


# --- the file ----------------------------------------------------------------------------------


async def test_a_linked_token_file_is_not_read(servers, tmp_path):
    target = tmp_path / "of-another-user.json"
    target.write_text("{}")
    target.chmod(0o600)
    link = tmp_path / "tokens.json"
    link.symlink_to(target)

    with pytest.raises(ConfigError, match="Cannot read the tokens"):
        await FileTokens(link, "x").get_tokens()


def test_a_linked_lock_is_not_followed(tmp_path):
    target = tmp_path / "target"
    (tmp_path / "tokens.json.lock").symlink_to(target)

    with pytest.raises(OSError, match="symbolic"):
        asyncio.run(FileTokens(tmp_path / "tokens.json", "x").save(a=1))

    assert not target.exists()


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604], ids=oct)
async def test_a_file_that_others_can_read_is_not_used(tmp_path, mode):
    path = tmp_path / "tokens.json"
    path.write_text("{}")
    path.chmod(mode)

    with pytest.raises(ConfigError, match="other users can read or change the file"):
        await FileTokens(path, "x").get_tokens()


async def test_the_folder_of_the_tokens_is_private(tmp_path):
    await FileTokens(tmp_path / "new" / "tokens.json", "x").save(a=1)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_secret": "s"}, "needs client_id= and issuer="),
        ({"client_id": "a", "client_secret": "s"}, "needs client_id= and issuer="),
        ({"scopes": "a b"}, "must be a list"),
        ({"port": 70000}, "from 0 to 65535"),
    ],
    ids=["secret", "no issuer", "text", "port"],
)
def test_wrong_options_are_refused(options: Any, words: str):
    with pytest.raises(ConfigError, match=words):
        OAuth(**options)


@pytest.mark.parametrize("auth", ["oauth", OAuth()], ids=["word", "object"])
def test_a_server_without_http_has_no_sign_in(auth):
    with pytest.raises(DefinitionError, match="does not use HTTP"):
        McpServer.stdio("local", "program", auth=auth)
