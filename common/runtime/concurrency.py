"""
Fair shares of concurrent calls, by network address and then by connection.

Shares bind only when places are scarce. A peer is kept while it holds a place or waits for one. The
share of peers whose connection is unknown, as on a Unix socket, is not limited.
"""

import asyncio
from collections import Counter
from typing import Final, Protocol

from shuffledp.common.errors import OverloadError, ShareError
from shuffledp.common.runtime.peer import Peer

_RESERVE: Final = 8
"""One of this many places is beyond the share of any single address."""


class Holder(Protocol):
    """A call, or a connection, that holds or wants a place."""

    source: Peer

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
        self._holding: set[Holder] = set()
        self._addresses, self._connections = Counter[str](), Counter[str]()
        """Places by address, and by connection."""
        self._spread = Counter[str]()
        """Connections that hold places, by address."""
        self._idle: dict[str, dict[Holder, None]] = {}
        """Idle calls by address, from the one that is idle for longest."""

    def take(self, call: Holder) -> bool:
        """Give a call a place, and return whether there was one within its share."""
        connection, address = call.source.connection, call.source.address
        if connection and self.held(call.source) >= self._peer_limit:
            return False
        alone = connection and self._addresses[address] >= self._address_limit
        if alone or len(self._holding) >= self._limit:
            victim = self._victim(call)
            if victim is None:
                return False
            self.free(victim)
            victim.displace()
        self._holding.add(call)
        self._addresses[address] += 1
        self._spread[address] += not self._connections[connection]
        self._connections[connection] += 1
        self.idle(call)
        return True

    def idle(self, call: Holder) -> None:
        """Note that a call waits for its request, so that it can be displaced."""
        if call in self._holding:
            calls = self._idle.setdefault(call.source.address, {})
            calls.pop(call, None)
            calls[call] = None

    def arrived(self, call: Holder) -> None:
        """Note that a call's request has arrived, so that it keeps its place."""
        calls = self._idle.get(call.source.address, {})
        if call in calls:
            del calls[call]
            if not calls:
                del self._idle[call.source.address]

    def free(self, call: Holder) -> None:
        """Free a call's place, if it holds one."""
        if call not in self._holding:
            return
        self.arrived(call)
        self._holding.remove(call)
        connection, address = call.source.connection, call.source.address
        _count_down(self._addresses, address)
        if _count_down(self._connections, connection):
            _count_down(self._spread, address)

    def held(self, peer: Peer) -> int:
        """Return the number of places that a connection holds."""
        return self._connections[peer.connection]

    def refusal(self, peer: Peer, reason: str, *, minor: bool = False) -> OverloadError:
        """Return a connection's error: a ShareError if it holds places, or the call is minor."""
        has_share = peer.connection and self.held(peer) > 0
        kind = ShareError if minor or has_share else OverloadError
        return kind(f"{reason}; retry later")

    def next_in_line(self, waiting: "Waiting") -> Holder | None:
        """Return the call whose address, then connection, holds least; the first of equals."""
        found, least = None, self._limit
        for address, connections in waiting.items():
            if self._addresses[address] >= least:
                continue
            free = (name for name in connections if not self._connections[name])
            connection = next(free, None) or min(connections, key=self._connections.__getitem__)
            if self._connections[connection] < self._peer_limit or not connection:
                found, least = next(iter(connections[connection])), self._addresses[address]
                if not least:
                    break
        return found

    def _victim(self, newcomer: Holder) -> Holder | None:
        """
        Return the idle call to displace; None if nobody exceeds the newcomer's share.

        Cost: one pass over the addresses of idle calls; and over these calls of one address, if its
        connections hold several places each.
        """
        own = newcomer.source.address
        address = max(self._idle, key=self._addresses.__getitem__, default=own)
        if self._addresses[address] < self._addresses[own] + 2:
            address = own
        idle = self._idle.get(address, {})
        if self._addresses[address] == self._spread[address]:
            return None if address == own else next(iter(idle))
        found = max(idle, key=lambda call: self.held(call.source), default=None)
        if found is None or address != own:
            return found
        return found if self.held(found.source) >= self.held(newcomer.source) + 2 else None


def _count_down(counts: Counter[str], name: str) -> bool:
    """Subtract one, and return whether none is left."""
    counts[name] -= 1
    return not counts[name] and counts.pop(name) == 0


Waiting = dict[str, dict[str, dict[Holder, asyncio.Future[None]]]]
"""Calls that wait, from the oldest, by address and connection, which are in the order of turns."""


class Queue:
    """A queue for read slots, which each go to the call that holds least."""

    def __init__(self, slots: int, peer_slots: int) -> None:
        self._slots = ConcurrencyLimit(slots, peer_slots)
        self._waiting: Waiting = {}

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
        connections = self._waiting.setdefault(call.source.address, {})
        connections.setdefault(call.source.connection, {})[call] = turn
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as failure:
            self._remove(call)
            self.leave(call)
            if isinstance(failure, TimeoutError):
                reason = f"the call was not read within {seconds:g} seconds"
                raise self._slots.refusal(call.source, reason) from failure
            raise

    def arrived(self, call: Holder) -> None:
        """Note that a call's request has arrived, so that it keeps its slot."""
        self._slots.arrived(call)

    def leave(self, call: Holder) -> None:
        """Free a call's slot, if it holds one, for the next in line."""
        self._slots.free(call)
        while self._waiting:
            following = self._slots.next_in_line(self._waiting)
            if following is None or not self._slots.take(following):
                return
            turn = self._remove(following)
            if turn is None or turn.cancelled():
                self._slots.free(following)
            else:
                turn.set_result(None)

    def _remove(self, call: Holder) -> asyncio.Future[None] | None:
        """End a call's wait, and the turn of its connection and address."""
        address, connection = call.source.address, call.source.connection
        connections = self._waiting.pop(address, {})
        calls = connections.pop(connection, {})
        turn = calls.pop(call, None)
        if calls:
            connections[connection] = calls
        if connections:
            self._waiting[address] = connections
        return turn
