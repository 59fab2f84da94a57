import asyncio
import dataclasses
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from common.crypto.hpke import HpkePrivateKey, envelope_context
from common.crypto.signing import TOKEN_BYTES, SignedTask, SigningIdentity, TokenIssuer
from common.errors import (
    BatchStateError,
    ConflictError,
    OverloadError,
    PeerRefusalError,
    ProofError,
    ShuffleDpError,
    TaskError,
    UnknownKeyError,
    UnknownTaskError,
    WireError,
)
from common.messages.submission import Outcome
from common.runtime.state_directory import StateDirectory
from common.task.dummy_spec import ShufflerSpec
from common.task.task import Task
from common.task_digest import TaskDigest
from shuffler.admission import ConnectionLimit
from tests.support.analyzers import MemoryAnalyzer
from tests.support.keys import store_holding
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import SHUFFLER_NOISE, published


async def test_a_retry_is_repeated_until_the_batch_is_over(shuffler: Shuffler) -> None:
    """The same bytes are stored once; the same id with other reports is a conflict."""
    envelope = shuffler.envelope()
    assert Outcome.STORED is await shuffler.collection.submit(DIGEST, envelope)
    assert Outcome.REPEATED is await shuffler.collection.submit(DIGEST, envelope)
    assert await shuffler.users() == 1

    inner = CASE.shuffler_key.open(envelope, envelope_context(DIGEST))
    other = inner[:16] + bytes(len(inner) - 16)
    forged = CASE.shuffler_key.public_key().seal(other, envelope_context(DIGEST))
    with pytest.raises(ConflictError):
        await shuffler.collection.submit(DIGEST, forged)
    bulk = await shuffler.collection.submit_bulk(DIGEST, [forged, envelope])
    assert [Outcome.CONFLICT, Outcome.REPEATED] == bulk

    await shuffler.submit(4)
    await shuffler.advance()
    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(DIGEST, envelope)


