"""A host that a server named → one address that it may be reached at.

A server says where its tokens are had. It must not send us to a service of our own network, so what a name stands for
is looked at once, judged, and that address alone is used. Lives here: the judgement. Not here: sending (`http`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final, Literal, TypeAlias

Standing: TypeAlias = Literal["public", "private", "loopback", "never"]
"""Who can be met at an address. `never`: nobody that a server has a reason to name."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Each carries an address of the old kind within, which a gateway on the way may go to instead.
_CARRIERS: Final = tuple(
    ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
# Where clouds hand out the keys of a machine; the other such addresses are link-local.
_KEEPERS: Final = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})

_HERE: Final = ipaddress.IPv4Network("0.0.0.0/8")


def standing(text: str) -> Standing:
    """Say who can be met at an address."""
    try:
        address: _Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "never"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif not address.is_loopback and _carries(address):
            return "never"
    if address.is_loopback:
        return "loopback"
    if address in _KEEPERS or address in _HERE or address.is_link_local or address.is_multicast or address.is_reserved:
        return "never"
    return "public" if address.is_global else "private"


def _carries(address: ipaddress.IPv6Address) -> bool:
    return any(address in network for network in _CARRIERS) or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP


async def found(host: str, port: int) -> list[str]:
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


async def pinned(host: str, port: int, *, home: str, home_port: int) -> str:
    """Return the address to use for a host that the server at `home` named.

    A public one always will do. One of our own machine or network will do for a server that is there itself.

    Raises:
        OSError: the host has no address, or one that the server has no business with.
    """
    addresses = await found(host, port)
    near: set[Standing] = set()
    if any(standing(address) != "public" for address in addresses):
        near.update(standing(address) for address in await found(home, home_port))
    for address in addresses:
        kind = standing(address)
        if kind == "never" or (kind != "public" and kind not in near):
            raise OSError(f"{host!r} is at {address}, which is not a public address")
    return addresses[0]
