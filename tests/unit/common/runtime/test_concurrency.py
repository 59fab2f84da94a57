import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pytest

from shuffledp.common.errors import OverloadError, ShareError
from shuffledp.common.runtime.concurrency import ConcurrencyLimit, Queue
from shuffledp.common.runtime.peer import Peer

_LONG: Final = 60.0
"""Seconds that no test waits."""


@dataclass(eq=False)
class Caller:
    """A call that only notes that it was displaced."""

    name: str
    source: Peer = field(init=False)
    is_displaced: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.source = _peer(self.name)

    def displace(self) -> None:
        """Note it."""
        self.is_displaced = True


def _peer(name: str) -> Peer:
    return Peer(name, name.partition(":")[0])


def _take(limit: ConcurrencyLimit, *peers: str) -> list[Caller]:
    calls = [Caller(peer) for peer in peers]
    for call in calls:
        assert limit.take(call)
    return calls


@pytest.mark.parametrize(
    ("peers", "share"), [(["a:1"], 4), ([f"a:{port}" for port in range(9)], 14), ([""], 16)]
)
def test_connections_and_addresses_have_a_share(peers: list[str], share: int) -> None:
    """Four of sixteen places for a connection, seven eighths for an address; all for a socket."""
    limit = ConcurrencyLimit(16, 4)
    calls = [Caller(peers[number % len(peers)]) for number in range(20)]

    assert share == sum(limit.take(call) for call in calls)
    for call in calls:
        limit.free(call)
    assert not any(vars(limit)[name] for name in ("_holding", "_addresses", "_connections"))
    assert not limit._spread
    assert not limit._idle


@pytest.mark.parametrize("peers", [["a:1"], ["a:1", "a:2"], ["a:1", "b:1", "c:1"]])
def test_calls_without_a_request_keep_no_other_address_or_connection_out(peers: list[str]) -> None:
    """However many they hold and begin: each newcomer displaces the oldest of those with most."""
    limit = ConcurrencyLimit(16, 16)
    held = [Caller(peers[number % len(peers)]) for number in range(64)]
    for call in held:
        limit.take(call)
    for newcomer in ("a:9", "z:1", "z:2"):
        _take(limit, newcomer)
        more = [Caller(peers[number % len(peers)]) for number in range(64)]
        assert not any(limit.take(call) for call in more if len(peers) == 1)
        held += more

    assert len(limit._holding) <= 16
    assert len(limit._holding) == limit._connections.total() == limit._addresses.total()
    newest = [limit.held(_peer(peer)) for peer in ("a:9", "z:1", "z:2")]
    assert [1, 1, 1] == newest


def test_the_longest_idle_call_of_the_largest_holder_is_displaced() -> None:
    """Not one whose request has arrived."""
    limit = ConcurrencyLimit(6, 6)
    first, second, third, *others = _take(limit, "a:1", "a:1", "a:2", "a:1", "b:1", "b:1")
    limit.arrived(first)
    _take(limit, "c:1")

    assert [False, True, False] == [call.is_displaced for call in (first, second, third)]
    assert not any(call.is_displaced for call in others)
    limit.free(second)  # again: its place is another's now
    assert 6 == len(limit._holding)


def test_equal_shares_displace_nobody() -> None:
    """Else honest clients with slow lines would displace each other without end."""
    limit = ConcurrencyLimit(4, 4)
    calls = _take(limit, "a:1", "b:1", "c:1", "c:2")
    for peer in ("a:1", "b:2", "c:3"):
        assert not limit.take(Caller(peer))
    assert not any(call.is_displaced for call in calls)
    _take(limit, "d:1")
    assert calls[2].is_displaced


def test_all_places_in_use_by_requests_is_an_overload() -> None:
    """A connection that holds some of them is beyond its share."""
    limit = ConcurrencyLimit(4, 4)
    for call in _take(limit, "a:1", "a:1", "b:1", "c:1"):
        limit.arrived(call)

    assert not limit.take(Caller("d:1"))
    assert OverloadError is type(limit.refusal(_peer("d:1"), "full"))
    assert ShareError is type(limit.refusal(_peer("a:1"), "full"))
    assert ShareError is type(limit.refusal(_peer("d:1"), "full", minor=True))


async def _hold(queue: Queue, order: list[str], peer: str, release: asyncio.Event) -> None:
    call = Caller(peer)
    await queue.enter(call, _LONG)
    queue.arrived(call)
    order.append(peer)
    await release.wait()
    queue.leave(call)


