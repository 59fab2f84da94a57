"""
Local hashing [WBLJ17] of strings: for open domains, whose candidates the device need not know.

A string's keyed BLAKE2b digest (128 bits, keyed by the task's nonce) and a uniform 64-bit seed are
mixed to 64 bits, which are scaled to the buckets. For a given string the mixed word is a bijection
of the seed, so that its bucket is uniform over seeds to 2^-64. That two strings collide under one
seed in g is what good mixing makes so, as tests measure; unlike `local_hashing` it is not proven,
and no seed can be told from another's buckets but by trying: decoding is a pass over all pairs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError, TaskError
from common.mechanisms.base import Counts, MechanismRequest, Reports, check_answers, check_values
from common.mechanisms.hashing.local_hashing import REPORT_DTYPE
from common.mechanisms.hashing.placement import mix
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.support import SupportCounting
from common.mechanisms.weights import OddsOfWeights, ResponseWeights
from common.task.specs import MechanismSpec
from common.task.task import Task

Words = NDArray[np.uint64]

DIGEST_BYTES: Final = 16
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_MOST_SEED: Final = 2**64 - 1
_CHUNK: Final = 1 << 15
"""Pairs of candidate and report that are hashed at a time, so that the work stays in the cache."""


def bucket_of(seeds: Words, digests: Words, buckets: int) -> Words:
    """
    Hash strings with seeds.

    Args:
        seeds: Any 64-bit words.
        digests: Two words for each string, shape (..., 2); the rest broadcasts with seeds.
        buckets: g, at least 1 and below 2^32.

    Returns:
        Buckets below g: ⌊word · g / 2^64⌋, computed in halves.
    """
    word = mix(mix(seeds ^ digests[..., 0]) + digests[..., 1])
    scale = np.uint64(buckets)
    low = ((word & _LOW) * scale) >> _HALF
    bucket: Words = ((word >> _HALF) * scale + low) >> _HALF
    return bucket


@dataclass(frozen=True)
class StringHashing(OddsOfWeights, SupportCounting):
    """
    Hash the string with a fresh uniform seed, then randomized response over the buckets.

    A report (seed, bucket) supports every candidate that its seed hashes to its bucket. The seed is
    drawn whatever the value, so that the bucket gives away the odds of the weights.
    """

    candidates: tuple[str, ...]
    """Whose shares are estimated: the task's labels. A device may hold any other string."""
    buckets: int
    weights: ResponseWeights
    nonce: bytes
    """The task's nonce; keys the digests."""

    def __post_init__(self) -> None:
        if not self.candidates:
            raise TaskError("there are no labels; hashing strings needs candidates")
        try:
            "".join(self.candidates).encode()
        except UnicodeEncodeError as error:
            raise TaskError("a label is not text that UTF-8 can write") from error
        _ = self._total

    @classmethod
    def specify(cls, wanted: MechanismRequest) -> MechanismSpec:
        """
        Take as many buckets as wanted, prime or not.

        Raises:
            TaskError: There are fewer than two, or local_epsilon is out of range.
        """
        weights = ResponseWeights.for_epsilon(wanted.local_epsilon)
        return wanted.spec(weights, buckets=wanted.buckets, dtype=REPORT_DTYPE)

    @classmethod
    def of(cls, task: Task) -> Self:
        """
        Build it from a task.

        Raises:
            TaskError: It has no labels, or digits, which are for another way of hashing.
        """
        spec = task.item_mechanism
        check_answers(spec, spec.buckets)
        return cls(task.labels, spec.buckets, ResponseWeights.of(spec), task.nonce)

    @property
    def domain_size(self) -> int:
        """How many candidates there are."""
        return len(self.candidates)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """A 64-bit seed and a 32-bit bucket."""
        return REPORT_DTYPE

    @cached_property
    def _total(self) -> int:
        return self.weights.total(self.buckets)

    @property
    def p(self) -> float:
        """Weight true / W: the own string is supported when its bucket is kept."""
        return self.weights.true / self._total

    @property
    def q(self) -> float:
        """1/g: what good mixing makes of another string."""
        return 1 / self.buckets

    @property
    def q_dummy(self) -> float:
        """1/g: a dummy is a uniform seed and a uniform bucket."""
        return 1 / self.buckets

    @property
    def reduction(self) -> MatchCountReduction:
        """
        Nothing is known of any two strings, so that their collision probability is taken for 0.

        A uniform report supports a string with chance 1/g to 2^-64, which counts as exact.
        """
        return MatchCountReduction.for_weights(
            answers=self.buckets, weights=self.weights, hashed=True, collision=0.0
        )

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """
        Randomize each candidate, given by number. Run by the user agent.

        Args:
            values: Numbers of candidates, shape (n,), each in 0 .. domain_size-1.
            rng: Source of randomness.

        Returns:
            n reports, fields seed (uint64) and bucket (uint32, below g).

        Raises:
            ValueRangeError: A value lies outside the domain.
        """
        check_values(values, self.domain_size)
        used, which = np.unique(values, return_inverse=True)
        names = [self.candidates[item].encode() for item in used]
        return self._respond(self._digests(names)[which], rng)

    def randomize_strings(self, values: Sequence[bytes], rng: np.random.Generator) -> Reports:
        """
        Randomize each string, candidate or not. Run by the user agent.

        Args:
            values: Any byte strings; a candidate's is its label in UTF-8.
            rng: Source of randomness.

        Returns:
            As many reports, fields seed (uint64) and bucket (uint32, below g).
        """
        return self._respond(self._digests(values), rng)

    def _respond(self, digests: Words, rng: np.random.Generator) -> Reports:
        seeds = self._seeds(len(digests), rng)
        truth = bucket_of(seeds, digests, self.buckets).astype(np.int64)
        return self._pack(seeds, self.weights.respond(truth, self.buckets, rng))

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw `count` uniform reports, each with a seed of its own. Run by the user agent."""
        buckets = rng.integers(0, self.buckets, size=count, dtype=np.int64)
        return self._pack(self._seeds(count, rng), buckets)

    def _digests(self, strings: Sequence[bytes]) -> Words:
        """Give two words for each string, shape (n, 2)."""
        digests = (
            hashlib.blake2b(string, digest_size=DIGEST_BYTES, key=self.nonce).digest()
            for string in strings
        )
        words = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
        return words.reshape(-1, 2)

    def _seeds(self, count: int, rng: np.random.Generator) -> Words:
        return rng.integers(0, _MOST_SEED, size=count, dtype=np.uint64, endpoint=True)

    def _pack(self, seeds: Words, buckets: NDArray[np.int64]) -> Reports:
        reports = np.empty(seeds.shape, dtype=REPORT_DTYPE)
        reports["seed"] = seeds
        reports["bucket"] = buckets
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports have a bucket below g; every seed is one. Run by the analyzer."""
        inside: NDArray[np.bool_] = reports["bucket"] < self.buckets
        return inside

    @cached_property
    def _candidate_digests(self) -> Words:
        return self._digests([name.encode() for name in self.candidates])

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Say which reports' seeds hash a candidate to their buckets. Run by auditors."""
        supported: NDArray[np.bool_] = self.hashed(reports, item) == reports["bucket"]
        return supported

    def hashed(self, reports: Reports, item: int) -> NDArray[np.int64]:
        """Hash a candidate with each report's seed, to a bucket below g. Run by auditors."""
        digest = self._candidate_digests[item]
        return bucket_of(reports["seed"].astype(np.uint64), digest, self.buckets).astype(np.int64)

    def tally(self, reports: Reports) -> Counts:
        """
        Count, for every candidate, the reports that support it. Run by the analyzer.

        Returns:
            Counts of shape (domain_size,).

        Raises:
            ReportError: A bucket is out of range.

        Cost: one hash for every pair of report and candidate, some 10 ns each, where the field of
        `local_hashing` takes one transform; memory for a chunk of pairs.
        """
        if not self.valid(reports).all():
            raise ReportError(f"a bucket is not below {self.buckets}")
        counts = np.zeros(self.domain_size, dtype=np.int64)
        for start in range(0, len(reports), _CHUNK):
            part = reports[start : start + _CHUNK]
            seeds, buckets = part["seed"].astype(np.uint64), part["bucket"].astype(np.uint64)
            step = max(1, _CHUNK // len(part))
            for first in range(0, self.domain_size, step):
                digests = self._candidate_digests[first : first + step, None, :]
                supported = bucket_of(seeds, digests, self.buckets) == buckets
                counts[first : first + step] += supported.sum(axis=1)
        return counts

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the reports of users and dummies, and count them.

        If hashes were independent, so would all candidates' counts be, and binomial. Of this hash
        no more than a test of pairs is known: only the reports themselves have their law for sure.

        Cost: that of `tally`.
        """
        values = np.repeat(np.arange(self.domain_size, dtype=np.int64), users)
        own, dummies = self.randomize(values, rng), self.dummies(n_dummies, rng)
        return self.tally(own) + self.tally(dummies)

    def support_counts(self, cells: Counts) -> Counts:
        """Give the cells themselves: `tally` counts support."""
        return cells

    def channel(self, real_share: float) -> None:
        """Give nothing: cells are candidates, and a report falls into several."""
        del real_share
