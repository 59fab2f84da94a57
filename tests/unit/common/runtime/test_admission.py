import asyncio
from contextlib import ExitStack

import pytest

from common.errors import OverloadError, ShareError
from common.runtime.access import CallKind
from common.runtime.admission_interceptor import ConcurrencyLimits, Queue

_LONG = 60.0
"""Seconds that no test waits."""


def test_a_connection_has_its_share_of_the_places_and_no_more() -> None:
    """Others are let in; all together fill the places, and then nobody is."""
    places, limits = ConcurrencyLimits(), CallKind.BULK.value
    with ExitStack() as held:
        for _ in range(limits.share):
            held.enter_context(places.taken(CallKind.BULK, "greedy"))
        with pytest.raises(OverloadError, match="4 calls of this kind are under way on this conn"):
            held.enter_context(places.taken(CallKind.BULK, "greedy"))
        for number in range(limits.places - limits.share):
            held.enter_context(places.taken(CallKind.BULK, f"other {number}"))
        with pytest.raises(OverloadError, match="128 calls of this kind are under way, and"):
            held.enter_context(places.taken(CallKind.BULK, "one more"))
        held.enter_context(places.taken(CallKind.SHORT, "greedy"))

    with places.taken(CallKind.BULK, "greedy"):
        pass


@pytest.mark.parametrize("kind", CallKind)
def test_that_no_conversation_has_room_is_no_overload(kind: CallKind) -> None:
    """Eight who ask which calls there are would keep the alert up; of any other kind it is one."""
    places, limits = ConcurrencyLimits(), kind.value
    with ExitStack() as held:
        for number in range(limits.places):
            held.enter_context(places.taken(kind, f"caller {number}"))
        with pytest.raises(OverloadError) as caught:
            held.enter_context(places.taken(kind, "one more"))

    assert (kind is CallKind.REFLECTION) == isinstance(caught.value, ShareError)


def test_on_a_unix_socket_all_places_are_open_to_anybody() -> None:
    """Its connections look alike: a share would be everybody's. All together have an end."""
    places, limits = ConcurrencyLimits(), CallKind.BULK.value
    with ExitStack() as held:
        for _ in range(limits.places):
            held.enter_context(places.taken(CallKind.BULK, "unix:"))
        with pytest.raises(OverloadError, match="128 calls of this kind are under way, and"):
            held.enter_context(places.taken(CallKind.BULK, "unix:"))

    assert {} == places._shares


async def test_on_a_unix_socket_turns_are_all_open_too() -> None:
    """Three of three, though a connection has one; the fourth waits."""
    line, order = Queue(3, 1), list[int]()
    release = asyncio.Event()

    async def hold(number: int) -> None:
        async with line.turn("unix:", _LONG):
            order.append(number)
            await release.wait()

    holding = [asyncio.create_task(hold(number)) for number in range(4)]
    await asyncio.sleep(0.01)
    assert [0, 1, 2] == order

    release.set()
    await asyncio.gather(*holding)
    assert [0, 1, 2, 3] == order


def test_a_place_is_free_again_whatever_became_of_the_call() -> None:
    """Nothing is remembered of a connection without calls."""
    places = ConcurrencyLimits()
    for _ in range(100):
        with pytest.raises(ZeroDivisionError), places.taken(CallKind.BULK, "one"):
            raise ZeroDivisionError

    assert {} == places._shares
    assert places._taken[CallKind.BULK] == 0


async def test_a_connection_that_fills_its_share_of_the_line_holds_up_itself_only() -> None:
    """Its further calls wait; another connection's goes ahead of them."""
    line, order = Queue(3, 2), list[str]()
    release = asyncio.Event()

    async def hold(peer: str) -> None:
        async with line.turn(peer, _LONG):
            order.append(peer)
            await release.wait()

    greedy = [asyncio.create_task(hold("greedy")) for _ in range(4)]
    await asyncio.sleep(0)
    other = asyncio.create_task(hold("other"))
    await asyncio.sleep(0.01)
    assert ["greedy", "greedy", "other"] == order

    release.set()
    await asyncio.gather(*greedy, other)
    assert {} == line._shares


async def test_who_waits_too_long_in_line_is_told_that_there_is_no_room() -> None:
    """Of all turns, or of the connection's own: only the first is an overload."""
    line = Queue(2, 1)
    async with line.turn("one", _LONG):
        with pytest.raises(ShareError, match=r"waited 0\.01 seconds to be read"):
            await line.turn("one", 0.01).__aenter__()
        async with line.turn("two", _LONG):
            with pytest.raises(OverloadError) as caught:
                await line.turn("three", 0.01).__aenter__()
    assert OverloadError is type(caught.value)

    assert {} == line._shares
    async with line.turn("one", 0.01), line.turn("two", 0.01):
        pass


async def test_who_gives_up_waiting_leaves_no_gap_in_the_line() -> None:
    """A cancelled call takes no turn with it."""
    line = Queue(1, 1)
    async with line.turn("one", _LONG):
        waiting = asyncio.create_task(line.turn("one", _LONG).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(1), line.turn("one", _LONG):
        pass

    assert {} == line._shares
