import asyncio
import sqlite3

import pytest

from common.crypto.signing import TokenIssuer
from common.errors import BatchStateError, ConnectionLimitError, CredentialError, TokenUsedError
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from shuffler.admission import ConnectionLimit
from tests.support.shuffler_core import CASE, DIGEST, Shuffler

_ISSUER = TokenIssuer(TokenIssuer.generate())


@pytest.fixture
async def shuffler(shuffler: Shuffler) -> Shuffler:
    """A shuffler that requires tokens."""
    shuffler.token_identity = _ISSUER.identity()
    await shuffler.restart()
    return shuffler


async def test_a_token_admits_one_submission_and_its_retry(shuffler: Shuffler) -> None:
    """Another submission is refused, also after a restart."""
    token, first = _ISSUER.issue(), shuffler.envelope()
    assert Outcome.STORED is await shuffler.collection.submit(DIGEST, first, token)
    assert Outcome.REPEATED is await shuffler.collection.submit(DIGEST, first, token)
    with pytest.raises(TokenUsedError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)
    await shuffler.restart()
    with pytest.raises(TokenUsedError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)

    assert await shuffler.users() == 1


async def test_concurrent_submissions_with_one_token_count_once(shuffler: Shuffler) -> None:
    """Calls are several or one; refused submissions are no repeats, which get a receipt."""
    token, other, envelope = _ISSUER.issue(), _ISSUER.issue(), shuffler.envelope()
    first = await asyncio.gather(
        *(shuffler.collection.submit(DIGEST, shuffler.envelope(), token) for _ in range(5)),
        return_exceptions=True,
    )
    assert 1 == first.count(Outcome.STORED)

    together = await asyncio.gather(
        *(shuffler.collection.submit(DIGEST, envelope, token) for _ in range(3)),
        return_exceptions=True,
    )
    assert [TokenUsedError] * 3 == [type(one) for one in together]
    bulk = await shuffler.collection.submit_bulk(
        DIGEST,
        [*[envelope] * 4, shuffler.envelope(), shuffler.envelope()],
        [token, token, _ISSUER.issue(), token, other, other],
    )
    assert [3, 2, 1] == [
        bulk.count(one) for one in (Outcome.TOKEN_USED, Outcome.STORED, Outcome.REPEATED)
    ]
    assert await shuffler.users() == 3


async def test_a_finished_batch_is_reported_whatever_the_token(shuffler: Shuffler) -> None:
    """A device without a token would otherwise retry for ever."""
    envelope = shuffler.envelope()
    with pytest.raises(CredentialError):
        await shuffler.collection.submit(DIGEST, envelope, b"")
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.advance()
    assert BatchState.EXPIRED is await shuffler.state()

    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(DIGEST, envelope, b"")
    assert [Outcome.CLOSED] == await shuffler.collection.submit_bulk(DIGEST, [envelope])


async def test_submissions_without_a_valid_token_are_refused(shuffler: Shuffler) -> None:
    """A token is missing, another issuer's or forged; in bulk each is refused in its place."""
    other, good = TokenIssuer(TokenIssuer.generate()).issue(), _ISSUER.issue()
    changed = bytes([good[0] ^ 1]) + good[1:]
    for token in (b"", other, changed, good[:16] + bytes(64)):
        with pytest.raises(CredentialError):
            await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)
    bulk = [shuffler.envelope() for _ in range(4)]
    without, malformed = Outcome.UNAUTHENTICATED, Outcome.MALFORMED
    assert [malformed] == await shuffler.collection.submit_bulk(DIGEST, [bulk[0][:-1]], [good])
    assert [without, without, Outcome.STORED, without] == await shuffler.collection.submit_bulk(
        DIGEST, bulk, [other, b"", good, changed]
    )
    assert [without] * 4 == await shuffler.collection.submit_bulk(DIGEST, bulk)

    assert await shuffler.users() == 1


async def test_tokens_are_not_stored(shuffler: Shuffler) -> None:
    """A hash under the batch's key replaces them, and is deleted with the batch."""
    tokens = [_ISSUER.issue() for _ in range(5)]
    for token in tokens:
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)
    written = b"".join(path.read_bytes() for path in shuffler.path.glob("store*"))
    for token in tokens:
        assert token[:16] not in written

    connection = sqlite3.connect(shuffler.path / "spool.sqlite")
    assert [(5,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
    await shuffler.advance()
    assert [(0,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
    connection.close()


def test_a_connection_makes_a_limited_number_of_submissions() -> None:
    """A call above the limit counts for nothing; 0 is no limit."""
    limit = ConnectionLimit(10)
    limit.take("one", 9)
    with pytest.raises(ConnectionLimitError, match="may make 10 submissions"):
        limit.take("one", 2)
    limit.take("one", 1)
    limit.take("two", 10)
    with pytest.raises(ConnectionLimitError):
        limit.take("one", 1)
    ConnectionLimit(0).take("one", 1_000_000)
    for _ in range(3):
        limit.take("unix:", 9)  # all connections of a Unix socket have this name
