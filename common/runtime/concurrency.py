"""
Fair shares of concurrent calls, by network address and then by connection.

Shares bind only when places are scarce. A peer is kept while it holds a place or waits for one. The
share of peers whose connection is unknown, as on a Unix socket, is not limited.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

from common.errors import OverloadError, ShareError
from common.runtime.peer import Peer

_RESERVE: Final = 8
"""One of this many places is beyond the share of any single address."""


class Holder(Protocol):
    """A call, or a connection, that holds or wants a place."""

    caller: Peer

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
        self._connections: dict[str, dict[Holder, bool]] = {}
        """By connection, its calls from the oldest, and whether each is idle."""

    def take(self, call: Holder) -> bool:
        """
        Give a call a place, and return whether there was one within its share.

        Cost: constant; if all places are taken, one pass over the connections that hold them.
        """
        connection, address = call.caller.connection, call.caller.address
        if connection and self.held(call.caller) >= self._peer_limit:
            return False
        alone = connection and self._addresses[address] >= self._address_limit
        if alone and self._peer_limit == 1:
            return False  # its connections all hold one place
        if alone or self._taken >= self._limit:
            victim = self._victim(call)
            if victim is None:
                return False
            self.free(victim)
            victim.displace()
        self._taken += 1
        self._addresses[address] += 1
        self._connections.setdefault(connection, {})[call] = True
        return True

    def settle(self, call: Holder, *, idle: bool = False) -> None:
        """Note that a call's request has arrived, so that it keeps its place; or that it waits."""
        if call in (calls := self._connections.get(call.caller.connection, {})):
            calls[call] = idle

    def free(self, call: Holder) -> None:
        """Free a call's place, if it holds one."""
        connection, address = call.caller.connection, call.caller.address
        calls = self._connections.get(connection, {})
        if calls.pop(call, None) is None:
            return
        self._taken -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]
        if not calls:
            del self._connections[connection]

    def held(self, peer: Peer) -> int:
        """Return the number of places that a connection holds."""
        return len(self._connections.get(peer.connection, ()))

    def refusal(self, peer: Peer, reason: str, *, minor: bool = False) -> OverloadError:
        """Return a connection's error: a ShareError if it holds places, or the call is minor."""
        has_share = peer.connection and self.held(peer) > 0
        kind = ShareError if minor or has_share else OverloadError
        return kind(f"{reason}; retry later")

    def next_in_line(self, waiting: Iterable[Holder]) -> Holder | None:
        """Return the call whose address, then connection, holds least; the first of equals."""
        first, least = None, (self._limit, self._limit)
        for call in waiting:
            rank = (self._addresses[call.caller.address], self.held(call.caller))
            if rank < least and (rank[1] < self._peer_limit or not call.caller.connection):
                first, least = call, rank
                if rank == (0, 0):
                    break
        return first

    def _victim(self, newcomer: Holder) -> Holder | None:
        """Return the idle call to displace; None if nobody exceeds the newcomer's share."""
        found, most = None, (0, 0)
        for calls in self._connections.values():
            call = next((call for call, is_idle in calls.items() if is_idle), None)
            if call is not None:
                rank = (self._addresses[call.caller.address], len(calls))
                if rank > most:
                    found, most = call, rank
        if found is None:
            return None
        if found.caller.address == newcomer.caller.address:
            return found if most[1] > self.held(newcomer.caller) + 1 else None
        return found if most[0] > self._addresses[newcomer.caller.address] + 1 else None


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
        self._waiting.setdefault(call.caller.connection, {})[call] = turn
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as failure:
            self._remove(call)
            self.leave(call)
            if isinstance(failure, TimeoutError):
                reason = f"the call was not read within {seconds:g} seconds"
                raise self._slots.refusal(call.caller, reason) from failure
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
        calls = self._waiting.pop(call.caller.connection, {})
        turn = calls.pop(call, None)
        if calls:
            self._waiting[call.caller.connection] = calls
        return turn
