"""
Unary encodings, one noisy bit per item: symmetric (SUE, which is also basic one-time RAPPOR
[EPK14]) and optimized (OUE) [WBLJ17].

A report supports the items whose bits are set. The bit of the user's item is set with probability p
and every other bit with probability q, all independently, so the items' counts are independent.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms import base, bits
from shuffledp.common.mechanisms.base import Counts, Reports
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.sampling import exact_coins
from shuffledp.common.mechanisms.support import IndependentSupport
from shuffledp.common.mechanisms.weights import OddsOfWeights, ResponseWeights
from shuffledp.common.task.specs import MAX_REPORT_BYTES, MechanismSpec
from shuffledp.common.task.task import Task, check_local_epsilon

MAX_BITS: Final = 8 * MAX_REPORT_BYTES - 1
"""Maximum number of items in a report, which has one spare bit."""


@dataclass(frozen=True)
class UnaryEncoding(OddsOfWeights, IndependentSupport):
    """Base class of SUE and OUE; bit v of a report, least significant first, belongs to item v."""

    domain_size: int
    weights: ResponseWeights

    def __post_init__(self) -> None:
        if self.domain_size > MAX_BITS:
            raise TaskError(
                f"domain_size is {self.domain_size}; it must be at most {MAX_BITS}, "
                "since a report has one bit per item"
            )

    @classmethod
    def weights_for(cls, local_epsilon: float) -> ResponseWeights:
        """Return the weights for a local ε; raise TaskError if out of range."""
        return ResponseWeights.for_epsilon(check_local_epsilon(local_epsilon) / cls.FACTORS)

    @classmethod
    def specify(cls, request: base.MechanismRequest) -> MechanismSpec:
        """Compute the weights; buckets is 2, since each bit has two answers."""
        mechanism = cls(request.domain_size, cls.weights_for(request.local_epsilon))
        return request.spec(mechanism.weights, buckets=2, dtype=mechanism.report_dtype)

    @classmethod
    def of(cls, task: Task) -> Self:
        base.check_answers(task.item_mechanism, 2)
        return cls(task.domain_size, ResponseWeights.of(task.item_mechanism))

    @property
    @abstractmethod
    def _own_odds(self) -> tuple[int, int]:
        """Weight of setting the bit of the user's item, and the total weight."""

    @cached_property
    def _total(self) -> int:
        return self.weights.total(2)

    @property
    def p(self) -> float:
        weight, total = self._own_odds
        return weight / total

    @property
    def q(self) -> float:
        """Probability that any other bit is set: other / (true + other)."""
        return self.weights.other / self._total

    @property
    def q_dummy(self) -> float:
        """Probability q: a dummy sets every bit as if it belonged to another item."""
        return self.q

    @property
    def reduction(self) -> MatchCountReduction:
        """Match count with l = 1/q, γ = (1-p)/(1-q), 1-γ = (p-q)/(1-q); see `of_support_sets`."""
        weight, total = self._own_odds
        clear = self.weights.true * total
        return MatchCountReduction.of_support_sets(
            answers=self._total / self.weights.other,
            local_epsilon=self.local_epsilon,
            blanket=(total - weight) * self._total / clear,
            signal=(weight * self._total - total * self.weights.other) / clear,
            independent=True,
        )

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype([bits.bit_field(self.domain_size)])

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """Toss a coin for each bit. Run by the user agent. Cost: memory for 4 million bits."""
        values = base.check_values(values, self.domain_size)
        reports = np.empty(len(values), dtype=self.report_dtype)
        for part in bits.chunks(len(values), self.domain_size):
            own = values[part]
            drawn = self._noise(len(own), rng)
            drawn[np.arange(len(own)), own] = exact_coins(*self._own_odds, own.shape, rng)
            reports["bits"][part] = bits.pack(drawn)
        return reports

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        reports = np.empty(count, dtype=self.report_dtype)
        for part in bits.chunks(count, self.domain_size):
            reports["bits"][part] = bits.pack(self._noise(len(reports[part]), rng))
        return reports

    def _noise(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw `count` rows of bits, each set with probability q; (count, domain_size)."""
        return exact_coins(self.weights.other, self._total, (count, self.domain_size), rng)

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return bits.spare_bits_clear(reports["bits"], self.domain_size)

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        octet, bit = divmod(item, 8)
        return (reports["bits"][:, octet] >> bit & 1).astype(np.bool_)

    def tally(self, reports: Reports) -> Counts:
        base.check_valid(self.valid(reports), f"a bit is set beyond the first {self.domain_size}")
        return bits.count_set_bits(reports["bits"], self.domain_size)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """Draw two binomial counts for each item, since all bits are independent."""
        others = users.sum() - users + n_dummies
        cells = rng.binomial(users, self.p) + rng.binomial(others, self.q)
        return np.asarray(cells, dtype=np.int64)


@dataclass(frozen=True)
class SymmetricUnary(UnaryEncoding):
    """SUE: weight `true` keeps and `other` flips each bit; two values differ in two bits."""

    FACTORS: ClassVar[int] = 2

    @property
    def _own_odds(self) -> tuple[int, int]:
        return self.weights.true, self._total


@dataclass(frozen=True)
class OptimizedUnary(UnaryEncoding):
    """
    OUE: the user's bit is a fair coin; the others have weights `other` if set and `true` if clear.

    Two values differ in two bits: the largest ratio is p(1-q) / (q(1-p)) = true / other at p = 1/2.
    """

    FACTORS: ClassVar[int] = 1

    @property
    def _own_odds(self) -> tuple[int, int]:
        return 1, 2
