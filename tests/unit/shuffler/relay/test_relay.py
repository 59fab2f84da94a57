"""A relay receives layers, commits to them, opens and permutes them, and delivers once."""

import asyncio
import itertools
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.audit.harness.party_cores import chunks_of, part_header, parts_of
from shuffledp.common import errors
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey, layer_context
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.signing import KeyUse, check_key, end_of_validity, split_key
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchState
from shuffledp.common.messages.inclusion_proof import leaves_of, tree_over
from shuffledp.common.receiving import delivery_table
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.parts.jobs import job_from_wire, job_to_wire
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.task import Task
from shuffledp.shuffler.relay.layer_jobs import RelayJob
from shuffledp.shuffler.server import publish_keys
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.storage.submission_store import StoredBatch
from tests.support.chains import FLANKS, RELAY, chain
from tests.support.keys import SHUFFLER, signed_key
from tests.support.relays import CHAIN, RELAY_KEY, SEALED, Relay, items_of, sealed_layers
from tests.support.scrapes import series_of
from tests.support.tasks import published

_DIGEST: Final = CHAIN.signed.digest()
_TASK: Final = CHAIN.task
_N: Final = 600
"""Reports of 100 users, and about 500 of the first shuffler's noise."""
_ITEMS: Final = list(itertools.islice(itertools.cycle(range(20)), _N))


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Relay]:
    """A started relay."""
    started = Relay(tmp_path / "relay")
    await started.start()
    yield started
    started.store.close()


