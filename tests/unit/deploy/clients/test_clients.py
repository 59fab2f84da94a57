"""Operators' clients: errors of services, and the ledger in pages."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import grpc
import pytest

from shuffledp.common import errors
from shuffledp.common.messages.ledger_entry import ChainedEntry
from shuffledp.common.wire.results import ledger_to_wire
from shuffledp.deploy.clients.analyzer import OperatorClient
from tests.support.ledger_entries import first_entry, next_entry

_SERVICE_ERROR = grpc.aio.Metadata(("shuffledp-foreseen", "1"))
_NOTHING = grpc.aio.Metadata()
_ON_A_PAGE: Final = 2


class _Channel:
    """A channel on which one coroutine function answers every call."""

    def __init__(self, answer: Callable[..., Awaitable[Any]]) -> None:
        self._answer = answer

    def unary_unary(self, *_: object, **__: object) -> Any:
        """Return the callable for any path."""
        return self._answer

    stream_unary = unary_stream = stream_stream = unary_unary


def _operator(answer: Callable[..., Awaitable[Any]]) -> OperatorClient:
    return OperatorClient(cast("grpc.aio.Channel", _Channel(answer)), "127.0.0.1:1", "token")


@pytest.mark.parametrize(
    ("code", "beside", "kind", "advised"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, _NOTHING, errors.PeerBusyError, False),
        (grpc.StatusCode.UNAVAILABLE, _SERVICE_ERROR, errors.PeerUnableError, False),
        (grpc.StatusCode.UNAVAILABLE, _NOTHING, errors.PeerError, True),
        (grpc.StatusCode.UNIMPLEMENTED, _NOTHING, errors.ForeignReplyError, True),
    ],
)
async def test_only_without_an_answer_is_the_address_in_doubt(
    code: grpc.StatusCode, beside: grpc.aio.Metadata, kind: type[errors.PeerError], *, advised: bool
) -> None:
    """A busy service or one with a full disk is at its address; a proxy's refusal is no answer."""

    async def fail(*_: object, **__: object) -> None:
        raise grpc.aio.AioRpcError(code, _NOTHING, beside, details="the disk is full")

    with pytest.raises(kind) as caught:
        await _operator(fail).tasks()
    assert code.name in str(caught.value) or not advised
    assert advised == ("Check that it is running, and check its" in str(caught.value))


async def _read(entries: Sequence[ChainedEntry]) -> list[ChainedEntry]:
    async def page(request: Any, **_: object) -> Any:
        numbers = [0, *(entry.entry for entry in entries)]
        start = numbers.index(request.after) if request.after in numbers else len(numbers)
        return ledger_to_wire(entries[start : start + _ON_A_PAGE])

    found, head = await _operator(page).ledger()
    assert head.entry == len(found)
    return found


async def test_the_whole_ledger_is_read_and_verified() -> None:
    """Altered, rehashed and missing entries are detected on every page."""
    chain = [first_entry()]
    while len(chain) < 6:
        chain.append(next_entry(chain[-1]))
    assert chain == await _read(chain)
    for place, entry in enumerate(chain):
        before, after = chain[:place], chain[place + 1 :]
        altered = dataclasses.replace(entry, n_refused=entry.n_refused + 1)
        rehashed = dataclasses.replace(altered, entry_hash=altered.expected_hash())
        false = [[*before, altered, *after]]
        if after:  # a valid end may lack what follows it
            false += [[*before, rehashed, *after], [*before, *after]]
        for entries in false:
            with pytest.raises(errors.LedgerError):
                await _read(entries)
