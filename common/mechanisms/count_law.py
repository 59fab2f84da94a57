"""
The exact distribution of the count behind an item's share, and the reaches of intervals from it.

Of the reports that support an item, each of the k holders' counts with one probability, each other
user's with another, and dummies add their own numbers: a sum of independent draws, whose
distribution is one Fourier transform. An interval consists of all shares at which the estimate is
not in a tail: shares are tabulated for some k from 0 to all users. Shares that sum to 1 lose the
average of what the shuffler adds to all items. Run by the analyzer.
"""

import math
from typing import Final, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import special

from shuffledp.common.messages.result import MISSES, IntervalTable

Vector = NDArray[np.float64]

_RATIO: Final = 1.5
"""Ratio of successive tabulated numbers of holders: their standard deviations differ by a fifth."""
_MOST_EXACT: Final = 2**15
"""Largest transform of coins; a count with more places is normal to a hundredth of an error."""
_MOST_CENTRED: Final = 2**18
"""Most places of all laws of draws less their average, which are fractions of a count."""
_REACH: Final = 20
"""Standard deviations to either side beyond which less than 1e-11 of a sum lies."""
_NOISE: Final = 1e-13
"""Error of a probability from the transform."""


class Draws(NamedTuple):
    """Independent draws of integers: each draw is one of the `values` by its chance, or else 0."""

    number: int
    values: NDArray[np.int64]
    """Distinct integers, shape (values,)."""
    chances: Vector
    """Probability of each; their sum is at most 1."""

    @classmethod
    def coins(cls, number: int, chance: float, value: int = 1) -> Self:
        """Return tosses of a coin, whose heads count `value`."""
        return cls(number, np.array([value]), np.array([chance]))

    @property
    def moments(self) -> tuple[float, float]:
        """The mean and the variance of the sum."""
        one = float(self.chances @ self.values)
        zero = max(0.0, 1 - float(self.chances.sum()))
        spread = float(self.chances @ (self.values - one) ** 2) + zero * one**2
        return self.number * one, self.number * spread


def interval_table(
    n_users: float, own: float, other: float, added: tuple[Draws, ...], among: int = 1
) -> IntervalTable:
    """
    Tabulate intervals of shares that are estimated from counts.

    The report of a holder of an item counts with probability `own`, that of any other user with
    probability `other`; `added` is what dummies add, up to a constant, less its average over
    `among` items, each with draws of its own. If that takes long, the average, then nearly
    constant, is left out.
    """
    users = max(1, round(n_users))
    noisy = own - other < 1  # otherwise all holders' distributions are that of the dummies
    steps = np.arange(math.ceil(math.log(users, _RATIO)) * noisy)
    holders = np.unique([0, *np.floor(_RATIO**steps), users])
    if {own, other} <= {0.0, 1.0}:  # all laws are alike
        holders = holders[[0, -1]]
    spread = users * max(own * (1 - own), other * (1 - other))
    deviation = math.sqrt(spread + sum(each.moments[1] for each in added))
    if 2 * _REACH * among * deviation * len(holders) > _MOST_CENTRED:
        among = 1
    if among > 1:
        others = (
            Draws((among - 1) * number, -values, chances) for number, values, chances in added
        )
        added = *(each._replace(values=(among - 1) * each.values) for each in added), *others
    laws = [
        _reaches((Draws.coins(held, own, among), Draws.coins(users - held, other, among), *added))
        for held in holders.astype(np.int64).tolist()
    ]
    deviations, below, above = map(np.array, zip(*laws, strict=True))
    return IntervalTable(
        shares=holders / users,
        errors=deviations / (among * users * (own - other)),
        below=below.ravel(),
        above=above.ravel(),
    )


def _reaches(draws: tuple[Draws, ...]) -> tuple[float, Vector, Vector]:
    """Return a sum's standard deviation, and how many of them its tails begin below and above."""
    mean, variance = (
        math.fsum(each) for each in zip(*(each.moments for each in draws), strict=True)
    )
    if variance < _NOISE:
        return 0.0, np.zeros(len(MISSES)), np.zeros(len(MISSES))
    deviation = math.sqrt(variance)
    # Draws that may be 0 have long tails where they are few; others are of a geometric law.
    rare = (each for each in draws if each.number and each.chances.sum() < 1 - _NOISE)
    largest = max((int(abs(each.values).max()) for each in rare), default=1)
    size = scipy.fft.next_fast_len(math.ceil(2 * _REACH * deviation) + 60 * largest, real=True)
    if size > _MOST_EXACT and all(len(each.values) == 1 for each in draws):
        normal = -special.ndtri(MISSES / 2)
        return deviation, normal, normal
    places = np.arange(size) + round(mean) - size // 2
    law = _probabilities(draws, size)[places % size]
    apart: Vector = places - np.float64(mean)
    below, above = _reach(law, -apart), _reach(law[::-1], apart[::-1])
    return deviation, below / deviation, above / deviation


def _probabilities(draws: tuple[Draws, ...], size: int) -> Vector:
    """Return the distribution of the sum of all draws modulo `size`, shape (size,)."""
    logs = np.zeros(size // 2 + 1, dtype=np.complex128)
    for number, values, chances in draws:
        if not number:
            continue
        of_one = np.bincount(values % size, weights=chances, minlength=size)
        of_one[0] -= chances.sum()
        z = scipy.fft.rfft(of_one)
        # ln|1 + z|² = ln(1 + 2·Re z + |z|²): 1 + z would lose the digits of a small z.
        square = np.maximum(2 * z.real + np.abs(z) ** 2, _NOISE - 1)
        logs += number * (0.5 * np.log1p(square) + 1j * np.arctan2(z.imag, 1 + z.real))
    return np.maximum(scipy.fft.irfft(np.exp(logs), n=size), 0.0)


def _reach(law: Vector, distances: Vector) -> Vector:
    """
    Return the distance at which the tail of a distribution has half of each of the MISSES.

    Places are given from the end of the tail on. The tail is interpolated between them, so the tail
    from any place within the distance has at least this probability.
    """
    return np.interp(MISSES / 2, np.cumsum(law), distances)
