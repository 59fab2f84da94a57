"""
Choosing one of several candidates by their utilities, privately: the exponential mechanism, and
permute-and-flip, which is never worse.

A utility is a whole number that one person moves by 1 at most. The exponential mechanism chooses a
candidate with weight e^(-ε·gap/2), gap its distance to the best [MT07]. Permute-and-flip tosses a
coin with that chance for each candidate in random order and takes the first that shows heads; at
the same ε its expected gap is at most as large, for any utilities [MS20]. Coins are tossed here for
all at once, and one of those that show heads is taken evenly: the same law.

Both are exact: coins are made of bounded integers, of ε rounded down to a multiple of 2^-29.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import AccountingError, ValueRangeError
from common.mechanisms.base import Counts, Vector
from common.mechanisms.sampling import exponential_coins
from deploy.simulate.baselines.central_guarantee import MOST_EPSILON, CentralGuarantee

Method = Literal["exponential", "permute-and-flip"]

_UNIT: Final = 2**30
"""Denominator of ε/2."""
_HOPELESS: Final = 1000
"""Utilities whose chance would be below e^-1000 count as if it were that: capping all of them at
one distance to the best is a utility that one person moves by 1 at most, too."""
_NODES: Final = 24
"""Of Gauss and Legendre, for each doubling of the range of an integral."""
_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True)
class Selection:
    """One private choice."""

    epsilon: float
    method: Method = "permute-and-flip"

    def __post_init__(self) -> None:
        if not 1e-8 <= self.epsilon <= MOST_EPSILON:  # noqa: PLR2004  # coarser than its unit
            raise AccountingError(
                f"epsilon is {self.epsilon}; it must lie between 1e-08 and {MOST_EPSILON}"
            )

    @property
    def guarantee(self) -> CentralGuarantee:
        """ε, and no δ."""
        theorem = {
            "exponential": "exponential mechanism [MT07]",
            "permute-and-flip": "permute-and-flip [MS20]",
        }[self.method]
        return CentralGuarantee(epsilon=self.epsilon, delta=0.0, theorem=theorem)

    @cached_property
    def _half(self) -> int:
        """ε/2 in units of 1/_UNIT, rounded down."""
        return math.floor(self.epsilon / 2 * _UNIT)

    def choose(self, utilities: Counts, rng: np.random.Generator) -> int:
        """
        Choose a candidate.

        Args:
            utilities: Shape (n,), at least one.
            rng: Source of randomness.

        Returns:
            Its number, 0 .. n-1.

        Raises:
            ValueRangeError: There are no candidates.

        Cost: a few integers a candidate; on average no more often than once for each of them.
        """
        exponents = self._exponents(utilities)
        if self.method == "permute-and-flip":
            heads = np.flatnonzero(self._heads(exponents, rng))
            return int(heads[rng.integers(0, len(heads))])
        while True:
            # One of all evenly, until its coin shows heads: many at a time.
            tried = rng.integers(0, len(exponents), size=len(exponents), dtype=np.int64)
            heads = np.flatnonzero(self._heads(exponents[tried], rng))
            if len(heads):
                return int(tried[heads[0]])

    def _exponents(self, utilities: Counts) -> NDArray[np.int64]:
        """Give -ln of each coin's chance, in units of 1/_UNIT."""
        if len(utilities) == 0:
            raise ValueRangeError("there is nothing to choose from")
        hopeless = -(-_HOPELESS * _UNIT // self._half)
        gaps: NDArray[np.int64] = np.minimum(utilities.max() - utilities, hopeless)
        return gaps * self._half

    def _heads(self, exponents: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Toss coins with chance e^(-exponent / _UNIT): one for the rest, and one a whole unit."""
        whole, rest = np.divmod(exponents, _UNIT)
        heads = exponential_coins(rest, _UNIT, rng)
        left = np.flatnonzero(heads & (whole > 0))
        while len(left):
            shown = exponential_coins(np.ones(len(left), dtype=np.int64), 1, rng)
            heads[left[~shown]] = False
            left = left[shown]
            whole[left] -= 1
            left = left[whole[left] > 0]
        return heads

    def law(self, utilities: Counts) -> Vector:
        """
        Give how likely each candidate is; shape (n,), exact to some 1e-12.

        A candidate with chance p of heads is taken with p·E[1/(1+H)] by permute-and-flip, H the
        number of others that show heads; E[1/(1+H)] = ∫ E[t^H] dt over 0 .. 1, and E[t^H] is the
        product of 1 - p_j + p_j·t over the others.

        Raises:
            ValueRangeError: There are no candidates.

        Cost: some 500 terms for each different utility.
        """
        exponents = self._exponents(utilities)
        levels, which, many = np.unique(exponents, return_inverse=True, return_counts=True)
        chances = np.exp(-levels / _UNIT)
        if self.method == "exponential":
            return np.asarray((chances / (chances * many).sum())[which], dtype=np.float64)
        # y = 1-t. The product falls like e^(-y·Σp): panels that double from where it begins to.
        panels = max(1, math.ceil(math.log2(1 + (chances * many).sum())) + 1)
        edges = np.concatenate([[0.0], 2.0 ** -np.arange(panels - 1.0, -1.0, -1.0)])
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        rows = max(1, _AT_ONCE // _NODES)
        parts = [slice(start, start + rows) for start in range(0, len(levels), rows)]
        taken = np.zeros(len(levels))
        for low, high in pairwise(edges.tolist()):
            y = low + (nodes + 1) / 2 * (high - low)
            logs = np.zeros(_NODES)
            for part in parts:
                logs += many[part] @ np.log1p(-chances[part, None] * y)
            for part in parts:
                others = logs - np.log1p(-chances[part, None] * y)
                taken[part] += np.exp(others) @ (weights / 2 * (high - low))
        return np.asarray((chances * taken)[which], dtype=np.float64)

    def expected_gap(self, utilities: Counts) -> float:
        """
        Give how far the chosen candidate is below the best on average: the exact regret.

        Raises:
            ValueRangeError: There are no candidates.
        """
        law = self.law(utilities)
        return float(law @ (utilities.max() - utilities))


def expected_gap_bound(epsilon: float, candidates: int) -> float:
    """Give what the expected gap is at most, for any utilities: 2·ln(n)/ε [MT07], [MS20]."""
    return 2 * math.log(candidates) / epsilon
