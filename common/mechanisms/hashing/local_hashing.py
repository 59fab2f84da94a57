"""Local hashing [WBLJ17] over a finite field, any two items colliding with chance exactly 1/g."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError, TaskError
from common.mechanisms.base import Channel, Counts, MechanismRequest, Reports, Vector, check_values
from common.mechanisms.hashing.finite_field import MAX_SEEDS, MIN_DIGITS, HashFamily, check_prime
from common.mechanisms.hashing.placement import Placement
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.support import SupportCounting
from common.mechanisms.weights import OddsOfWeights, ResponseWeights
from common.task.specs import MechanismSpec
from common.task.task import Task

REPORT_DTYPE: Final = np.dtype([("seed", "<u8"), ("bucket", "<u4")])
MIN_CANONICAL_SEEDS: Final = 50
"""With fewer, one report's support is too large a share of all: the error becomes lumpy."""


def family_for(domain_size: int, buckets: int) -> HashFamily:
    """
    Give the least field over `buckets` elements that tells the items apart.

    Its digits are raised beyond that only where it would leave fewer than MIN_CANONICAL_SEEDS
    canonical seeds.

    Raises:
        TaskError: buckets is not prime or not below domain_size, or the field gets too large.
    """
    if buckets >= domain_size:
        raise TaskError(
            f"buckets is {buckets} and domain_size is {domain_size}: "
            "hashing needs fewer buckets than items"
        )
    check_prime(buckets)
    digits = MIN_DIGITS
    while (
        buckets**digits < domain_size
        or sum(buckets**digit for digit in range(digits)) < MIN_CANONICAL_SEEDS
    ):
        digits += 1
    return HashFamily.holding(domain_size, buckets, digits)


def optimal_buckets(local_epsilon: float, domain_size: int) -> int:
    """
    Give the prime with the least predicted variance of rare items, near e^ε + 1 [WBLJ17].

    n·Var = (e^ε - 1 + g)² / ((e^ε - 1)² (g - 1)), least at g = e^ε + 1. Whether GRR would be better
    still is for the caller to find out.

    Args:
        local_epsilon: Above 0; may be infinite.
        domain_size: Items; hashing needs fewer buckets.

    Raises:
        TaskError: No field fits: there are not more than 2 items.

    Cost: a look at every number up to √MAX_SEEDS, some 20 ms.
    """
    found = [prime for prime in range(2, math.isqrt(MAX_SEEDS) + 1) if _fits(domain_size, prime)]
    if not found:
        raise TaskError(f"domain_size is {domain_size}; hashing needs more than 2 items")
    inverse = math.exp(-local_epsilon)
    return min(found, key=lambda prime: (1 + (prime - 1) * inverse) ** 2 / (prime - 1))


def _fits(domain_size: int, buckets: int) -> bool:
    try:
        return family_for(domain_size, buckets).q == buckets
    except TaskError:
        return False


class _HashIncidence:
    """A cell (seed, bucket) supports the items that the seed hashes to the bucket."""

    def __init__(self, family: HashFamily, places: NDArray[np.int64]) -> None:
        self._family = family
        self._places = places

    def forward(self, theta: Vector) -> Vector:
        spread = np.zeros(self._family.points)
        spread[self._places] = theta
        return self._family.forward(spread)

    def adjoint(self, weights: Vector) -> Vector:
        return self._family.adjoint(weights)[self._places]


