import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from common.errors import DeadlineError, OverloadError, ShareError
from common.runtime.access import CallKind
from common.runtime.admission_interceptor import (
    AdmissionInterceptor,
    AdmittedCall,
    read_request,
)
from common.runtime.concurrency import ConcurrencyLimit

_SECONDS = 0.8
"""The time to send a request, and before that to wait in the queue."""


@pytest.fixture
def interceptor(monkeypatch: pytest.MonkeyPatch) -> AdmissionInterceptor:
    """Return an interceptor that reads one short call at a time."""
    short = replace(CallKind.SHORT.value, read_seconds=_SECONDS, reads=1, peer_reads=1)
    monkeypatch.setattr(CallKind.SHORT, "_value_", short)
    return AdmissionInterceptor(callers=None, token=None)


async def _sent_after(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b"request"


def _admitted(interceptor: AdmissionInterceptor, peer: str) -> AdmittedCall:
    short = CallKind.SHORT
    return AdmittedCall(interceptor._limits[short], interceptor._queues[short], short, peer)


async def _read(
    interceptor: AdmissionInterceptor, peer: str, requests: AsyncIterator[bytes]
) -> bytes:
    held = _admitted(interceptor, peer)
    try:
        async with held.deadline:
            return await read_request(requests, held)
    finally:
        held.close()


async def test_the_time_to_send_begins_with_the_read_slot(
    interceptor: AdmissionInterceptor,
) -> None:
    """Waiting for other calls does not use it up."""
    first = asyncio.create_task(_read(interceptor, "first:1", _sent_after(0.75 * _SECONDS)))
    await asyncio.sleep(0)
    second = await _read(interceptor, "second:1", _sent_after(0.75 * _SECONDS))

    assert (b"request", b"request") == (await first, second)


async def test_a_slow_request_is_refused_and_the_next_one_served(
    interceptor: AdmissionInterceptor,
) -> None:
    """A call that gets no slot meanwhile is refused for overload, not for slowness."""
    first = asyncio.create_task(_read(interceptor, "first:1", _sent_after(60)))
    await asyncio.sleep(_SECONDS / 4)
    assert b"request" == await _read(interceptor, "second:1", _sent_after(0))

    with pytest.raises(DeadlineError, match=r"did not arrive completely within 0\.8 seconds"):
        await first
    await _admitted(interceptor, "first:1").wait_for_slot()
    with pytest.raises(OverloadError, match=r"not read within 0\.8 seconds"):
        await _read(interceptor, "second:1", _sent_after(0))


async def test_while_others_wait_a_request_must_come_sooner(
    interceptor: AdmissionInterceptor,
) -> None:
    """The time is a fifth, for calls that get their slot while others wait."""
    calls = [_admitted(interceptor, f"caller:{number}") for number in range(3)]
    reading = [asyncio.create_task(call.wait_for_slot()) for call in calls]
    await asyncio.sleep(0)
    assert _SECONDS == await reading[0]
    calls[0].close()
    assert _SECONDS / 5 == await reading[1]
    calls[1].close()
    assert _SECONDS == await reading[2]


@pytest.mark.parametrize("moment", ["waiting", "turn", "reading", "arrival"])
async def test_a_displaced_call_is_refused_at_once(
    interceptor: AdmissionInterceptor, moment: str
) -> None:
    """Even if its turn for a slot or its request comes in the same moment."""
    other, held = _admitted(interceptor, "other:1"), _admitted(interceptor, "held:1")
    if moment in {"waiting", "turn"}:
        await other.wait_for_slot()
    come = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        await come.wait()
        yield b"request"

    async def read() -> bytes:
        async with held.deadline:
            return await read_request(requests(), held)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    if moment == "turn":
        other.close()
    if moment == "arrival":
        come.set()
    held.displace()
    with pytest.raises(ShareError, match="no request came while others needed the place"):
        await asyncio.wait_for(reading, _SECONDS / 2)


async def test_a_request_that_has_arrived_keeps_its_place(
    interceptor: AdmissionInterceptor,
) -> None:
    """A full server refuses calls rather than displace those that are being answered."""
    limit = interceptor._limits[CallKind.SHORT]
    for number in range(CallKind.SHORT.value.calls):
        held = _admitted(interceptor, f"{number % 32}:{number // 64}")
        async with held.deadline:
            await read_request(_sent_after(0), held)
    with pytest.raises(OverloadError, match="share of 2048 calls of this kind"):
        _admitted(interceptor, "one more:1")
    limit.free(held)
    _admitted(interceptor, "one more:1")


@pytest.mark.parametrize("kind", CallKind)
def test_a_full_server_counts_as_overloaded_except_for_reflection(kind: CallKind) -> None:
    """Eight callers that list the methods would otherwise keep the alert raised."""
    limit = ConcurrencyLimit(kind.value.calls, kind.value.peer_calls)

    async def fill() -> None:
        for number in range(kind.value.calls):
            AdmittedCall(limit, None, kind, f"caller {number}:1")
        with pytest.raises(OverloadError) as caught:
            AdmittedCall(limit, None, kind, "one more:1")
        assert (kind is CallKind.REFLECTION) == isinstance(caught.value, ShareError)

    asyncio.run(fill())
