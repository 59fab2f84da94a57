import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.hpke import HpkePrivateKey, envelope_context, layer_context
from shuffledp.common.crypto.signing import SigningIdentity, envelope_hash, is_valid_receipt
from shuffledp.common.errors import PeerError, StorageError, UnknownTaskError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.inclusion_proof import (
    BatchCommitment,
    InclusionProof,
    bits_for,
    leaf,
    prefix_of,
    salted,
    split,
)
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.shuffler_spec import BinomialNoise, ShufflerSpec
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.device_store import DeviceStore, InclusionState, SavedSubmission
from shuffledp.user_agent.inclusion_monitor import MAX_CHECKED, InclusionMonitor
from shuffledp.user_agent.policy import Claim
from tests.support.chains import RELAY, chain
from tests.support.devices import agent_of
from tests.support.leaves import SALT, GrownTree, commitment_over, some_leaves
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask, published

_CASE = published()
_CLAIM = Claim(local_epsilon=1.0, central_epsilon=1.0, delta=0.0, coalition_epsilon=1.0)
_DAY = 24 * 3600
_RELAY_KEY = HpkePrivateKey.generate()


class Device:
    """A device, and a shuffler that shows a given batch."""

    def __init__(self, path: Path, case: PublishedTask = _CASE) -> None:
        self.case, self.digest = case, case.signed.digest()
        self.path = path
        self.shuffler = MemoryShuffler(case.signed)
        self.clock = ManualClock()
        self.agent = agent_of(
            path,
            case,
            self.shuffler,
            clock=self.clock,
            policy=generous(
                case.identity.public_identity(),
                float("inf"),
                relay_identity=RELAY.public_identity(),
            ),
            check_seconds=100.0,
        )
        self.store = self.agent.store
        self.watch = self.agent.monitor

    async def evidence(self) -> SavedSubmission:
        """Return the stored evidence of the answer."""
        kept = await self.store.find("", self.digest)
        assert kept is not None
        return kept

    def show(self, leaves: list[bytes], signer: SigningIdentity | None = None) -> None:
        """Let the shuffler show a signed batch of these leaves."""
        signer = signer or self.case.identity
        self.shuffler.leaves = leaves
        self.shuffler.commitment = commitment_over(leaves, signer, self.digest)

    async def check(self) -> InclusionState:
        """Let some time pass, and return the device's conclusion."""
        for _ in range(2):
            await self.watch.check_due()
            self.clock.seconds += 200
        return (await self.evidence()).inclusion


@pytest.fixture
async def device(tmp_path: Path) -> AsyncIterator[Device]:
    """Yield a device that has answered."""
    started = Device(tmp_path)
    await started.agent.contribute(started.digest, 3, "")
    yield started
    started.store.close()


async def test_a_counted_answer_is_asked_for_by_prefixes_and_its_leaves_erased(
    device: Device,
) -> None:
    """The commitment is asked for first, then a bucket for each leaf; leaves are then erased."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own])

    def left() -> list[bytes]:
        files = b"".join(file.read_bytes() for file in device.path.glob("budget.sqlite*"))
        return [leaf for leaf in own if leaf in files]

    assert own == left()
    assert InclusionState.COUNTED is await device.check()
    assert b"" == (await device.evidence()).leaves
    assert [] == left()
    first, *prefixes = device.shuffler.asked
    assert first is None
    assert sorted(prefix_of(salted(SALT, leaf), 2) for leaf in own) == sorted(
        prefix for prefix in prefixes if prefix is not None
    )


async def test_an_answer_with_a_missing_report_is_kept_as_evidence(device: Device) -> None:
    """One of two is enough, and later proofs do not change it."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), own[0]])

    assert InclusionState.MISSING is await device.check()
    device.show([*some_leaves(1500), *own])
    assert InclusionState.MISSING is await device.check()
    assert own == split((await device.evidence()).leaves)


@pytest.mark.parametrize("missing", [False, True])
async def test_of_a_checked_envelope_the_hash_alone_is_kept(
    device: Device, *, missing: bool
) -> None:
    """It is on no page of the files; the receipt still verifies. A missing one is evidence."""
    [envelope] = device.shuffler.received
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own[missing:]])
    before = await device.agent.record(device.digest, "")
    assert (InclusionState.MISSING if missing else InclusionState.COUNTED) is await device.check()

    files = b"".join(file.read_bytes() for file in device.path.iterdir())
    assert missing == (envelope[:32] in files)
    after = await device.agent.record(device.digest, "")
    assert envelope_hash(envelope) == before.envelope_hash == after.envelope_hash
    assert not (await device.agent.contribute(device.digest, 3, "")).sent
    assert [envelope] == device.shuffler.received


