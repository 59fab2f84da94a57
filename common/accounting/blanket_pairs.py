"""
Pairs of inputs, seen through the blanket: what the general privacy blanket needs to know.

A blanket is a law U and a chance γ with R_x ≥ γU for every input x. All that a pair x, x' does to
privacy is in the joint law, under U, of the two ratios R_x/U and R_x'/U: a list of atoms. A
continuous law becomes one by *mean-preserving splits*: on a cell where one ratio is constant, the
other one's mass goes to the cell's two ends so that its mean is kept. That raises the expectation
of every convex function of R_x - e^ε·R_x', whatever ε: the bound stays one.

The proofs that the pairs below are the least private ones stand in common/accounting/README.md.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from common.accounting.randomizers import rappor_chances
from common.errors import AccountingError
from common.mechanisms.randomizer import Vector
from common.mechanisms.reduction import MatchCountReduction

_CELLS: Final = 1000
"""Cells on either side of 0 between the two inputs of a Laplace pair."""
_SUM_ERROR: Final = 1e-12
MAX_LAPLACE_EPSILON: Final = 20.0
MAX_HASHES: Final = 16
"""As many as RAPPOR can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlanketPair:
    """Atoms of U with the two ratios, each shape (atoms,); all three laws sum to 1."""

    blanket: float
    """γ: chance that a report is a draw from U, whatever its input. A dummy always is."""
    local_epsilon: float
    chances: Vector
    """Under U."""
    first: Vector
    """R_x / U."""
    second: Vector
    """R_x' / U."""

    def __post_init__(self) -> None:
        if not 0 <= self.blanket <= 1:
            raise AccountingError(f"the blanket is {self.blanket}; it must lie between 0 and 1")
        if not self.local_epsilon > 0:
            raise AccountingError(f"local epsilon is {self.local_epsilon}; it must be above 0")
        for name, law in (
            ("U", self.chances),
            ("R_x", self.chances * self.first),
            ("R_x'", self.chances * self.second),
        ):
            if (law < 0).any() or abs(float(law.sum()) - 1) > _SUM_ERROR:
                raise AccountingError(f"the chances of {name} sum to {law.sum()}; it must be 1")


def match_count_pair(reduction: MatchCountReduction) -> BlanketPair:
    """Describe a match-count mechanism: which of its two values a blanket report supports."""
    one, both = 1 / reduction.answers, reduction.collision / reduction.answers
    base, lift = reduction.blanket, reduction.answers * reduction.signal
    return BlanketPair(
        blanket=reduction.blanket,
        local_epsilon=reduction.local_epsilon,
        chances=np.array([max(0.0, 1 - 2 * one + both), one - both, one - both, both]),
        first=base + lift * np.array([0.0, 1.0, 0.0, 1.0]),
        second=base + lift * np.array([0.0, 0.0, 1.0, 1.0]),
    )


def rappor_pair(f: float, p: float, q: float, *, hashes: int, shared: int = 0) -> BlanketPair:
    """
    Describe one report of RAPPOR with a Bloom filter, within one cohort [EPK14].

    U sets every bit with the chance p* of an unset one; the blanket is ((1-q*)/(1-p*))^hashes.

    Args:
        f: Share of bits that are replaced for good, as in `rappor`.
        p: Chance that a report shows an unset bit as 1.
        q: Chance that a report shows a set bit as 1.
        hashes: Bits that a word sets, 1 .. 16.
        shared: Bits that both words set. None is the least private.

    Raises:
        AccountingError: A number is out of its range.
    """
    if not 1 <= hashes <= MAX_HASHES or not 0 <= shared < hashes:
        raise AccountingError(
            f"hashes is {hashes} and shared {shared}; it must be 1 .. {MAX_HASHES}, and shared less"
        )
    set_chance, unset_chance = rappor_chances(f, p, q)
    if not 0 < unset_chance < set_chance < 1:
        raise AccountingError(f"bits are set with {unset_chance} and {set_chance}, without noise")
    up, down = set_chance / unset_chance, (1 - set_chance) / (1 - unset_chance)
    own = hashes - shared
    rows = list(itertools.product(range(own + 1), range(own + 1), range(shared + 1)))
    ones, others, common = np.array(rows, dtype=np.float64).T
    weights = (
        stats.binom.pmf(ones, own, unset_chance)
        * stats.binom.pmf(others, own, unset_chance)
        * stats.binom.pmf(common, shared, unset_chance)
    )
    return BlanketPair(
        blanket=down**hashes,
        local_epsilon=own * math.log(up / down),
        chances=np.asarray(weights, dtype=np.float64),
        first=up ** (ones + common) * down ** (hashes - ones - common),
        second=up ** (others + common) * down ** (hashes - others - common),
    )


def laplace_pair(local_epsilon: float, *, first: float = 1.0, second: float = -1.0) -> BlanketPair:
    """
    Describe a number in -1 .. 1 with Laplace noise of scale b = 2/ε.

    U is the noise around 0 and γ = e^(-ε/2). R_x/U = exp((|y| - |y-x|)/b) is constant but between
    0 and x.

    Args:
        local_epsilon: Between 0 and MAX_LAPLACE_EPSILON; that of the inputs ±1.
        first: One of the victim's inputs, 0 .. 1.
        second: The other, -1 .. 0; 1 and -1 are the least private pair of all.

    Raises:
        AccountingError: A number is out of its range.
    """
    if not 0 < local_epsilon <= MAX_LAPLACE_EPSILON:
        raise AccountingError(
            f"local epsilon is {local_epsilon}; it must be above 0 and at most "
            f"{MAX_LAPLACE_EPSILON}"
        )
    if not -1 <= second <= 0 <= first <= 1 or first == second:
        raise AccountingError(
            f"the inputs are {first} and {second}; they must be in 0 .. 1 and -1 .. 0, and differ"
        )
    rate = local_epsilon / 2
    right_chances, right_ratios = _laplace_side(first, rate)
    left_chances, left_ratios = _laplace_side(-second, rate)
    away_from_first = np.full(len(left_ratios), math.exp(-first * rate))
    away_from_second = np.full(len(right_ratios), math.exp(second * rate))
    return BlanketPair(
        blanket=math.exp(-rate),
        local_epsilon=(first - second) * rate,
        chances=np.concatenate([right_chances, left_chances]),
        first=np.concatenate([right_ratios, away_from_first]),
        second=np.concatenate([away_from_second, left_ratios]),
    )


def _laplace_side(value: float, rate: float) -> tuple[Vector, Vector]:
    """
    Give chances and ratios R_value/U on the half line y > 0, for value ≥ 0.

    Up to the value the ratio is e^(rate·(2y - value)), beyond it e^(rate·value).
    """
    edges = np.linspace(0, value, _CELLS + 1)
    ratios: Vector = np.exp(rate * (2 * edges - value))
    masses = -np.exp(-rate * edges[:-1]) * np.expm1(-rate * np.diff(edges)) / 2
    means = np.exp(rate * (edges[:-1] - value)) * np.expm1(rate * np.diff(edges)) / 2
    width = np.diff(ratios)
    above = np.divide(
        means - masses * ratios[:-1], width, out=np.zeros_like(width), where=width > 0
    )
    to_upper = np.clip(above, 0, masses)
    chances = np.zeros(_CELLS + 1)
    chances[:-1] += masses - to_upper
    chances[1:] += to_upper
    chances[-1] += math.exp(-rate * value) / 2
    return chances, ratios
