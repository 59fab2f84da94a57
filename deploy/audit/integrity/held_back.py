"""What the analyzer holds back, and what a result says of what was refused or is missing."""

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from analyzer.estimation.histogram import gather
from analyzer.finalize import conclude, mixture_of
from analyzer.intake import Intake
from common.crypto.merkle import leaf
from common.errors import ConflictError as BatchConflictError
from common.errors import UnusableBatchError
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BATCH_ID_BYTES
from common.messages.result import RefusalCause
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity.analyzer_core import AnalyzerCore, manifest_of
from deploy.audit.integrity.playthrough import refused
from deploy.audit.integrity.rehearsal import quietly
from deploy.audit.integrity.small_batch import USERS, SmallBatch, analyzer, small_task
from deploy.audit.laws.refinements import is_right
from deploy.audit.sample_task import sample_task

_SCENARIO: Final = "analyzer-releases"
_FEW_SENTINELS: Final = 4
"""So few that a shuffler which samples may well lose one of them."""
_DIGEST: Final = TaskDigest(bytes(32))
_PEOPLE: Final = 2_000
_PADDING: Final = 100
_REFUSED: Final[dict[RefusalCause, int]] = {"repeated": 50, "unreadable": 70, "malformed": 80}

_REFINED: Final[tuple[dict[str, Any], ...]] = (
    {"protocol": "ldp-grr", "domain_size": 5, "local_epsilon": 2.0},
    {"protocol": "ldp-blh", "domain_size": 12, "local_epsilon": 1.0},
    {"protocol": "ldp-sw", "domain_size": 10, "local_epsilon": 1.0},
)
"""Of each way of refining that a protocol here has."""
_SAMPLED: Final[dict[str, Any]] = {
    "protocol": "sbin",
    "domain_size": 4,
    "local_epsilon": math.inf,
    "shuffler": ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 2, trials=70, most=70),
}
_MIXED: Final[tuple[dict[str, Any], ...]] = (
    {"protocol": "ldp-grr", "domain_size": 5, "local_epsilon": 2.0},
    {
        "protocol": "mixdump",
        "domain_size": 3,
        "local_epsilon": 1.0,
        "dummies_per_user": 1.0,
        "n_min": USERS,
        "target_size": USERS,
        "delta": 0.01,
    },
    {
        "protocol": "aue",
        "domain_size": 4,
        "local_epsilon": math.inf,
        "dummies": DummySpec(law="each-item", per_user=0, trials=4, extra_weight=2**30, most=3),
    },
    _SAMPLED,
)
"""Own reports alone; beside users' dummies, uniform or of each item; and beside the shuffler's."""