async def test_an_envelope_of_an_earlier_version_is_dropped_at_the_start(device: Device) -> None:
    """It was counted before envelopes were dropped."""
    await device.check()
    evidence = await device.evidence()
    statement = "UPDATE evidence SET inclusion = 'counted' WHERE task_digest = ?"
    await device.store.fetch(statement, evidence.task_digest)
    await device.store.check_counter(_CLAIM, np.random.default_rng(0), confirmed=False)
    [(kept,)] = await device.store.fetch("SELECT envelope FROM submissions")

    assert envelope_hash(device.shuffler.received[0]) == kept


async def test_an_invalid_proof_concludes_nothing(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """The signer or the tree is another; nothing more is asked until the next check."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own], signer=SigningIdentity.generate())
    assert InclusionState.UNCHECKED is await device.check()
    assert [None] == sorted(set(device.shuffler.asked), key=str)  # no prefix was sent

    device.shuffler.asked.clear()
    device.show([*some_leaves(1500), *own])
    device.shuffler.leaves = some_leaves(1502)
    device.clock.seconds += 200
    await device.watch.check_due()
    assert InclusionState.UNCHECKED is (await device.evidence()).inclusion
    assert (2, 2) == (len(own), len(device.shuffler.asked))  # the commitment, and one bucket
    assert "proof does not hold" in caplog.messages

    device.show([*some_leaves(1500), *own])
    assert InclusionState.COUNTED is await device.check()


async def test_an_answer_without_a_proof_is_unproven_two_weeks_after_the_deadline(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then the batch may still be delivered."""
    assert InclusionState.UNCHECKED is await device.check()
    device.clock.seconds = float(_CASE.task.deadline + 14 * _DAY - 200)
    assert InclusionState.UNCHECKED is await device.check()
    device.clock.seconds = float(_CASE.task.deadline + 14 * _DAY + 1)
    assert InclusionState.UNPROVEN is await device.check()
    assert "answer checked" in caplog.messages


async def test_times_of_checks_are_random(device: Device) -> None:
    """First within one pause, then after a half to one and a half of it; seeds differ in both."""
    waits = []
    for seed in (2, 3):
        device.shuffler.asked.clear()
        watch, start = replace(device.watch, rng=np.random.default_rng(seed)), device.clock.seconds
        await watch.check_due()
        [first] = watch._not_before.values()
        assert [] == device.shuffler.asked
        device.clock.seconds = first
        await watch.check_due()
        [second] = watch._not_before.values()
        assert [None] == device.shuffler.asked
        waits.append((first - start, second - first))

    assert all(0 < first < 100 and 50 <= second < 150 for first, second in waits)
    assert [2, 2] == [len({round(wait, 6) for wait in both}) for both in zip(*waits, strict=True)]


async def test_nothing_is_asked_or_kept_if_the_shuffler_samples(tmp_path: Path) -> None:
    """A missing report proves nothing there, and whether it was kept is secret."""
    case = published(
        protocol="sbin",
        buckets=0,
        dummies_per_user=0,
        local_epsilon=float("inf"),
        n_min=1000,
        target_size=2000,
        shuffler=ShufflerSpec(keep_weight=2**31, noise=BinomialNoise(trials=4000)),
    )
    device = Device(tmp_path, case)
    await device.agent.contribute(device.digest, 3, "")
    device.show(some_leaves(100))

    assert InclusionState.SAMPLED is await device.check()
    assert b"" == (await device.evidence()).leaves
    assert [] == device.shuffler.asked
    device.store.close()


@pytest.fixture
async def chained(tmp_path: Path) -> AsyncIterator[Device]:
    """Yield a device that has answered a task with two shufflers."""
    started = Device(tmp_path, published(**chain(relay_key=_RELAY_KEY)))
    await started.agent.contribute(started.digest, 3, "")
    yield started
    started.store.close()


async def test_with_two_shufflers_the_second_signs_for_the_layers(chained: Device) -> None:
    """What the analyzer signs says nothing of them; nor does a tree that is too large."""
    own = split((await chained.evidence()).leaves)
    chained.show([*some_leaves(1500), *own])
    assert InclusionState.UNCHECKED is await chained.check()
    chained.show([*some_leaves(1500), *own], RELAY)
    honest, tree = chained.shuffler.commitment, GrownTree(own).tree
    tree.n_leaves, tree.bits = 2**40, 32
    signed = BatchCommitment.sign(RELAY, chained.digest, BatchId(bytes(16)), tree, SALT)
    chained.shuffler.commitment = signed
    assert InclusionState.UNCHECKED is await chained.check()
    assert {None} == set(chained.shuffler.asked)
    chained.shuffler.commitment = honest
    unpinned = replace(chained.watch, relay_identity=None)
    chained.clock.seconds += 1000
    await unpinned.check_due()
    chained.clock.seconds += 1000
    await unpinned.check_due()
    assert {None} == set(chained.shuffler.asked)

    assert InclusionState.COUNTED is await chained.check()


@pytest.mark.parametrize("shufflers", [1, 2])
async def test_no_prefix_is_sent_for_a_larger_tree_than_the_task_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shufflers: int
) -> None:
    """Its prefixes could name one report; a single leaf more is too many."""
    device = Device(tmp_path, published(**chain() if shufflers == 2 else {}))
    await device.agent.contribute(device.digest, 3, "")
    most, signer = device.case.task.most_leaves, RELAY if shufflers == 2 else device.case.identity
    for more in (1, 0):
        tree = GrownTree(some_leaves(9)).tree
        tree.n_leaves, tree.bits = most + more, bits_for(most + more)
        signed = BatchCommitment.sign(signer, device.digest, BatchId(bytes(16)), tree, SALT)
        asked = list[int | None]()

        async def inclusion(_: TaskDigest, prefix: int | None) -> InclusionProof:
            asked.append(prefix)  # noqa: B023  # of this round
            return InclusionProof(commitment=signed, bucket=b"", path=())  # noqa: B023

        monkeypatch.setattr(device.shuffler, "inclusion", inclusion)
        await device.check()
        assert bool(more) == ({None} == set(asked))
    device.store.close()


