"""Whether shares are estimated without bias, as precisely as they say, and refined by the rule."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from analyzer.estimation.histogram import estimate, gather
from analyzer.finalize import mixture_of
from common.mechanisms.base import Counts, Mechanism, Mixture, Vector
from common.mechanisms.registry import mechanism_of
from common.mechanisms.support import SupportCounting
from common.messages.estimate import Histogram, interval_reach
from common.protocols import Refinement
from common.task.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.laws import refinements
from deploy.audit.laws.panel import panel
from deploy.audit.laws.share_law import law_of_share
from deploy.simulate.collection import count

_USERS: Final = 2_000_000
_FEW_USERS: Final = 5_000
"""Of collections that are made many times, and in which noise is larger than most shares."""
_COLLECTIONS: Final = 64
"""Enough to tell a standard error from one that is half or twice as large."""
_HELD: Final = 0.7
"""Share of the users who hold the first value; the others hold the last."""
_POWER_LAW_TASKS: Final = 2
"""Tasks on which the refinement by a power law is tried, which takes long to do plainly."""
_SURE: Final = 0.95
_LOOSE: Final = 1.2
"""Of squared standard errors on average: they follow from shares that were estimated."""
_LOOSER: Final = 1.5
"""Of a square wave's: they follow from shares that are cut at 0 and scaled first, and are a tenth
too small for a value that most of a few thousand people hold."""
_MANY_STATES: Final = 16
"""Items of a domain of which each is held by a share of its own, and each is looked at."""
_LEAST_STEPS: Final = 7.0
"""A count that varies by less than so many reports is of too few for what is tested: some 50."""
_MOST_ITEMS: Final = 2000
"""Of an audited task whose refinement is worked out once more."""
_WAYS: Final[tuple[Refinement, ...]] = (
    "norm-sub",
    "norm-mul",
    "norm-cut",
    "base-cut",
    "em",
    "ems",
    "power-ns",
)
"""Of refining; the one by a power law last."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """One collection."""

    truth: Vector
    """Share of the users who hold each item."""
    cells: Counts
    mixture: Mixture
    """What the counted reports are taken for."""


_LEAST_REAL: Final = 0.05
"""Share of users' own reports below which EM's stop comes long before the top of the likelihood."""


def play_estimates(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Collect from many users by the deployed code, without sealing, and compare with the truth."""
    right, precise, refined = Checks(), Checks(), Checks()
    precise.must(
        "intervals reach as far as the normal law says",
        all(
            math.isclose(2 * stats.norm.sf(interval_reach(sure)), 1 - sure, rel_tol=1e-9)
            for sure in (0.5, 0.95, 0.999)
        ),
    )
    for number, task in enumerate((*panel(), audited.task)):
        drawn = _drawn(task, mechanism_of(task), _USERS, rng)
        _check_shares(right, task, drawn)
        _check_every_item(right, task, rng)
        _check_errors(precise, task, rng)
        ways = _WAYS if number < _POWER_LAW_TASKS else _WAYS[:-1]
        if task is audited.task:
            ways = (task.refinement,) if task.domain_size <= _MOST_ITEMS else ()
        few = _drawn(task, mechanism_of(task), _FEW_USERS, rng)
        for one in (drawn, few):
            _check_refined(refined, task, one, ways)
    advice = "Believe no histogram of this version."
    return Outcome(
        findings=(
            right.finding(
                scenario="estimates",
                title="Shares are estimated without bias",
                heading="correctness",
                sentence="What the analyzer publishes is right on average, for a value that many "
                "people hold, one that some hold and one that nobody holds.",
                trials=_USERS,
                advice=advice,
            ),
            precise.finding(
                scenario="estimates",
                title="Shares are as precise as they say",
                heading="correctness",
                sentence=f"Over {_COLLECTIONS} small collections of each kind shares were off by "
                "as much as follows from their law, and so were the standard errors; intervals "
                "reach as far on both sides as the normal law says.",
                trials=_COLLECTIONS,
                advice=advice,
            ),
            refined.finding(
                scenario="estimates",
                title="Refined shares follow their rule",
                heading="correctness",
                sentence="Each way of refining gave what a plain computation of its rule gives; "
                "where a likelihood is climbed, one more step from there gained nothing, and many "
                "plain steps reached no more.",
                trials=len(panel()),
                advice=advice,
            ),
        )
    )


def _drawn(task: Task, mechanism: Mechanism, n_users: int, rng: np.random.Generator) -> _Drawn:
    users = np.zeros(task.domain_size, dtype=np.int64)
    users[0] = int(_HELD * n_users)
    users[-1] = n_users - users[0]
    counted = count(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, n_users, counted=counted.n_reports)
    return _Drawn(truth=users / n_users, cells=counted.cells, mixture=mixture)


