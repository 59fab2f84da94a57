import asyncio
import dataclasses
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from common.crypto.hpke import HpkePrivateKey, envelope_context
from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import (
    BatchStateError,
    ConflictError,
    DamagedStorageError,
    OverloadError,
    PeerError,
    PeerRefusalError,
    ProofError,
    TaskError,
    UnknownKeyError,
    UnknownTaskError,
    WireError,
)
from common.messages.submission import Outcome
from common.runtime.state_directory import StateDirectory
from common.task.dummy_spec import ShufflerSpec
from common.task_digest import TaskDigest
from tests.support.analyzers import MemoryAnalyzer
from tests.support.keys import store_holding
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import published


async def test_submissions_survive_a_restart(shuffler: Shuffler) -> None:
    """What was acknowledged before a crash is delivered after it."""
    await shuffler.submit(4)
    shuffler.spool.close()
    await shuffler.start()
    await shuffler.submit(1)
    await shuffler.deliveries.advance()

    [(manifest, _)] = shuffler.analyzer.delivered
    assert manifest.n_users == 5


async def test_a_retry_is_recognised_until_the_batch_is_over(shuffler: Shuffler) -> None:
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

    await shuffler.submit(4)
    await shuffler.deliveries.advance()
    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(DIGEST, envelope)


async def test_bad_envelopes_are_refused_and_the_good_ones_kept(shuffler: Shuffler) -> None:
    """Alone with an error of its own, in bulk each in its place."""
    good = shuffler.envelope()
    flipped = bytes([good[0] ^ 1]) + good[1:]
    short = CASE.shuffler_key.public_key().seal(bytes(16 + 60), envelope_context(DIGEST))
    elsewhere = CASE.shuffler_key.public_key().seal(
        bytes(16 + 120), envelope_context(TaskDigest(bytes(32)))
    )
    for bad, kind in (
        (good[:-1], WireError),
        (good + b"\0", WireError),
        (b"", WireError),
        (short, WireError),
        (flipped, WireError),
        (elsewhere, WireError),
    ):
        with pytest.raises(kind):
            await shuffler.collection.submit(DIGEST, bad)

    bulk = [good[:-1], good, flipped, b"", elsewhere]
    assert [
        Outcome.MALFORMED,
        Outcome.STORED,
        Outcome.MALFORMED,
        Outcome.MALFORMED,
        Outcome.MALFORMED,
    ] == await shuffler.collection.submit_bulk(DIGEST, bulk)
    assert await shuffler.users() == 1


async def test_other_bytes_under_a_used_id_are_never_acknowledged(shuffler: Shuffler) -> None:
    """Alone and in bulk: who was told that they are kept would not send them again."""
    size = CASE.task.reports_per_user * CASE.task.sealed_report_bytes
    seal = CASE.shuffler_key.public_key().sealer(envelope_context(DIGEST))
    first, other = (seal(bytes(16) + bytes([content]) * size) for content in (1, 2))
    assert Outcome.STORED is await shuffler.collection.submit(DIGEST, first)

    with pytest.raises(ConflictError):
        await shuffler.collection.submit(DIGEST, other)
    became = await shuffler.collection.submit_bulk(DIGEST, [other, first, shuffler.envelope()])
    assert [Outcome.CONFLICT, Outcome.REPEATED, Outcome.STORED] == became


async def test_no_file_or_folder_tells_of_an_arrival(shuffler: Shuffler) -> None:
    """As many lie there after some submissions as after the first."""
    await shuffler.submit(1)
    before = sorted(shuffler.path.rglob("*"))
    await shuffler.submit(2)

    assert before == sorted(shuffler.path.rglob("*"))


class _GivesAnother(MemoryAnalyzer):
    """Gives its own task, whatever was asked for."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Give the task."""
        del digest
        return self._signed


async def test_tasks_that_are_not_for_this_shuffler_are_refused(tmp_path: Path) -> None:
    """Unknown, another one, signed by another, or sealed to another shuffler's key."""
    shuffler = Shuffler(tmp_path)
    await shuffler.start()
    with pytest.raises(UnknownTaskError):
        await shuffler.collection.submit(TaskDigest(bytes(32)), b"")

    forged = SigningIdentity.generate().sign(CASE.task.to_bytes())
    shuffler.rounds._analyzer = MemoryAnalyzer(forged)
    with pytest.raises(ProofError):
        await shuffler.collection.fetch_task(DIGEST)

    other = CASE.identity.sign(dataclasses.replace(CASE.task, nonce=bytes(32)).to_bytes())
    shuffler.rounds._analyzer = _GivesAnother(other)
    with pytest.raises(ProofError, match="another task"):
        await shuffler.collection.fetch_task(DIGEST)

    shuffler.rounds._analyzer = MemoryAnalyzer(CASE.signed)
    elsewhere = StateDirectory.open(tmp_path / "elsewhere")
    shuffler.rounds._keys = store_holding(elsewhere, HpkePrivateKey.generate())
    with pytest.raises(UnknownKeyError, match=r"shuffler_key, [0-9a-f]{16}, is none of this party"):
        await shuffler.collection.fetch_task(DIGEST)
    assert shuffler.key_files() == []
    shuffler.spool.close()


