"""The tests' second accountant, a plain sum, against known figures and its exhaustive form."""

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.mechanisms.reduction import MatchCountReduction
from tests.support.second_accountant import formula_1


@pytest.mark.parametrize(
    ("n", "local_epsilon", "buckets", "epsilon"),
    [
        (10_000, 0.5, 3, 0.01222),
        (10_000, 1.0, 4, 0.02935),
        (10_000, 4.0, 56, 0.27848),
        (602_325, 2.0, 8, 0.0086937),
        (602_325, 8.0, 2982, 0.27238),
    ],
)
def test_formula_1_gives_the_known_figures(
    n: int, local_epsilon: float, buckets: int, epsilon: float
) -> None:
    """Central ε at δ = 1e-6 of shuffled hashing."""
    reduction = MatchCountReduction.for_epsilon(
        answers=buckets, local_epsilon=local_epsilon, hashed=True
    )

    assert formula_1(reduction, AnonymitySet(users=n), epsilon) == pytest.approx(1e-6, rel=0.02)


@pytest.mark.parametrize("n", [40, 100, 150, 400, 1000])
@pytest.mark.parametrize(("buckets", "hashed"), [(5, False), (17, True)])
def test_formula_1_sums_far_tails(n: int, buckets: int, hashed: bool) -> None:  # noqa: FBT001  # of the table
    """A grid of nearest points would double them."""
    reduction = MatchCountReduction.for_epsilon(answers=buckets, local_epsilon=4.0, hashed=hashed)
    crowd = AnonymitySet(users=n)
    epsilon = 0.98 * epsilon_upper(reduction, crowd, 1e-9)

    exact = formula_1(reduction, crowd, epsilon, exhaustive=True)
    assert formula_1(reduction, crowd, epsilon) == pytest.approx(exact, rel=0.01)
