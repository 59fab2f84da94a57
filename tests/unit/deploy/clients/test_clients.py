"""Operators' clients: errors of a service, and the ledger in pages."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, cast

import grpc
import pytest

from common.errors import LedgerError, PeerBusyError, PeerError, PeerUnableError
from common.messages.ledger_entry import LedgerEntry
from common.task_digest import TaskDigest
from common.wire.results import ledger_to_wire
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient
from tests.support.ledger_entries import first_entry

_FORESEEN = grpc.aio.Metadata(("shuffledp-foreseen", "1"))
_NOTHING = grpc.aio.Metadata()


class _Failing:
    """A channel to a service whose every answer is an error."""

    def __init__(self, code: grpc.StatusCode, beside: grpc.aio.Metadata) -> None:
        self._error = grpc.aio.AioRpcError(code, _NOTHING, beside, details="the disk is full")

    def unary_unary(self, *_: object, **__: object) -> Any:
        """Return the call of a path."""

        async def call(*_: object, **__: object) -> None:
            raise self._error

        return call

    stream_unary = unary_stream = stream_stream = unary_unary


@pytest.mark.parametrize(
    ("code", "beside", "kind", "advised"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, _NOTHING, PeerBusyError, False),
        (grpc.StatusCode.UNAVAILABLE, _FORESEEN, PeerUnableError, False),
        (grpc.StatusCode.UNAVAILABLE, _NOTHING, PeerError, True),
    ],
)
async def test_only_a_service_that_does_not_answer_may_be_at_another_address(
    code: grpc.StatusCode, beside: grpc.aio.Metadata, kind: type[PeerError], *, advised: bool
) -> None:
    """One that has no room, or whose disk is full, is there."""
    channel = cast("grpc.aio.Channel", _Failing(code, beside))
    for call in (
        OperatorClient(channel, "127.0.0.1:1", "token").tasks(),
        ShufflerClient(channel, "127.0.0.1:1").progress(TaskDigest(bytes(32))),
    ):
        with pytest.raises(kind) as caught:
            await call
        assert advised == ("Check that it runs, the address and the authority" in str(caught.value))


_ON_A_PAGE: Final = 2


class _Ledger:
    """A channel to an analyzer that sends a ledger, a few entries at a time."""

    def __init__(self, entries: Sequence[LedgerEntry]) -> None:
        self._entries = entries

    def unary_unary(self, *_: object, **__: object) -> Any:
        """Return the call of a path."""
        return self._page

    stream_unary = unary_stream = stream_stream = unary_unary

    async def _page(self, request: Any, **_: object) -> Any:
        numbers = [0, *(one.entry for one in self._entries)]
        start = numbers.index(request.after) if request.after in numbers else len(numbers)
        return ledger_to_wire(self._entries[start : start + _ON_A_PAGE])


def _chain(length: int) -> list[LedgerEntry]:
    chain = [first_entry()]
    fields = {
        field.name: getattr(chain[0], field.name)
        for field in dataclasses.fields(chain[0])
        if not field.name.endswith("_hash")
    }
    for number in range(2, length + 1):
        chain.append(LedgerEntry.chained(chain[-1].entry_hash, **{**fields, "entry": number}))
    return chain


async def _read(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    channel = cast("grpc.aio.Channel", _Ledger(entries))
    found, head = await OperatorClient(channel, "127.0.0.1", "token").ledger()
    assert head.entry == len(found)
    return found


async def test_the_whole_ledger_is_read_and_verified() -> None:
    """An entry that was altered, altered with its hash, or left out is noticed on every page."""
    chain = _chain(6)
    assert chain == await _read(chain)
    for place, entry in enumerate(chain):
        before, after = chain[:place], chain[place + 1 :]
        altered = dataclasses.replace(entry, n_refused=entry.n_refused + 1)
        rehashed = dataclasses.replace(altered, entry_hash=altered.expected_hash())
        false = [[*before, altered, *after]]
        if after:  # a valid end may lack what follows it
            false += [[*before, rehashed, *after], [*before, *after]]
        for told in false:
            with pytest.raises(LedgerError):
                await _read(told)
