"""An operator reads the ledger in pages, and verifies the chain across them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, cast

import grpc
import pytest

from common.errors import LedgerError
from common.messages.ledger_entry import LedgerEntry
from common.wire.results import ledger_to_wire
from deploy.clients.analyzer import OperatorClient
from tests.support.ledger_entries import first_entry

_ON_A_PAGE: Final = 2


class _Ledger:
    """A channel to an analyzer that gives a ledger, a few entries at a time."""

    def __init__(self, entries: Sequence[LedgerEntry]) -> None:
        self._entries = entries

    def unary_unary(self, *_: object, **__: object) -> Any:
        """Give the call of a path."""
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
