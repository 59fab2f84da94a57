"""A first shuffler of tasks with two, and its relay: asked first, delivered to once, waited for."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NoReturn

import pytest

from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import PeerError, PeerRefusalError, ProofError, StorageError, TaskError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.inclusion_proof import BatchCommitment
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.delivery_client import NextHop, ReceivingParty
from tests.support.analyzers import MemoryAnalyzer
from tests.support.chains import RELAY
from tests.support.keys import SHUFFLER
from tests.support.relays import CHAIN, Relay
from tests.support.shuffler_core import Shuffler

_DIGEST: Final = CHAIN.signed.digest()


_SLOW: Final = "the relay does not answer (DEADLINE_EXCEEDED)"


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Relay]:
    """A started relay."""
    started = Relay(tmp_path / "second")
    await started.start()
    yield started
    started.store.close()


def _second(client: NextHop) -> ReceivingParty:
    return ReceivingParty(name="relay", client=client, identity=RELAY.public_identity())


@pytest.mark.parametrize(
    ("pinned", "error", "sentence"),
    [
        (None, TaskError, "setting relay is missing"),
        (SHUFFLER, ProofError, "relay_key is not signed by the relay identity"),
    ],
    ids=["no relay", "another relay"],
)
async def test_a_first_shuffler_takes_only_tasks_of_its_relay(
    tmp_path: Path, pinned: SigningIdentity | None, error: type[Exception], sentence: str
) -> None:
    """Before any submission, which could never be delivered."""
    second = None
    if pinned is not None:
        client, identity = MemoryAnalyzer(CHAIN.signed), pinned.public_identity()
        second = ReceivingParty(name="relay", client=client, identity=identity)
    shuffler = Shuffler(tmp_path, CHAIN, relay=second)
    await shuffler.start()
    with pytest.raises(error, match=sentence):
        await shuffler.fetch_task(_DIGEST)
    shuffler.store.close()


async def test_a_first_shuffler_collects_nothing_for_a_task_that_its_relay_refuses(
    tmp_path: Path,
) -> None:
    """As for a limit of the relay's own."""
    relay = Relay(tmp_path / "second", most_dummies=1)
    await relay.start()
    shuffler = Shuffler(tmp_path / "first", CHAIN, relay=_second(relay))
    await shuffler.start()
    with pytest.raises(PeerRefusalError, match="most_dummies is 1"):
        await shuffler.fetch_task(_DIGEST)

    assert {} == await shuffler.store.states()
    for party in (shuffler, relay):
        party.store.close()


@pytest.mark.parametrize("fault", ["full", "slow"])
async def test_a_batch_waits_for_a_relay_that_is_full_or_slow(
    tmp_path: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Nothing is lost or delivered twice; the status says for whom it waits."""
    shuffler = Shuffler(tmp_path / "first", CHAIN, relay=_second(relay))
    await shuffler.start()
    await shuffler.submit(5)

    async def fail(*_: object) -> NoReturn:
        if fault == "slow":  # it ends after the caller has given up
            await relay.staging.finish_delivery(_DIGEST)
            raise PeerError(_SLOW)
        raise StorageError("the disk is full")

    with monkeypatch.context() as failing:
        if fault == "full":
            failing.setattr(relay.staging, "_store_part", fail)
        else:
            failing.setattr(relay, "finish_delivery", fail)
        await shuffler.advance()
    waiting = await shuffler.collection.status(_DIGEST)
    shuffler.deliveries._not_before.clear()
    await shuffler.advance()
    await relay.deliveries.advance()

    state = BatchState.PERMUTED if fault == "full" else BatchState.SENT
    assert (state, "relay") == (waiting.state, waiting.waits_for)
    assert {"full": "the disk is full", "slow": _SLOW}[fault] in waiting.reason
    done = await shuffler.collection.status(_DIGEST)
    assert (BatchState.ERASED, "", "") == (done.state, done.waits_for, done.reason)
    assert [5] == [manifest.n_users for manifest, _ in relay.analyzer.delivered]
    shuffler.store.close()


async def test_no_batch_that_the_relays_operator_dropped_counts_as_delivered(
    tmp_path: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the relay had staged it, before its answer was lost: no device is told `counted`."""
    shuffler = Shuffler(tmp_path / "first", CHAIN, relay=_second(relay))
    await shuffler.start()
    await shuffler.submit(5)

    async def finish_delivery(digest: TaskDigest) -> NoReturn:
        await relay.staging.finish_delivery(digest)
        raise PeerError("the relay does not answer")

    with monkeypatch.context() as failing:
        failing.setattr(relay, "finish_delivery", finish_delivery)
        await shuffler.advance()
    relay.analyzer.reachable = False
    await relay.deliveries.advance()
    await relay.operations.drop(_DIGEST)
    shuffler.deliveries._not_before.clear()
    await shuffler.advance()

    status = await shuffler.collection.status(_DIGEST)
    assert BatchState.QUARANTINED is status.state
    assert "the task's batch is dropped at this relay" in status.reason
    with pytest.raises(ProofError):
        await shuffler.inclusions.relay(_DIGEST, None)
    shuffler.store.close()


async def test_a_shuffler_drops_at_its_end_what_its_relay_does_not_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the relay is away the batch waits; a refusal quarantines it. Its operator reads why."""
    for number, (refused, state) in enumerate(
        ((None, BatchState.PERMUTED), ("FAILED_PRECONDITION", BatchState.QUARANTINED))
    ):
        client = MemoryAnalyzer(CHAIN.signed, RELAY)
        shuffler = Shuffler(tmp_path / str(number), CHAIN, relay=_second(client))
        await shuffler.start()
        await shuffler.submit(5)
        client.reachable, client.refuse_with = refused is not None, refused
        await shuffler.advance()
        status = await shuffler.collection.status(_DIGEST)
        assert (state, "" if refused else "relay") == (status.state, status.waits_for)
        reason = "no" if refused else "away"
        assert status.reason == reason
        assert reason in [getattr(record, "fields", {}).get("reason") for record in caplog.records]
        shuffler.clock.seconds = CHAIN.task.deadline + 31 * DAY
        shuffler.batches.keep_seconds = 30 * DAY
        shuffler.deliveries._not_before.clear()
        await shuffler.advance()
        assert BatchState.DROPPED is await shuffler.batch_state()
        assert [] == [*client.delivered, *shuffler.key_files()]
        shuffler.store.close()


async def test_a_shuffler_proves_that_layers_reached_the_relay(
    tmp_path: Path, relay: Relay
) -> None:
    """The leaves are layers; no inner ciphertext is among them."""
    shuffler = Shuffler(tmp_path / "first", CHAIN, relay=_second(relay))
    await shuffler.start()
    await shuffler.submit(5)
    await shuffler.advance()
    await relay.deliveries.advance()

    commitment, _ = await shuffler.inclusions.relay(_DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    commitment.verify(RELAY.public_identity(), _DIGEST, CHAIN.task.most_leaves)
    [(manifest, _)] = relay.analyzer.delivered
    assert (5, commitment.batch_id) == (manifest.n_users, manifest.batch_id)
    assert commitment.n_leaves < manifest.n_reports
    shuffler.store.close()
