"""
Local hashing [WBLJ17] of arbitrary strings by a seeded general-purpose hash.

A uniform 64-bit seed and the string's digest (128-bit BLAKE2b, keyed by the task's nonce) are mixed
to 64 bits and scaled to the buckets. For a given string the mixed word is a bijection of the seed,
so the bucket is uniform over seeds, to within 2^-64. A collision probability of 1/g relies on good
mixing: tests measure it, but unlike in `local_hashing` it is not proven. Decoding hashes every pair
of report and candidate.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.base import Counts, Reports
from shuffledp.common.mechanisms.bits import chunks
from shuffledp.common.mechanisms.hashing.local_hashing import REPORT_DTYPE, HashedResponse, mix
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.support import IndependentSupport
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.common.task.task import Task

Words = NDArray[np.uint64]

DIGEST_BYTES: Final = 16
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_CHUNK: Final = 1 << 15
"""Pairs of candidate and report hashed at a time, to fit the cache."""


def bucket_of(seeds: Words, digests: Words, buckets: int) -> Words:
    """
    Hash strings with seeds, any 64-bit words, to buckets ⌊word · g / 2^64⌋ below g < 2^32.

    There are two words for each string, shape (..., 2); the first axes broadcast with seeds.
    """
    word = mix(mix(seeds ^ digests[..., 0]) + digests[..., 1])
    scale = np.uint64(buckets)
    low = ((word & _LOW) * scale) >> _HALF  # in halves, so that no product reaches 2^64
    return ((word >> _HALF) * scale + low) >> _HALF


@dataclass(frozen=True)
class StringHashing(IndependentSupport, HashedResponse):
    """Local hashing of strings, estimated for a list of candidates."""

    candidates: tuple[str, ...]
    """The task's labels, at least one."""
    buckets: int
    weights: ResponseWeights
    nonce: bytes
    """The task's nonce, which keys the digests."""

    @classmethod
    def specify(cls, request: base.MechanismRequest) -> MechanismSpec:
        weights = ResponseWeights.for_epsilon(request.local_epsilon)
        return request.spec(weights, buckets=request.buckets, dtype=REPORT_DTYPE)

    @classmethod
    def of(cls, task: Task) -> Self:
        spec = task.item_mechanism
        base.check_answers(spec, spec.buckets)
        return cls(task.labels, spec.buckets, ResponseWeights.of(spec), task.nonce)

    @property
    def domain_size(self) -> int:  # type: ignore[override]  # a field elsewhere
        """Number of candidates."""
        return len(self.candidates)

    @property
    def answers(self) -> int:
        return self.buckets

    @property
    def reduction(self) -> MatchCountReduction:
        """
        Match count with collision probability 0, since nothing is proven about two strings.

        A uniform report supports a string with probability 1/g; an error of 2^-64 is ignored.
        """
        return MatchCountReduction.for_weights(
            answers=self.buckets, weights=self.weights, hashed=True, collision=0.0
        )

    def _hash(self, seeds: NDArray[Any], items: NDArray[np.int64]) -> NDArray[np.int64]:
        found, which = np.unique(items, return_inverse=True)
        digests = self._digests([self.candidates[item].encode() for item in found])[which]
        return bucket_of(seeds.astype(np.uint64), digests, self.buckets).astype(np.int64)

    def _digests(self, strings: Sequence[bytes]) -> Words:
        """Return two words for each string, shape (n, 2)."""
        digests = (
            hashlib.blake2b(string, digest_size=DIGEST_BYTES, key=self.nonce).digest()
            for string in strings
        )
        words = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
        return words.reshape(-1, 2)

    def _seeds(self, count: int, rng: np.random.Generator) -> Words:
        return rng.integers(0, 2**64 - 1, size=count, dtype=np.uint64, endpoint=True)

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return reports["bucket"] < self.buckets

    @cached_property
    def _candidate_digests(self) -> Words:
        return self._digests([name.encode() for name in self.candidates])

    def tally(self, reports: Reports) -> Counts:
        """
        Count the reports that support each candidate. Run by the analyzer.

        Cost: a hash for each pair of report and candidate, about 10 ns; memory for 32,768 pairs.
        """
        base.check_valid(self.valid(reports), f"a bucket is not below {self.buckets}")
        counts = np.zeros(self.domain_size, dtype=np.int64)
        for part in chunks(len(reports), 1, _CHUNK):
            seeds = reports["seed"][part].astype(np.uint64)
            buckets = reports["bucket"][part].astype(np.uint64)
            for some in chunks(self.domain_size, len(seeds), _CHUNK):
                digests = self._candidate_digests[some, None, :]
                supported = bucket_of(seeds, digests, self.buckets) == buckets
                counts[some] += supported.sum(axis=1)
        return counts

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw and count every report, at the cost of `tally`.

        Independent binomial counts would assume independent hashes, which is not proven.
        """
        values = np.repeat(np.arange(self.domain_size, dtype=np.int64), users)
        own, dummies = self.randomize(values, rng), self.dummies(n_dummies, rng)
        return self.tally(own) + self.tally(dummies)
