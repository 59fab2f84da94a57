import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from types import SimpleNamespace

import pytest

from shuffledp.common.errors import DeadlineError, OverloadError, ShareError
from shuffledp.common.runtime.access import CALLS, CallKind
from shuffledp.common.runtime.admission import Admission, AdmittedCall
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor, peer_of
from shuffledp.common.runtime.concurrency import ConcurrencyLimit
from shuffledp.common.runtime.peer import Peer

_SECONDS = 0.8
"""The time to send a request, and before that to wait in the queue."""


@pytest.fixture
def admission(monkeypatch: pytest.MonkeyPatch) -> Admission:
    """Return an admission that reads one short call at a time."""
    short = replace(CallKind.SHORT.value, read_seconds=_SECONDS, reads=1, peer_reads=1)
    monkeypatch.setattr(CallKind.SHORT, "_value_", short)
    return Admission()


def _peer(name: str) -> Peer:
    return Peer(name, name.partition(":")[0])


async def _sent_after(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b"request"


def _admitted(admission: Admission, peer: str) -> AdmittedCall:
    return admission.admit(CALLS["/shuffledp.v1.Shuffler/Submit"], _peer(peer))


async def _run(held: AdmittedCall, requests: AsyncIterator[bytes]) -> bytes:
    async def echo(request: bytes) -> bytes:
        return request

    return await held.run(partial(anext, requests), bytes, echo, bytes)


async def _read(admission: Admission, peer: str, requests: AsyncIterator[bytes]) -> bytes:
    held = _admitted(admission, peer)
    try:
        async with held.deadline:
            return await _run(held, requests)
    finally:
        held.close()


async def test_the_time_to_send_begins_with_the_read_slot(admission: Admission) -> None:
    """Waiting for other calls does not use it up."""
    first = asyncio.create_task(_read(admission, "first:1", _sent_after(0.75 * _SECONDS)))
    await asyncio.sleep(0)
    second = await _read(admission, "second:1", _sent_after(0.75 * _SECONDS))

    assert (b"request", b"request") == (await first, second)


async def test_a_slow_request_is_refused_and_the_next_one_served(admission: Admission) -> None:
    """A call that gets no slot meanwhile is refused for overload, not for slowness."""
    first = asyncio.create_task(_read(admission, "first:1", _sent_after(60)))
    await asyncio.sleep(_SECONDS / 4)
    assert b"request" == await _read(admission, "second:1", _sent_after(0))

    with pytest.raises(DeadlineError, match=r"did not arrive completely within 0\.8 seconds"):
        await first
    await _admitted(admission, "first:1").wait_for_slot()
    with pytest.raises(OverloadError, match=r"not read within 0\.8 seconds"):
        await _read(admission, "second:1", _sent_after(0))


async def test_while_others_wait_a_request_must_come_sooner(admission: Admission) -> None:
    """The time is a fifth, for calls that get their slot while others wait."""
    calls = [_admitted(admission, f"caller:{number}") for number in range(3)]
    reading = [asyncio.create_task(call.wait_for_slot()) for call in calls]
    await asyncio.sleep(0)
    assert _SECONDS == await reading[0]
    calls[0].close()
    assert _SECONDS / 5 == await reading[1]
    calls[1].close()
    assert _SECONDS == await reading[2]


@pytest.mark.parametrize("moment", ["waiting", "turn", "reading", "arrival"])
async def test_a_displaced_call_is_refused_at_once(admission: Admission, moment: str) -> None:
    """Even if its turn for a slot or its request comes in the same moment."""
    other, held = _admitted(admission, "other:1"), _admitted(admission, "held:1")
    if moment in {"waiting", "turn"}:
        await other.wait_for_slot()
    come = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        await come.wait()
        yield b"request"

    async def read() -> bytes:
        async with held.deadline:
            return await _run(held, requests())

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    if moment == "turn":
        other.close()
    if moment == "arrival":
        come.set()
    held.displace()
    with pytest.raises(ShareError, match="no request came while others needed the place"):
        await asyncio.wait_for(reading, _SECONDS / 2)


async def test_a_request_that_has_arrived_keeps_its_place(admission: Admission) -> None:
    """A full server refuses calls rather than displace those that are being answered."""
    limit = admission._limits[CallKind.SHORT]
    for number in range(CallKind.SHORT.value.calls):
        held = _admitted(admission, f"{number % 32}:{number // 64}")
        async with held.deadline:
            await _run(held, _sent_after(0))
    with pytest.raises(OverloadError, match="share of 2048 calls of this kind"):
        _admitted(admission, "one more:1")
    limit.free(held)
    _admitted(admission, "one more:1")


@pytest.mark.parametrize("kind", CallKind)
def test_a_full_server_counts_as_overloaded_except_for_reflection(kind: CallKind) -> None:
    """Eight callers that list the methods would otherwise keep the alert raised."""
    limit = ConcurrencyLimit(kind.value.calls, kind.value.peer_calls)

    async def fill() -> None:
        for number in range(kind.value.calls):
            AdmittedCall(limit, None, kind, _peer(f"caller {number}:1"))
        with pytest.raises(OverloadError) as caught:
            AdmittedCall(limit, None, kind, _peer("one more:1"))
        assert (kind is CallKind.REFLECTION) == isinstance(caught.value, ShareError)

    asyncio.run(fill())


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("ipv4:192.0.2.7:5000", "ipv4:192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:5000", "ipv6:20010db800010002"),
        ("ipv6:%5B2001:db8:1:2::9%5D:80", "ipv6:20010db800010002"),
        ("ipv6:%5Bfe80::1%25eth0%5D:80", "ipv6:fe80000000000000"),
    ],
)
def test_an_address_is_a_peer_without_port_or_the_host_in_its_network(
    name: str, address: str
) -> None:
    """One host may have all 2^64 addresses of its IPv6 network; a relay's are not counted."""
    assert Peer(name, address) == peer_of(name)
    relays = [ip_network("192.0.2.0/24"), ip_network("::/0")]
    assert Peer(name, name) == peer_of(name, relays)


def test_a_call_from_a_relay_is_admitted_as_of_its_own_address() -> None:
    """Over gRPC, by the settings of the service."""
    relays = [ip_network("192.0.2.0/24")]
    call = CALLS["/shuffledp.v1.Shuffler/Submit"]

    async def address_of(name: str) -> str:
        interceptor = AdmissionInterceptor(Admission(relays=relays))
        return interceptor._admit(call, SimpleNamespace(peer=lambda: name)).source.address

    for name, address in (
        ("ipv4:192.0.2.1:1", "ipv4:192.0.2.1:1"),
        ("ipv4:198.51.100.1:1", "ipv4:198.51.100.1"),
    ):
        assert address == asyncio.run(address_of(name))


def test_callers_of_a_unix_socket_cannot_be_told_apart() -> None:
    """No share of theirs is limited."""
    assert Peer("", "") == peer_of("unix:")
