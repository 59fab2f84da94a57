"""
Fair shares of concurrent calls, by network address and then by connection.

Shares bind only when places are scarce. gRPC's name for a peer is kept only during its calls. On a
Unix socket all peers have one name, so nobody's share is limited.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final, Protocol
from urllib.parse import unquote

from common.errors import OverloadError, ShareError

_RESERVE: Final = 8
"""One of this many places is beyond the share of any single address."""
_IPV6_NETWORK_BYTES: Final = 8


def is_one_connection(peer: str) -> bool:
    """Return whether gRPC's name for a peer identifies one connection."""
    return not peer.startswith("unix:")


def address_of(peer: str) -> str:
    """Return the address in gRPC's name for a peer. An IPv6 address counts as its /64 network."""
    address = peer.rpartition(":")[0]
    if not address.startswith("ipv6:"):
        return address
    host = IPv6Address(unquote(address.removeprefix("ipv6:")).strip("[]"))
    return f"ipv6:{host.packed[:_IPV6_NETWORK_BYTES].hex()}"


class Holder(Protocol):
    """A call that holds or wants a place."""

    peer: str
    """gRPC's name for the connection."""
    address: str
    """The connection's address; see `address_of`."""

    def displace(self) -> None:
        """End the call, which has lost its place."""


class ConcurrencyLimit:
    """
    A limit on concurrent calls. A call is idle until its request has arrived.

    When all places are taken, a call displaces an idle call of an address that holds at least two
    places more than its own, or else of such a connection of its own address.
    """

    def __init__(self, limit: int, peer_limit: int) -> None:
        """Allow `limit` calls, at most `peer_limit` of one connection."""
        self._limit = limit
        self._peer_limit = peer_limit
        self._address_limit = limit - limit // _RESERVE
        self._taken = 0
        self._addresses: Counter[str] = Counter()
        self._peers: dict[str, dict[Holder, bool]] = {}
        """By connection, its calls from the oldest, and whether each is idle."""

    def take(self, call: Holder) -> bool:
        """
        Give a call a place, and return whether there was one within its share.

        Cost: constant; if all places are taken, one pass over the connections that hold them.
        """
        identified = is_one_connection(call.peer)
        if identified and self.held(call.peer) >= self._peer_limit:
            return False
        alone = identified and self._addresses[call.address] >= self._address_limit
        if alone or self._taken >= self._limit:
            victim = self._victim(call)
            if victim is None:
                return False
            self.free(victim)
            victim.displace()
        self._taken += 1
        self._addresses[call.address] += 1
        self._peers.setdefault(call.peer, {})[call] = True
        return True

    def settle(self, call: Holder) -> None:
        """Note that a call's request has arrived, so that it keeps its place."""
        self._peers[call.peer][call] = False

    def free(self, call: Holder) -> None:
        """Free a call's place, if it holds one."""
        calls = self._peers.get(call.peer, {})
        if calls.pop(call, None) is None:
            return
        self._taken -= 1
        self._addresses[call.address] -= 1
        if not self._addresses[call.address]:
            del self._addresses[call.address]
        if not calls:
            del self._peers[call.peer]

    def held(self, peer: str) -> int:
        """Return the number of places that a connection holds."""
        return len(self._peers.get(peer, ()))

    def refusal(self, peer: str, reason: str, *, minor: bool = False) -> OverloadError:
        """Return a connection's error: a ShareError if it holds places, or the call is minor."""
        has_share = is_one_connection(peer) and self.held(peer) > 0
        kind = ShareError if minor or has_share else OverloadError
        return kind(f"{reason}; retry later")

    def next_in_line(self, waiting: Iterable[Holder]) -> Holder | None:
        """Return the call whose address, then connection, holds least; the first of equals."""
        first, least = None, (self._limit, self._limit)
        for call in waiting:
            rank = (self._addresses[call.address], self.held(call.peer))
            if rank < least and (rank[1] < self._peer_limit or not is_one_connection(call.peer)):
                first, least = call, rank
                if rank == (0, 0):
                    break
        return first

    def _victim(self, newcomer: Holder) -> Holder | None:
        """Return the idle call to displace; None if nobody exceeds the newcomer's share."""
        found, most = None, (0, 0)
        for calls in self._peers.values():
            call = next((call for call, is_idle in calls.items() if is_idle), None)
            if call is not None:
                rank = (self._addresses[call.address], len(calls))
                if rank > most:
                    found, most = call, rank
        if found is None:
            return None
        if found.address == newcomer.address:
            return found if most[1] > self.held(newcomer.peer) + 1 else None
        return found if most[0] > self._addresses[newcomer.address] + 1 else None


class Queue:
    """A queue for read slots, which each go to the call that holds least."""

    def __init__(self, slots: int, peer_slots: int) -> None:
        self._slots = ConcurrencyLimit(slots, peer_slots)
        self._waiting: dict[str, dict[Holder, asyncio.Future[None]]] = {}
        """By connection, its calls from the oldest; connections in the order of their turns."""

    @property
    def is_waiting(self) -> bool:
        """Whether calls wait."""
        return bool(self._waiting)

    async def enter(self, call: Holder, seconds: float) -> None:
        """
        Wait for a slot, which the call holds until it leaves.

        Raises OverloadError if no slot was free within `seconds`; ShareError if the same, and this
        connection's other calls held slots.
        """
        if self._slots.take(call):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(call.peer, {})[call] = turn
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as failure:
            self._remove(call)
            self.leave(call)
            if isinstance(failure, TimeoutError):
                reason = f"the call was not read within {seconds:g} seconds"
                raise self._slots.refusal(call.peer, reason) from failure
            raise

    def settle(self, call: Holder) -> None:
        """Note that a call's request has arrived, so that it keeps its slot."""
        self._slots.settle(call)

    def leave(self, call: Holder) -> None:
        """Free a call's slot, if it holds one, for the next in line."""
        self._slots.free(call)
        while self._waiting:
            following = self._slots.next_in_line(next(iter(c)) for c in self._waiting.values())
            if following is None or not self._slots.take(following):
                return
            turn = self._remove(following)
            if turn is None or turn.cancelled():
                self._slots.free(following)
            else:
                turn.set_result(None)

    def _remove(self, call: Holder) -> asyncio.Future[None] | None:
        """End a call's wait, and its connection's turn."""
        calls = self._waiting.pop(call.peer, {})
        turn = calls.pop(call, None)
        if calls:
            self._waiting[call.peer] = calls
        return turn
