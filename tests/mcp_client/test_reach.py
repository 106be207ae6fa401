"""T8: where a server may send us for its tokens. Sixty ways to write an address that it may not."""

import asyncio
import ipaddress
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata

from adversaries.raw_http import served
from toolmason.mcp_client.auth.oauth import client_credentials
from toolmason.mcp_client.auth.token_files import FileTokens
from toolmason.mcp_client.transport.http import BoundedTransport
from toolmason.mcp_client.transport.ssrf import classify_address, resolve_allowed

PUBLIC = "93.184.216.34"
LOOPBACK = [
    *("127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1"),
    *("0177.0.0.1", "017700000001", "0x7F.0x0.0x0.0x1", "localhost", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"),
    *("::ffff:7f00:1", "::ffff:7f00:0001"),
]
PRIVATE = [
    *("10.0.0.1", "10.255.255.255", "10.1", "167772161", "0xa000001", "012.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.0.1", "192.168.1", "3232235521", "0xc0a80001", "100.64.0.1", "100.127.255.254", "198.18.0.1"),
    *("fc00::1", "fd12:3456::1", "::ffff:10.0.0.1", "::ffff:192.168.0.1", "::ffff:c0a8:1"),
]
NEVER = [
    *("0.0.0.0", "0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"),  # noqa: S104 - an address to refuse
    *("169.254.43518", "::ffff:169.254.169.254", "fe80::1", "::", "224.0.0.1", "239.255.255.255", "ff02::1"),
    *("240.0.0.1", "255.255.255.255", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "::127.0.0.1", "::a00:1"),
    *("168.63.129.16", "::ffff:168.63.129.16", "2822734096", "fd00:42::42", "fd00:ec2::253", "fd00:ec2::123"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:7f00:1::", "2001:db8:1::200:5efe:10.0.0.1", "fd00::5efe:a00:1"),
]
# The registries of special-purpose addresses of IANA, without the address of documentation that the tests above use.
SPECIAL = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
    *("::1/128", "::/128", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
    *("2001::/23", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32"),
    *("2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
]


async def allowed(host: str, *server: str) -> str:
    """Return the address that is used if a server at these addresses names a host."""

    async def addresses() -> list[str]:
        return [*server]

    return await resolve_allowed(host, 443, addresses)


@given(st.sampled_from(SPECIAL).flatmap(lambda text: st.ip_addresses(network=text)))
def test_d21_no_special_address_is_public_however_it_is_carried(address: Any):
    forms = [str(address)]
    if address.version == 4:
        number = int(address)
        forms += [f"::ffff:{address}", f"64:ff9b::{address}", f"::{address}", f"2a00:1450::5efe:{address}"]
        forms += [str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80)))]

    assert [form for form in forms if classify_address(form) == "public"] == []


@given(st.lists(st.sampled_from([PUBLIC, "127.0.0.1", "10.0.0.1", "::1", "169.254.169.254"]), min_size=1, max_size=4))
def test_d5_a_server_is_near_only_if_each_of_its_addresses_is(server: list[str]):
    scopes = {classify_address(address) for address in server}

    for host in ("127.0.0.2", "10.0.0.2", "169.254.169.254"):
        may = scopes == {classify_address(host)} != {"never"}
        try:
            found = asyncio.run(allowed(host, *server)) == host
        except OSError:
            found = False

        assert found == may


@pytest.mark.parametrize("names", [*permutations([PUBLIC, "10.0.0.1", "127.0.0.1"], 2)], ids=" ".join)
async def test_d5_every_address_of_a_name_must_be_allowed(names: tuple[str, str], monkeypatch: pytest.MonkeyPatch):
    async def resolve(host: str, port: int) -> list[str]:
        return [*names]

    monkeypatch.setattr("toolmason.mcp_client.transport.ssrf.resolve_host", resolve)
    with pytest.raises(OSError, match="is not a public address"):
        await allowed("evil.example", PUBLIC)


class Wire(httpx2.AsyncBaseTransport):
    """A network in which a name leads to what the test says, and that notes what was asked."""

    def __init__(self, peer: str, **headers: str) -> None:
        self.peer, self.headers, self.asked = peer, headers, list[str]()

    def get_extra_info(self, name: str) -> Any:
        return (self.peer, 443) if name == "server_addr" else None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.method} {request.url}")
        return httpx2.Response(302, headers=self.headers, request=request, extensions={"network_stream": self})