async def test_invalid_envelopes_are_refused(shuffler: Shuffler) -> None:
    """Alone with an error; in bulk each in its place, and valid ones are stored."""
    good = shuffler.envelope()
    flipped = bytes([good[0] ^ 1]) + good[1:]
    short = CASE.shuffler_key.public_key().seal(bytes(16 + 60), envelope_context(DIGEST))
    elsewhere = CASE.shuffler_key.public_key().seal(
        bytes(16 + 120), envelope_context(TaskDigest(bytes(32)))
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


async def test_tasks_for_other_shufflers_are_refused(shuffler: Shuffler) -> None:
    """Unknown, another task, another signer, or sealed to another shuffler's key."""
    with pytest.raises(UnknownTaskError):
        await shuffler.collection.submit(TaskDigest(bytes(32)), b"")

    forged = SigningIdentity.generate().sign(CASE.task.to_bytes())
    shuffler.batches._analyzer = MemoryAnalyzer(forged)
    with pytest.raises(ProofError):
        await shuffler.collection.fetch_task(DIGEST)

    other = CASE.identity.sign(dataclasses.replace(CASE.task, nonce=bytes(32)).to_bytes())
    wrong = MemoryAnalyzer(CASE.signed)
    wrong.get_task = lambda _: asyncio.sleep(0, other)  # type: ignore[method-assign, assignment]
    shuffler.batches._analyzer = wrong
    with pytest.raises(ProofError, match="another task"):
        await shuffler.collection.fetch_task(DIGEST)

    shuffler.batches._analyzer = MemoryAnalyzer(CASE.signed)
    elsewhere = StateDirectory.open(shuffler.path / "elsewhere")
    shuffler.batches._keys = store_holding(elsewhere, HpkePrivateKey.generate())
    with pytest.raises(UnknownKeyError, match=r"shuffler_key, [0-9a-f]{16}, is not a key of"):
        await shuffler.collection.fetch_task(DIGEST)
    assert shuffler.key_files() == []


async def test_a_task_with_too_many_dummies_is_refused(tmp_path: Path) -> None:
    """At the limit it is accepted."""
    spec = ShufflerSpec(law="binomial", trials=600, most=600)
    case = published(**SHUFFLER_NOISE, domain_size=7, delta=1e-2, shuffler=spec)
    expected = case.task.expected_shuffler_dummies
    shuffler = Shuffler(tmp_path, case=case, most_dummies=expected)
    await shuffler.start()
    shuffler.batches._most_dummies = expected - 1
    with pytest.raises(TaskError):
        await shuffler.collection.fetch_task(case.signed.digest())
    shuffler.batches._most_dummies = expected
    await shuffler.collection.fetch_task(case.signed.digest())
    shuffler.spool.close()


async def test_concurrent_requests_begin_one_batch(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is fetched once and parsed in a thread; one key, and no file for a submission."""
    parse = Task.from_bytes

    def parsed(raw: bytes) -> Task:
        assert threading.current_thread() is not threading.main_thread()
        return parse(raw)

    monkeypatch.setattr(Task, "from_bytes", parsed)
    await asyncio.gather(*(shuffler.collection.fetch_task(DIGEST) for _ in range(10)))
    assert (1, 1) == (shuffler.analyzer.fetched, len(shuffler.key_files()))
    await shuffler.submit(1)
    before = sorted(shuffler.path.rglob("*"))
    await shuffler.submit(2)

    assert before == sorted(shuffler.path.rglob("*"))


async def test_concurrent_searches_for_unknown_tasks_are_limited(shuffler: Shuffler) -> None:
    """At most 256, also when the callers hang up."""
    going_on = asyncio.Event()

    async def slow(digest: TaskDigest) -> SignedTask:
        await going_on.wait()
        raise PeerRefusalError("NOT_FOUND", digest.hex())

    shuffler.analyzer.get_task = slow  # type: ignore[method-assign]
    asking = [
        asyncio.create_task(shuffler.collection.fetch_task(TaskDigest(number.to_bytes(32))))
        for number in range(257)
    ]
    async with asyncio.timeout(5):
        with pytest.raises(OverloadError, match="256 searches for tasks"):
            await asking.pop()
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    looked_for: list[Any] = list(shuffler.batches._beginning.values())
    going_on.set()
    await asyncio.wait(looked_for)

    assert {} == shuffler.batches._beginning
    # An error that nobody retrieves would be logged with its traceback.
    assert not any(one._log_traceback for one in looked_for)


async def test_a_submission_is_not_logged(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Stored, repeated or refused, alone and in bulk; nor is a request for a proof."""
    caplog.set_level(logging.DEBUG)
    issuer = TokenIssuer(TokenIssuer.generate())
    shuffler.token_identity = issuer.identity()
    await shuffler.restart()
    await shuffler.collection.fetch_task(DIGEST)
    caplog.clear()
    token, envelope = issuer.issue(), shuffler.envelope()
    refused = 0
    for sent, presented in (
        (envelope, token),
        (envelope, token),
        (shuffler.envelope(), token),
        (shuffler.envelope(), bytes(TOKEN_BYTES)),
        (shuffler.envelope(), b""),
        (envelope[:-1], issuer.issue()),
        (bytes([envelope[0] ^ 1]) + envelope[1:], issuer.issue()),
    ):
        await shuffler.collection.submit_bulk(DIGEST, [sent], [presented])
        try:
            await shuffler.collection.submit(DIGEST, sent, presented)
        except ShuffleDpError:
            refused += 1
    shuffler.clock.seconds = float(CASE.task.deadline)
    with pytest.raises(ShuffleDpError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope(), issuer.issue())
    for prefix in (None, 2**20):
        with pytest.raises(ShuffleDpError):
            await shuffler.inclusions.relay(DIGEST, prefix)
    with pytest.raises(ShuffleDpError):
        ConnectionLimit(2).take("ipv4:192.0.2.1:1", 3)

    assert 5 == refused
    assert [] == caplog.records