def _items(task: Task) -> dict[str, int]:
    items = {"a common value": 0, "a rarer value": task.domain_size - 1}
    # Of a value that nobody holds geometric noise is all, and no sum of many small parts.
    if task.domain_size > 2 and task.shuffler.law != "geometric":  # noqa: PLR2004  # two values, and others
        items["a value that nobody holds"] = task.domain_size // 2
    return items


def _check_shares(checks: Checks, task: Task, drawn: _Drawn) -> None:
    shares = mechanism_of(task).debias(drawn.cells, drawn.mixture)
    for name, item in _items(task).items():
        law = law_of_share(task, item, drawn.truth, drawn.mixture)
        p_value = fit.of_sum(float(shares[item]), float(drawn.truth[item]), law.deviation, law.step)
        checks.test(f"{task.mechanism.name}: {name}", p_value)


def _check_every_item(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Compare every item's share with the truth, where each is held by a share of its own."""
    size, mechanism = task.domain_size, mechanism_of(task)
    if size > _MANY_STATES:
        return
    users = np.arange(1, size + 1, dtype=np.int64) * (2 * _USERS // (size * (size + 1)))
    n_users = int(users.sum())
    counted = count(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, n_users, counted=counted.n_reports)
    shares, truth = mechanism.debias(counted.cells, mixture), users / n_users
    for item in range(size):
        law = law_of_share(task, item, truth, mixture)
        p_value = fit.of_sum(float(shares[item]), float(truth[item]), law.deviation, law.step)
        checks.test(f"{task.mechanism.name}: every item by its own share", p_value)


def _check_errors(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Compare how far shares are off, and what is stated of their errors, with their law."""
    mechanism, items, name = mechanism_of(task), _items(task), task.mechanism.name
    off: dict[str, list[float]] = {item: [] for item in items}
    stated: dict[str, list[float]] = {item: [] for item in items}
    for _ in range(_COLLECTIONS):
        drawn = _drawn(task, mechanism, _FEW_USERS, rng)
        evidence = gather(mechanism, drawn.cells, drawn.mixture)
        for what, item in items.items():
            law = law_of_share(task, item, drawn.truth, drawn.mixture)
            if law.deviation < _LEAST_STEPS * law.step:
                continue  # of so few reports that no error says much of them
            wrong = float(evidence.shares[item] - drawn.truth[item])
            off[what].append(wrong / law.deviation)
            stated[what].append(float(evidence.standard_errors[item]) / law.deviation)
    for what in items:
        if off[what]:
            checks.test(f"{name}: the errors of {what}", fit.of_squares(off[what]))
            mean = float(np.mean(np.square(stated[what])))
            loose = _LOOSE if isinstance(mechanism, SupportCounting) else _LOOSER
            checks.must(
                f"{name}: the standard errors of {what} are those of their law",
                1 / loose < mean < loose,
            )
    histogram = estimate(mechanism, drawn.cells, drawn.mixture, "norm-sub")
    checks.must(
        f"{name}: shares and errors are published as they are estimated",
        states_its_errors(histogram, mechanism, drawn.cells, drawn.mixture),
    )


def states_its_errors(
    histogram: Histogram, mechanism: Mechanism, cells: Counts, mixture: Mixture
) -> bool:
    """Say whether a histogram has the shares, errors and mean error that follow from its counts."""
    shares = mechanism.debias(cells, mixture)
    variances = mechanism.variance(np.minimum(np.maximum(shares, 0), 1), mixture)
    mean = float(np.mean(mechanism.variance(histogram.refined, mixture)))
    low, high = histogram.interval(_SURE)
    reach = stats.norm.isf((1 - _SURE) / 2) * np.sqrt(variances)
    return (
        np.array_equal(histogram.frequencies, shares)
        and bool(np.allclose(shares - low, reach) and np.allclose(high - shares, reach))
        and bool(np.allclose(histogram.standard_errors**2, variances, rtol=1e-9))
        and bool(np.isclose(histogram.mse_theory, mean, rtol=1e-9))
    )


def _check_refined(checks: Checks, task: Task, drawn: _Drawn, ways: tuple[Refinement, ...]) -> None:
    """Refine a collection in every way that a task of its mechanism can have."""
    mechanism = mechanism_of(task)
    evidence = gather(mechanism, drawn.cells, drawn.mixture)
    for way in ways:
        slow = drawn.mixture.real_share(task.domain_size) < _LEAST_REAL
        if way in {"em", "ems"} and (evidence.channel is None or slow):
            continue
        refined = estimate(mechanism, drawn.cells, drawn.mixture, way).refined
        checks.must(
            f"{task.mechanism.name}: shares refined by {way} follow its rule",
            refinements.is_right(way, evidence, refined),
        )