@pytest.mark.parametrize("later", [["127.0.0.1"], ["::1", "127.0.0.1"], ["10.0.0.1"], [PUBLIC, "127.0.0.1"]], ids=str)
async def test_d5_a_name_that_means_another_machine_later_brings_the_server_no_nearer(
    later: list[str], monkeypatch: pytest.MonkeyPatch
):
    async def resolve(host: str, port: int) -> list[str]:
        return later if host == "evil.example" else [host]

    for place in ("http", "ssrf"):
        monkeypatch.setattr(f"toolmason.mcp_client.transport.{place}.resolve_host", resolve)
    wire = Wire(PUBLIC)
    async with httpx2.AsyncClient(transport=BoundedTransport(wire, "https://evil.example/mcp")) as web:
        await web.get("https://evil.example/.well-known/oauth-protected-resource")
        with pytest.raises(httpx2.ConnectError, match="not a public address"):
            await web.post(f"http://{later[-1]}/token")

    assert len(wire.asked) == 1


METADATA = {"mcp-protocol-version": "2026-07-28"}
PATHS = st.lists(
    st.sampled_from(["admin", "..", ".well-known", "oauth-protected-resource", "oauth-authorization-server", "%2e%2e"]),
    max_size=4,
).map("/".join)


@given(PATHS, st.sampled_from(["", "?all=1"]))
def test_d10_metadata_come_from_the_places_that_the_specifications_name(path: str, query: str):
    wire = Wire(PUBLIC)
    url = f"https://{PUBLIC}:8443/{path}{query}"

    async def ask() -> None:
        async with httpx2.AsyncClient(transport=BoundedTransport(wire, f"https://{PUBLIC}/mcp")) as web:
            await web.get(url, headers=METADATA)

    asyncio.run(ask())

    assert not wire.asked or httpx2.URL(url).path.startswith("/.well-known/oauth-authorization-server")
    assert not wire.asked or "?" not in wire.asked[0]


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-authorization-server/a",
        "/a/.well-known/openid-configuration",
        "/.well-known/openid-configuration",
    ],
)
async def test_the_metadata_of_an_issuer_are_asked_for_and_its_redirects_are_not_followed(path: str):
    wire = Wire(PUBLIC, location="/admin/delete")
    async with httpx2.AsyncClient(transport=BoundedTransport(wire, f"https://{PUBLIC}/mcp")) as web:
        answer = await web.get(f"https://{PUBLIC}:8443{path}", headers=METADATA)

    assert len(wire.asked) == 1
    assert answer.next_request is None


@pytest.mark.parametrize("host", [*LOOPBACK, *PRIVATE, *NEVER])
async def test_t8_a_server_of_the_internet_does_not_send_us_into_our_own_network(host):
    with pytest.raises(OSError, match="is not a public address"):
        await allowed(host, PUBLIC)


@pytest.mark.parametrize("host", NEVER)
async def test_t8_nobody_sends_us_where_keys_are_handed_out_or_to_an_address_within_another(host):
    for home in ("127.0.0.1", "10.0.0.1"):
        with pytest.raises(OSError, match="is not a public address"):
            await allowed(host, home)


async def test_a_server_of_our_own_machine_may_name_another_there():
    assert await allowed("127.0.0.1", "127.0.0.1", "::1") == "127.0.0.1"
    assert await allowed("10.0.0.2", "10.0.0.1") == "10.0.0.2"
    with pytest.raises(OSError, match="not a public address"):
        await allowed("127.0.0.1", "10.0.0.1")


def test_a_public_address_is_public_however_it_is_written():
    assert [classify_address(text) for text in (PUBLIC, "2606:2800:220:1::1", f"::ffff:{PUBLIC}")] == ["public"] * 3
    assert classify_address("no address") == "never"


