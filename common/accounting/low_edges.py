"""Bins of a binomial number that are charged at their low edge, with nothing cut off."""

from typing import Final

import numpy as np
from scipy import stats

from common.accounting.binomial import at_most, interval_masses, more_than
from common.accounting.tails import RELATIVE_ERROR
from common.mechanisms.mechanism import Vector

_TAIL: Final = 1e-24
"""Probability below the first bin."""
_OPEN_TAIL: Final = 1e-9
"""Probability of the last bin, which is open."""


def low_edges(trials: int, chance: float, bins: int) -> tuple[Vector, Vector, float]:
    """
    Bin Binomial(trials, chance), for what falls with it.

    Returns:
        The low edges, every whole number if there are few; the bins' masses; and the mass below
        the first, which belongs to δ in full. Each mass is rounded up.
    """
    if trials == 0 or chance == 0:
        return np.zeros(1), np.ones(1), 0.0
    low = max(0.0, float(stats.binom.ppf(_TAIL, trials, chance)))
    high = max(low, float(stats.binom.isf(_OPEN_TAIL, trials, chance)))
    edges: Vector = np.unique(np.floor(np.linspace(low, high, bins)))
    many = np.asarray(float(trials))
    closed = interval_masses(edges, many, chance)
    last = more_than(edges[-1:] - 1, many, chance)
    missed = float(at_most(edges[:1] - 1, many, chance)[0])
    return (
        edges,
        np.concatenate([closed, last]) * (1 + RELATIVE_ERROR),
        missed * (1 + RELATIVE_ERROR),
    )
