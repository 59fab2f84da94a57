"""Bins of the number of uniform messages: charged at their lower edge, without omitted mass."""

import numpy as np
import pytest

from common.accounting.anonymity_set import AnonymitySet, Bins, BlanketSize
from common.accounting.count_distributions import Binomial, Groups, NegativeBinomial, Poisson

_CROWDS = [
    AnonymitySet(users=1),
    AnonymitySet(users=500),
    AnonymitySet(users=500, dummies=70, known_dummies=20, colluders=100),
    AnonymitySet(users=500, random_dummies=Poisson(90.0)),
    AnonymitySet(users=500, dummies=5, known_dummies=9, random_dummies=NegativeBinomial(3.0, 60.0)),
    AnonymitySet(users=500, random_dummies=Groups(Binomial(60, 0.4), 3)),
]


def _most(crowd: AnonymitySet) -> int:
    return 1 + crowd.others + crowd.dummies + 600


def _exact(crowd: AnonymitySet, blanket: float) -> np.ndarray:
    """P(M ≤ m) for m = 0 .. , by convolving the laws' probabilities."""
    most = _most(crowd)
    counts = np.arange(most + 1.0)
    law = Binomial(crowd.others, blanket).probabilities(counts)
    dummies = np.zeros(most + 1)
    random = np.eye(1, most + 1)[0]
    if crowd.random_dummies is not None:
        random = crowd.random_dummies.probabilities(counts)
    for number, chance in enumerate(random):
        total = max(0, crowd.dummies + number - crowd.known_dummies)
        dummies[min(total, most)] += chance
    together = np.convolve(law, dummies)[: most + 1]
    return np.concatenate([[0.0], np.cumsum(together)])


@pytest.mark.parametrize("crowd", _CROWDS, ids=str)
def test_bins_never_overstate_the_number_of_messages(
    crowd: AnonymitySet,
) -> None:
    """P(M ≤ m) by bins is at least the true one for every m, and close with many bins."""
    surroundings = BlanketSize(crowd, 0.3)
    exact = _exact(crowd, 0.3)
    for number in (3, 24, 400):
        bins, random = surroundings.first_bins(number)
        masses, weights, below = surroundings.masses(bins, random)
        law = weights @ masses

        assert float(law.sum()) + below == pytest.approx(1, abs=1e-6)
        for size in range(1, _most(crowd), 7):
            claimed = below + float(law[bins.edges <= size].sum())
            assert claimed >= exact[size] - 1e-12
            if number == 400:
                assert claimed == pytest.approx(exact[size], abs=5e-3)


def test_mass_below_the_first_bin_is_charged() -> None:
    """Of random dummies too."""
    surroundings = BlanketSize(AnonymitySet(users=200, random_dummies=Poisson(50.0)), 0.5)
    bins, random = Bins(np.array([120.0, 140.0])), Bins(np.array([45.0, 50.0]))
    masses, weights, below = surroundings.masses(bins, random)
    low_dummies = float(Poisson(50.0).tails(np.array([44.0]))[0][0])
    others = Binomial(199, 0.5)
    low = sum(
        float(weight) * float(others.tails(np.array([119.0 - 1 - edge]))[0][0])
        for weight, edge in zip(weights, random.edges, strict=True)
    )

    assert below == pytest.approx(low_dummies + low, rel=1e-6)
    assert float((weights @ masses).sum()) + below == pytest.approx(1, abs=1e-7)
