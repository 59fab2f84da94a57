import logging
from pathlib import Path
from typing import NoReturn

import pytest

from shuffledp.common.crypto.hpke import envelope_context
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.privacy_tokens import TOKEN_BYTES
from shuffledp.common.errors import BatchStateError, ConflictError, ShuffleDpError, WireError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.admission import ConnectionLimit
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import published
from tests.support.tokens import TOKENS, new_token


async def test_a_retry_is_repeated_until_the_batch_is_over(shuffler: Shuffler) -> None:
    """The same bytes are stored once; the same id with other reports is a conflict."""
    envelope = shuffler.envelope()
    assert Outcome.STORED is await shuffler.collection.submit(DIGEST, envelope)
    assert Outcome.REPEATED is await shuffler.collection.submit(DIGEST, envelope)
    assert await shuffler.users() == 1

    inner = CASE.shuffler_key.open(envelope, envelope_context(DIGEST))
    other = inner[:16] + bytes(len(inner) - 16)
    forged = CASE.shuffler_key.public_key().sealer(envelope_context(DIGEST))(other)
    with pytest.raises(ConflictError):
        await shuffler.collection.submit(DIGEST, forged)
    bulk = await shuffler.collection.submit_bulk(DIGEST, [forged, envelope])
    assert [Outcome.CONFLICT, Outcome.REPEATED] == bulk

    await shuffler.submit(4)
    await shuffler.advance()
    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(DIGEST, envelope)


async def test_invalid_envelopes_are_refused(shuffler: Shuffler) -> None:
    """Alone they raise an error; in bulk each is refused in its place, and valid ones stored."""
    good = shuffler.envelope()
    flipped = bytes([good[0] ^ 1]) + good[1:]
    short = CASE.shuffler_key.public_key().sealer(envelope_context(DIGEST))(bytes(16 + 60))
    elsewhere = CASE.shuffler_key.public_key().sealer(envelope_context(TaskDigest(bytes(32))))(
        bytes(16 + 120)
    )
    for invalid in (good[:-1], good + b"\0", b"", short, flipped, elsewhere):
        reason = "does not open" if len(invalid) == len(good) else f"has {len(invalid)} bytes; a"
        with pytest.raises(WireError, match=reason):
            await shuffler.collection.submit(DIGEST, invalid)

    bulk = [good[:-1], good, flipped, b"", elsewhere]
    outcomes = await shuffler.collection.submit_bulk(DIGEST, bulk)
    assert [Outcome.STORED] == [one for one in outcomes if one is not Outcome.MALFORMED]
    assert Outcome.STORED is outcomes[1]
    assert await shuffler.users() == 1


async def test_a_submission_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Stored, repeated or refused submissions and requests for proofs leave no record."""
    caplog.set_level(logging.DEBUG)
    case = published(n_min=3, target_size=5, tokens=TOKENS)
    digest, shuffler = case.signed.digest(), Shuffler(tmp_path, case=case)
    await shuffler.start()
    await shuffler.collection.fetch_task(digest)
    caplog.clear()
    token, envelope = new_token(digest), shuffler.envelope()
    refused = 0
    for sent, presented in (
        (envelope, token),
        (envelope, token),
        (shuffler.envelope(), token),
        (shuffler.envelope(), bytes(TOKEN_BYTES)),
        (shuffler.envelope(), b""),
        (envelope[:-1], new_token(digest)),
        (bytes([envelope[0] ^ 1]) + envelope[1:], new_token(digest)),
    ):
        await shuffler.collection.submit_bulk(digest, [sent], [presented])
        try:
            await shuffler.collection.submit(digest, sent, presented)
        except ShuffleDpError:
            refused += 1
    shuffler.clock.seconds = float(case.task.deadline)
    with pytest.raises(ShuffleDpError):
        await shuffler.collection.submit(digest, shuffler.envelope(), new_token(digest))
    for prefix in (None, 2**20):
        with pytest.raises(ShuffleDpError):
            await shuffler.inclusions.relay(digest, prefix)
    with pytest.raises(ShuffleDpError):
        ConnectionLimit(2).take("ipv4:192.0.2.1:1", 3)

    assert 5 == refused
    assert [] == caplog.records
    shuffler.store.close()


async def test_workers_verify_the_tokens_of_a_bulk_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that answers all calls verifies none; each submission has its own outcome."""
    case = published(n_min=3, target_size=50, tokens=TOKENS)
    digest, pool = case.signed.digest(), HpkePool(2)
    shuffler = Shuffler(tmp_path, case=case, pool=pool)
    await shuffler.start()
    tokens = [new_token(digest) for _ in range(12)]
    tokens[2], tokens[5], tokens[9] = new_token(TaskDigest(bytes(32))), b"", tokens[8]
    envelopes = [shuffler.envelope() for _ in tokens]

    def not_here(*_: object) -> NoReturn:
        raise AssertionError("this process must not verify tokens of bulk calls")

    not_here.__name__ = "is_valid_token"
    monkeypatch.setattr("shuffledp.common.crypto.privacy_tokens.TokenKey.is_valid_token", not_here)
    outcomes = [await shuffler.collection.submit_bulk(digest, envelopes, tokens) for _ in range(2)]
    pool.close()
    shuffler.store.close()

    refused = dict.fromkeys((2, 5), Outcome.UNAUTHENTICATED)
    kinds = [refused.get(index, Outcome.STORED) for index in range(12)]
    twice = {outcomes[0][8], outcomes[0][9]}
    assert {Outcome.STORED, Outcome.TOKEN_USED} == twice
    assert kinds[:8] + kinds[10:] == outcomes[0][:8] + outcomes[0][10:]
    again = [refused.get(index, Outcome.REPEATED) for index in range(12)]
    assert again[:8] + again[10:] == outcomes[1][:8] + outcomes[1][10:]


async def test_a_used_token_spoils_no_other(tmp_path: Path) -> None:
    """Tokens are used together if all are new, else one by one; either way each is used once."""
    case = published(n_min=3, target_size=50, tokens=TOKENS)
    digest, shuffler = case.signed.digest(), Shuffler(tmp_path, case=case)
    await shuffler.start()
    first, second, third = ([new_token(digest) for _ in range(3)] for _ in range(3))

    async def send(tokens: list[bytes]) -> list[Outcome]:
        envelopes = [shuffler.envelope() for _ in tokens]
        return await shuffler.collection.submit_bulk(digest, envelopes, tokens)

    stored, used = [Outcome.STORED] * 3, [Outcome.TOKEN_USED]
    assert stored == await send(first)
    assert stored + used + stored == await send([*second, first[1], *third])
    assert used * 9 == await send([*first, *second, *third])
    assert 9 == (await shuffler.store.get(digest)).n_users
    shuffler.store.close()


@pytest.mark.parametrize("crash", [False, True])
async def test_an_operator_closes_a_batch_early(shuffler: Shuffler, *, crash: bool) -> None:
    """Three of five users suffice; closing is durable, and closing again changes nothing."""
    await shuffler.submit(3)
    for _ in range(2):
        await shuffler.collection.close(DIGEST)
    if crash:
        await shuffler.restart()
    with pytest.raises(BatchStateError, match="no longer collects"):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())
    await shuffler.advance()
    await shuffler.collection.close(DIGEST)

    [(manifest, _)] = shuffler.analyzer.delivered
    assert 3 == manifest.n_users
    assert BatchState.ERASED is await shuffler.batch_state()
