import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shuffledp.common import errors
from shuffledp.common.crypto.privacy_tokens import nonce_of
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.admission import ConnectionLimit
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published
from tests.support.tokens import TOKENS, new_token, token_spec

CASE = published(n_min=3, target_size=5, tokens=TOKENS)
DIGEST = CASE.signed.digest()


@pytest.fixture
async def shuffler(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A shuffler of a task that requires tokens."""
    started = Shuffler(tmp_path, case=CASE)
    await started.start()
    yield started
    started.store.close()


async def test_a_token_admits_one_submission_and_its_retry(shuffler: Shuffler) -> None:
    """Another submission is refused, also after a restart."""
    token, first = new_token(DIGEST), shuffler.envelope()
    assert Outcome.STORED is await shuffler.collection.submit(DIGEST, first, token)
    assert Outcome.REPEATED is await shuffler.collection.submit(DIGEST, first, token)
    with pytest.raises(errors.TokenUsedError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)
    await shuffler.restart()
    with pytest.raises(errors.TokenUsedError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)

    assert await shuffler.users() == 1


async def test_concurrent_submissions_with_one_token_count_once(shuffler: Shuffler) -> None:
    """Calls are several or one; refused submissions are no repeats, which get a receipt."""
    token, other, envelope = new_token(DIGEST), new_token(DIGEST), shuffler.envelope()
    first = await asyncio.gather(
        *(shuffler.collection.submit(DIGEST, shuffler.envelope(), token) for _ in range(5)),
        return_exceptions=True,
    )
    assert 1 == first.count(Outcome.STORED)

    together = await asyncio.gather(
        *(shuffler.collection.submit(DIGEST, envelope, token) for _ in range(3)),
        return_exceptions=True,
    )
    assert [errors.TokenUsedError] * 3 == [type(one) for one in together]
    bulk = await shuffler.collection.submit_bulk(
        DIGEST,
        [*[envelope] * 4, shuffler.envelope(), shuffler.envelope()],
        [token, token, new_token(DIGEST), token, other, other],
    )
    assert [3, 2, 1] == [
        bulk.count(one) for one in (Outcome.TOKEN_USED, Outcome.STORED, Outcome.REPEATED)
    ]
    assert await shuffler.users() == 3


async def test_a_finished_batch_is_reported_whatever_the_token(shuffler: Shuffler) -> None:
    """A device without a token would otherwise retry for ever."""
    envelope = shuffler.envelope()
    with pytest.raises(errors.CredentialError):
        await shuffler.collection.submit(DIGEST, envelope, b"")
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.advance()
    assert BatchState.EXPIRED is await shuffler.batch_state()

    with pytest.raises(errors.BatchStateError):
        await shuffler.collection.submit(DIGEST, envelope, b"")
    assert [Outcome.CLOSED] == await shuffler.collection.submit_bulk(DIGEST, [envelope])


async def test_submissions_without_a_valid_token_are_refused(shuffler: Shuffler) -> None:
    """A token is missing, of another task or key, or forged; in bulk each is refused by itself."""
    good, elsewhere = new_token(DIGEST), new_token(TaskDigest(bytes(32)))
    signer = TokenSigningKey(TokenSigningKey.generate())
    other_key = new_token(DIGEST, token_spec(signer=signer), signer)
    changed = good[:-1] + bytes([good[-1] ^ 1])
    for token, rule in (
        (b"", "requires a one-time token"),
        (elsewhere, "of another task or token key"),
        (other_key, "of another task or token key"),
        (changed, "not signed by the task's issuer"),
        (other_key[:2] + good[2:98] + other_key[98:], "not signed by the task's issuer"),
    ):
        with pytest.raises(errors.CredentialError, match=rule):
            await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)
    bulk = [shuffler.envelope() for _ in range(4)]
    without, malformed = Outcome.UNAUTHENTICATED, Outcome.MALFORMED
    assert [malformed] == await shuffler.collection.submit_bulk(DIGEST, [bulk[0][:-1]], [good])
    assert [without, without, Outcome.STORED, without] == await shuffler.collection.submit_bulk(
        DIGEST, bulk, [elsewhere, b"", good, changed]
    )
    assert [without] * 4 == await shuffler.collection.submit_bulk(DIGEST, bulk)

    assert await shuffler.users() == 1


async def test_a_nonce_is_spent_once_whatever_its_signature(shuffler: Shuffler) -> None:
    """Signatures differ by their salt; the content is one token's [RFC9474, Section 7]."""
    one, two = (new_token(DIGEST, nonce=bytes(32)) for _ in range(2))
    assert one != two
    await shuffler.collection.submit(DIGEST, shuffler.envelope(), one)
    with pytest.raises(errors.TokenUsedError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), two)


async def test_tokens_are_not_stored(shuffler: Shuffler) -> None:
    """A hash under the batch's key replaces them, and is deleted with the batch."""
    tokens = [new_token(DIGEST) for _ in range(5)]
    for token in tokens:
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), token)
    written = b"".join(path.read_bytes() for path in shuffler.path.glob("spool*"))
    assert b"used_tokens" in written
    for token in tokens:
        assert nonce_of(token)[:16] not in written

    connection = sqlite3.connect(shuffler.path / "spool.sqlite")
    assert [(5,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
    await shuffler.advance()
    assert [(0,)] == connection.execute("SELECT count(*) FROM used_tokens").fetchall()
    connection.close()


def test_a_connection_makes_a_limited_number_of_submissions() -> None:
    """A call above the limit counts for nothing; 0 is no limit."""
    limit = ConnectionLimit(10)
    limit.take("one", 9)
    with pytest.raises(errors.ConnectionLimitError, match="may make 10 submissions"):
        limit.take("one", 2)
    limit.take("one", 1)
    limit.take("two", 10)
    with pytest.raises(errors.ConnectionLimitError):
        limit.take("one", 1)
    with pytest.raises(
        errors.WireError, match="the call has 11 submissions; a connection may make 10"
    ):
        limit.take("three", 11)
    ConnectionLimit(0).take("one", 1_000_000)
    for _ in range(3):
        limit.take("", 9)  # as of connections of a Unix socket


async def test_only_tasks_without_tokens_count_by_connection(shuffler: Shuffler) -> None:
    """With tokens, a thousand people may share one connection."""
    peer, tokens = "ipv4:192.0.2.1:1", [new_token(DIGEST) for _ in range(2)]
    await shuffler.collection.submit(DIGEST, shuffler.envelope(), tokens[0], peer=peer)
    limited = ConnectionLimit(1)
    shuffler.collection.connections = limited
    await shuffler.collection.submit(DIGEST, shuffler.envelope(), tokens[1], peer=peer)
    limited.take(peer, 1)
    plain = Shuffler(shuffler.path / "plain")
    await plain.start()
    plain.collection.connections = limited
    with pytest.raises(errors.ConnectionLimitError, match="may make 1 submissions"):
        await plain.collection.submit(plain.case.signed.digest(), plain.envelope(), peer=peer)
    plain.store.close()