@pytest.mark.parametrize(
    ("share", "peers", "first"),
    [
        (2, ["a:1", "a:1", "a:1", "a:1", "b:1"], ["a:1", "a:1", "b:1"]),
        (1, ["", "", "", ""], ["", "", ""]),
    ],
)
async def test_a_connection_that_fills_its_share_of_the_queue_delays_only_itself(
    share: int, peers: list[str], first: list[str]
) -> None:
    """It gets part of three slots; callers on a Unix socket share them."""
    queue, order, release = Queue(3, share), list[str](), asyncio.Event()
    holding = [asyncio.create_task(_hold(queue, order, peer, release)) for peer in peers]
    await asyncio.sleep(0.01)
    assert first == order

    release.set()
    await asyncio.gather(*holding)
    assert sorted(peers) == sorted(order)
    assert not queue.is_waiting
    assert 0 == len(queue._slots._holding)


@pytest.mark.parametrize(
    ("holding", "waiting", "served"),
    [
        (["b:1", "a:1", "a:2"], ["a:3", "c:1", "b:2"], ["c:1", "b:2", "a:3"]),
        (["z:1", "a:1", "a:1", "b:1"], ["a:1", "b:1", "a:2"], ["b:1", "a:2", "a:1"]),
        (["z:1"], ["a:1", "a:1", "b:1", "a:2", "b:1"], ["a:1", "b:1", "a:2", "b:1", "a:1"]),
    ],
    ids=["address", "connection", "turns"],
)
async def test_a_slot_goes_to_the_call_that_holds_least(
    holding: list[str], waiting: list[str], served: list[str]
) -> None:
    """The address counts first, then the connection; connections with equal shares take turns."""
    queue, order = Queue(len(holding), len(holding)), list[str]()
    held = [Caller(peer) for peer in holding]
    for call in held:
        await queue.enter(call, _LONG)
        queue.arrived(call)
    over = asyncio.Event()
    over.set()
    following = [asyncio.create_task(_hold(queue, order, peer, over)) for peer in waiting]
    await asyncio.sleep(0)
    queue.leave(held[0])  # one slot is free, and each call passes it on
    await asyncio.gather(*following)

    assert served == order


async def test_a_call_that_waits_too_long_is_refused() -> None:
    """It counts as overload unless the connection's own calls hold slots."""
    queue = Queue(2, 1)
    one, two = Caller("one:1"), Caller("two:1")
    await queue.enter(one, _LONG)
    with pytest.raises(ShareError, match=r"not read within 0\.01 seconds"):
        await queue.enter(Caller("one:1"), 0.01)
    await queue.enter(two, _LONG)
    with pytest.raises(OverloadError) as caught:
        await queue.enter(Caller("three:1"), 0.01)
    assert OverloadError is type(caught.value)

    queue.leave(one)
    queue.leave(two)
    assert (0, False) == (len(queue._slots._holding), queue.is_waiting)


@pytest.mark.parametrize("has_turn", [False, True])
async def test_a_cancelled_call_frees_its_slot(*, has_turn: bool) -> None:
    """The next call gets it, even if the slot came in the moment of the cancellation."""
    queue, first = Queue(1, 1), Caller("one:1")
    await queue.enter(first, _LONG)
    waiting = [asyncio.create_task(queue.enter(Caller(f"{n}:1"), _LONG)) for n in "ab"]
    await asyncio.sleep(0)
    if has_turn:
        queue.leave(first)
    waiting[0].cancel()
    if not has_turn:
        queue.leave(first)
    await asyncio.gather(waiting[0], return_exceptions=True)
    await asyncio.wait_for(waiting[1], 1)

    assert (1, False) == (len(queue._slots._holding), queue.is_waiting)


async def test_refusals_and_turns_do_not_grow_with_the_calls_of_an_address() -> None:
    """A server with thousands of connections refuses another, and passes slots on, at once."""

    class Counted(Counter[str]):
        reads = 0

        def __getitem__(self, name: str) -> int:
            Counted.reads += 1
            return super().__getitem__(name)

    limit, queue = ConcurrencyLimit(4096, 64), Queue(1, 1)
    calls = [Caller(f"a:{port}") for port in range(3000)]
    assert all(map(limit.take, calls))
    assert all(map(limit.take, [Caller(f"b:{port}") for port in range(1096)]))
    waiting = [asyncio.create_task(queue.enter(call, _LONG)) for call in calls]
    await asyncio.sleep(0)
    for places in (limit, queue._slots):
        places._connections = Counted(places._connections)
        places._addresses = Counted(places._addresses)
    for newcomer, has_place in (("a:9999", False), ("c:1", True)):
        assert has_place == limit.take(Caller(newcomer))
    queue.leave(calls[0])
    await waiting[1]
    assert Counted.reads < 100
    for each in waiting[2:]:
        each.cancel()
    await asyncio.gather(*waiting[2:], return_exceptions=True)
