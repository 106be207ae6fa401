"""A host that a server named → one address that it may be reached at.

A server says where its tokens are had. It must not send us to a service of our own network, so what a name stands for
is looked at once, judged, and that address alone is used. Lives here: the judgement. Not here: sending (`http`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final, Literal, TypeAlias

AddressScope: TypeAlias = Literal["public", "private", "loopback", "never"]
"""Who can be met at an address. `never`: nobody that a server has a reason to name."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Each carries an address of the old kind within, which a gateway on the way may go to instead.
_IPV4_CARRYING_NETWORKS: Final = tuple(
    ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
# Where clouds hand out the keys of a machine; the other such addresses are link-local.
_METADATA_ADDRESSES: Final = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})

_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")


def classify_address(text: str) -> AddressScope:
    """Say who can be met at an address."""
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
    """Return the addresses that a name stands for.

    Raises:
        OSError: it stands for none.
    """
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} cannot be a host") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def resolve_allowed(host: str, port: int, *, server_host: str, server_port: int) -> str:
    """Return the address to use for a host that the server at `home` named.

    A public one always will do. One of our own machine or network will do for a server that is there itself.

    Raises:
        OSError: the host has no address, or one that the server has no business with.
    """
    addresses = await resolve_host(host, port)
    server_scopes: set[AddressScope] = set()
    if any(classify_address(address) != "public" for address in addresses):
        server_scopes.update(classify_address(address) for address in await resolve_host(server_host, server_port))
    for address in addresses:
        scope = classify_address(address)
        if scope == "never" or (scope != "public" and scope not in server_scopes):
            raise OSError(f"{host!r} is at {address}, which is not a public address")
    return addresses[0]