@dataclass(frozen=True)
class LocalHashing(OddsOfWeights, SupportCounting):
    """
    Hash the item with a fresh uniform seed, then randomized response over the buckets.

    A report (seed, bucket) supports every item that its seed hashes to its bucket. The seed is
    drawn whatever the value, so that the bucket gives away the odds of the weights.
    """

    domain_size: int
    family: HashFamily
    weights: ResponseWeights
    nonce: bytes
    """The task's nonce; keys the public placement of items in the field."""

    @classmethod
    def specify(cls, wanted: MechanismRequest) -> MechanismSpec:
        """
        Find the field for so many buckets.

        Raises:
            TaskError: They are not prime or not below domain_size, or the field gets too large.
        """
        weights = ResponseWeights.for_epsilon(wanted.local_epsilon)
        family = family_for(wanted.domain_size, wanted.buckets)
        return wanted.spec(weights, buckets=family.q, digits=family.t, dtype=REPORT_DTYPE)

    @classmethod
    def of(cls, task: Task) -> Self:
        """
        Build it from a task.

        Raises:
            TaskError: Its buckets and digits make no field that can be decoded.
        """
        spec = task.item_mechanism
        family = HashFamily.holding(task.domain_size, spec.buckets, spec.digits)
        return cls(task.domain_size, family, ResponseWeights.of(spec), task.nonce)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """A 64-bit seed and a 32-bit bucket."""
        return REPORT_DTYPE

    @cached_property
    def _total(self) -> int:
        return self.weights.total(self.family.q)

    @property
    def p(self) -> float:
        """Weight true / W: the own item is supported when randomized response keeps its bucket."""
        return self.weights.true / self._total

    @property
    def q(self) -> float:
        """1/g exactly: another item collides with probability 1/g, whatever the response."""
        return 1 / self.family.q

    @property
    def q_dummy(self) -> float:
        """1/g: a dummy is a uniform seed and a uniform bucket."""
        return 1 / self.family.q

    @property
    def reduction(self) -> MatchCountReduction:
        """Pairwise independent, because every seed can be drawn, 0 included."""
        return MatchCountReduction.for_weights(
            answers=self.family.q, weights=self.weights, hashed=True
        )

    @cached_property
    def _place(self) -> Placement:
        return Placement(self.family.points, self.nonce)

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """
        Randomize each value. Run by the user agent.

        Args:
            values: Items, shape (n,), each in 0 .. domain_size-1.
            rng: Source of randomness.

        Returns:
            n reports, fields seed (uint64, below g^t) and bucket (uint32, below g).

        Raises:
            ValueRangeError: A value lies outside the domain.
        """
        check_values(values, self.domain_size)
        seeds = self._seeds(len(values), rng)
        truth = self.family.hash(seeds, self._place(values))
        return self._pack(seeds, self.weights.respond(truth, self.family.q, rng))

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """
        Draw `count` uniform reports. Run by the user agent.

        Each has a fresh seed of its own. With the user's seed, as OD-HP prints it, a user's
        messages could be told from all others and the published theorem is false.
        """
        buckets = rng.integers(0, self.family.q, size=count, dtype=np.int64)
        return self._pack(self._seeds(count, rng), buckets)

    def _seeds(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.integers(0, self.family.seeds, size=count, dtype=np.int64)

    def _pack(self, seeds: NDArray[np.int64], buckets: NDArray[np.int64]) -> Reports:
        reports = np.empty(seeds.shape, dtype=REPORT_DTYPE)
        reports["seed"] = seeds
        reports["bucket"] = buckets
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports have a seed below g^t and a bucket below g. Run by the analyzer."""
        inside: NDArray[np.bool_] = (reports["seed"] < self.family.seeds) & (
            reports["bucket"] < self.family.q
        )
        return inside

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Say which reports' seeds hash an item to their buckets. Run by auditors."""
        supported: NDArray[np.bool_] = self.hashed(reports, item) == reports["bucket"]
        return supported

    def hashed(self, reports: Reports, item: int) -> NDArray[np.int64]:
        """Hash an item with each report's seed, to a bucket below g. Run by auditors."""
        place = self._place(np.array([item], dtype=np.int64))
        return self.family.hash(reports["seed"].astype(np.int64), place)

    def tally(self, reports: Reports) -> Counts:
        """
        Count reports by cell. Run by the analyzer.

        Returns:
            Counts of shape (rows · g,), see HashFamily.

        Raises:
            ReportError: A seed or a bucket is out of range.

        Cost: one pass over the reports.
        """
        seeds, buckets = reports["seed"], reports["bucket"]
        # Two maxima cost half of what `valid` does, and counting is what large batches wait for.
        if len(reports) and (seeds.max() >= self.family.seeds or buckets.max() >= self.family.q):
            raise ReportError(
                f"a seed is not below {self.family.seeds} or a bucket not below {self.family.q}"
            )
        return self.family.tally(seeds, buckets)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the counts by cell that users and dummies would come to.

        Who answers truthfully draws a seed as on the device. All the others are uniform over seeds
        and buckets: one multinomial draw over the cells.

        Cost: a seed for each truthful user, and a binomial draw a cell.
        """
        truthful = rng.binomial(users, self.reduction.signal)
        values = np.repeat(np.arange(self.domain_size, dtype=np.int64), truthful)
        seeds = self._seeds(len(values), rng)
        cells = self.family.tally(
            seeds.astype(np.uint64), self.family.hash(seeds, self._place(values)).astype(np.uint32)
        )
        rest = int(users.sum() - truthful.sum()) + n_dummies
        return cells + rng.multinomial(rest, self._row_chances)

    @cached_property
    def _row_chances(self) -> Vector:
        """How likely a uniform report falls into each cell."""
        rows = np.full(self.family.rows, (self.family.q - 1) / self.family.seeds)
        rows[0] = 1 / self.family.seeds  # seed 0 stands alone; others with their q-1 multiples
        return np.repeat(rows, self.family.q) / self.family.q

    @cached_property
    def _incidence(self) -> _HashIncidence:
        places = self._place(np.arange(self.domain_size, dtype=np.int64))
        return _HashIncidence(self.family, places)

    def support_counts(self, cells: Counts) -> Counts:
        """
        Count, for every item, the reports that support it [WBLJ17].

        Args:
            cells: Counts by cell, from `tally`.

        Returns:
            Counts of shape (domain_size,), exact to the integer.

        Cost: two Fourier transforms of size g^t at most; memory O(g^t).
        """
        return np.rint(self._incidence.adjoint(cells.astype(np.float64))).astype(np.int64)

    def channel(self, real_share: float) -> Channel:
        """Give the law of a cell when a share real_share of reports are users' own."""
        other = self.weights.other / self._total
        return Channel(
            incidence=self._incidence,
            scale=self._row_chances * self.family.q,
            kept=real_share * self.reduction.signal,
            floor=real_share * other + (1 - real_share) / self.family.q,
        )
