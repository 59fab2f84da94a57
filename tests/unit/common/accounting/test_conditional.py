"""δ(ε | M), from above by chords and from below by Jensen's inequality."""

import math

import numpy as np
import pytest
from scipy import stats

from common.accounting.conditional import COARSE_GRID, ConditionalDelta, grid_for
from common.mechanisms.reduction import MatchCountReduction


def _exact(reduction: MatchCountReduction, size: int, epsilon: float, presence: float) -> float:
    """Sum the two binomials of formula 1 in full, for independent supports or one histogram."""
    signal = reduction.signal * presence
    counts = np.arange(size + 1)
    other = stats.binom.pmf(counts, size, 1 / reduction.answers)
    total = 0.0
    for h, chance in zip(counts, other, strict=True):
        trials, share = size - int(h), 1 / (reduction.answers - 1)
        if reduction.pairwise_independent:
            trials, share = size, 1 / reduction.answers
        own = stats.binom.pmf(counts, trials, share)
        scale = reduction.answers * signal / size
        losses = (1 - signal + scale * counts) - math.exp(epsilon) * (1 - signal + scale * h)
        total += float(chance) * float(own @ np.maximum(losses, 0))
    return total


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("presence", [1.0, 0.6])
@pytest.mark.parametrize(
    ("answers", "size", "epsilon"), [(3, 200, 0.3), (30, 900, 0.4), (6, 40, 1)]
)
def test_chords_lie_above_and_centres_below(
    hashed: bool,  # noqa: FBT001
    presence: float,
    answers: int,
    size: int,
    epsilon: float,
) -> None:
    """Within .1 % of each other on a grid made for it, further apart on the coarse one."""
    reduction = MatchCountReduction.for_epsilon(answers=answers, local_epsilon=4.0, hashed=hashed)
    exact = _exact(reduction, size, epsilon, presence)
    grid = grid_for(reduction, size, epsilon, 1e-3)
    for cells, gap in ((grid, 1e-3), (COARSE_GRID, 0.2)):
        conditional = ConditionalDelta(
            reduction, np.array([float(size)]), cells, np.array([presence])
        )
        above, below = float(conditional(epsilon)[0]), float(conditional.lower(epsilon)[0])

        assert below <= exact * (1 + 1e-12)
        assert exact * (1 - 1e-12) <= above
        assert above - below <= gap * exact
