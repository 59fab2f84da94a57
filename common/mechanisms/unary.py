"""
Unary encodings of an item, one noisy bit for each: symmetric (SUE, which is also basic one-time
RAPPOR [EPK14]) and optimized (OUE) [WBLJ17].

A report supports the items whose bits are set. The own bit is set with chance p, every other with
chance q, each independently, so that all items' counts are independent too.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError, TaskError
from common.mechanisms.base import Counts, MechanismRequest, Reports, check_answers, check_values
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.sampling import exact_coins
from common.mechanisms.support import SupportCounting
from common.mechanisms.weights import ResponseWeights
from common.task.specs import MAX_REPORT_BYTES, MechanismSpec
from common.task.task import Task, check_local_epsilon

MAX_BITS: Final = 8 * MAX_REPORT_BYTES - 1
"""Items that fit a report, one bit of which is spare."""

_CHUNK_BITS: Final = 1 << 22
"""Bits that are drawn or counted at a time, so that memory stays bounded."""


@dataclass(frozen=True)
class UnaryEncoding(SupportCounting):
    """
    What SUE and OUE share; they differ in how likely bits are set.

    Bit v of a report, least significant first, is item v's. The bits beyond the last item are
    always 0, and there is at least one, so that no report is the null report.
    """

    domain_size: int
    weights: ResponseWeights

    def __post_init__(self) -> None:
        if self.domain_size > MAX_BITS:
            raise TaskError(
                f"domain_size is {self.domain_size}; "
                f"a report has room for {MAX_BITS} bits, one an item"
            )
        if self.weights.other == 0:
            raise TaskError("other_weight is 0; a unary encoding needs local noise")
        _ = self._total

    @classmethod
    @abstractmethod
    def weights_for(cls, local_epsilon: float) -> ResponseWeights:
        """Give the weights that keep a promise."""

    @classmethod
    def specify(cls, wanted: MechanismRequest) -> MechanismSpec:
        """
        Give two answers for every bit.

        Raises:
            TaskError: local_epsilon is out of range or infinite, or domain_size above MAX_BITS.
        """
        mechanism = cls(wanted.domain_size, cls.weights_for(wanted.local_epsilon))
        return wanted.spec(mechanism.weights, buckets=2, dtype=mechanism.report_dtype)

    @classmethod
    def of(cls, task: Task) -> Self:
        """
        Build it from a task.

        Raises:
            TaskError: Its integers describe no unary encoding.
        """
        check_answers(task.item_mechanism, 2)
        return cls(task.domain_size, ResponseWeights.of(task.item_mechanism))

    @property
    @abstractmethod
    def local_epsilon(self) -> float:
        """What a report gives away by itself, rounded up."""

    @abstractmethod
    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether no report gives away more, in exact arithmetic. Run by the user agent."""

    @property
    @abstractmethod
    def reduction(self) -> MatchCountReduction:
        """What accounting for a shuffler needs."""

    @property
    @abstractmethod
    def _own_odds(self) -> tuple[int, int]:
        """How likely the own bit is set: a weight, and of what total."""

    @cached_property
    def _total(self) -> int:
        return self.weights.total(2)

    @property
    def p(self) -> float:
        """Chance that the own bit is set."""
        weight, total = self._own_odds
        return weight / total

    @property
    def q(self) -> float:
        """Chance that any other bit is set: weight other / (true + other)."""
        return self.weights.other / self._total

    @property
    def q_dummy(self) -> float:
        """A dummy sets every bit with chance q: the part of a report that knows no input."""
        return self.q

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """A bit an item, and at least one that is 0, in whole bytes."""
        return np.dtype([("bits", "u1", (self.domain_size // 8 + 1,))])

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """
        Randomize each value. Run by the user agent.

        Args:
            values: Items, shape (n,), each in 0 .. domain_size-1.
            rng: Source of randomness.

        Returns:
            n reports, field bits (bytes).

        Raises:
            ValueRangeError: A value lies outside the domain.

        Cost: a coin a bit; memory for the reports, and for 4 million bits.
        """
        check_values(values, self.domain_size)
        reports = np.empty(len(values), dtype=self.report_dtype)
        for part in self._parts(len(values)):
            own = values[part]
            bits = self._noise(len(own), rng)
            kept = exact_coins(*self._own_odds, own.shape, rng)
            bits[np.arange(len(own)), own] = kept
            reports["bits"][part] = self._packed(bits)
        return reports

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw `count` reports of nothing but noise: the blanket. Run by the user agent."""
        reports = np.empty(count, dtype=self.report_dtype)
        for part in self._parts(count):
            reports["bits"][part] = self._packed(self._noise(len(reports[part]), rng))
        return reports

    def _noise(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        return exact_coins(self.weights.other, self._total, (count, self.domain_size), rng)

    def _parts(self, count: int) -> Iterator[slice]:
        size = max(1, _CHUNK_BITS // self.domain_size)
        return (slice(start, start + size) for start in range(0, count, size))

    def _packed(self, bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
        packed = np.zeros((len(bits), self.domain_size // 8 + 1), dtype=np.uint8)
        found = np.packbits(bits, axis=1, bitorder="little")
        packed[:, : found.shape[1]] = found
        return packed

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports have no bit set beyond the last item. Run by the analyzer."""
        spare = 0xFF << self.domain_size % 8 & 0xFF
        fine: NDArray[np.bool_] = (reports["bits"][:, -1] & spare) == 0
        return fine

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Say which reports have an item's bit set. Run by auditors."""
        octet, bit = divmod(item, 8)
        is_set: NDArray[np.bool_] = (reports["bits"][:, octet] >> bit & 1).astype(np.bool_)
        return is_set

    def tally(self, reports: Reports) -> Counts:
        """
        Count the set bits of each item. Run by the analyzer.

        Returns:
            Counts of shape (domain_size,).

        Raises:
            ReportError: A bit beyond the last item is set.

        Cost: one pass over all bits; memory for 4 million of them.
        """
        if not self.valid(reports).all():
            raise ReportError(f"a bit is set beyond the first {self.domain_size}")
        counts = np.zeros(self.domain_size, dtype=np.int64)
        for part in self._parts(len(reports)):
            counts += np.unpackbits(
                reports["bits"][part], axis=1, count=self.domain_size, bitorder="little"
            ).sum(axis=0, dtype=np.int64)
        return counts

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the counts by item that users and dummies would come to.

        Exact as it stands: bits are independent, within a report too.

        Cost: two binomial draws an item.
        """
        others = users.sum() - users + n_dummies
        cells = rng.binomial(users, self.p) + rng.binomial(others, self.q)
        return np.asarray(cells, dtype=np.int64)

    def support_counts(self, cells: Counts) -> Counts:
        """Give the cells themselves: a report supports the items whose bits are set."""
        return cells

    def channel(self, real_share: float) -> None:
        """Give nothing: there are 2^domain_size different reports. Refine by projection."""
        del real_share


@dataclass(frozen=True)
class SymmetricUnary(UnaryEncoding):
    """
    SUE: every bit is kept with weight `true` and flipped with weight `other`.

    Two values differ in two bits, so that true / other ≤ e^(local ε / 2).
    """

    @classmethod
    def weights_for(cls, local_epsilon: float) -> ResponseWeights:
        """
        Give the weights for half of the promise: two bits tell two values apart.

        Raises:
            TaskError: local_epsilon is neither above 2^-31 and at most 20, nor infinite.
        """
        check_local_epsilon(local_epsilon)
        return ResponseWeights.for_epsilon(local_epsilon / 2)

    @property
    def _own_odds(self) -> tuple[int, int]:
        return self.weights.true, self._total

    @property
    def local_epsilon(self) -> float:
        """2·ln(true / other): the own bit of one value, and that of the other."""
        return 2 * self.weights.local_epsilon

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether true / other ≤ e^(local_epsilon / 2). Run by the user agent."""
        return self.weights.keeps_promise(local_epsilon / 2)

    @property
    def reduction(self) -> MatchCountReduction:
        """γ = (1-p)/(1-q) = other / true, l = 1/q."""
        true, other = self.weights.true, self.weights.other
        return MatchCountReduction.of_independent_bits(
            answers=self._total / other,
            local_epsilon=self.local_epsilon,
            blanket=other / true,
            signal=(true - other) / true,
        )


@dataclass(frozen=True)
class OptimizedUnary(UnaryEncoding):
    """
    OUE: the own bit is a fair coin, every other one is set with weight `other`, not with `true`.

    Two values differ in two bits, but a fair coin tells nothing: true / other ≤ e^(local ε).
    """

    @classmethod
    def weights_for(cls, local_epsilon: float) -> ResponseWeights:
        """
        Give the weights for the promise.

        Raises:
            TaskError: local_epsilon is neither above 2^-32 and at most 20, nor infinite.
        """
        return ResponseWeights.for_epsilon(local_epsilon)

    @property
    def _own_odds(self) -> tuple[int, int]:
        return 1, 2

    @property
    def local_epsilon(self) -> float:
        """ln(true / other), from p(1-q) / q(1-p) at p = 1/2."""
        return self.weights.local_epsilon

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether true / other ≤ e^local_epsilon. Run by the user agent."""
        return self.weights.keeps_promise(local_epsilon)

    @property
    def reduction(self) -> MatchCountReduction:
        """γ = (1-p)/(1-q) = (true + other) / 2·true, l = 1/q."""
        true, other = self.weights.true, self.weights.other
        return MatchCountReduction.of_independent_bits(
            answers=self._total / other,
            local_epsilon=self.local_epsilon,
            blanket=self._total / (2 * true),
            signal=(true - other) / (2 * true),
        )
