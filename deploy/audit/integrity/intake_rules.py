"""Whether the analyzer takes in what it should: repeats, padding, sentinels, damage, salts."""

import asyncio
import copy
import dataclasses
import math
import sqlite3
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from analyzer.batch_checks import judge, of_users_alone
from analyzer.finalize import conclude
from analyzer.intake import Intake, take_in
from analyzer.sentinel_matching import look
from analyzer.storage.sentinel_table import Sentinel
from common.accounting.guarantees import Terms, guarantees_under
from common.crypto.hpke import HpkePrivateKey, SealContext
from common.crypto.hpke_pool import Opened
from common.crypto.merkle import SALT_BYTES, leaf
from common.crypto.suites import suite_named
from common.errors import ConflictError as BatchConflictError
from common.errors import SuspectBatchError, UnusableBatchError
from common.mechanisms.base import null_reports
from common.mechanisms.registry import mechanism_of
from common.messages.result import RefusalCause, Result
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity import sentinel_rules
from deploy.audit.integrity.analyzer_core import AnalyzerCore, in_chunks, manifest_of
from deploy.audit.integrity.playthrough import refused
from deploy.audit.integrity.rehearsal import quietly
from deploy.audit.integrity.small_batch import USERS, SmallBatch, analyzer, small_task
from deploy.audit.laws.panel import panel
from deploy.audit.stand_ins.in_place import InPlace

_CHUNKS: Final = 200
_IN_A_CHUNK: Final = 40
_DIGEST: Final = TaskDigest(bytes(32))
_UNREADABLE: Final = 0xFF
"""First byte of what the pool without encryption does not open."""
_FEW_USERS: Final = 2000
"""Of whom a guarantee is found fast."""
_SENTINELS: Final = 64
"""So many that a sampling shuffler never has none of them by chance."""
_CONCLUDED: Final = ("murs", "od-hp", "sageo")
"""Protocols of the panel's tasks whose results are looked at: fixed and drawn dummies, and noise
by the shuffler."""


def intake_rules(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Deliver batches to an analyzer's core, and to its functions; whatever task is audited."""
    del audited
    with quietly():
        staged = asyncio.run(_staged(rng))
    return Outcome(findings=(_counted(rng), _sentinels(rng), staged))


class _NoEncryption(InPlace):
    """Opens what was never sealed: a plaintext after as many bytes as sealing adds."""

    def open(
        self,
        key: HpkePrivateKey,  # noqa: ARG002  # as a pool takes them
        sealed: bytes,
        sealed_bytes: int,
        context: SealContext,  # noqa: ARG002  # likewise
    ) -> Future[Opened]:
        """Cut the ciphertexts open."""
        rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, sealed_bytes)
        readable = rows[:, 0] != _UNREADABLE
        texts = rows[:, _overhead() :] * readable[:, None]
        opened: Future[Opened] = Future()
        opened.set_result(Opened(plaintexts=texts.tobytes(), readable=readable.tobytes()))
        return opened


def _overhead() -> int:
    return suite_named(small_task().suite).overhead_bytes