async def test_with_two_shufflers_a_lost_layer_is_missing(chained: Device) -> None:
    """The first shuffler lost it."""
    chained.show(some_leaves(1500), RELAY)

    assert InclusionState.MISSING is await chained.check()


@pytest.mark.parametrize("item", range(4))
async def test_what_follows_a_submission_depends_on_its_envelope_alone(
    tmp_path: Path, item: int
) -> None:
    """The first shuffler can foretell it, whatever is in the layer: the analyzer knows whose."""
    device = Device(tmp_path, published(**chain(relay_key=_RELAY_KEY), target_size=5000))
    await device.agent.contribute(device.digest, item, "")
    [envelope], context = device.shuffler.received, envelope_context(device.digest)
    _, layer = split_submission(device.case.shuffler_key.open(envelope, context))
    assert device.case.task.sent_report_bytes == len(layer)
    device.show([*some_leaves(1 << 13), leaf(layer)], RELAY)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert InclusionState.COUNTED is await device.check()
    await device.agent.resend_pending()

    expected = [None, prefix_of(salted(SALT, leaf(layer)), 5)]
    assert (expected, [envelope], 1) == (
        *(device.shuffler.asked, device.shuffler.received),
        device.shuffler.fetched,
    )
    inner = _RELAY_KEY.open(layer, layer_context(device.digest, 1))
    assert leaf(layer) in stored
    assert leaf(inner) not in stored
    device.store.close()


async def test_a_record_has_state_conclusion_and_a_verifiable_receipt(device: Device) -> None:
    """The receipt is verified before it is stored."""
    record = await device.agent.record(device.digest, "")
    [envelope] = device.shuffler.received
    shuffler = device.shuffler.identity.public_identity()

    assert ("arrived", "unchecked") == (record.state, record.inclusion)
    assert envelope_hash(envelope) == record.envelope_hash
    assert is_valid_receipt(shuffler, device.digest, envelope, record.receipt)
    other = published().signed.digest()
    with pytest.raises(UnknownTaskError):
        await device.agent.record(other, "")


