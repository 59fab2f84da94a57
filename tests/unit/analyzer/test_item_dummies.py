"""Batches in which each item has dummies of its own: what is taken in, and what is concluded."""

import dataclasses
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from analyzer.finalize import build_result, mixture_of
from analyzer.intake import Intake
from common.crypto.hpke import report_context
from common.errors import WireError
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest
from common.messages.submission import plain_reports
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, KEEP_SUM, RATIO_SUM, DummySpec, ShufflerSpec
from deploy.audit.harness.analyzer_core import chunks_of
from deploy.simulate.collection import count
from tests.support.analyzer_core import AnalyzerCore
from tests.support.tasks import PublishedTask, published

_PLAIN: Final[dict[str, Any]] = {
    "local_epsilon": math.inf,
    "dummies_per_user": 0,
    "buckets": 0,
    "domain_size": 5,
    "delta": 1e-2,
}
_COINS: Final = ShufflerSpec(law="binomial", trials=60, most=60)
_SAMPLED: Final = dataclasses.replace(_COINS, keep_weight=KEEP_SUM // 2)
_FLANKS: Final = ShufflerSpec(
    law="geometric", peak=12, left_weight=RATIO_SUM * 3 // 4, right_weight=RATIO_SUM // 2, most=60
)
_EACH: Final = DummySpec(
    law="each-item",
    per_user=0,
    trials=5,
    extra_weight=EXTRA_WEIGHT_SUM // 4,
    most=5,
)
_CASES: Final = {
    "sbin": published(protocol="sbin", shuffler=_COINS, n_min=3, target_size=5, **_PLAIN),
    "sbin, sampled": published(
        protocol="sbin", shuffler=_SAMPLED, n_min=3, target_size=5, **_PLAIN
    ),
    "sageo": published(protocol="sageo", shuffler=_FLANKS, n_min=3, target_size=5, **_PLAIN),
    "aue": published(protocol="aue", dummies=_EACH, n_min=100, target_size=100, **_PLAIN),
}
_BATCHES: Final = 250
_USERS: Final = np.array([60, 30, 0, 9, 1])


def _manifest(case: PublishedTask, n_reports: int, *, users: int = 100) -> BatchManifest:
    return BatchManifest(
        task_digest=case.signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=users,
        n_reports=n_reports,
    )


@pytest.mark.parametrize("lost", [0.0, 0.2], ids=["nothing lost", "a fifth lost"])
@pytest.mark.parametrize("name", _CASES)
def test_estimates_are_unbiased_with_the_stated_error(name: str, lost: float) -> None:
    """
    250 batches of a hundred users: the mean within nine standard errors of the truth, and the
    stated error within a factor of two of the real one.

    Lost reports are unreadable, users' own and their dummies alike; the shuffler's dummies never
    are. Seed 1; Student's t with 249 degrees of freedom exceeds nine with probability 1e-16, and
    1000 squares or more exceed the factor with probability below 1e-7.
    """
    case, rng = _CASES[name], np.random.default_rng(1)
    task, mechanism = case.task, mechanism_of(case.task)
    truth, estimates, stated = _USERS / 100, [], []
    for _ in range(_BATCHES):
        kept_null = 0
        if task.shuffler.idle:
            counted = count(task, mechanism, _USERS, rng, one_by_one=True)
            cells = rng.binomial(counted.cells, 1 - lost)
            null = 100 * task.reports_per_user - counted.n_reports
            kept_null = int(rng.binomial(null, 1 - lost))
            total = counted.n_reports + null
            refused = total - int(cells.sum()) - kept_null
        else:
            readable = rng.binomial(_USERS, 1 - lost)
            cells = count(task, mechanism, readable, rng, one_by_one=True).cells
            refused = int(rng.binomial(100 - readable.sum(), task.shuffler.kept))
            total = int(cells.sum()) + refused
        intake = Intake(
            cells=cells,
            counted=int(cells.sum()),
            null=kept_null,
            refused={"repeated": 0, "unreadable": refused, "malformed": 0},
        )
        histogram = build_result(_manifest(case, total), task, mechanism, intake).histogram
        estimates.append(histogram.frequencies)
        stated.append(histogram.mse_theory)
    errors = np.array(estimates) - truth
    spread = errors.std(axis=0) / math.sqrt(_BATCHES)

    assert (np.abs(errors.mean(axis=0)) <= 9 * spread + 1e-12).all()
    if lost == 0:
        assert 0.5 < float(np.mean(stated) / (errors**2).mean()) < 2


@pytest.mark.parametrize(
    ("spec", "reports", "allowed"),
    [
        (_COINS, 3, False),
        (_COINS, 45, False),
        (_COINS, 46, True),
        (_COINS, 260, True),
        (_COINS, 261, False),
        (_SAMPLED, 43, False),
        (_SAMPLED, 150, True),
    ],
)
async def test_an_implausible_number_of_reports_is_refused(
    tmp_path: Path, spec: ShufflerSpec, reports: int, *, allowed: bool
) -> None:
    """Far from the 153 expected: dummies were lost or made twice."""
    analyzer = AnalyzerCore(tmp_path)
    await analyzer.start()
    signed = await analyzer.publish(protocol="sbin", shuffler=spec, **_PLAIN)
    seal = analyzer.keys.reports.public_key().sealer(report_context(signed.digest()))
    sealed = [seal(each.tobytes()) for each in plain_reports(np.arange(reports) % 5)]
    manifest = dataclasses.replace(analyzer.manifest(3), n_reports=reports)
    with nullcontext() if allowed else pytest.raises(WireError, match="reports are announced"):
        await analyzer.releases.deliver(manifest, chunks_of(sealed))
        await analyzer.settle()
        assert reports == (await analyzer.result()).n_reports
    await analyzer.stop()


@pytest.mark.parametrize("items", [2, 3])
def test_the_stated_error_holds_for_few_items(items: int) -> None:
    """
    Their number in all is known, which tells half of what an item's is where there are two.

    4000 batches of a hundred users, seed 2: the ratio of variances has a standard deviation of
    about 2.5 %, and fails by chance beyond 15 % with probability below 1e-8; without the factor
    (1 - 1/items) it would be .5 or .67.
    """
    law = dataclasses.replace(_EACH, trials=items, most=items)
    plain = _PLAIN | {"domain_size": items}
    task = published(protocol="aue", dummies=law, n_min=100, target_size=100, **plain).task
    mechanism, rng = mechanism_of(task), np.random.default_rng(2)
    users = np.array([60, 40, 0][:items])
    errors = []
    for _ in range(4000):
        counted = count(task, mechanism, users, rng, one_by_one=False)
        mixture = mixture_of(task, 100, counted=counted.n_reports)
        errors.append(mechanism.debias(counted.cells, mixture) - users / 100)
    stated = float(mechanism.variance(users / 100, mixture).mean())

    assert 0.85 < float(np.mean(np.square(errors))) / stated < 1.15
