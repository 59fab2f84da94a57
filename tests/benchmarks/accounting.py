"""
The accountant, against what it is made of: evaluations of the incomplete beta function.

An ε needs some ten δ, a δ some thousand to hundred thousand binomial tails. Run as
`python -m tests.benchmarks.accounting`.
"""

import itertools

import numpy as np
from scipy import special

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import Crowd
from common.accounting.composition import composed_epsilon
from common.accounting.count_distributions import NegativeBinomial
from common.accounting.reference.attack import epsilon_lower
from common.accounting.releases import CrowdRelease
from common.mechanisms.reduction import MatchCountReduction
from tests.benchmarks.measure import best_of, line

_TAILS = 100_000
_RUNS = 3
_CASES = (
    ("hashing, 10^6 users, 10^7 dummies", True, 64, 4.0, Crowd(users=10**6, dummies=10**7), 1e-6),
    ("hashing, 10^6 users", True, 64, 4.0, Crowd(users=10**6), 1e-6),
    ("GRR, 10^4 users, delta 1e-12", False, 16, 3.0, Crowd(users=10**4), 1e-12),
    ("GRR, 10^9 users, 10^9 dummies", False, 915, 8.0, Crowd(users=10**9, dummies=10**9), 1e-9),
    (
        "hashing, negative binomial dummies",
        True,
        64,
        6.0,
        Crowd(users=10**5, random_dummies=NegativeBinomial(1e5, 3e5)),
        1e-6,
    ),
)


def main() -> None:
    """Measure ε(δ), δ(ε), the attack, and a composition, none of them remembered."""
    tails = np.random.default_rng(1).integers(7000, 9000, _TAILS).astype(np.float64)
    tail = best_of(_RUNS, lambda: special.betainc(tails, 500_000 - tails, 1 / 64)) / _TAILS
    for name, hashed, answers, local_epsilon, crowd, delta in _CASES:
        reduction = MatchCountReduction.for_epsilon(
            answers=answers, local_epsilon=local_epsilon, hashed=hashed
        )
        epsilon = epsilon_upper(reduction, crowd, delta)
        others = (delta * (1 + number * 1e-9) for number in itertools.count(1))
        found = best_of(_RUNS, lambda r=reduction, c=crowd, d=others: epsilon_upper(r, c, next(d)))  # type: ignore[misc]
        single = best_of(_RUNS, lambda r=reduction, c=crowd, e=epsilon: delta_upper(r, c, e))  # type: ignore[misc]
        line(
            f"accounting: {name}",
            epsilon=epsilon,
            epsilon_s=found,
            delta_s=single,
            epsilon_in_tails=round(found / tail),
        )
    reduction = MatchCountReduction.for_epsilon(answers=64, local_epsilon=4.0, hashed=True)
    crowd = Crowd(users=10**6)
    proof = best_of(1, lambda: epsilon_lower(reduction, crowd, 1e-6))
    line("accounting: the attack, hashing, 10^6 users", seconds=proof)
    release = CrowdRelease(reduction=reduction, crowd=crowd)
    cold = best_of(1, lambda: composed_epsilon([release] * 100, 1e-6))
    warm = best_of(_RUNS, lambda: composed_epsilon([release] * 100, 1e-6))
    line("accounting: 100 rounds, first time", seconds=cold, over_again=cold / warm)


if __name__ == "__main__":
    main()
