"""How long a call waits: in the queue for its turn, and then for its request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from common.errors import DeadlineError, OverloadError
from common.runtime.access import CallKind
from common.runtime.admission_interceptor import AdmissionInterceptor

_SECONDS = 0.4
"""To send a request, and before it to wait in line."""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> AdmissionInterceptor:
    """One that reads a short call at a time."""
    short = replace(CallKind.SHORT.value, read_seconds=_SECONDS, turns=1, turns_share=1)
    monkeypatch.setattr(CallKind.SHORT, "_value_", short)
    return AdmissionInterceptor(certificates=False, token=None)


async def _sent_after(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b"request"


async def _read(gate: AdmissionInterceptor, peer: str, requests: AsyncIterator[bytes]) -> bytes:
    async with AsyncExitStack() as turn:
        return await gate._read(requests, CallKind.SHORT, peer, turn)


async def test_the_time_to_send_begins_with_the_turn(gate: AdmissionInterceptor) -> None:
    """Waiting for others takes none of it."""
    first = asyncio.create_task(_read(gate, "first", _sent_after(0.75 * _SECONDS)))
    await asyncio.sleep(0)
    second = await _read(gate, "second", _sent_after(0.75 * _SECONDS))

    assert (b"request", b"request") == (await first, second)


async def test_who_does_not_send_is_told_the_limit(gate: AdmissionInterceptor) -> None:
    """And whoever waits behind is served."""
    first = asyncio.create_task(_read(gate, "first", _sent_after(60)))
    await asyncio.sleep(_SECONDS / 4)
    assert b"request" == await _read(gate, "second", _sent_after(0))

    with pytest.raises(DeadlineError, match=r"did not come whole within 0\.4 seconds"):
        await first


async def test_who_gets_no_turn_is_refused_for_lack_of_room(gate: AdmissionInterceptor) -> None:
    """Not for being slow: operators are told of an overload."""
    async with gate._queues[CallKind.SHORT].turn("first", _SECONDS):
        with pytest.raises(OverloadError, match=r"waited 0\.4 seconds to be read"):
            await _read(gate, "second", _sent_after(0))
