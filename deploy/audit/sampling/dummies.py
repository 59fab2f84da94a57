"""Whether numbers of dummies, and the shuffler's draws, have the distributions of the task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

from common.mechanisms.base import Mechanism, Reports, Vector
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from deploy.audit.checks import Checks
from deploy.audit.finding import Findings
from deploy.audit.laws.dummy_laws import law_of_added, law_of_extra
from deploy.audit.statistics import p_binomial, p_cells
from deploy.audit.subject import AuditSubject
from shuffler.dummies import draw_item_dummies, draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

_SLOW: Final = 20
"""Factor by which fewer users are drawn where each is drawn alone."""
_BATCH: Final = 100
"""Reports of a small batch."""
_BATCHES: Final = 4_000
_ITEMS: Final = 4
_LEAST_CHANCE: Final = 1e-18
"""Probability that Fourier transforms do not tell from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """The functions by which devices and the shuffler draw dummies."""

    counts: Callable[[DummySpec, int, np.random.Generator], NDArray[np.int64]]
    named: Callable[[Mechanism, DummySpec, np.random.Generator], Reports]
    added: Callable[[ShufflerSpec, int, np.random.Generator], NDArray[np.int64]]


DEPLOYED: Final = Draws(counts=draw_dummy_counts, named=draw_dummies, added=draw_item_dummies)
SAVING: Final = Draws(
    counts=lambda law, n, rng: np.maximum(draw_dummy_counts(law, n, rng) - 1, 0),
    named=lambda mechanism, law, rng: draw_dummies(mechanism, law, rng)[1:],
    added=lambda law, n, rng: np.maximum(draw_item_dummies(law, n, rng) - 1, 0),
)
"""Devices and a shuffler that leave out one of the dummies that they drew."""


def run_draws(subject: AuditSubject, rng: np.random.Generator, draws: Draws = DEPLOYED) -> Findings:
    """Test the draws of the audited task; nothing where it has neither dummies nor sampling."""
    checks, number, task = Checks(), subject.sizes.reports // 2, subject.task
    if not task.dummies.maximum and task.shuffler.idle:
        return Findings(findings=())
    if task.dummies.uniform:
        _check_numbers(checks, task.dummies, draws.counts(task.dummies, number, rng))
    elif task.dummies.maximum:
        drawn = [draws.named(subject.mechanism, task.dummies, rng) for _ in range(number // _SLOW)]
        _check_named(checks, subject.mechanism, task.dummies, drawn)
    if not task.shuffler.idle:
        _check_kept(checks, task.shuffler, number, rng)
        if task.shuffler.law != "none":
            _check_added(checks, task.shuffler, draws, number, rng)
    finding = checks.finding(
        scenario="draws",
        title="Numbers of dummies, and the shuffler's draws, have their distributions",
        heading="correctness",
        sentence="Devices add as many dummies, and the shuffler drops and adds as many reports, as "
        "the guarantees count on.",
        trials=number,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )
    return Findings(findings=(finding,))


def _check_numbers(checks: Checks, law: DummySpec, counts: NDArray[np.int64]) -> None:
    extra, chances = counts - law.per_user, law_of_extra(law)
    inside = bool(((extra >= 0) & (extra < len(chances))).all())
    checks.must(f"{law.law} dummies within their range", inside)
    if inside and len(chances) > 1:
        checks.test(
            f"{law.law} dummies", p_cells(np.bincount(extra, minlength=len(chances)), chances)
        )


def _check_named(
    checks: Checks, mechanism: Mechanism, law: DummySpec, drawn: list[Reports]
) -> None:
    """Test dummies that name items: how many, which, and none twice."""
    numbers = np.bincount([len(one) for one in drawn], minlength=law.trials + 1)
    chances = np.append(law_of_extra(law), np.zeros(law.trials - law.most))
    checks.test("dummies that name items", p_cells(numbers, chances))
    named = mechanism.tally(np.concatenate(drawn))
    checks.test("which items dummies name", p_cells(named, np.ones(len(named))))
    once = all(mechanism.tally(one).max() <= 1 for one in drawn if len(one))
    checks.must("each item once at most", once)


def _check_kept(checks: Checks, law: ShufflerSpec, number: int, rng: np.random.Generator) -> None:
    kept = int(draw_kept(law, number, rng).sum())
    checks.test("reports that the shuffler keeps", p_binomial(kept, number, law.kept))
    batches = np.array([draw_kept(law, _BATCH, rng).sum() for _ in range(_BATCHES)])
    binomial = stats.binom.pmf(np.arange(_BATCH + 1), _BATCH, law.kept)
    seen = np.bincount(batches, minlength=_BATCH + 1)
    checks.test("how many of a small batch are kept", p_cells(seen, binomial))


def _check_added(
    checks: Checks, law: ShufflerSpec, draws: Draws, number: int, rng: np.random.Generator
) -> None:
    """Test how many dummies the shuffler adds of an item, and that items are independent."""
    numbers = draws.added(law, number, rng)
    inside = int(numbers.max()) <= law.most
    checks.must("the shuffler's dummies within their range", inside)
    if not inside:
        return
    chances = law_of_added(law)
    few = np.array([draws.added(law, _ITEMS, rng).sum() for _ in range(_BATCHES)])
    pairs = numbers[: number // 2 * 2].reshape(-1, 2).sum(axis=1)
    for items, sums in ((1, numbers), (2, pairs), (_ITEMS, few)):
        seen = np.bincount(sums, minlength=items * law.most + 1)
        name = f"the shuffler's {law.law} dummies, sums of {items}"
        checks.test(name, p_cells(seen, _distribution_of_sum(chances, items)))


def _distribution_of_sum(chances: Vector, items: int) -> Vector:
    """Return the distribution of a sum of independent numbers, by Fourier transforms."""
    if items == 1:
        return chances
    size = items * (len(chances) - 1) + 1
    sums: Vector = fft.irfft(fft.rfft(chances, size) ** items, size)
    return np.maximum(sums, _LEAST_CHANCE)
