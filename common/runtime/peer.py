"""Who calls a service, as limits see it, whichever way the call came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]
_IPV6_NETWORK_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a call. It is never logged, and kept only while it calls."""

    connection: str = ""
    """Identifies one connection; empty if it cannot be told from others, as on a Unix socket, so
    that no limit of a single connection applies."""
    address: str = ""
    """The network address that shares count by."""

    @classmethod
    def at(cls, host: str, connection: str, unshared: Networks = ()) -> Self:
        """
        Return the peer at an IP address. An IPv6 address counts as its /64 network.

        In an `unshared` network, such as a relay's, each connection counts as an address.
        """
        address = parse_address(host)
        if address is None or is_within(address, unshared):
            return cls(connection, connection)
        return cls(connection, shared_address(address))


def parse_address(host: str) -> Address | None:
    """Parse an IP address, IPv4 if it is mapped into IPv6; None if the text is none."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def networks(texts: Iterable[str]) -> Networks:
    """Parse networks such as 192.0.2.0/24; raise ValueError for another text."""
    return [ip_network(text) for text in texts]


def is_within(address: Address | None, networks: Networks) -> bool:
    """Return whether an address is in one of the networks."""
    return address is not None and any(address in network for network in networks)


def shared_address(address: Address) -> str:
    """Return the text by which shares count an address."""
    if isinstance(address, IPv4Address):
        return f"ipv4:{address}"
    return f"ipv6:{address.packed[:_IPV6_NETWORK_BYTES].hex()}"


def forwarded_address(listed: bytes, proxies: Networks) -> Address | None:
    """
    Return the client's address in the X-Forwarded-For of a request that a trusted proxy forwards.

    It is the last hop that is no trusted proxy, or the first if all are; earlier ones are the
    client's own word. None if it is no address.
    """
    found = None
    for hop in reversed(listed.decode("latin-1").split(",")):
        text = hop.strip()
        if text.startswith("["):
            text = text[1:].partition("]")[0]
        elif text.count(":") == 1:
            text = text.partition(":")[0]
        found = parse_address(text)
        if not is_within(found, proxies):
            break
    return found