@pytest.fixture
async def quiet(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """A started relay that adds no noise."""
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job._draw_dummies", _draw_none)
    return relay


def _draw_none(task: Task, _hop: int, _seed: bytes) -> NDArray[np.int64]:
    return np.zeros(task.domain_size, dtype=np.int64)


@pytest.fixture(scope="module")
def layers() -> list[bytes]:
    """A batch of layers of the task without the relay's noise."""
    return sealed_layers(_ITEMS)


async def test_what_arrived_leaves_once_with_the_relays_noise(relay: Relay) -> None:
    """Its commitment is over the layers; nothing but the task's row and mark stays."""
    layers = sealed_layers(_ITEMS)
    commitment = await relay.deliver(layers, 100)
    commitment.verify(RELAY.public_identity(), _DIGEST, CHAIN.task.most_leaves)
    tree, _ = tree_over(leaves_of(b"".join(layers), len(layers[0])), commitment.salt)
    assert (_N, tree.root) == (commitment.n_leaves, commitment.root)
    assert [] == relay.state.names("seed-*")
    await relay.deliveries.advance()

    [(manifest, blob)] = relay.analyzer.delivered
    counted = Counter(items_of(blob))
    assert (100, (100,), 0) == (manifest.n_users, manifest.by_length, manifest.n_discarded)
    assert manifest.n_reports * SEALED == len(blob)
    assert not Counter(_ITEMS) - counted
    assert 1000 > counted.total() - _N > 0
    assert BatchState.ERASED is await relay.state_of()
    assert {} == relay.staging._merged
    assert [] == [*relay.state.names("batch-*"), *relay.blocks.folders()]
    assert [f"seed-{_DIGEST[:16].hex()}.used"] == relay.state.names("seed-*")
    assert commitment == await relay.deliver(layers, 100)
    await relay.deliveries.advance()
    assert 1 == len(relay.analyzer.delivered)


async def test_junk_and_repeats_are_dropped_and_counted(
    quiet: Relay,
    layers: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Other layers, random bytes, equal layers or reports inside; once, although a disk fails."""
    monkeypatch.setattr(
        "shuffledp.common.receiving.received_job._SLICE_REPORTS", 50
    )  # in many openings
    size, context = len(layers[0]), layer_context(_DIGEST, 1)
    inside = RELAY_KEY.open(layers[0], context)
    seal = RELAY_KEY.public_key().sealer(context)
    again = [seal(inside) for _ in range(3)]
    of_hop = RELAY_KEY.public_key().sealer(layer_context(_DIGEST, 2))(inside)
    junk = [bytes([number]) * size for number in range(4)]
    other = published(**chain(relay_key=RELAY_KEY), domain_size=30)
    sent = [*layers, *layers[:5], *again, of_hop, *sealed_layers([1], other), *junk]
    await quiet.deliver(sent, 100, n_parts=3)
    store_state = quiet.store._store_state

    async def fail(batch: StoredBatch, state: BatchState) -> int:
        if state is BatchState.PERMUTED:
            raise errors.StorageError("the disk is full")
        return await store_state(batch, state)

    with monkeypatch.context() as failing:
        failing.setattr(quiet.store, "_store_state", fail)
        await quiet.deliveries.advance()
    quiet.deliveries._not_before.clear()
    await quiet.deliveries.advance()

    [(manifest, blob)] = quiet.analyzer.delivered
    assert Counter(_ITEMS) == Counter(items_of(blob))
    assert (_N, 5 + 3 + 6) == (manifest.n_reports, manifest.n_discarded)
    counted = series_of(quiet.process_metrics.metrics)
    assert 5 + 3 + 6 == counted["shuffledp_layers_discarded_total", ()]
    warned = [record for record in caplog.records if record.getMessage() == "layers discarded"]
    assert [5 + 3 + 6] == [record.fields["refused"] for record in warned]  # type: ignore[attr-defined]


@pytest.mark.parametrize("staged", [False, True], ids=["under way", "staged"])
async def test_no_other_input_is_taken_once_a_batch_is_staged(
    quiet: Relay, layers: list[bytes], *, staged: bool
) -> None:
    """An incomplete delivery may be replaced; nothing of it is opened."""
    first = quiet.manifest(layers[1:], 100)
    if staged:
        await quiet.deliver(layers[1:], 100)
        for sent, users in ((layers, 100), (layers[1:], 101)):
            with pytest.raises(errors.ConflictError, match="one task, one release"):
                await quiet.deliver(sent, users)
        part = part_header(_DIGEST, 0, layers[:300])
        with pytest.raises(errors.ConflictError, match="another part 0"):
            await quiet.staging.receive(part, chunks_of(layers[:300]))
    else:
        await quiet.staging.begin(first, 2)
        await quiet.deliver(layers, 100)
    await quiet.deliveries.advance()
    await quiet.restart()
    with pytest.raises(errors.ConflictError, match="one task, one release"):
        await quiet.deliver(layers[2:], 100)

    [(manifest, _)] = quiet.analyzer.delivered
    assert _N - staged == manifest.n_reports


async def _deliver_after_copy(relay: Relay, layers: list[bytes], copy: Path) -> None:
    """Copy a relay's files, and then deliver a batch to it."""
    relay.store.close()
    shutil.copytree(relay.path, copy)
    await relay.start()
    await relay.deliver(layers, 100)


async def test_a_relay_whose_database_is_set_back_takes_no_second_delivery(
    quiet: Relay, layers: list[bytes], tmp_path: Path
) -> None:
    """The mark of the task is beside the keys; so is a seed that was drawn and not used."""
    await _deliver_after_copy(quiet, layers, tmp_path / "before")
    await quiet.deliveries.advance()
    quiet.store.close()
    for file in quiet.path.glob("relay.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "before" / "relay.sqlite", quiet.path)
    await quiet.start()
    with pytest.raises(errors.ConflictError, match="its noise is drawn"):
        await quiet.deliver(layers[1:], 100)

    assert 1 == len(quiet.analyzer.delivered)


async def test_a_relay_that_starts_on_another_database_erases_nothing(
    quiet: Relay, layers: list[bytes], tmp_path: Path
) -> None:
    """The batch that it has committed to is delivered once the right database is back."""
    await _deliver_after_copy(quiet, layers, tmp_path / "before")
    quiet.store.close()
    (quiet.path / "relay.sqlite").rename(tmp_path / "right.sqlite")
    shutil.copy(tmp_path / "before" / "relay.sqlite", quiet.path)
    with pytest.raises(errors.SettingsError, match="store has no batch for the key file"):
        await quiet.start()
    quiet.store.close()
    (tmp_path / "right.sqlite").rename(quiet.path / "relay.sqlite")
    await quiet.start()
    await quiet.deliveries.advance()

    [(manifest, _)] = quiet.analyzer.delivered
    assert _N == manifest.n_reports


async def test_a_restored_relay_opens_no_layer_of_an_earlier_task(
    quiet: Relay, layers: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are in no backup, whatever its database says; the sender learns why."""
    await quiet.staging.begin(quiet.manifest(layers, 100), 2)
    quiet.store.close()
    shutil.rmtree(quiet.path / "unsaved")

    def open_keys(state: StateDirectory) -> KeyStore:
        keys = KeyStore(state, quiet.settings.relay_schedule())
        keys.rotate(quiet.clock.now())
        return keys

    monkeypatch.setattr(quiet, "open_keys", open_keys)
    await quiet.start()
    with pytest.raises(
        errors.StorageError, match=r"relay_key, \w{16}, is not a key of this party: its"
    ):
        await quiet.deliver(layers, 100)

    quiet.clock.seconds = _TASK.deadline + 31 * DAY
    await quiet.deliveries.advance()
    assert BatchState.EXPIRED is await quiet.state_of()
    with pytest.raises(errors.ConflictError, match="batch is expired at this relay"):
        await quiet.deliver(layers, 100)


@pytest.mark.parametrize("at", [delivery_table.begin_delivery, delivery_table.accept_delivery])
async def test_a_delivery_whose_announcement_is_hung_up_is_moved(
    quiet: Relay, layers: list[bytes], at: object
) -> None:
    """At whichever transaction: one that was cancelled in its thread would be committed too."""
    database = quiet.store.database
    run, manifest = database.run, quiet.manifest(layers, 100)

    async def hang_up(work: object, *given: Any, **more: Any) -> Any:
        if work is at:
            call.cancel()
        return await run(work, *given, **more)  # type: ignore[arg-type]

    database.run = hang_up  # type: ignore[method-assign]
    call = asyncio.create_task(quiet.staging.begin(manifest, 2))
    with pytest.raises(asyncio.CancelledError):
        await call
    database.run = run  # type: ignore[method-assign]
    for part, reports in enumerate(parts_of(layers, 2)):
        header = part_header(_DIGEST, part, reports)
        await quiet.staging.receive(header, chunks_of(reports))
    await quiet.staging.finish_delivery(_DIGEST)
    await quiet.deliveries.advance()

    assert 1 == len(quiet.analyzer.delivered)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_id": BatchId(bytes(16))}, "does not follow from the task's digest"),
        ({"n_users": 500, "by_length": (500,)}, "a batch of 500 users must have"),
        ({"n_users": 2, "by_length": (2,)}, "600 reports are announced"),
        ({"by_length": (99,)}, "99 submissions of 100 users"),
        ({"by_length": (50, 50)}, "submissions of 2 lengths"),
        ({"n_discarded": 1}, "a first shuffler discards no report"),
        ({"n_reports": _N + 1}, "600 reports arrived; 601 were announced"),
        ({"n_reports": _N - 1}, "600 reports arrived; 599 were announced"),
    ],
)
async def test_a_manifest_that_does_not_add_up_is_refused(
    quiet: Relay, layers: list[bytes], changes: dict[str, Any], sentence: str
) -> None:
    """N is checked exactly, n within the bounds of the first shuffler's noise."""
    with pytest.raises(errors.WireError, match=sentence):
        await quiet.deliver(layers, 100, **changes)

    assert [] == quiet.analyzer.delivered


_STRANGER: Final = HpkePrivateKey.generate()


@pytest.mark.parametrize(
    ("fields", "error", "sentence"),
    [
        (chain(relay_key=_STRANGER), errors.StorageError, "relay_key"),
        (
            {"protocol": "sageo", "local_epsilon": np.inf, "dummies_per_user": 0, "buckets": 0},
            errors.TaskError,
            "one shuffler",
        ),
    ],
)
async def test_a_task_that_is_not_the_relays_is_refused(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    """It names another relay's key, or no relay."""
    if "relay" not in fields:
        fields |= {"shuffler": chain()["shuffler"]}
    case = published(**fields, domain_size=20, n_min=3, target_size=5)
    relay = Relay(tmp_path / "relay", case)
    await relay.start()
    with pytest.raises(error, match=sentence):
        await relay.deliver([bytes(case.task.report_bytes_at(1))] * _N, 100)
    relay.store.close()


@pytest.mark.parametrize("signed", [True, False], ids=["by another", "not signed"])
async def test_a_key_that_the_relay_did_not_sign_is_refused(
    tmp_path: Path, *, signed: bool
) -> None:
    """Although it holds the key."""
    key = RELAY_KEY.public_key().raw
    key = signed_key(RELAY_KEY.public_key(), SHUFFLER, KeyUse.LAYERS) if signed else key
    other = replace(chain()["relay"], key=key)
    case = published(**chain() | {"relay": other}, domain_size=20, n_min=3, target_size=5)
    relay = Relay(tmp_path / "relay", case)
    await relay.start()
    with pytest.raises(errors.ProofError, match="relay_key is not signed by the relay identity"):
        await relay.deliver([bytes(case.task.report_bytes_at(1))] * _N, 100)
    relay.store.close()


async def test_a_key_that_has_ended_is_refused(quiet: Relay, layers: list[bytes]) -> None:
    """The sender learns why, before any part is read."""
    for _ in range(2):  # replaced, and then destroyed
        quiet.clock.seconds += 1000 * DAY
        quiet.keys.rotate(quiet.clock.now(), set())
    with pytest.raises(errors.StorageError, match=r"relay_key, .*, expired and was destroyed"):
        await quiet.deliver(layers, 100)

    assert {} == await quiet.store.states()


async def test_every_order_of_reports_is_equally_likely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each item is as often at each of 84 places, over 30 seeds; reports of an item are alike.

    A chi-square test, scaled as places of one order depend, which fails by chance with 1e-9.
    """
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job._draw_dummies", _draw_none)
    few = published(**chain(relay_key=RELAY_KEY), domain_size=3, n_min=1, target_size=5)
    relay, rng, seen = Relay(tmp_path / "relay", few), np.random.default_rng(4), np.zeros((84, 3))
    await relay.start()
    await relay.deliver(sealed_layers([item for item in range(3) for _ in range(28)], few), 3)
    [batch] = relay.batches.unfinished()
    stored = await relay.store.get(batch.digest)
    for _ in range(30):
        await relay.deliveries.permute(batch, stored, rng.bytes(32))
        blob = relay.staging.blocks.open(batch.batch_id).get("permuted/0")
        seen[np.arange(84), items_of(blob, few)] += 1
    relay.store.close()

    statistic = ((seen - 10) ** 2 / 10).sum() * 83 / 84
    assert stats.chi2.sf(statistic, 83 * 2) > 1e-9


async def test_the_relays_noise_has_the_tasks_distribution(tmp_path: Path) -> None:
    """A chi-square test of 40 items, which fails by chance with probability 1e-9 over seeds."""
    case = published(**chain(relay_key=RELAY_KEY), domain_size=40, n_min=1, target_size=5)
    relay = Relay(tmp_path / "relay", case)
    await relay.start()
    await relay.deliver(sealed_layers([7] * 1000, case), 3)
    await relay.deliveries.advance()
    relay.store.close()

    [(_, blob)] = relay.analyzer.delivered
    counted = np.bincount(items_of(blob, case), minlength=40)
    counted[7] -= 1000
    chances = FLANKS.probabilities()
    low, high = 22, 28
    found = np.bincount(np.clip(counted, low, high), minlength=high + 1)[low:]
    law = np.concatenate(
        [[chances[: low + 1].sum()], chances[low + 1 : high], [chances[high:].sum()]]
    )
    assert stats.chisquare(found, 40 * law).pvalue > 1e-9


async def test_a_damaged_batch_is_never_made_again(quiet: Relay, layers: list[bytes]) -> None:
    """It waits until its end, and is dropped; its keys are destroyed."""
    await quiet.deliver(layers, 100)
    quiet.analyzer.reachable = False
    await quiet.deliveries.advance()
    assert BatchState.PERMUTED is await quiet.state_of()
    [batch] = quiet.batches.unfinished()
    (quiet.path / "blocks" / batch.batch_id.hex() / "permuted" / "0").write_bytes(bytes(100))
    quiet.analyzer.reachable = True
    quiet.deliveries._not_before.clear()
    await quiet.deliveries.advance()
    assert BatchState.PERMUTED is await quiet.state_of()
    quiet.clock.seconds = _TASK.deadline + 61 * DAY
    quiet.deliveries._not_before.clear()
    await quiet.deliveries.advance()

    assert BatchState.DROPPED is await quiet.state_of()
    assert ([], []) == (quiet.analyzer.delivered, quiet.state.names("batch-*"))


async def test_an_operator_sees_a_batch_that_waits_and_drops_it(
    quiet: Relay, layers: list[bytes]
) -> None:
    """Users are told once it is staged, layers as they arrive; keys and blocks are destroyed."""
    with pytest.raises(errors.UnknownTaskError):
        await quiet.operations.status(_DIGEST)
    sent = [*layers, layers[0]]
    await quiet.staging.begin(quiet.manifest(sent, 100), 2)
    first = parts_of(sent, 2)[0]
    await quiet.staging.receive(part_header(_DIGEST, 0, first), chunks_of(first))
    begun = await quiet.operations.status(_DIGEST)
    with pytest.raises(errors.BatchStateError, match="collecting cannot drop"):
        await quiet.operations.drop(_DIGEST)
    await quiet.deliver(sent, 100)
    quiet.analyzer.reachable = False
    await quiet.deliveries.advance()
    waiting = await quiet.operations.status(_DIGEST)
    assert BatchState.DROPPED is await quiet.operations.drop(_DIGEST)
    quiet.deliveries._not_before.clear()
    await quiet.deliveries.advance()

    assert (BatchState.COLLECTING, 0, 300) == (begun.state, begun.n_users, begun.n_layers)
    assert (BatchState.PERMUTED, 100, _N + 1) == (waiting.state, waiting.n_users, waiting.n_layers)
    assert (1, "analyzer") == (waiting.n_discarded, waiting.waits_for)
    assert ("", []) == ((await quiet.operations.status(_DIGEST)).waits_for, quiet.blocks.folders())
    assert [] == quiet.state.names("batch-*")
    with pytest.raises(errors.ConflictError, match="one task, one release"):
        await quiet.deliver(layers[1:], 100)
    with pytest.raises(errors.ConflictError, match="batch is dropped at this relay"):
        await quiet.deliver(sent, 100)
    with pytest.raises(errors.ConflictError, match="batch is dropped at this relay"):
        await quiet.staging.finish_delivery(_DIGEST)


async def test_no_seed_is_left_when_the_first_part_leaves(
    quiet: Relay, layers: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the relay failed between recording the permuted batch and destroying its seed."""
    left, begin = [], quiet.analyzer.begin_delivery

    async def begin_delivery(manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        left.append(quiet.state.names("seed-*.key"))
        return await begin(manifest, n_parts)

    def fail(_: BatchId) -> None:
        raise errors.StorageError("failing")

    monkeypatch.setattr(quiet.analyzer, "begin_delivery", begin_delivery)
    await quiet.deliver(layers, 100)
    with monkeypatch.context() as failing:
        failing.setattr(quiet.deliveries.seeds, "destroy", fail)
        await quiet.deliveries.advance()
    assert [f"seed-{_DIGEST[:16].hex()}.key"] == quiet.state.names("seed-*")
    quiet.deliveries._not_before.clear()
    await quiet.deliveries.advance()

    assert [[], []] == left


async def test_a_batch_that_is_committed_to_late_has_as_long_to_be_delivered(
    quiet: Relay, layers: list[bytes]
) -> None:
    """The first shuffler has erased it; until then a delivery that is incomplete expires."""
    quiet.clock.seconds = _TASK.deadline + 30 * DAY - 60
    await quiet.deliver(layers, 100)
    quiet.analyzer.reachable = False
    for later in (120, 30 * DAY - 120):
        quiet.clock.seconds += later
        await quiet.deliveries.advance()
        quiet.deliveries._not_before.clear()
        assert BatchState.PERMUTED is await quiet.state_of()
    quiet.analyzer.reachable = True
    await quiet.deliveries.advance()

    assert 1 == len(quiet.analyzer.delivered)


def test_a_relays_keys_have_a_stated_life(tmp_path: Path) -> None:
    """They are signed for tasks as long as their own life, and kept 30 days more."""
    settings = ShufflerSettings(
        state_directory=tmp_path,
        role="relay",
        plaintext=True,
        analyzer="127.0.0.1:1",
        analyzer_identity=RELAY.public_identity().raw.hex(),
    )
    state = StateDirectory.open(tmp_path / "state")
    keys = KeyStore(state.within("unsaved"), settings.relay_schedule())
    keys.rotate(0.0)
    publish_keys(state, keys, RELAY, KeyUse.LAYERS)
    signed = bytes.fromhex((state.path / "relay.pub").read_text())
    key, proof = split_key(DEFAULT_SUITE, KeyUse.LAYERS, signed)
    check_key(RELAY.public_identity(), KeyUse.LAYERS, DEFAULT_SUITE, key, proof)
    assert 180 * DAY == end_of_validity(proof)
    for day in (88, 90, 209):
        keys.rotate(day * DAY, set())
    assert key == keys.private_key(DEFAULT_SUITE, key, whose="").public_key().raw
    keys.rotate(210 * DAY, set())
    with pytest.raises(errors.UnknownKeyError, match="destroyed"):
        keys.private_key(DEFAULT_SUITE, key, whose="relay_key")
    assert [] == state.names("hpke-*")


async def test_parts_arrive_in_any_order_and_twice(quiet: Relay, layers: list[bytes]) -> None:
    """A part that is there is not read again; a crash between parts loses none."""
    manifest, parts = quiet.manifest(layers, 100), parts_of(layers, 3)
    await quiet.staging.begin(manifest, 3)
    for number in (2, 0, 2):
        header = part_header(_DIGEST, number, parts[number])
        await quiet.staging.receive(header, chunks_of(parts[number]))
    with pytest.raises(errors.WireError, match="2 of 3 parts"):
        await quiet.staging.finish_delivery(_DIGEST)
    await quiet.deliveries.advance()
    assert [] == quiet.state.names("seed-*")  # nothing is drawn before the commitment
    await quiet.restart()
    assert ([0, 2], False) == await quiet.staging.begin(manifest, 3)
    await quiet.deliver(layers, 100, n_parts=3)
    await quiet.deliveries.advance()

    [(_, blob)] = quiet.analyzer.delivered
    assert Counter(_ITEMS) == Counter(items_of(blob))


async def test_an_analyzer_that_signs_other_reports_is_reported(
    quiet: Relay, layers: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """The relay compares the root, and keeps no proof that anybody could ask for."""
    quiet.analyzer.forget = 1
    await quiet.deliver(layers, 100)
    await quiet.deliveries.advance()

    assert "analyzer signed other reports than were sent" in caplog.messages
    assert [] == quiet.blocks.folders()


async def test_a_relays_jobs_travel_to_an_engine(quiet: Relay, layers: list[bytes]) -> None:
    """With all fields but the place of the blocks."""
    await quiet.deliver(layers, 100)
    received, _ = await quiet.staging.merged(_DIGEST)
    key = quiet.staging.blocks.key(received.batch_id)
    planned = RelayJob.plan(
        batch_id=received.batch_id,
        task_bytes=CHAIN.signed.task_bytes,
        n_users=100,
        key=key,
        seed=bytes(32),
        blocks=quiet.blocks,
        hop=1,
        n_openings=received.n_openings,
    )

    for job in (replace(received, private_key=b"key", n_opened_parts=2), planned):
        assert job == job_from_wire(type(job), job_to_wire(job), {"blocks": quiet.blocks})


async def test_a_batch_of_junk_alone_leaves_only_noise(relay: Relay) -> None:
    """All of it is counted, and the analyzer learns how much."""
    size = len(sealed_layers([0])[0])
    await relay.deliver([number.to_bytes(size) for number in range(_N)], 100)
    await relay.deliveries.advance()

    [(manifest, blob)] = relay.analyzer.delivered
    assert (_N, len(blob) // SEALED) == (manifest.n_discarded, manifest.n_reports)
    assert {*range(20)} == {*items_of(blob)}
