"""Whether shares are estimated without bias, as precisely as they say, and refined by the rule."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from analyzer.conclusion import mixture_of
from analyzer.estimation.histogram import estimate, gather
from common.mechanisms.catalogue import mechanism_of
from common.mechanisms.mechanism import Counts, Mechanism, Mixture, Vector
from common.protocols import Refinement
from common.result import Histogram
from common.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code import refinements
from deploy.audit.code.panel import panel
from deploy.audit.finding import Outcome
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
    for number, task in enumerate((*panel(), audited.task)):
        drawn = _drawn(task, mechanism_of(task), _USERS, rng)
        _check_shares(right, task, drawn)
        if number < len(panel()):
            _check_errors(precise, task, rng)
            ways = _WAYS if number < _POWER_LAW_TASKS else _WAYS[:-1]
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
                "about as much as the standard errors say: neither twice as much nor half.",
                trials=_COLLECTIONS,
                advice=advice,
            ),
            refined.finding(
                scenario="estimates",
                title="Refined shares follow their rule",
                heading="correctness",
                sentence="Each way of refining gave what a plain computation of its rule gives; "
                "where a likelihood is climbed, one more step from there gained nothing.",
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
    if task.domain_size > 2:  # noqa: PLR2004  # two values, and others
        items["a value that nobody holds"] = task.domain_size // 2
    return items


def _check_shares(checks: Checks, task: Task, drawn: _Drawn) -> None:
    mechanism, truth = mechanism_of(task), drawn.truth
    shares = mechanism.debias(drawn.cells, drawn.mixture)
    deviations = np.sqrt(mechanism.variance(truth, drawn.mixture))
    for name, item in _items(task).items():
        p_value = fit.of_normal(float(shares[item]), float(truth[item]), float(deviations[item]))
        checks.test(f"{task.mechanism.name}: {name}", p_value)


def _check_errors(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Compare how far shares are off with what is stated of their errors."""
    mechanism, items = mechanism_of(task), _items(task)
    if task.shuffler.law == "geometric":  # all that such a share is off by, which is not normal
        items.pop("a value that nobody holds")
    chosen, name = list(items.values()), task.mechanism.name
    squares = np.zeros(len(chosen))
    for _ in range(_COLLECTIONS):
        drawn = _drawn(task, mechanism, _FEW_USERS, rng)
        evidence = gather(mechanism, drawn.cells, drawn.mixture)
        off = evidence.shares - drawn.truth
        squares += (off[chosen] / evidence.standard_errors[chosen]) ** 2
    for item, total in zip(items, squares, strict=True):
        law = stats.chi2(_COLLECTIONS)
        checks.test(
            f"{name}: the standard errors of {item}",
            min(1.0, 2 * min(float(law.sf(total)), float(law.cdf(total)))),
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
    return (
        np.array_equal(histogram.frequencies, shares)
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
