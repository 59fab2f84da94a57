import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest

from common.errors import DeadlineError, OverloadError, ShareError
from common.runtime.access import CallKind
from common.runtime.admission_interceptor import (
    AdmissionInterceptor,
    AdmittedCall,
    ConcurrencyLimits,
    Deadline,
    Queue,
    read_request,
)

_LONG: Final = 60.0
"""Seconds that no test waits."""

_SECONDS: Final = 1.5
"""The time to send a request, and before that to wait in the queue."""


@pytest.mark.parametrize(("peer", "share"), [("greedy", 4), ("unix:", 128)])
def test_a_connection_has_a_limited_share_of_concurrent_calls(peer: str, share: int) -> None:
    """A Unix socket has only the total limit, which all connections share."""
    limits, bulk = ConcurrencyLimits(), CallKind.BULK.value
    message = "on this conn" if share < bulk.calls else "128 calls of this kind are running"
    for _ in range(share):
        limits.acquire(CallKind.BULK, peer)
    with pytest.raises(OverloadError, match=message):
        limits.acquire(CallKind.BULK, peer)
    limits.acquire(CallKind.SHORT, peer)

    limits.release(CallKind.SHORT, peer)
    for _ in range(share):
        limits.release(CallKind.BULK, peer)
    assert ({}, 0) == (limits._peer_calls, limits._calls[CallKind.BULK])


@pytest.mark.parametrize("kind", CallKind)
def test_a_full_server_counts_as_overloaded_except_for_reflection(kind: CallKind) -> None:
    """Eight callers that list the methods would otherwise keep the alert raised."""
    limits = ConcurrencyLimits()
    for number in range(kind.value.calls):
        limits.acquire(kind, f"caller {number}")
    with pytest.raises(OverloadError) as caught:
        limits.acquire(kind, "one more")

    assert (kind is CallKind.REFLECTION) == isinstance(caught.value, ShareError)


@pytest.mark.parametrize(
    ("share", "peers", "first"),
    [
        (2, ["greedy", "greedy", "greedy", "greedy", "other"], ["greedy", "greedy", "other"]),
        (1, ["unix:", "unix:", "unix:", "unix:"], ["unix:", "unix:", "unix:"]),
    ],
)
async def test_a_connection_that_fills_its_share_of_the_queue_delays_only_itself(
    share: int, peers: list[str], first: list[str]
) -> None:
    """It gets part of three slots; callers on a Unix socket share them."""
    queue, order, release = Queue(3, share), list[str](), asyncio.Event()

    async def hold(peer: str) -> None:
        await queue.enter(peer, _LONG)
        order.append(peer)
        await release.wait()
        queue.leave(peer)

    holding = [asyncio.create_task(hold(peer)) for peer in peers]
    await asyncio.sleep(0.01)
    assert first == order

    release.set()
    await asyncio.gather(*holding)
    assert sorted(peers) == sorted(order)
    assert {} == queue._peer_slots


async def test_a_call_that_waits_too_long_is_refused() -> None:
    """It counts as overload only if all slots are taken, not just the connection's own."""
    queue = Queue(2, 1)
    await queue.enter("one", _LONG)
    with pytest.raises(ShareError, match=r"not read within 0\.01 seconds"):
        await queue.enter("one", 0.01)
    await queue.enter("two", _LONG)
    with pytest.raises(OverloadError) as caught:
        await queue.enter("three", 0.01)
    assert OverloadError is type(caught.value)

    queue.leave("one")
    queue.leave("two")
    assert {} == queue._peer_slots
    await queue.enter("one", 0.01)
    await queue.enter("two", 0.01)


async def test_a_cancelled_call_frees_its_slot() -> None:
    """The next call gets it."""
    queue = Queue(1, 1)
    await queue.enter("one", _LONG)
    waiting = asyncio.create_task(queue.enter("one", _LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    queue.leave("one")
    await queue.enter("one", 1)

    queue.leave("one")
    assert {} == queue._peer_slots


@pytest.fixture
def interceptor(monkeypatch: pytest.MonkeyPatch) -> AdmissionInterceptor:
    """Return an interceptor that reads one short call at a time."""
    short = replace(CallKind.SHORT.value, read_seconds=_SECONDS, reads=1, peer_reads=1)
    monkeypatch.setattr(CallKind.SHORT, "_value_", short)
    return AdmissionInterceptor(certificates=False, token=None)


async def _sent_after(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b"request"


async def _read(
    interceptor: AdmissionInterceptor, peer: str, requests: AsyncIterator[bytes]
) -> bytes:
    held = AdmittedCall(
        interceptor._limits, interceptor._queues[CallKind.SHORT], CallKind.SHORT, peer
    )
    try:
        async with Deadline(_LONG, "") as deadline:
            return await read_request(requests, CallKind.SHORT, held, deadline)
    finally:
        held.close()


async def test_the_time_to_send_begins_with_the_read_slot(
    interceptor: AdmissionInterceptor,
) -> None:
    """Waiting for other calls does not use it up."""
    first = asyncio.create_task(_read(interceptor, "first", _sent_after(0.75 * _SECONDS)))
    await asyncio.sleep(0)
    second = await _read(interceptor, "second", _sent_after(0.75 * _SECONDS))

    assert (b"request", b"request") == (await first, second)


async def test_a_slow_request_is_refused_and_the_next_one_served(
    interceptor: AdmissionInterceptor,
) -> None:
    """A call that gets no slot meanwhile is refused for overload, not for slowness."""
    first = asyncio.create_task(_read(interceptor, "first", _sent_after(60)))
    await asyncio.sleep(_SECONDS / 4)
    assert b"request" == await _read(interceptor, "second", _sent_after(0))

    with pytest.raises(DeadlineError, match=r"did not arrive completely within 1\.5 seconds"):
        await first
    await interceptor._queues[CallKind.SHORT].enter("first", _SECONDS)
    with pytest.raises(OverloadError, match=r"not read within 1\.5 seconds"):
        await _read(interceptor, "second", _sent_after(0))
