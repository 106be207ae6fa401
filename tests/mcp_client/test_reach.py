"""T8: where a server may send us for its tokens. Sixty ways to write an address that it may not."""

import httpx2
import pytest

from adversaries.raw_http import served
from toolmason.mcp_client.oauth import client_credentials
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
    *("240.0.0.1", "255.255.255.255", "100.100.100.200", "fd00:ec2::254", "::127.0.0.1", "::a00:1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:7f00:1::", "2001:db8:1::200:5efe:10.0.0.1", "fd00::5efe:a00:1"),
]


@pytest.mark.parametrize("host", [*LOOPBACK, *PRIVATE, *NEVER])
async def test_t8_a_server_of_the_internet_does_not_send_us_into_our_own_network(host):
    with pytest.raises(OSError, match="is not a public address"):
        await resolve_allowed(host, 443, server_host=PUBLIC, server_port=443)


@pytest.mark.parametrize("host", NEVER)
async def test_t8_nobody_sends_us_where_keys_are_handed_out_or_to_an_address_within_another(host):
    for home in ("127.0.0.1", "10.0.0.1"):
        with pytest.raises(OSError, match="is not a public address"):
            await resolve_allowed(host, 443, server_host=home, server_port=443)


async def test_a_server_of_our_own_machine_may_name_another_there():
    assert await resolve_allowed("127.0.0.1", 8080, server_host="localhost", server_port=9000) == "127.0.0.1"
    assert await resolve_allowed("10.0.0.2", 8080, server_host="10.0.0.1", server_port=9000) == "10.0.0.2"
    with pytest.raises(OSError, match="not a public address"):
        await resolve_allowed("127.0.0.1", 8080, server_host="10.0.0.1", server_port=9000)


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
