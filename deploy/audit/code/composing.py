"""Whether several rounds, and several claims, cost what they do together."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from common.accounting.amplification import delta_upper
from common.accounting.anonymity_set import Crowd
from common.accounting.composition import composed_claims, composed_epsilon
from common.accounting.releases import CrowdRelease, LocalRelease
from common.mechanisms.reduction import MatchCountReduction
from deploy.audit.checks import Checks
from deploy.audit.code.second_accountant import formula_1

_DELTA: Final = 1e-6
_ROUNDS_CLOSE: Final = 1e-3
_CLOSE: Final = 0.02
"""How much more than need be is let pass."""
_HALVINGS: Final = 60
_ROUNDING: Final = 1e-9
_CLAIMS: Final = (
    (((0.1, 4e-5),) * 3, 1e-4),
    (((0.1, 6e-5),) * 2, 1e-4),
    (((0.5, 1e-7), (0.3, 2e-7), (0.4, 0.0)), 1e-6),
    (((0.5, 1e-2),) * 8, 0.1),
)
"""Claims of ε at δ, and the δ of all together."""
_CROWDS: Final = {40: 1.6, 800: 0.6}
"""Users, and an ε that is far out among so many."""
_LAID_OUT: Final = 3e-2
"""What bins and cells may cost, as they do where rounds are composed."""


def check_composing(checks: Checks) -> None:
    """Compare rounds and claims with what is summed or listed here."""
    _check_rounds(checks)
    _check_claims(checks)
    _check_curves(checks)


def _check_rounds(checks: Checks) -> None:
    """Different rounds compose to more than the dearest of them, and lie between equal ones."""
    dear, cheap = LocalRelease(local_epsilon=0.5), LocalRelease(local_epsilon=0.4)
    both = composed_epsilon([dear, cheap], _DELTA)
    least, most = (composed_epsilon([each] * 2, _DELTA) for each in (cheap, dear))
    checks.must(
        "two different rounds cost what lies between two of either",
        least <= both * (1 + _ROUNDS_CLOSE) <= most * (1 + _ROUNDS_CLOSE) ** 2,
    )
    checks.must("and more than the dearest alone", both > dear.local_epsilon)
    three = (0.5, 0.4, 0.3)
    composed = composed_epsilon([LocalRelease(local_epsilon=each) for each in three], _DELTA)
    exact = _epsilon_of_answers(three, _DELTA)
    checks.must("three different rounds cost no less than they do", composed >= exact)
    checks.must("and hardly more than they do", composed <= exact * (1 + _CLOSE))


def _check_claims(checks: Checks) -> None:
    """Of claims of ε at δ, the worst pairs of laws: their δ are chances that all is revealed."""
    for claims, delta in _CLAIMS:
        revealed = 1 - math.prod(1 - one for _, one in claims)
        exact = _epsilon_of_answers([epsilon for epsilon, _ in claims], delta, revealed)
        composed = composed_claims(claims, delta)
        checks.must(
            "several claims cost no less than their worst laws do", composed >= exact - _ROUNDING
        )
        checks.must(
            "and hardly more than these", composed <= exact * (1 + _CLOSE) or math.isinf(exact)
        )


def _check_curves(checks: Checks) -> None:
    """What rounds are composed of is nowhere below formula 1, summed over every number."""
    for users, largest in _CROWDS.items():
        for hashed in (True, False):
            reduction = MatchCountReduction.for_epsilon(answers=9, local_epsilon=2.0, hashed=hashed)
            crowd = Crowd(users=users, dummies=users // 3)
            points = [share * largest for share in (0.25, 0.5, 1.0)]
            checks.must(
                "nor is the δ of a batch below formula 1",
                delta_upper(reduction, crowd, points[1])
                >= formula_1(reduction, crowd, points[1], exhaustive=True) * (1 - _ROUNDING),
            )
            curve = CrowdRelease(reduction=reduction, crowd=crowd).curve(points[:2], _LAID_OUT)
            for epsilon in points:
                exact = formula_1(reduction, crowd, epsilon, exhaustive=True)
                checks.must(
                    "the curve of a round is nowhere below formula 1",
                    curve(epsilon) >= exact * (1 - _ROUNDING),
                )


def _epsilon_of_answers(epsilons: Sequence[float], delta: float, revealed: float = 0.0) -> float:
    """
    Give ε at δ of several answers to a question of yes or no, each by randomized response.

    With a chance of `revealed` one of them is the truth, and marked as such; infinite where that
    alone is more than δ.
    """
    if revealed > delta:
        return math.inf
    worlds = [np.ones(1), np.ones(1)]
    for epsilon in epsilons:
        truth = 1 / (1 + math.exp(-epsilon))
        answers = (np.array([truth, 1 - truth]), np.array([1 - truth, truth]))
        worlds = [np.outer(law, one).ravel() for law, one in zip(worlds, answers, strict=True)]
    low, high = 0.0, sum(epsilons)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rest = float(np.maximum(worlds[0] - math.exp(middle) * worlds[1], 0).sum())
        left = revealed + (1 - revealed) * rest
        low, high = (middle, high) if left > delta else (low, middle)
    return low
