"""Sentinels are no users, come before their batch, and show a shuffler that keeps all reports."""

import math
from typing import Final

import numpy as np

from analyzer.batch_checks import FALSE_ALARM, judge, of_users_alone
from analyzer.sentinel_matching import look
from analyzer.storage.sentinel_table import Sentinel
from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import claimed_release
from common.crypto.merkle import leaf
from common.errors import BatchStateError, SuspectBatchError, UnusableBatchError
from common.messages.guarantee import claimed
from common.messages.result import Result
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.checks import Checks
from deploy.audit.integrity.analyzer_core import AnalyzerCore, in_chunks, manifest_of
from deploy.audit.integrity.playthrough import refused
from deploy.audit.integrity.small_batch import USERS, SmallBatch, small_task

_REPORT_BYTES: Final = 40
"""So many that a sampling shuffler never keeps all of them by chance."""
_FEW: Final = 3
_DIGEST: Final = TaskDigest(bytes(32))


def check_enough(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Sentinels do not make up for users who are not there."""
    reports = [rng.bytes(_REPORT_BYTES) for _ in range(_FEW)]
    sightings = look(reports, _REPORT_BYTES, _confirmed(reports))
    for users, enough in ((task.n_min - 1, False), (task.n_min, True)):
        try:
            of_users_alone(manifest_of(_DIGEST, users + _FEW, users + _FEW), sightings, task)
            taken = True
        except UnusableBatchError:
            taken = False
        checks.must(
            f"{task.protocol}: a batch is taken from n_min users on, sentinels not among them",
            taken is enough,
        )


def check_all_kept(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """A shuffler that should drop some reports drops none, and permutes them as it should."""
    enough = math.ceil(math.log(FALSE_ALARM / 2) / math.log(task.shuffler.kept)) + 1
    reports = [rng.bytes(_REPORT_BYTES) for _ in range(enough)]
    delivered = [reports[place] for place in rng.permutation(enough)]
    try:
        judge(look(delivered, _REPORT_BYTES, _confirmed(reports)), task)
        suspect = False
    except SuspectBatchError as error:
        suspect = "stand in an order" not in str(error)
    checks.must(
        f"{task.protocol}: a batch of a task that samples is suspect with all sentinels", suspect
    )


def _confirmed(reports: list[bytes]) -> list[Sentinel]:
    return [Sentinel(leaves=(leaf(report),), acknowledged=True) for report in reports]


async def check_charge(checks: Checks, core: AnalyzerCore, task: Task, result: Result) -> None:
    """What the ledger holds of a release is about the users of its result."""
    [entry] = [
        entry for entry in await core.store.ledger(0) if entry.task_digest == result.task_digest
    ]
    stated = claimed(result.guarantees)
    alone = composed_epsilon([claimed_release(task, result.n_users)], task.budget_delta)
    checks.must(
        "a release is charged for the users of its result, without sentinels",
        (entry.n_users, entry.epsilon, entry.delta)
        == (result.n_users, stated.epsilon, stated.delta)
        and entry.composed_epsilon == min(alone, task.local_epsilon),
    )


async def check_registered_before(
    checks: Checks, core: AnalyzerCore, rng: np.random.Generator
) -> None:
    """Once a batch has arrived, nobody may call reports of it sentinels; whoever knows them."""
    batch = await SmallBatch.of(core, small_task(), rng, 2 * USERS)
    digest = batch.manifest.task_digest
    before, *others = (leaf(report) for report in batch.reports[: 1 + _FEW])
    await core.sentinels.register(digest, [before], acknowledged=False)
    await core.staging.receive(batch.manifest, in_chunks(batch.reports))
    late = (([others[0]], False), ([others[1]], True), ([before], True), ([before, *others], True))
    for leaves, acknowledged in late:
        checks.must(
            "no sentinel is registered or confirmed once the batch has arrived",
            await refused(
                core.sentinels.register(digest, leaves, acknowledged=acknowledged),
                BatchStateError,
            ),
        )
    kept = await core.store.sentinels(digest)
    checks.must(
        "no sentinel is registered or confirmed once the batch has arrived",
        [(one.leaves, one.acknowledged) for one in kept] == [((before,), False)],
    )
