"""Local hashing [WBLJ17] over a finite field: two items collide with probability exactly 1/g."""

import hashlib
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import ReportError, TaskError
from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.base import Counts, Reports, Vector
from shuffledp.common.mechanisms.hashing import finite_field
from shuffledp.common.mechanisms.hashing.finite_field import HashFamily
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.support import AnswerCounting
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.common.task.task import Task

_MULTIPLIER_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MULTIPLIER_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(33)


def mix(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble words with the 64-bit finalizer of MurmurHash3; multiplication wraps."""
    word = (word ^ (word >> _SHIFT)) * _MULTIPLIER_1
    word = (word ^ (word >> _SHIFT)) * _MULTIPLIER_2
    return word ^ (word >> _SHIFT)


_LABEL: Final = b"shuffledp v1 placement"
_ROUNDS: Final = 4


@dataclass(frozen=True)
class Placement:
    """
    A public permutation of 0 .. size-1 that is the same in every version.

    It is a four-round Feistel network [LR88] on an even number of bits, repeated until the result
    is below size (cycle walking [BR02]), at most four times on average. The round function is the
    64-bit finalizer of MurmurHash3, keyed by SHA-256(label ‖ nonce).
    """

    size: int
    nonce: bytes

    def __call__(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map items, (n,), to distinct points below `size`. Run by user agent and analyzer."""
        keys = np.frombuffer(hashlib.sha256(_LABEL + self.nonce).digest(), dtype="<u8")
        half = np.uint64(max(1, ((self.size - 1).bit_length() + 1) // 2))
        points = self._network(items.astype(np.uint64), keys, half)
        while (outside := points >= self.size).any():
            points[outside] = self._network(points[outside], keys, half)
        return points.astype(np.int64)

    @staticmethod
    def _network(
        points: NDArray[np.uint64], keys: NDArray[np.uint64], half: np.uint64
    ) -> NDArray[np.uint64]:
        """Apply the Feistel network to words of two halves of `half` bits."""
        mask = (np.uint64(1) << half) - np.uint64(1)
        left, right = points >> half, points & mask
        for key in keys[:_ROUNDS]:
            left, right = right, left ^ (mix(right ^ key) & mask)
        return (left << half) | right


MIN_CANONICAL_SEEDS: Final = 50
"""Minimum number of canonical seeds: with fewer, the errors of different items are correlated."""


def family_for(domain_size: int, buckets: int) -> HashFamily:
    """
    Return the family over the field of `buckets` elements with the fewest digits for the items.

    More digits are used only to reach MIN_CANONICAL_SEEDS canonical seeds. Raises TaskError if
    buckets is not prime or not below domain_size, or there are too many seeds.
    """
    if buckets >= domain_size:
        raise TaskError(
            f"buckets is {buckets} and domain_size is {domain_size}: "
            "hashing needs fewer buckets than items"
        )
    finite_field.check_prime(buckets)
    digits = finite_field.MIN_DIGITS
    while (
        buckets**digits < domain_size
        or sum(buckets**digit for digit in range(digits)) < MIN_CANONICAL_SEEDS
    ):
        digits += 1
    return HashFamily.holding(domain_size, buckets, digits)


def optimal_buckets(local_epsilon: float, domain_size: int) -> int:
    """
    Return the prime number g of buckets that minimizes the variance of rare items [WBLJ17].

    n·Var = (e^ε - 1 + g)² / ((e^ε - 1)²·(g - 1)) is least at g = e^ε + 1. GRR may be better still.

    The local ε may be infinite. Raises TaskError if no field fits, because there are at most 2
    items or more than MAX_SEEDS. Cost: a test of each number up to √MAX_SEEDS, about 20 ms.
    """
    primes = fields(domain_size)
    if not len(primes):
        raise TaskError(f"domain_size is {domain_size}; hashing needs more than 2 items")
    inverse = math.exp(-local_epsilon)
    return int(min(primes, key=lambda prime: (1 + (prime - 1) * inverse) ** 2 / (prime - 1)))


def most_seeds(groups: int) -> int:
    """
    Return the most seeds of a task, so that the errors of all groups take about a minute of a core.

    Two transforms for each group take some 70 s for 2^28 seeds in all, as measured for 2^21.
    """
    return min(finite_field.MAX_SEEDS, 2**28 // groups)


@lru_cache(maxsize=16)
def fields(domain_size: int, most_seeds: int = finite_field.MAX_SEEDS) -> Vector:
    """Return the primes whose hash families for the domain have at most `most_seeds` seeds."""
    limit = min(domain_size, math.isqrt(finite_field.MAX_SEEDS) + 1)
    found = [float(g) for g in range(2, limit) if 0 < seeds_of(domain_size, g) <= most_seeds]
    return np.array(found, dtype=np.float64)


@lru_cache(maxsize=1 << 16)
def seeds_of(domain_size: int, buckets: int) -> int:
    """Return the number of seeds of a hash family; 0 if there is no family."""
    try:
        return family_for(domain_size, buckets).seeds
    except TaskError:
        return 0


REPORT_DTYPE: Final = np.dtype([("seed", "<u8"), ("bucket", "<u4")])


class HashedResponse(AnswerCounting):
    """
    Hash the value with a fresh uniform seed, then apply randomized response over the buckets.

    A report (seed, bucket) supports every value that its seed hashes to its bucket. The seed is
    independent of the value, so the odds of the weights bound the privacy loss.
    """

    @abstractmethod
    def _hash(self, seeds: NDArray[Any], items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hash items with seeds to buckets below g; both have the shape (n,), or (1,)."""

    @abstractmethod
    def _seeds(self, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw `count` uniform seeds."""

    report_dtype = REPORT_DTYPE
    """A 64-bit seed and a 32-bit bucket."""

    @property
    def q(self) -> float:
        """Probability 1/g that a seed hashes another value to the reported bucket."""
        return 1 / self.answers

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """
        Draw `count` uniform reports, each with a fresh seed. Run by the user agent.

        Reusing the seed of the user's report, as the printed OD-HP does [CC24], would link the
        user's messages and make the published theorem false.
        """
        buckets = rng.integers(0, self.answers, size=count, dtype=np.int64)
        return base.reports_of(REPORT_DTYPE, seed=self._seeds(count, rng), bucket=buckets)

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        values = base.check_values(values, self.domain_size)
        seeds = self._seeds(len(values), rng)
        buckets = self.weights.respond(self._hash(seeds, values), self.answers, rng)
        return base.reports_of(REPORT_DTYPE, seed=seeds, bucket=buckets)

    def hashed(self, reports: Reports, item: int) -> NDArray[np.int64]:
        """Hash an item with each report's seed: buckets below g, shape (n,). Run by auditors."""
        return self._hash(reports["seed"], np.array([item], dtype=np.int64))

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        return np.asarray(self.hashed(reports, item) == reports["bucket"])


@dataclass(frozen=True)
class LocalHashing(HashedResponse):
    """Local hashing with the hash family over a finite field."""

    domain_size: int
    family: HashFamily
    weights: ResponseWeights
    nonce: bytes
    """The task's nonce, which keys the public placement of items in the field."""

    @classmethod
    def specify(cls, request: base.MechanismRequest) -> MechanismSpec:
        weights = ResponseWeights.for_epsilon(request.local_epsilon)
        family = family_for(request.domain_size, request.buckets)
        if family.seeds > most_seeds(request.groups):
            raise TaskError(
                f"{family.t} digits in base {family.q} give {family.seeds} seeds; with "
                f"{request.groups} groups at most {most_seeds(request.groups)} are possible"
            )
        return request.spec(weights, buckets=family.q, digits=family.t, dtype=REPORT_DTYPE)

    @classmethod
    def of(cls, task: Task) -> Self:
        spec = task.item_mechanism
        family = HashFamily.holding(task.domain_size, spec.buckets, spec.digits)
        return cls(task.domain_size, family, ResponseWeights.of(spec), task.nonce)

    @property
    def answers(self) -> int:
        return self.family.q

    @property
    def reduction(self) -> MatchCountReduction:
        """
        Match count with collision 1/g, because every seed can be drawn, 0 included.

        With more items than lines through one of them, some three lie on a line.
        """
        reduction = MatchCountReduction.for_weights(
            answers=self.family.q, weights=self.weights, hashed=True
        )
        on_a_line = self.domain_size > self.family.rows  # a row for each line, and one for seed 0
        return reduction if on_a_line else replace(reduction, third_value="independent")

    @cached_property
    def _place(self) -> Placement:
        return Placement(self.family.points, self.nonce)

    def _hash(self, seeds: NDArray[Any], items: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.family.hash(seeds.astype(np.int64), self._place(items))

    def _seeds(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.integers(0, self.family.seeds, size=count, dtype=np.int64)

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return (reports["seed"] < self.family.seeds) & (reports["bucket"] < self.family.q)

    def tally(self, reports: Reports) -> Counts:
        """Count reports by cell, (rows · g,), as `HashFamily.tally` does. Run by the analyzer."""
        seeds, buckets = reports["seed"], reports["bucket"]
        # Faster than `valid`: two maxima cost half as much.
        if len(reports) and (seeds.max() >= self.family.seeds or buckets.max() >= self.family.q):
            raise ReportError(
                f"a seed is not below {self.family.seeds} or a bucket not below {self.family.q}"
            )
        return self.family.tally(seeds, buckets)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw a seed for each truthful report, and all other reports by one multinomial draw.

        A report is truthful with probability `signal` and uniform over seeds and buckets otherwise.
        Cost: a seed for each truthful user, and a binomial draw for each cell.
        """
        truthful = rng.binomial(users, self.reduction.signal)
        values = np.repeat(np.arange(self.domain_size, dtype=np.int64), truthful)
        seeds = self._seeds(len(values), rng)
        buckets = self._hash(seeds, values).astype(np.uint32)
        cells = self.family.tally(seeds.astype(np.uint64), buckets)
        n_uniform = int(users.sum() - truthful.sum()) + n_dummies
        return cells + rng.multinomial(n_uniform, self._uniform_cells)

    @cached_property
    def _uniform_cells(self) -> Vector:
        """Return the probability of each cell under a uniform report."""
        rows = np.full(self.family.rows, (self.family.q - 1) / self.family.seeds)
        rows[0] = 1 / self.family.seeds  # seed 0 alone; other rows have q-1 multiples of a seed
        return np.repeat(rows, self.family.q) / self.family.q

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        return self._place(np.arange(self.domain_size, dtype=np.int64))

    def _forward(self, theta: Vector) -> Vector:
        spread = np.zeros(self.family.points)
        spread[self._places] = theta
        return self.family.forward(spread)

    def _adjoint(self, weights: Vector) -> Vector:
        return self.family.adjoint(weights)[self._places]

    def support_counts(self, cells: Counts) -> Counts:
        """
        Count the reports that support each item [WBLJ17], exact to the integer.

        Cost: two Fourier transforms of size g^t at most; memory O(g^t).
        """
        return np.rint(self._adjoint(cells.astype(np.float64))).astype(np.int64)

    @cached_property
    def support_sizes(self) -> tuple[int, int]:
        """Fewest and most items, but for none and all, that a report supports: one transform."""
        sizes = np.rint(self._forward(np.ones(self.domain_size))).astype(np.int64)
        return int(sizes[sizes > 0].min()), int(sizes[sizes < self.domain_size].max())

    def channel(self, real_share: float) -> base.Channel:
        other = self.weights.other / self._total
        return base.Channel(
            incidence=base.Incidence(self._forward, self._adjoint),
            scale=self._uniform_cells * self.family.q,
            signal=real_share * self.reduction.signal,
            floor=real_share * other + (1 - real_share) / self.family.q,
        )

    def linear(self, real_share: float) -> base.Linear:
        return self.summed_cells(self.channel(real_share))