def _counted(rng: np.random.Generator) -> Finding:
    """Count a batch of many chunks, of which we know what every report is."""
    checks, task = Checks(), small_task()
    mechanism, key = mechanism_of(task), HpkePrivateKey.generate(task.suite)
    total = _CHUNKS * _IN_A_CHUNK
    reports = mechanism.randomize(rng.integers(0, task.domain_size, total), rng)
    texts = reports.view(np.uint8).reshape(total, -1).copy()
    heads = rng.integers(0, _UNREADABLE, (total, _overhead()), dtype=np.uint8)
    texts[0] = null_reports(1, mechanism.report_dtype).view(np.uint8)
    texts[1] = 0xFE  # no item has so large a number
    heads[2, 0] = _UNREADABLE
    rows = np.concatenate([heads, texts], axis=1)
    chunks = [part.tobytes() for part in np.split(rows, _CHUNKS)]
    taken = take_in(
        [*chunks, chunks[0]],
        task,
        _DIGEST,
        mechanism,
        pool=_NoEncryption(),
        key=key,
        tallied_at_once=7 * _IN_A_CHUNK,
    )
    expected = {"repeated": _IN_A_CHUNK, "unreadable": 1, "malformed": 1}
    checks.must(
        f"a report that comes again after {_CHUNKS} chunks is refused",
        taken.refused["repeated"] == _IN_A_CHUNK,
    )
    checks.must("reports are refused by their causes", taken.refused == expected)
    checks.must("padding is no report", (taken.null, taken.counted) == (1, total - 3))
    checks.must(
        "every other report is counted once",
        np.array_equal(taken.cells, mechanism.tally(reports[3:])),
    )
    for one in panel():
        if one.protocol in _CONCLUDED and one.dummies.uniform:
            _concluded(checks, one)
    return checks.finding(
        scenario="analyzer-intake",
        title="What is counted, and what is refused",
        heading="correctness",
        sentence=(
            f"Of {total} reports each was counted once, or refused for its cause, and a repeat was "
            "known after all others. Padding beyond what a task's law leaves room for was taken "
            "for malformed, and every refused report was taken off the guarantees."
        ),
        subject="small tasks of every kind",
        trials=total,
    )


def _concluded(checks: Checks, task: Task) -> None:
    """Conclude from counts that are made up, with three more null reports than there is room."""
    mechanism, name = mechanism_of(task), task.protocol
    n_users, more = task.n_min if task.protocol == "murs" else _FEW_USERS, 3
    room = n_users * (task.dummies.maximum - task.dummies.per_user)
    given: dict[RefusalCause, int] = {"repeated": 5, "unreadable": 7, "malformed": 11}
    cells = mechanism.tally(mechanism.dummies(10, np.random.default_rng(0)))
    intake = Intake(cells=cells, counted=n_users, null=room + more, refused=dict(given))
    result = conclude(manifest_of(_DIGEST, n_users, n_users), task, mechanism, intake)
    checks.must(
        f"{name}: padding beyond its room is malformed",
        result.refused == given | {"malformed": 11 + more},
    )
    _promised(checks, task, result)


def _promised(checks: Checks, task: Task, result: Result) -> None:
    """Look whether a result says everything of what is promised."""
    name, n_refused = task.protocol, sum(result.refused.values())
    if task.protocol == "murs":
        checks.must(
            "guarantees are those of the users, without the refused reports",
            result.guarantees == guarantees_under(Terms.of(task), result.n_users, n_refused),
        )
        checks.must(
            "a paper's claim is that for so many users",
            f" {_closed_form(task, result.n_users - n_refused):.4g} " in result.published_claim,
        )
    said = {one.coalition: one for one in reversed(result.guarantees)}
    together = said.get("shuffler+analyzer")
    checks.must(
        f"{name}: a result says what holds against each party, and against both together",
        {"analyzer", "shuffler", "network", "shuffler+analyzer"} <= set(said),
    )
    checks.must(
        f"{name}: against both together the local ε holds",
        together is not None and (together.epsilon, together.delta) == (task.local_epsilon, 0.0),
    )


def _closed_form(task: Task, n_users: int) -> float:
    """Give what is claimed for shuffled local hashing [BBGN19], [WDX+20]."""
    answers = math.exp(task.local_epsilon) + task.item_mechanism.buckets - 1
    return math.sqrt(14 * math.log(2 / task.delta) * answers / (n_users - 1))


def _sentinels(rng: np.random.Generator) -> Finding:
    checks = Checks()
    sampled = [task for task in panel() if task.shuffler.kept < 1]
    for task in (small_task(), *sampled):
        _taken_off(checks, task, rng)
        sentinel_rules.check_enough(checks, task, rng)
    for task in sampled:
        _judged(checks, task, rng)
        sentinel_rules.check_all_kept(checks, task, rng)
    return checks.finding(
        scenario="analyzer-intake",
        title="Sentinels that are missing, repeated or were never confirmed",
        heading="correctness",
        sentence=(
            "Sentinels were told from users, confirmed or not, wherever the shuffler samples and "
            "where it does not, and made up for no user of n_min. Of a shuffler that samples, a "
            "batch with none of its sentinels, with all of them, or with them in the order of "
            "sending, was suspect."
        ),
        subject="small tasks",
        trials=_SENTINELS,
    )


