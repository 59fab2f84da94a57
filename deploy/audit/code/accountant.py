"""
Whether the accountant is right: against the true δ of tiny batches, and against another program.

The true δ of a few users is found by listing every batch that can be seen. For as many users as a
task has, formula 1 is summed here as it is written, over a grid of the number of uniform messages;
slower and less exact than the accountant, and nothing of it is shared with it.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import stats

from common.accounting.amplification import delta_upper
from common.accounting.coalitions import central_epsilon, claimed_guarantee, guarantees
from common.accounting.crowd import Crowd
from common.mechanisms.reduction import MatchCountReduction
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.enumeration import Law, grr_law, hashing_law, true_delta, uniform_law
from deploy.audit.finding import Outcome

_TINY: Final = ((1, 0), (1, 2), (2, 1), (3, 0), (3, 1))
"""Users and dummies of batches that are listed."""
_TINY_LOCAL: Final = 2.0
_TINY_EPSILONS: Final = (0.2, 0.8, 1.5)
_LISTING_ERROR: Final = 1e-12
_GRID: Final = 41
_DEVIATIONS: Final = 8.0
_INNER: Final = 12.0
_CLOSE: Final = 0.02
"""Relative error that the grid may have in δ; and how much more ε than need be is let pass."""
_LARGEST: Final = 2_000_000
"""Counts that are summed one by one."""


def play_accountant(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Compare; nothing is drawn."""
    del rng
    checks = Checks()
    _check_tiny(checks)
    _check_task(checks, audited)
    _check_arrived(checks, audited)
    finding = checks.finding(
        scenario="accountant",
        title="The guarantees are computed rightly",
        heading="correctness",
        coalition="analyzer",
        sentence="The promised figures are never below the truth, which was listed for tiny "
        "batches and computed by another program for this task.",
        advice="Believe no figure of this version.",
    )
    return Outcome(findings=(finding,))


def _check_tiny(checks: Checks) -> None:
    items = 3
    grr = [grr_law(value, items, _TINY_LOCAL) for value in range(items)]
    hashed = [hashing_law(value, items, _TINY_LOCAL, range(items)) for value in range(items)]
    kinds: tuple[tuple[str, Sequence[Law], Law, bool], ...] = (
        ("randomized response", grr, uniform_law([(item,) for item in range(items)]), False),
        ("local hashing", hashed, uniform_law(list(hashed[0])), True),
    )
    for name, laws, dummy, is_hashed in kinds:
        reduction = MatchCountReduction.for_epsilon(
            answers=items, local_epsilon=_TINY_LOCAL, hashed=is_hashed
        )
        for users, dummies in _TINY:
            for epsilon in _TINY_EPSILONS:
                truth = true_delta(laws, users=users, dummies=dummies, dummy=dummy, epsilon=epsilon)
                claimed = delta_upper(reduction, Crowd(users=users, dummies=dummies), epsilon)
                checks.must(
                    f"{name}: no δ of a tiny batch is below the truth",
                    truth <= claimed + _LISTING_ERROR,
                )


def _check_task(checks: Checks, audited: Audited) -> None:
    """The δ at the claimed ε is no more than the task's, by the other program."""
    terms, reduction = audited.terms, audited.terms.reduction
    if reduction is None or not terms.shuffler.idle or not terms.dummies.uniform:
        return
    for honest in (audited.n_users, max(1, audited.n_users // 2), 30, 1):
        if honest > audited.n_users:
            continue
        crowd = terms.crowd_of(audited.n_users, honest, honest, 0)
        epsilon = central_epsilon(terms, crowd)
        if not 0 < epsilon < reduction.local_epsilon or math.isinf(epsilon):
            continue
        if not reduction.pairwise_independent and reduction.collision != 0:
            continue
        if crowd.random_dummies is not None:
            continue
        checks.must(
            "the ε of the task's batch is no less than by another program",
            formula_1(reduction, crowd, epsilon) <= terms.delta * (1 + _CLOSE),
        )
        checks.must(
            "and hardly more",
            formula_1(reduction, crowd, (1 - _CLOSE) * epsilon) > terms.delta * (1 - _CLOSE),
        )


def formula_1(reduction: MatchCountReduction, crowd: Crowd, epsilon: float) -> float:
    """
    Sum l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε-1)·q/(p-q))₊] over M = 1 + Bin(n_h, γ) + D.

    M runs over a grid that covers its law, each point with the probability of what is nearest.
    """
    mean = crowd.others * reduction.blanket
    deviation = math.sqrt(max(mean * (1 - reduction.blanket), 0.0))
    low = max(0, math.floor(mean - _DEVIATIONS * deviation))
    high = min(crowd.others, math.ceil(mean + _DEVIATIONS * deviation))
    points = np.unique(np.linspace(low, high, min(_GRID, high - low + 1)).round())
    edges = np.concatenate([[-0.5], (points[1:] + points[:-1]) / 2, [crowd.others + 0.5]])
    masses = np.diff(stats.binom.cdf(np.floor(edges), crowd.others, min(1.0, reduction.blanket)))
    sizes = 1 + crowd.dummies - crowd.known_dummies + points
    values = [_given(reduction, int(size), epsilon) for size in sizes]
    return float(masses @ np.array(values))


def _given(reduction: MatchCountReduction, size: int, epsilon: float) -> float:
    """Sum over H_x' within its reach; of H_x given it, the excess has a closed form."""
    l, growth = reduction.answers, math.exp(epsilon)  # noqa: E741  # as in the formula
    shift = size * (growth - 1) * reduction.blanket / l / reduction.signal
    reach = _INNER * math.sqrt(size / l) + _INNER
    low, high = max(0, math.floor(size / l - reach)), min(size, math.ceil(size / l + reach))
    counts = np.arange(low, high + 1)
    law = stats.binom.pmf(counts, size, 1 / l)
    trials = np.full(len(counts), size) if reduction.collision else size - counts
    chance = 1 / l if reduction.collision else 1 / (l - 1)
    limits = growth * counts + shift
    whole = np.floor(limits)
    # E[(X - t)₊] of a binomial X: the mean beyond t, less t times the chance of being beyond.
    beyond = stats.binom.sf(whole - 1, np.maximum(trials - 1, 0), chance)
    excess = trials * chance * beyond - limits * stats.binom.sf(whole, trials, chance)
    return float(l * reduction.signal / size * (law @ np.maximum(excess, 0.0)))


def _check_arrived(checks: Checks, audited: Audited) -> None:
    """Fewer users, or refused reports: the guarantee says less."""
    task, terms = audited.task, audited.terms
    if terms.reduction is None or not terms.shuffler.idle:
        return
    many, few = (
        claimed_guarantee(terms, n).epsilon for n in (audited.n_users, max(1, audited.n_users // 4))
    )
    checks.must("fewer users are promised less", few > many or math.isinf(many))
    refused = claimed_guarantee(terms, audited.n_users, audited.n_users // 4).epsilon
    checks.must("refused reports are taken off", refused > many or math.isinf(many))
    by_coalition: dict[str, float] = {}
    for guarantee in guarantees(task, audited.n_users, 0):
        before = by_coalition.get(guarantee.coalition, math.inf)
        by_coalition[guarantee.coalition] = min(before, guarantee.epsilon)
    checks.must(
        "shuffler and analyzer together learn no less than the analyzer",
        by_coalition["shuffler+analyzer"] >= by_coalition["analyzer"],
    )
    checks.must(
        "no more is ever promised than one's own noise",
        by_coalition["analyzer"] <= task.local_epsilon,
    )