async def test_a_record_of_an_earlier_version_has_no_evidence(device: Device) -> None:
    """The file has no table of evidence; its coalition ε is the local one."""
    device.store.close()
    connection = sqlite3.connect(device.path / "budget.sqlite")
    with connection:
        connection.execute("DROP TABLE evidence")
        for column in ("coalition_epsilon", "chained"):
            connection.execute(f"ALTER TABLE submissions DROP COLUMN {column}")
        connection.execute("DROP TABLE schema_version")
    connection.close()
    device.store = device.agent.store = DeviceStore(device.path / "budget.sqlite")
    record = await device.agent.record(device.digest, "")

    assert ("arrived", "unchecked", b"") == (record.state, record.inclusion, record.receipt)
    assert _CASE.task.local_epsilon == record.claim.coalition_epsilon


async def test_an_answer_with_a_bucket_that_is_never_shown_is_never_counted(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 300 reports, 64 are drawn once and saved; another draw could miss the bucket."""
    own, asked = some_leaves(300), list[bytes]()
    await device.store.keep_leaves(await device.evidence(), b"".join(own))
    device.show(own)

    async def counted(_: InclusionMonitor, leaf: bytes, *_of: object) -> bool | None:
        asked.append(leaf)
        return None if leaf == asked[0] else True

    monkeypatch.setattr(InclusionMonitor, "_counted", counted)
    for _ in range(20):
        assert InclusionState.UNCHECKED is await device.check()
    kept = split((await device.evidence()).leaves)
    assert MAX_CHECKED == len(kept) == len(set(asked) | set(kept))
    device.clock.seconds = float(_CASE.task.deadline + 14 * _DAY + 1)
    assert InclusionState.UNPROVEN is await device.check()


@pytest.mark.parametrize(("refused", "attempts"), [(2, 2), (3, 1)])
async def test_refusing_one_bucket_does_not_hide_a_lost_report(
    device: Device, monkeypatch: pytest.MonkeyPatch, refused: int, attempts: int
) -> None:
    """A loss proven before a failure counts at once; a failure before it ends one attempt only."""
    device.show(some_leaves(1500))
    show = device.shuffler.inclusion

    async def all_but_one(digest: TaskDigest, prefix: int | None) -> InclusionProof:
        proof = await show(digest, prefix)
        if len(device.shuffler.asked) == refused:
            raise PeerError("cannot serve")
        return proof

    monkeypatch.setattr(device.shuffler, "inclusion", all_but_one)

    states = [await device.check() for _ in range(attempts)]
    assert [InclusionState.UNCHECKED] * (attempts - 1) + [InclusionState.MISSING] == states


async def test_two_batches_do_not_prove_one_answer(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The analyzer signed both, each with one of its reports; a task has only one batch."""
    own = split((await device.evidence()).leaves)
    show = device.shuffler.inclusion

    async def batch_of(digest: TaskDigest, prefix: int | None) -> InclusionProof:
        device.show([*some_leaves(1500), own[len(device.shuffler.asked) % 2]])
        return await show(digest, prefix)

    monkeypatch.setattr(device.shuffler, "inclusion", batch_of)

    assert InclusionState.UNCHECKED is await device.check()
    assert "proof does not hold" in caplog.messages


async def test_answers_are_searched_when_one_is_due_or_arrives(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that waits reads nothing; an arrival wakes it, and the time of the next check."""
    searches, listed = list[float](), device.store.list_unchecked

    async def counted() -> list[SavedSubmission]:
        searches.append(device.clock.elapsed())
        return await listed()

    monkeypatch.setattr("shuffledp.user_agent.inclusion_monitor._MIN_TICK_SECONDS", 0.01)
    monkeypatch.setattr(device.store, "list_unchecked", counted)
    device.store.arrived.clear()
    running = asyncio.create_task(device.watch.keep_checking())
    await asyncio.sleep(0.5)
    assert 1 == len(searches)
    device.store.arrived.set()
    async with asyncio.timeout(30):
        while len(searches) < 2:
            await asyncio.sleep(0.01)
    device.clock.seconds += 1000
    device.store.arrived.set()
    async with asyncio.timeout(30):
        while not device.shuffler.asked:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_store_that_fails_is_not_asked_again_at_once(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks then wait for a minute, however often answers are checked."""
    asked = 0

    async def fail() -> list[SavedSubmission]:
        nonlocal asked
        asked += 1
        raise StorageError("the disk of the state directory is failing")

    monkeypatch.setattr(device.store, "list_unchecked", fail)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await replace(device.watch, pause=0.001).keep_checking()
    assert 1 == asked