def _made(n: int, *, acknowledged: bool, rng: np.random.Generator) -> list[tuple[Sentinel, bytes]]:
    reports = [rng.bytes(_IN_A_CHUNK) for _ in range(n)]
    return [(Sentinel(leaves=(leaf(one),), acknowledged=acknowledged), one) for one in reports]


def _taken_off(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Count sentinels of each kind: confirmed or not, there or not, and one of them twice."""
    confirmed = _made(8, acknowledged=True, rng=rng)
    unconfirmed = _made(6, acknowledged=False, rng=rng)
    there = [report for _, report in (*confirmed[:5], *unconfirmed[:4])]
    others = [rng.bytes(_IN_A_CHUNK) for _ in range(10)]
    delivered = [*there, *others, there[0]]
    sentinels = [sentinel for sentinel, _ in (*confirmed, *unconfirmed)]
    sightings = look(delivered, _IN_A_CHUNK, sentinels)
    n_users = task.n_min + 100
    left = of_users_alone(manifest_of(_DIGEST, n_users, len(delivered)), sightings, task)
    samples, name = task.shuffler.kept < 1, task.protocol
    gone = 8 + (6 if samples else 4)
    checks.must(f"{name}: sentinels are not users", left.n_users == n_users - gone)
    checks.must(
        f"{name}: sentinels are missed if they were confirmed",
        (sightings.n_acknowledged, sightings.n_missing, sightings.n_repeated) == (8, 3, 1),
    )
    checks.must(
        f"{name}: reports of sentinels are not users'", left.n_reports == len(delivered) - 9
    )


def _judged(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Judge batches of a shuffler that samples: as it should, and as it should not."""
    made = _made(_SENTINELS, acknowledged=True, rng=rng)
    sentinels, reports = [one for one, _ in made], [report for _, report in made]
    drawn = [reports[place] for place in rng.permutation(len(reports))]
    fair = drawn[: round(task.shuffler.kept * len(drawn))]
    ordered = [report for report in reports if report in set(fair)]
    for name, delivered in (("with none", ()), ("in the order of sending", ordered)):
        checks.must(
            f"{task.protocol}: a batch {name} of its sentinels is suspect",
            _is_suspect(task, delivered, sentinels),
        )
    checks.must(
        f"{task.protocol}: a batch with as many as expected is not suspect",
        not _is_suspect(task, fair, sentinels),
    )


def _is_suspect(task: Task, delivered: Sequence[bytes], sentinels: Sequence[Sentinel]) -> bool:
    try:
        judge(look(delivered, _IN_A_CHUNK, sentinels), task)
    except SuspectBatchError:
        return True
    return False


async def _staged(rng: np.random.Generator) -> Finding:
    checks = Checks()
    async with analyzer(np.random.default_rng(rng.integers(2**32))) as core:
        await _repeated_sentinel(checks, core, rng)
        await _never_confirmed(checks, core, rng)
        await sentinel_rules.check_registered_before(checks, core, rng)
        await _sampled_in_order(checks, core, rng)
        await _damaged(checks, core, rng)
        await _other_manifest(checks, core, rng)
    own = np.random.default_rng(rng.integers(2**32))
    async with analyzer(own) as core:
        await _salted_last(checks, core, rng, own)
    return checks.finding(
        scenario="analyzer-intake",
        title="Batches as they are kept, and released",
        heading="correctness",
        sentence=(
            "Copies of a sentinel were refused as repeats, sentinels that were never confirmed did "
            "not count as users, in the ledger either, none could be registered once the batch had "
            "arrived, and a batch of a task that samples was held back when its "
            "sentinels stood in order. What the disk gave back damaged was not released, one batch "
            "was not taken under two manifests, and the salt of what is signed was drawn after the "
            "last report had come."
        ),
        subject="small tasks with shuffled randomized response",
    )


async def _with_sentinels(
    core: AnalyzerCore,
    rng: np.random.Generator,
    n: int,
    *,
    acknowledged: bool,
    task: Task | None = None,
) -> SmallBatch:
    """Make a batch, the first reports of which are sentinels'."""
    batch = await SmallBatch.of(core, task or small_task(), rng, 2 * USERS + n)
    leaves = [leaf(report) for report in batch.reports[:n]]
    await core.sentinels.register(batch.manifest.task_digest, leaves, acknowledged=False)
    if acknowledged:
        await core.sentinels.register(batch.manifest.task_digest, leaves, acknowledged=True)
    return batch


async def _repeated_sentinel(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    batch = await _with_sentinels(core, rng, 3, acknowledged=True)
    await core.take(batch.manifest, [*batch.reports[:-1], batch.reports[0]])
    result = await core.result(batch.manifest.task_digest)
    checks.must(
        "a sentinel's copies are refused as repeats",
        (result.refused["repeated"], result.n_sentinels_repeated) == (1, 1),
    )
    checks.must("confirmed sentinels are not users", result.n_users == 2 * USERS)


async def _never_confirmed(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    result = await (await _with_sentinels(core, rng, 3, acknowledged=False)).result(core)
    checks.must(
        "sentinels that were not confirmed are not users",
        (result.n_users, result.n_reports) == (2 * USERS, 2 * USERS),
    )
    await sentinel_rules.check_charge(checks, core, small_task(), result)


async def _sampled_in_order(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Deliver sentinels of a task that samples in the order of sending, and every one of them."""
    [sampled] = [task for task in panel() if task.protocol == "sbin"]
    task = dataclasses.replace(sampled, n_min=USERS, target_size=10 * USERS)
    batch = await _with_sentinels(core, rng, _SENTINELS, acknowledged=True, task=task)
    await batch.deliver(core)
    checks.must(
        "a batch of a task that samples is not released with its sentinels in order",
        await refused(core.result(batch.manifest.task_digest), UnusableBatchError),
    )


async def _damaged(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Flip a bit on the disk between staging and release."""
    batch = await SmallBatch.of(core, small_task(), rng)
    await core.staging.receive(batch.manifest, in_chunks(batch.reports))
    flipped = bytearray(b"".join(batch.reports))
    flipped[0] ^= 1
    _overwrite(core.path, batch.manifest.batch_id, bytes(flipped))
    await core.releases.resume()
    checks.must(
        "a batch that the disk has damaged is not released",
        await refused(core.result(batch.manifest.task_digest), UnusableBatchError),
    )


def _overwrite(path: Path, batch_id: bytes, chunk: bytes) -> None:
    with closing(sqlite3.connect(path / "analyzer.sqlite")) as connection, connection:
        connection.execute(
            "UPDATE chunks SET sealed_reports = ? WHERE batch_id = ?", (chunk, batch_id)
        )


async def _other_manifest(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    batch = await SmallBatch.of(core, small_task(), rng)
    await batch.result(core)
    digest, n_users = batch.manifest.task_digest, batch.manifest.n_users + 1
    other = manifest_of(digest, n_users, n_users, batch.manifest.batch_id)
    checks.must(
        "a batch is refused that comes again under another manifest",
        await refused(core.take(other, [*batch.reports, batch.reports[0]]), BatchConflictError),
    )


async def _salted_last(
    checks: Checks, core: AnalyzerCore, rng: np.random.Generator, own: np.random.Generator
) -> None:
    """Look how the analyzer's generator stands when the last report has come."""
    batch = await SmallBatch.of(core, small_task(), rng)
    salts = []

    async def chunks() -> AsyncIterator[bytes]:
        yield b"".join(batch.reports)
        salts.append(copy.deepcopy(own).bytes(SALT_BYTES))

    commitment = await core.deliver(batch.manifest, chunks())
    checks.must(
        "the salt is drawn after the last report has come",
        commitment is not None and [commitment.salt] == salts,
    )
