import math

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.clones import CloneReduction
from common.accounting.reference.variation_ratio import VariationRatio, variation_ratio
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.reduction import MatchCountReduction
from tests.support.exhaustive_delta import grr_law, true_delta


def _grr(items: int, local_epsilon: float) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(answers=items, local_epsilon=local_epsilon, hashed=False)


def _truth(items: int, local_epsilon: float, users: int, epsilon: float) -> float:
    laws = [grr_law(value, items, local_epsilon) for value in range(items)]
    return true_delta(laws, users=users, dummies=0, dummy=laws[0], epsilon=epsilon)


def test_the_published_reduction_is_below_the_true_delta() -> None:
    """GRR over 4 items, 8 users, ε0 = 1, ε = .8: a third of it; the certified figure is above."""
    pair, crowd = VariationRatio.of(_grr(4, 1.0)), AnonymitySet(users=8)
    truth = _truth(4, 1.0, 8, 0.8)

    assert truth == pytest.approx(7.231e-4, rel=1e-3)
    assert pair.reduction_delta(crowd, 0.8) == pytest.approx(2.319e-4, rel=1e-3)
    assert truth <= pair.certified_delta(crowd, 0.8)


@pytest.mark.parametrize(("items", "users"), [(2, 1), (2, 5), (3, 3), (4, 2), (4, 4), (5, 3)])
@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
def test_the_certified_delta_is_never_below_brute_force(
    items: int, users: int, local_epsilon: float, share: float
) -> None:
    """Over all data sets of tiny GRR instances."""
    epsilon = share * local_epsilon
    bound = VariationRatio.of(_grr(items, local_epsilon)).certified_delta(
        AnonymitySet(users=users), epsilon
    )

    assert _truth(items, local_epsilon, users, epsilon) <= bound + 1e-15


@pytest.mark.parametrize("items", [2, 16, 915])
def test_the_published_figure_matches_formula_1_for_many_users(items: int) -> None:
    """To .1 %."""
    crowd = AnonymitySet(users=100_000)
    epsilon = epsilon_upper(_grr(items, 4.0), crowd, 1e-6)

    assert variation_ratio(_grr(items, 4.0), crowd, 1e-6) == pytest.approx(epsilon, rel=1e-3)


def test_nodes_approximate_the_full_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 numbers of clones, to 1e-3 of δ."""
    pair, crowd = VariationRatio.of(_grr(16, 2.0)), AnonymitySet(users=1_000_000)
    nodes = pair.reduction_delta(crowd, 0.005)
    monkeypatch.setattr("common.accounting.reference.variation_ratio._FEW", 10**6)

    assert nodes == pytest.approx(pair.reduction_delta(crowd, 0.005), rel=1e-3)


def test_the_certified_epsilon_is_at_most_that_of_clones() -> None:
    """And the certified δ confirms it."""
    pair, crowd = VariationRatio.of(_grr(16, 2.0)), AnonymitySet(users=10_000)
    epsilon = pair.certified_epsilon(crowd, 1e-6)

    assert pair.certified_delta(crowd, epsilon) <= 1e-6
    assert epsilon <= CloneReduction.of_2021(2.0).epsilon(crowd, 1e-6, 2.0)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((1.0, 0.1, 2.0), "odds p are 1.0"),
        ((math.inf, 0.1, 2.0), "odds p are inf"),
        ((3.0, 0.6, 3.0), "total variation is 0.6"),
        ((3.0, 0.0, 3.0), "total variation is 0.0"),
        ((3.0, 0.4, 0.9), "ratio q is 0.9"),
        ((3.0, 0.5, 1.0), "a clone would have probability 1.5"),
    ],
)
def test_invalid_numbers_are_refused(numbers: tuple[float, float, float], message: str) -> None:
    """The message names the number."""
    odds, variation, ratio = numbers
    with pytest.raises(AccountingError, match=message):
        VariationRatio(odds=odds, variation=variation, ratio=ratio)


def test_reports_without_noise_are_refused() -> None:
    """Their ratio is infinite."""
    with pytest.raises(BoundRangeError, match="finite local ε"):
        VariationRatio.of(_grr(4, math.inf))
