"""Resolve a host named by a server to an address that the server may refer to.

A server names its authorization server, which must not be a service in the client's own network. The name is
resolved once, and only the checked address is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final, Literal, TypeAlias

AddressScope: TypeAlias = Literal["public", "private", "loopback", "never"]
"""Network scope of an address. `never`: an address that no server has a reason to name."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Each embeds an IPv4 address, which a gateway may connect to instead.
_IPV4_CARRYING_NETWORKS: Final = tuple(
    ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
# Cloud metadata services, which hold a machine's credentials; the other such addresses are link-local.
_METADATA_ADDRESSES: Final = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})

_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")


def classify_address(text: str) -> AddressScope:
    """Return the network scope of an address."""
    try:
        address: _Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "never"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif not address.is_loopback and _embeds_ipv4(address):
            return "never"
    if address.is_loopback:
        return "loopback"
    if (
        address in _METADATA_ADDRESSES
        or address in _THIS_NETWORK
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
    ):
        return "never"
    return "public" if address.is_global else "private"


def _embeds_ipv4(address: ipaddress.IPv6Address) -> bool:
    return (
        any(address in network for network in _IPV4_CARRYING_NETWORKS) or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP
    )


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host.

    Raises:
        OSError: the host cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} is not a valid host name") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def resolve_allowed(host: str, port: int, *, server_host: str, server_port: int) -> str:
    """Return the address to use for a host named by the server at `server_host`.

    Public addresses are allowed. Loopback and private ones are allowed only if the server itself is in that scope.

    Raises:
        OSError: the host cannot be resolved, or an address is not allowed.
    """
    addresses = await resolve_host(host, port)
    server_scopes: set[AddressScope] = set()
    if any(classify_address(address) != "public" for address in addresses):
        server_scopes.update(classify_address(address) for address in await resolve_host(server_host, server_port))
    for address in addresses:
        scope = classify_address(address)
        if scope == "never" or (scope != "public" and scope not in server_scopes):
            raise OSError(f"{host!r} resolves to {address}, which is not a public address")
    return addresses[0]