async def test_a_task_that_asks_for_too_many_dummies_is_refused(tmp_path: Path) -> None:
    """The shuffler would have to make them all; at its limit a task is collected for."""
    spec = ShufflerSpec(law="binomial", trials=600, most=600)
    case = published(
        protocol="sbin",
        local_epsilon=math.inf,
        dummies_per_user=0,
        buckets=0,
        domain_size=7,
        delta=1e-2,
        shuffler=spec,
    )
    expected = case.task.expected_shuffler_dummies
    for most, refused in ((expected - 1, True), (expected, False)):
        shuffler = Shuffler(tmp_path / str(most), case=case, most_dummies=most)
        await shuffler.start()
        if refused:
            with pytest.raises(TaskError):
                await shuffler.collection.fetch_task(case.signed.digest())
        else:
            await shuffler.collection.fetch_task(case.signed.digest())
        shuffler.spool.close()


async def test_a_task_cannot_be_fetched_while_the_analyzer_is_away(shuffler: Shuffler) -> None:
    """The caller may try again."""
    shuffler.analyzer.reachable = False
    with pytest.raises(PeerError):
        await shuffler.collection.fetch_task(DIGEST)


async def test_the_status_does_not_tell_when_users_come(shuffler: Shuffler) -> None:
    """A count that grew while polling would time every submission; it is shown once closed."""
    await shuffler.submit(4)
    assert (await shuffler.collection.status(DIGEST)).n_users == 0

    await shuffler.submit(1)
    await shuffler.deliveries.advance()
    assert (await shuffler.collection.status(DIGEST)).n_users == 5


async def test_asking_for_a_status_begins_nothing(shuffler: Shuffler) -> None:
    """A task that nobody fetched has no batch, and gets none."""
    with pytest.raises(UnknownTaskError):
        await shuffler.collection.status(DIGEST)
    assert shuffler.key_files() == []


async def test_after_the_deadline_nothing_new_is_taken(shuffler: Shuffler) -> None:
    """Even before the batch has been moved on; a retry is still recognised."""
    envelope = shuffler.envelope()
    await shuffler.collection.submit(DIGEST, envelope)
    shuffler.clock.seconds = float(CASE.task.deadline)

    assert Outcome.REPEATED is await shuffler.collection.submit(DIGEST, envelope)
    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())


async def test_devices_that_ask_at_once_share_one_round(shuffler: Shuffler) -> None:
    """One task is one batch, with one key."""
    await asyncio.gather(*(shuffler.collection.fetch_task(DIGEST) for _ in range(10)))

    assert len(shuffler.key_files()) == 1


async def test_tasks_looked_for_in_vain_are_bounded_and_leave_nothing(shuffler: Shuffler) -> None:
    """Whoever asks for digests that there are not, and hangs up, keeps at most 256 going."""
    going_on = asyncio.Event()

    async def slow(digest: TaskDigest) -> SignedTask:
        await going_on.wait()
        raise PeerRefusalError("NOT_FOUND", digest.hex())

    shuffler.analyzer.get_task = slow  # type: ignore[method-assign]
    asking = [
        asyncio.create_task(shuffler.collection.fetch_task(TaskDigest(number.to_bytes(32))))
        for number in range(257)
    ]
    with pytest.raises(OverloadError, match="256 searches for tasks"):
        await asking.pop()
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    looked_for: list[Any] = list(shuffler.rounds._beginning.values())
    going_on.set()
    await asyncio.wait(looked_for)

    assert {} == shuffler.rounds._beginning
    # Each that nobody looks at would be a page of log that nobody has allowed.
    assert not any(one._log_traceback for one in looked_for)


async def test_a_task_damaged_on_the_disk_is_told(shuffler: Shuffler) -> None:
    """It is not collected for under another digest, and stops the next start."""
    await shuffler.submit(1)
    shuffler.spool.close()
    with closing(sqlite3.connect(shuffler.path / "spool.sqlite")) as connection, connection:
        connection.execute("UPDATE batches SET task = CAST(task || ' ' AS BLOB)")
    with pytest.raises(DamagedStorageError, match="is damaged"):
        await shuffler.start()