async def test_t8_a_name_is_looked_up_once_and_that_address_is_asked():
    with served("plain") as other:
        port = other.url.split(":")[2].split("/")[0]
        async with httpx2.AsyncClient(
            transport=BoundedTransport(httpx2.AsyncHTTPTransport(), "http://127.0.0.1:1/mcp")
        ) as web:
            answer = await web.get(f"http://localhost:{port}/elsewhere")

    assert answer.status_code == 405
    assert answer.url.host == "localhost"


async def test_t8_what_is_refused_is_not_asked():
    with served("plain") as other:
        transport = BoundedTransport(httpx2.AsyncHTTPTransport(), f"http://{PUBLIC}/mcp")
        async with httpx2.AsyncClient(transport=transport) as web:
            with pytest.raises(httpx2.ConnectError, match="which is not a public address"):
                await web.get(other.url)

    assert other.seen == []


async def test_an_issuer_that_the_developer_named_is_asked_wherever_it_is():
    auth = client_credentials(f"http://{PUBLIC}/mcp", "me", "secret", issuer="http://127.0.0.1:1")

    with served("plain") as other:
        transport = BoundedTransport(httpx2.AsyncHTTPTransport(), f"http://{PUBLIC}/mcp", other.url)
        async with httpx2.AsyncClient(transport=transport) as web:
            assert (await web.get(other.url)).status_code < 500

    assert auth.issuer == "http://127.0.0.1:1"


class Login(httpx2.AsyncBaseTransport):
    """A server and issuers that say what the test wants; they note what was sent to them."""

    def __init__(self, resource: str, advertised: str, issuer: str) -> None:
        self.resource, self.advertised, self.issuer, self.sent = resource, advertised, issuer, list[str]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path == "/mcp":
            return httpx2.Response(401, headers={"www-authenticate": "Bearer"}, request=request)
        if request.method == "POST":
            self.sent.append(request.headers["host"])
            return httpx2.Response(400, json={"error": "invalid_client_metadata"}, request=request)
        if "oauth-protected-resource" in path:
            found: Any = {"resource": self.resource, "authorization_servers": [self.advertised]}
        else:
            base = self.issuer.rstrip("/")
            places = {name: f"{base}/{name}" for name in ("authorize", "token", "register")}
            found = {"issuer": self.issuer, **{f"{name}_endpoint": url for name, url in places.items()}}
            found |= {"authorization_endpoint": places["authorize"], "registration_endpoint": places["register"]}
            found |= {"response_types_supported": ["code"]}
        return httpx2.Response(200, json=found, request=request)


HOME, GOOD, EVIL = "https://mine.example/mcp", "https://good.example/", "https://evil.example/"


@pytest.mark.parametrize(
    "resource", [HOME, "https://mine.example/", "https://mine.example/other", "https://evil.example/mcp"]
)
@pytest.mark.parametrize(("advertised", "issuer"), [(GOOD, GOOD), (GOOD, EVIL), (EVIL, GOOD), (EVIL, EVIL)])
@pytest.mark.parametrize("kind", ["user", "service"])
async def test_mix_up_what_a_login_sends_goes_to_the_issuer_that_was_named(
    kind: str, resource: str, advertised: str, issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC]

    monkeypatch.setattr("toolmason.mcp_client.transport.ssrf.resolve_host", resolve)
    login = Login(resource, advertised, issuer)
    auth: Any = client_credentials(HOME, "me", "secret", issuer=GOOD)
    if kind == "user":
        metadata = OAuthClientMetadata(redirect_uris=["http://localhost:1/x"])  # type: ignore[list-item]
        auth = OAuthClientProvider(HOME, metadata, FileTokens(tmp_path / "tokens.json", "home"))
    async with httpx2.AsyncClient(transport=BoundedTransport(login, HOME), auth=auth) as web:
        with suppress(Exception):
            await web.post(HOME, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})

    is_own = resource in (HOME, "https://mine.example/")
    expected = is_own and advertised == issuer and (kind == "user" or issuer == GOOD)
    assert set(login.sent) <= {httpx2.URL(issuer).host}
    assert bool(login.sent) == expected
