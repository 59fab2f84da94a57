"""
The accountant, against its smallest step: evaluations of the incomplete beta function.

An ε needs some ten δ, a δ some thousand to hundred thousand binomial tails.
"""

import itertools
from typing import Final

import numpy as np
import pytest
from scipy import special

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.composition import composed_epsilon
from common.accounting.count_distributions import NegativeBinomial
from common.accounting.reference.attack import epsilon_lower
from common.accounting.releases import AmplifiedRelease
from common.mechanisms.reduction import MatchCountReduction
from tests.benchmarks.conftest import Best, Line, best_of

_TAILS: Final = 100_000
_RANDOM: Final = AnonymitySet(users=10**5, random_dummies=NegativeBinomial(1e5, 3e5))
_LARGE: Final = AnonymitySet(users=10**9, dummies=10**9)
_CASES: Final = (
    ("hashing, 10^6 users", True, 64, 4.0, AnonymitySet(users=10**6), 1e-6),
    ("GRR, 10^4 users, delta 1e-12", False, 16, 3.0, AnonymitySet(users=10**4), 1e-12),
    ("GRR, 10^9 users, 10^9 dummies", False, 915, 8.0, _LARGE, 1e-9),
    ("hashing, negative binomial dummies", True, 64, 6.0, _RANDOM, 1e-6),
)
_HASHED: Final = MatchCountReduction.for_epsilon(answers=64, local_epsilon=4.0, hashed=True)
_MILLION: Final = AnonymitySet(users=10**6)


@pytest.mark.parametrize(
    ("name", "hashed", "answers", "local_epsilon", "anonymity_set", "delta"),
    _CASES,
    ids=lambda _: "",
)
def test_accounting(  # noqa: PLR0917  # a row of the table
    name: str,
    hashed: bool,  # noqa: FBT001
    answers: int,
    local_epsilon: float,
    anonymity_set: AnonymitySet,
    delta: float,
    best: Best,
    line: Line,
) -> None:
    """Measure ε(δ) and δ(ε) without caches."""
    tails = np.random.default_rng(1).integers(7000, 9000, _TAILS).astype(np.float64)
    tail = best_of(3, lambda: special.betainc(tails, 500_000 - tails, 1 / 64)) / _TAILS
    reduction = MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashed
    )
    epsilon = epsilon_upper(reduction, anonymity_set, delta)
    others = (delta * (1 + number * 1e-9) for number in itertools.count(1))
    found = best(3, lambda: epsilon_upper(reduction, anonymity_set, next(others)))
    single = best_of(3, lambda: delta_upper(reduction, anonymity_set, epsilon))
    steps = round(found / tail)
    figures = {"epsilon_s": found, "delta_s": single, "epsilon_in_tails": steps}
    line(f"accounting: {name}", epsilon=epsilon, **figures)


def test_attack(best: Best, line: Line) -> None:
    """Measure the attack's lower bound."""
    seconds = best(1, lambda: epsilon_lower(_HASHED, _MILLION, 1e-6))
    line("accounting: the attack, hashing, 10^6 users", seconds=seconds)


def test_composition(best: Best, line: Line) -> None:
    """Compose a hundred rounds, for the first time and again."""
    rounds = [AmplifiedRelease(reduction=_HASHED, anonymity_set=_MILLION)] * 100
    cold = best(1, lambda: composed_epsilon(rounds, 1e-6))
    warm = best_of(3, lambda: composed_epsilon(rounds, 1e-6))
    line("accounting: 100 rounds, first time", seconds=cold, over_again=cold / warm)
