"""The shuffler's answers and receipts."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.crypto.signing import SigningIdentity, TokenIssuer, receipt_holds
from common.errors import BatchStateError, CredentialError, OverloadError, TokenUsedError
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from common.task_digest import TaskDigest
from protos.shuffledp.v1 import shuffler_pb2
from shuffler.servicer import ConnectionCount, Receipts, ShufflerServicer
from tests.support.keys import bulk_receipt_holds
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


class _Call:
    """All that the shuffler may use of a call: with more, it could say something beside answers."""

    def peer(self) -> str:
        """Give gRPC's name for the other end."""
        return "ipv4:192.0.2.1:1"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Shuffler, ShufflerServicer]]:
    """A shuffler, and what answers its calls."""
    core = Shuffler(tmp_path)
    await core.start()
    receipts = Receipts(SigningIdentity.generate())
    yield core, ShufflerServicer(core.collection, ConnectionCount(0), receipts, core.inclusions)
    core.spool.close()


async def test_every_device_gets_the_same_answer(served: tuple[Shuffler, ShufflerServicer]) -> None:
    """Of one length, repeated or not; a repeat is marked."""
    core, servicer = served
    lengths = set()
    for _ in range(4):
        request = shuffler_pb2.SubmitRequest(task_digest=DIGEST, envelope=core.envelope())
        answer = await servicer.Submit(request, _Call())
        lengths.add((answer.repeated, len(answer.SerializeToString())))
    assert 1 == len(lengths)
    assert (await servicer.Submit(request, _Call())).repeated

    before = await _asked(servicer)
    await core.submit(1)
    assert before == await _asked(servicer)


async def _asked(servicer: ShufflerServicer) -> bytes:
    request = shuffler_pb2.GetBatchStatusRequest(task_digest=DIGEST)
    return (await servicer.GetBatchStatus(request, _Call())).SerializeToString()


_DIGEST = TaskDigest(b"d" * 32)
_IDENTITY = SigningIdentity.generate()
_RECEIPTS = Receipts(_IDENTITY)
_ON_THE_DISK = {Outcome.STORED, Outcome.REPEATED}


@pytest.mark.parametrize("outcome", Outcome)
def test_only_stored_submissions_get_a_receipt(outcome: Outcome) -> None:
    """Stored now, or before."""
    receipt = _RECEIPTS.one(_DIGEST, b"envelope", outcome)
    signed = receipt_holds(_IDENTITY.public_identity(), _DIGEST, b"envelope", receipt)

    assert (outcome in _ON_THE_DISK) == signed == (receipt != b"")


def test_a_bulk_receipt_covers_only_stored_submissions() -> None:
    """In their order; without any there is no receipt."""
    envelopes = [outcome.value.encode() for outcome in Outcome]
    receipt = _RECEIPTS.bulk(_DIGEST, envelopes, list(Outcome))

    stored = [outcome.value.encode() for outcome in Outcome if outcome in _ON_THE_DISK]
    assert bulk_receipt_holds(_IDENTITY.public_identity(), _DIGEST, stored, receipt)
    assert b"" == _RECEIPTS.bulk(_DIGEST, [b"one"], [Outcome.MALFORMED])


