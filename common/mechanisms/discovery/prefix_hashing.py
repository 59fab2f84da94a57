"""
Local hashing of a random part of a value that no list holds.

A value is a vector over the field F_g, for a prime g of at least 257: the bytes of a code or, to
spell a text, the number of its label and then its bytes. A level hashes some elements of the
vector. A report holds a uniform level, a uniform seed a, **0 included**, and the randomized bucket
of Σ a_j·v_j mod g over the elements v_j of its level [WBLJ17]. Two values that differ in one of
these elements collide with probability exactly 1/g; two that do not send the same reports.

A uniform report supports a value with probability 1/g, whatever its level, and two values with
probability 1/g² if they differ at every level. So the privacy of local hashing holds, among all
users of all levels; pairs that agree at some levels are safer (docs/theory/accounting.md).
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.base import Reports
from shuffledp.common.mechanisms.hashing.finite_field import check_prime, is_prime
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.weights import OddsOfWeights, ResponseWeights
from shuffledp.common.task.draft import OpenDraft
from shuffledp.common.task.specs import OPEN_BUCKETS, OpenEncoding, OpenSpec

Columns = tuple[tuple[int, ...], ...]
"""The elements of a value that each level hashes, filled up with -1 to one length."""
FIRST_BYTES: Final = 2
"""Bytes of a code that the first level hashes; each further level hashes one more."""


@dataclass(frozen=True)
class PrefixHashing(OddsOfWeights, base.Randomizer):
    """
    Hash a random part of the value with a fresh uniform seed; randomized response over buckets.

    The seed and the level are independent of the value, so the odds of the weights bound the
    privacy loss.
    """

    FACTORS: ClassVar[int] = 1

    buckets: int
    """g, a prime; from 257 on unless a test uses fewer elements."""
    columns: Columns
    weights: ResponseWeights

    def __post_init__(self) -> None:
        check_prime(self.buckets)

    @classmethod
    def specify(cls, request: OpenDraft, buckets: int, local_epsilon: float) -> OpenSpec:
        """
        Compute a task's integer weights and sizes, or raise TaskError. Run by the analyzer.

        If `buckets` is 0, they are the prime nearest to e^ε + 1, which minimizes the variance of
        rare values [WBLJ17].
        """
        weights = ResponseWeights.for_epsilon(local_epsilon)
        width = 2 if request.encoding == "spell" else request.code_bytes
        spec = OpenSpec(
            name="prefix-hashing",
            encoding=cast("OpenEncoding", request.encoding),  # checked by OpenSpec
            buckets=buckets or best_buckets(local_epsilon),
            true_weight=weights.true,
            other_weight=weights.other,
            code_bytes=request.code_bytes,
            most_bytes=request.most_bytes,
            report_bytes=2 * width + 3,  # checked by `of`
        )
        cls.of(spec)
        return spec

    @classmethod
    def of(cls, spec: OpenSpec) -> Self:
        """Build the mechanism of a task. Run by the user agent and the analyzer."""
        if spec.encoding == "spell":
            columns: Columns = tuple((0, 1 + place) for place in range(spec.most_bytes))
        else:
            size, first = spec.code_bytes, min(FIRST_BYTES, spec.code_bytes)
            ends = range(first, size + 1)
            columns = tuple((*range(end), *[-1] * (size - end)) for end in ends)
        mechanism = cls(spec.buckets, columns, ResponseWeights.of(spec))
        base.check_report_bytes(spec, mechanism.report_dtype)
        return mechanism

    @property
    def levels(self) -> int:
        """Number of levels: lengths of the hashed prefix or, to spell texts, positions."""
        return len(self.columns)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        seed = ("seed", "<u2", (len(self.columns[0]),))
        return np.dtype([("level", "u1"), seed, ("bucket", "<u2")])

    @cached_property
    def reduction(self) -> MatchCountReduction:
        """Match count of two values that differ at every level, the worst pair."""
        return MatchCountReduction.for_weights(
            answers=self.buckets, weights=self.weights, hashed=True
        )

    @property
    def p(self) -> float:
        """Probability true / W of the true bucket, where W is the sum of all weights."""
        return self.weights.true / self.weights.total(self.buckets)

    @property
    def q(self) -> float:
        """Probability 1/g that a report supports a value whose part nobody holds."""
        return 1 / self.buckets

    def hashed(self, reports: Reports, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hash n values, (n, elements), with the levels and seeds of n reports; return buckets."""
        padded = np.pad(values, ((0, 0), (0, 1)))
        parts = np.take_along_axis(padded, np.array(self.columns)[reports["level"]], axis=1)
        return np.asarray((reports["seed"] * parts).sum(axis=1) % self.buckets)

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """
        Return a report for each value, given as elements, (n, elements). Run by the user agent.

        Raises ValueRangeError if an element is not below g.
        """
        values = base.check_values(values, self.buckets)
        reports = np.empty(len(values), dtype=self.report_dtype)
        reports["level"] = rng.integers(0, self.levels, size=len(values), dtype=np.int64)
        reports["seed"] = rng.integers(0, self.buckets, size=reports["seed"].shape, dtype=np.int64)
        truth = self.hashed(reports, values)
        reports["bucket"] = self.weights.respond(truth, self.buckets, rng)
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        largest = np.maximum(reports["seed"].max(axis=1), reports["bucket"])
        return np.asarray((reports["level"] < self.levels) & (largest < self.buckets))

    def tally(self, reports: Reports) -> Reports:
        """Return the reports, which `find_codes` and `spell` need; raise ReportError for others."""
        base.check_valid(
            self.valid(reports), f"a level is not below {self.levels}, or a number {self.buckets}"
        )
        return reports


def best_buckets(local_epsilon: float) -> int:
    """Return the prime of OPEN_BUCKETS nearest to e^ε + 1."""
    least, most = OPEN_BUCKETS
    best = math.exp(local_epsilon) + 1
    by_distance = sorted(range(least, most + 1), key=lambda number: abs(number - best))
    return next(filter(is_prime, by_distance))


def code_of(text: bytes, length: int) -> bytes:
    """Return the code of a longer text in UTF-8: the start of its SHA-256."""
    return hashlib.sha256(text).digest()[:length]


def elements_of(content: bytes, length: int, *first: int) -> NDArray[np.int64]:
    """Return `first`, then bytes filled up with zeros to `length`, as one row of elements."""
    return np.array([[*first, *content.ljust(length, b"\0")]], dtype=np.int64)