def held_back(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Deliver batches that must not be released, and conclude; whatever task is audited."""
    del audited
    checks = Checks()
    with quietly():
        asyncio.run(_delivered(checks, rng))
    return Outcome(
        findings=(
            checks.finding(
                scenario=_SCENARIO,
                title="Batches that are held back",
                heading="correctness",
                sentence=(
                    "A batch with one refused report more than may be was held back, and one with "
                    "as many as may be was not; a single sentinel that was missing held a batch "
                    "back, and where the shuffler samples the result says how many are missing. "
                    "The task of a batch that was held back takes no other."
                ),
                subject="small tasks",
            ),
            _concluded(rng),
        )
    )


async def _delivered(checks: Checks, rng: np.random.Generator) -> None:
    async with analyzer(rng) as core:
        await _spoilt(checks, core, rng)
        await _one_sentinel(checks, core, rng)
        await _sampled_sentinels(checks, core, rng)


async def _spoilt(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Of so few users one report may be refused, and two may not."""
    batch = await SmallBatch.of(core, small_task(), rng)
    await core.take(batch.manifest, _with_garbage(batch, 1, rng))
    result = await _result(core, batch)
    checks.must("a batch with as many refused reports as may be is released", result is not None)
    batch = await SmallBatch.of(core, small_task(), rng)
    await core.take(batch.manifest, _with_garbage(batch, 2, rng))
    checks.must(
        "a batch with one refused report more than may be is not released",
        await _result(core, batch) is None,
    )
    digest = batch.manifest.task_digest
    other = manifest_of(digest, USERS, USERS, rng.bytes(BATCH_ID_BYTES))
    checks.must(
        "the task of a batch that was held back takes no other",
        await refused(core.take(other, batch.reports), BatchConflictError),
    )


def _with_garbage(batch: SmallBatch, count: int, rng: np.random.Generator) -> Sequence[bytes]:
    garbage = [rng.bytes(len(report)) for report in batch.reports[:count]]
    return [*garbage, *batch.reports[count:]]


async def _result(core: AnalyzerCore, batch: SmallBatch) -> Any:  # noqa: ANN401  # a Result or None
    try:
        return await core.result(batch.manifest.task_digest)
    except UnusableBatchError:
        return None


async def _one_sentinel(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """The shuffler acknowledged one sentinel, and delivers something else in its place."""
    batch = await SmallBatch.of(core, small_task(), rng, 2 * USERS)
    lost = leaf(rng.bytes(len(batch.reports[0])))
    await core.sentinels.register(batch.manifest.task_digest, [lost], acknowledged=True)
    await batch.deliver(core)
    checks.must(
        "a batch is not released that lacks its only sentinel", await _result(core, batch) is None
    )


async def _sampled_sentinels(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """One of some sentinels is missing, as it may be where the shuffler samples."""
    task = dataclasses.replace(sample_task(**_SAMPLED), n_min=USERS, target_size=10 * USERS)
    batch = await SmallBatch.of(core, task, rng, 5 * USERS + _FEW_SENTINELS)
    leaves = [leaf(report) for report in batch.reports[:_FEW_SENTINELS]]
    await core.sentinels.register(batch.manifest.task_digest, leaves, acknowledged=True)
    fewer = dataclasses.replace(batch.manifest, n_reports=batch.manifest.n_reports - 1)
    await core.take(fewer, batch.reports[1:])
    result = await _result(core, batch)
    checks.must("a batch is released that lacks a sentinel by chance", result is not None)
    checks.must(
        "its result says how many sentinels are missing",
        result is not None
        and (result.n_sentinels, result.n_sentinels_missing) == (_FEW_SENTINELS, 1),
    )


def _concluded(rng: np.random.Generator) -> Finding:
    checks = Checks()
    for fields in _MIXED:
        _check_mixture(checks, sample_task(**fields))
    for fields in _REFINED:
        _check_refined(checks, sample_task(**fields), rng)
    return checks.finding(
        scenario=_SCENARIO,
        title="What refused reports are taken for, and how a result is refined",
        heading="correctness",
        sentence=(
            "Users whose reports were refused were not counted among those whose reports are "
            "there, beside dummies of users and of the shuffler alike; and every result was "
            "refined in its own task's way."
        ),
        subject="small tasks",
        trials=_PEOPLE,
    )


def _check_mixture(checks: Checks, task: Task) -> None:
    """Work out how many users are left, in exact fractions."""
    name, n_refused = task.protocol, sum(_REFUSED.values())
    padding = _PADDING if task.dummies.maximum > task.dummies.per_user else 0
    counted = _PEOPLE * task.reports_per_user - n_refused - padding
    mixture = mixture_of(task, _PEOPLE, counted=counted, padding=padding, refused=n_refused)
    if task.shuffler.idle:  # of users' own reports as large a share is left as of all
        accepted = counted + padding
        left = min(_PEOPLE * Fraction(accepted, accepted + n_refused), Fraction(counted))
        others = float(counted - left)
        stated = mixture.n_dummies + mixture.item_mean * task.domain_size
        checks.must(f"{name}: what is no user's own is a dummy", math.isclose(stated, others))
    else:  # all that was refused is users', of whom the shuffler kept a part
        left = _PEOPLE - n_refused / Fraction(task.shuffler.kept)
    checks.must(
        f"{name}: users whose reports were refused are not among those left",
        math.isclose(mixture.n_real, float(left)),
    )


def _check_refined(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Conclude from some reports, and refine them once more."""
    mechanism = mechanism_of(task)
    values = np.minimum(rng.integers(0, task.domain_size, _PEOPLE), 2)
    cells = mechanism.tally(mechanism.randomize(values, rng))
    intake = Intake(cells=cells, counted=_PEOPLE, null=0, refused=dict.fromkeys(_REFUSED, 0))
    result = conclude(manifest_of(_DIGEST, _PEOPLE, _PEOPLE), task, mechanism, intake)
    evidence = gather(mechanism, cells, mixture_of(task, _PEOPLE, counted=_PEOPLE))
    checks.must(
        f"{task.protocol}: a result is refined by {task.refinement}, as its task says",
        is_right(task.refinement, evidence, result.histogram.refined),
    )