_ISSUER = TokenIssuer(TokenIssuer.generate())


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A shuffler that asks for tokens."""
    started = Shuffler(tmp_path, token_identity=_ISSUER.identity())
    await started.start()
    yield started
    started.spool.close()


async def test_a_token_admits_one_submission_and_its_retry(asking: Shuffler) -> None:
    """Another submission is refused, also after a restart."""
    token, first = _ISSUER.issue(), asking.envelope()
    assert Outcome.STORED is await asking.collection.submit(DIGEST, first, token)
    assert Outcome.REPEATED is await asking.collection.submit(DIGEST, first, token)
    with pytest.raises(TokenUsedError):
        await asking.collection.submit(DIGEST, asking.envelope(), token)
    await asking.restart()
    with pytest.raises(TokenUsedError):
        await asking.collection.submit(DIGEST, asking.envelope(), token)

    assert await asking.users() == 1


async def test_concurrent_submissions_with_one_token_count_once(asking: Shuffler) -> None:
    """In one call or in several."""
    token = _ISSUER.issue()
    bulk = await asking.collection.submit_bulk(
        DIGEST, [asking.envelope(), asking.envelope()], [token, token]
    )
    assert [Outcome.STORED, Outcome.TOKEN_USED] == bulk

    other = _ISSUER.issue()
    results = await asyncio.gather(
        *(asking.collection.submit(DIGEST, asking.envelope(), other) for _ in range(5)),
        return_exceptions=True,
    )
    assert 1 == results.count(Outcome.STORED)
    assert await asking.users() == 2


async def test_a_submission_refused_for_its_token_is_not_repeated(asking: Shuffler) -> None:
    """A repeat would get a receipt although nothing was stored."""
    token, envelope = _ISSUER.issue(), asking.envelope()
    await asking.collection.submit(DIGEST, asking.envelope(), token)

    together = await asyncio.gather(
        *(asking.collection.submit(DIGEST, envelope, token) for _ in range(3)),
        return_exceptions=True,
    )
    assert [TokenUsedError] * 3 == [type(one) for one in together]
    bulk = await asking.collection.submit_bulk(
        DIGEST, [envelope] * 4, [token, token, _ISSUER.issue(), token]
    )
    assert [2, 1, 1] == [
        bulk.count(one) for one in (Outcome.TOKEN_USED, Outcome.STORED, Outcome.REPEATED)
    ]
    assert await asking.users() == 2


async def test_a_finished_batch_is_reported_whatever_the_token(asking: Shuffler) -> None:
    """A device without a token would otherwise retry for ever."""
    envelope = asking.envelope()
    with pytest.raises(CredentialError):
        await asking.collection.submit(DIGEST, envelope, b"")
    asking.clock.seconds = float(CASE.task.deadline)
    await asking.deliveries.advance()
    assert BatchState.EXPIRED is await asking.state()

    with pytest.raises(BatchStateError):
        await asking.collection.submit(DIGEST, envelope, b"")
    assert [Outcome.CLOSED] == await asking.collection.submit_bulk(DIGEST, [envelope])


async def test_submissions_without_a_valid_token_are_refused(asking: Shuffler) -> None:
    """None, another issuer's, or a forged one; in bulk each in its place."""
    other, good = TokenIssuer(TokenIssuer.generate()).issue(), _ISSUER.issue()
    changed = bytes([good[0] ^ 1]) + good[1:]
    for token in (b"", other, changed, good[:16] + bytes(64)):
        with pytest.raises(CredentialError):
            await asking.collection.submit(DIGEST, asking.envelope(), token)
    bulk = [asking.envelope() for _ in range(4)]
    without, malformed = Outcome.UNAUTHENTICATED, Outcome.MALFORMED
    assert [malformed] == await asking.collection.submit_bulk(DIGEST, [bulk[0][:-1]], [good])
    assert [without, without, Outcome.STORED, without] == await asking.collection.submit_bulk(
        DIGEST, bulk, [other, b"", good, changed]
    )
    assert [without] * 4 == await asking.collection.submit_bulk(DIGEST, bulk)

    assert await asking.users() == 1


async def test_tokens_are_not_stored(asking: Shuffler) -> None:
    """A hash under the batch's key replaces them, and is deleted with the batch."""
    tokens = [_ISSUER.issue() for _ in range(5)]
    for token in tokens:
        await asking.collection.submit(DIGEST, asking.envelope(), token)
    written = b"".join(path.read_bytes() for path in asking.path.glob("spool*"))
    for token in tokens:
        assert token[:16] not in written

    connection = sqlite3.connect(asking.path / "spool.sqlite")
    assert [(5,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
    await asking.deliveries.advance()
    assert [(0,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
    connection.close()


def test_a_connection_makes_a_limited_number_of_submissions() -> None:
    """A call above the limit counts for nothing; 0 is no limit."""
    count = ConnectionCount(10)
    count.take("one", 9)
    with pytest.raises(OverloadError, match="may make 10 submissions"):
        count.take("one", 2)
    count.take("one", 1)
    count.take("two", 10)
    with pytest.raises(OverloadError):
        count.take("one", 1)
    ConnectionCount(0).take("one", 1_000_000)
    for _ in range(3):
        count.take("unix:", 9)  # all connections of a Unix socket have this name
