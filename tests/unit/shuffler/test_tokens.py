"""Tokens bound what a user contributes: once a task."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.crypto.tokens import TokenIdentity, TokenIssuer
from common.errors import BatchStateError, CredentialError, OverloadError, TokenUsedError
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from shuffler.collection import TokenCheck
from shuffler.servicer import ConnectionCount
from tests.support.shuffler_core import CASE, DIGEST, Shuffler

_ISSUER = TokenIssuer(TokenIssuer.generate())


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A shuffler that asks for tokens."""
    started = Shuffler(tmp_path, token_identity=_ISSUER.identity())
    await started.start()
    yield started
    started.spool.close()


async def test_a_token_lets_one_submission_in_and_its_retry(asking: Shuffler) -> None:
    """Another submission with it is refused, and so it is after a restart."""
    token, first = _ISSUER.issue(), asking.envelope()
    assert Outcome.STORED is await asking.collection.submit(DIGEST, first, token)
    assert Outcome.REPEATED is await asking.collection.submit(DIGEST, first, token)
    with pytest.raises(TokenUsedError):
        await asking.collection.submit(DIGEST, asking.envelope(), token)
    asking.spool.close()
    await asking.start()
    with pytest.raises(TokenUsedError):
        await asking.collection.submit(DIGEST, asking.envelope(), token)

    assert await asking.users() == 1


async def test_two_submissions_with_one_token_at_once_are_one(asking: Shuffler) -> None:
    """Whether in one call or in two."""
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


async def test_copies_of_what_a_used_token_brings_are_not_called_repeats(
    asking: Shuffler,
) -> None:
    """Whoever is told of a repeat gets a receipt, and nothing was stored; another token stores."""
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


async def test_a_batch_that_is_over_is_over_whatever_the_token(asking: Shuffler) -> None:
    """A device whose token is missing would otherwise send its answer again for ever."""
    envelope = asking.envelope()
    with pytest.raises(CredentialError):
        await asking.collection.submit(DIGEST, envelope, b"")
    asking.clock.seconds = float(CASE.task.deadline)
    await asking.deliveries.advance()
    assert BatchState.EXPIRED is await asking.state()

    with pytest.raises(BatchStateError):
        await asking.collection.submit(DIGEST, envelope, b"")
    assert [Outcome.CLOSED] == await asking.collection.submit_bulk(DIGEST, [envelope])


async def test_a_signature_over_the_same_serial_is_the_same_token(asking: Shuffler) -> None:
    """The serial number counts, whatever else a forger could vary."""
    token = _ISSUER.issue()
    forged = token[:16] + bytes(64)
    await asking.collection.submit(DIGEST, asking.envelope(), token)

    with pytest.raises(CredentialError):
        await asking.collection.submit(DIGEST, asking.envelope(), forged)


async def test_without_a_valid_token_nothing_is_looked_at(asking: Shuffler) -> None:
    """None, another issuer's, a changed one; in bulk each in its place."""
    other, good = TokenIssuer(TokenIssuer.generate()).issue(), _ISSUER.issue()
    changed = bytes([good[0] ^ 1]) + good[1:]
    for token in (b"", other, changed):
        with pytest.raises(CredentialError):
            await asking.collection.submit(DIGEST, asking.envelope(), token)
    bulk = [asking.envelope() for _ in range(4)]
    assert [
        Outcome.UNAUTHENTICATED,
        Outcome.UNAUTHENTICATED,
        Outcome.STORED,
        Outcome.UNAUTHENTICATED,
    ] == await asking.collection.submit_bulk(DIGEST, bulk, [other, b"", good, changed])
    assert [Outcome.UNAUTHENTICATED] * 4 == await asking.collection.submit_bulk(DIGEST, bulk)

    assert await asking.users() == 1


async def test_what_is_refused_uses_no_token(asking: Shuffler) -> None:
    """An envelope that does not open leaves the token for one that does."""
    token = _ISSUER.issue()
    broken = asking.envelope()[:-1]
    assert [Outcome.MALFORMED] == await asking.collection.submit_bulk(DIGEST, [broken], [token])

    assert Outcome.STORED is await asking.collection.submit(DIGEST, asking.envelope(), token)


async def test_a_token_is_on_no_disk(asking: Shuffler) -> None:
    """A hash under the batch's key stands for it, and goes with the batch."""
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


async def test_a_valid_token_is_verified_once() -> None:
    """A retry costs no signature; invalid ones are not remembered."""
    verified: list[bytes] = []

    class Counting(TokenIdentity):
        def accepts(self, token: bytes) -> bool:
            verified.append(token)
            return TokenIdentity.accepts(self, token)

    check = TokenCheck(Counting(_ISSUER.identity().raw))
    good, bad = _ISSUER.issue(), bytes(80)
    assert [True, False, True] == await check.accepted([good, bad, good])
    assert [True, False] == await check.accepted([good, bad])

    assert [good, bad, bad] == verified


def test_a_connection_makes_so_many_submissions_and_no_more() -> None:
    """A call over the limit counts for nothing; other connections have their own; 0 is no limit."""
    count = ConnectionCount(10)
    count.take("one", 9)
    with pytest.raises(OverloadError, match="may make 10 submissions"):
        count.take("one", 2)
    count.take("one", 1)
    count.take("two", 10)
    with pytest.raises(OverloadError):
        count.take("one", 1)
    ConnectionCount(0).take("one", 1_000_000)


def test_on_a_unix_socket_nothing_is_counted() -> None:
    """All its connections have one name: a count would be everybody's."""
    count = ConnectionCount(10)
    for _ in range(3):
        count.take("unix:", 9)
