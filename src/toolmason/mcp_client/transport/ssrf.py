"""Resolve a host named by a server to an address that the server may refer to.

A server names its authorization server, which must not be a service in the client's own network. The name is
resolved once, and only the checked address is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Literal, TypeAlias

AddressScope: TypeAlias = Literal["public", "private", "loopback", "never"]
"""Network scope of an address. `never`: an address that no server has a reason to name."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Of the IANA registries of special addresses, those that `ipaddress` calls global in a supported version of Python. The
# first line embeds an IPv4 address, which a gateway may connect to instead.
_SPECIAL_NETWORKS: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96"),
        *("2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "100::/64", "2620:4f:8000::/48"),
        *("0.0.0.0/8", "192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
        # Services of a cloud that hold a machine's credentials or configure it: AWS, Google, Scaleway, Alibaba, Azure.
        *("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", "100.100.100.200/32", "168.63.129.16/32"),
    )
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})


def classify_address(text: str) -> AddressScope:
    """Return the network scope of an address."""
    try:
        address: _Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "never"
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_site_local:
            return "private"
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
            return "never"
    if address.is_loopback:
        return "loopback"
    if (
        any(address in network for network in _SPECIAL_NETWORKS)
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
    ):
        return "never"
    return "public" if address.is_global else "private"


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raise `OSError` if it cannot be resolved."""
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} is not a valid host name") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def resolve_allowed(host: str, port: int, get_server_addresses: Callable[[], Awaitable[Collection[str]]]) -> str:
    """Return the address to use for a host named by a server.

    Public addresses are allowed. Loopback and private ones are allowed only if every address of the server itself is in
    that scope.

    Raises:
        OSError: the host cannot be resolved, or one of its addresses is not allowed.
    """
    addresses = await resolve_host(host, port)
    scopes = {classify_address(address) for address in addresses}
    if scopes != {"public"}:
        server_scopes = {classify_address(address) for address in await get_server_addresses()}
        allowed = {"public", *(server_scopes if len(server_scopes) == 1 else ())} - {"never"}
        for address in addresses:
            if classify_address(address) not in allowed:
                raise OSError(f"{host!r} resolves to {address}, which is not a public address")
    return addresses[0]
