"""
Mechanisms that report a random sample of a user's numbers: Harmony, Multi-HM and Multi-RPHM.

The coordinates of a report are a uniform k-subset of the d coordinates, independent of the numbers.
A mechanism for one number randomizes each of the k numbers at ε/k. A report represents d/k times
the numbers of its codes, and 0 at every other coordinate: its expectation is the user's numbers.

Multi-RPHM [Sun+20] is Multi-HM on a random projection to fewer dimensions. A vector t becomes
x = clip(tR, -1, 1), for a public d × q matrix R with orthonormal columns, derived from the task's
nonce. The mean of x is estimated and mapped back by Rᵀ.

This is biased: it loses the part orthogonal to R, on average a share 1 - q/d of the squared
means, and clipping distorts it slightly. Averaged over R, the estimate is the mean times q/d, with
the noise of Multi-HM times q/d. Scaling by q/d without projection has as much noise but less bias.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.arguments import CheckedArguments
from shuffledp.common.mechanisms.base import Counts, Reports, Vector, check_valid, reports_of
from shuffledp.common.mechanisms.bits import chunks
from shuffledp.common.mechanisms.numeric import number
from shuffledp.common.mechanisms.numeric.coded_number import CODES_AT_ONCE, CodedNumber, Duchi
from shuffledp.common.mechanisms.numeric.number import Moments, Numbers
from shuffledp.common.mechanisms.numeric.piecewise import Hybrid
from shuffledp.common.mechanisms.reduction import MatchCountReduction, PureReduction, Reduction
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.specs import NumberSpec
from shuffledp.common.task.task import NONCE_BYTES, Task, check_local_epsilon

Answer = TypeVar("Answer", bound=CodedNumber)


def equal_share(local_epsilon: float, parts: int) -> float:
    """Return the largest float x with x · parts ≤ local_epsilon, which may be infinite."""
    share = local_epsilon / parts
    if math.isfinite(share) and Fraction(share) * parts > Fraction(local_epsilon):
        return math.nextafter(share, 0)
    return share


@dataclass(frozen=True)
class SampledCoordinates(CheckedArguments, Generic[Answer]):
    """Report `sampled` of `dimensions` numbers, each randomized by `answer`."""

    dimensions: int
    """d, at least 1."""
    sampled: int
    """k, 1 .. d."""
    answer: Answer

    def __post_init__(self) -> None:
        if not 1 <= self.sampled <= self.coordinates:
            limits = f"between 1 and dimensions, {self.coordinates}"
            raise TaskError(f"sampled is {self.sampled}; it must be {limits}")

    @property
    def coordinates(self) -> int:
        """Number of coordinates to sample from: the dimensions, unless they are projected."""
        return self.dimensions

    @property
    def local_epsilon(self) -> float:
        """Local ε of a report: k times the local ε of one answer, rounded up."""
        each = self.answer.local_epsilon
        total = self.sampled * each
        exact = Fraction(each) * self.sampled
        return total if Fraction(total) >= exact else math.nextafter(total, math.inf)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Check true / other ≤ e^(local_epsilon / k) exactly. Run by the user agent."""
        return self.answer.keeps_promise(equal_share(local_epsilon, self.sampled))

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """The k coordinates in ascending order (uint16), and a code for each."""
        return np.dtype(
            [
                ("coordinates", "<u2", (self.sampled,)),
                ("codes", self.answer.code_dtype, (self.sampled,)),
            ]
        )

    @property
    def reduction(self) -> Reduction:
        """
        Randomized response over two answers for a bit of one coordinate, else the local ε alone.

        The blanket is uniform over coordinates and bits. Half of all reports support a corner of
        the cube, none supports two opposite corners: collision 0. Other inputs mix corners.
        """
        if self.sampled == 1 and self.answer.answers == 2:  # noqa: PLR2004  # a bit has two
            weights, total = self.answer.weights, self.answer.weights.total(2)
            return MatchCountReduction.of_support_sets(
                answers=2,
                local_epsilon=weights.local_epsilon,
                blanket=2 * weights.other / total,
                signal=(weights.true - weights.other) / total,
                independent=False,
            )
        return PureReduction(local_epsilon=self.local_epsilon)

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """Report k coordinates and their codes for each user. Run by the user agent."""
        values = number.check_numbers(values, self.coordinates)
        coordinates = self._subsets(len(values), rng)
        chosen = np.take_along_axis(values, coordinates, axis=1)
        codes = self.answer.encode(chosen.ravel(), rng).reshape(chosen.shape)
        return reports_of(self.report_dtype, coordinates=coordinates, codes=codes)

    def _subsets(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw uniform k-subsets of the coordinates, shape (count, k), by Floyd's algorithm [BF87].

        The j-th draw is uniform in 0 .. d-k+j-1; if it is already in the set, d-k+j-1 is taken
        instead, which no earlier draw could be.
        """
        chosen = np.empty((count, self.sampled), dtype=np.int64)
        for place, last in enumerate(range(self.coordinates - self.sampled, self.coordinates)):
            draw = rng.integers(0, last + 1, size=count, dtype=np.int64)
            taken = (chosen[:, :place] == draw[:, np.newaxis]).any(axis=1)
            chosen[:, place] = np.where(taken, last, draw)
        chosen.sort(axis=1)
        return chosen

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports have ascending coordinates and valid codes. Run by the analyzer."""
        coordinates = reports["coordinates"].astype(np.int64)
        rising = np.diff(coordinates, axis=1) > 0
        known = coordinates < self.coordinates
        coded = reports["codes"] < self.answer.answers
        every = np.concatenate([rising, known, coded], axis=1)
        return np.asarray(np.logical_and.reduce(every, axis=1))

    def tally(self, reports: Reports) -> Counts:
        """
        Sum the parts of codes by coordinate, shape (coordinates · features,). Run by the analyzer.

        Cost: a pass over the reports for each part.
        """
        check_valid(
            self.valid(reports),
            f"coordinates do not ascend, or are not below {self.coordinates}, "
            f"or a code is not below {self.answer.answers}",
        )
        cells = np.zeros((self.coordinates, self.answer.features), dtype=np.int64)
        for piece in chunks(len(reports), 1, CODES_AT_ONCE):
            coordinates = reports["coordinates"][piece].astype(np.int64)
            codes = reports["codes"][piece].astype(np.int64)
            for place in range(self.sampled):
                for feature, part in enumerate(self.answer.parts(codes[:, place])):
                    # Exact: a piece's sum of parts stays below 2^53.
                    cells[:, feature] += np.bincount(
                        coordinates[:, place], weights=part, minlength=self.coordinates
                    ).astype(np.int64)
        return cells.ravel()

    def estimate(self, cells: Counts) -> Moments:
        """Estimate the means without bias from the result of `tally`. Run by the analyzer."""
        totals = self.answer.totals(cells.reshape(self.coordinates, self.answer.features))
        return self.answer.spread.moments(totals, self.coordinates / self.sampled)

    def variance(self, values: Numbers) -> Vector:
        """Return the exact variance of the estimated means for these users; (dimensions,)."""
        return self.answer.spread.variance(values, self.coordinates / self.sampled)


@dataclass(frozen=True)
class Harmony(SampledCoordinates[Duchi], number.NumberMechanism):
    """Report one coordinate and its bit, which represents ±d·C [NXY+16]."""

    NAME: ClassVar[NumberMechanismName] = "harmony"

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        return cls(dimensions, 1, Duchi(ResponseWeights.for_epsilon(local_epsilon)))

    @classmethod
    def from_spec(cls, spec: NumberSpec, dimensions: int) -> Self:
        return cls(dimensions, 1, Duchi(number.number_weights(spec)))


EPSILON_EACH: Final = 2.5
"""Minimum ε of each coordinate, if a report has several [WXY+19]."""


def paper_sample(dimensions: int, local_epsilon: float) -> int:
    """Return the number of coordinates in a report, k = max(1, min(d, ⌊ε / 2.5⌋)) [WXY+19]."""
    return max(1, min(dimensions, int(local_epsilon // EPSILON_EACH)))


@dataclass(frozen=True)
class MultiHm(SampledCoordinates[Hybrid], number.NumberMechanism):
    """Report k coordinates, each randomized by the hybrid at ε/k [WXY+19]."""

    NAME: ClassVar[NumberMechanismName] = "multi-hm"
    ANSWER: ClassVar[type[Hybrid]] = Hybrid

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """Choose k as in [WXY+19], and the integer weights of the hybrid for ε/k."""
        local_epsilon = check_local_epsilon(local_epsilon)
        sampled = paper_sample(dimensions, local_epsilon)
        return cls(dimensions, sampled, Hybrid.for_epsilon(1, equal_share(local_epsilon, sampled)))


SHARE: Final = 0.3
"""The ratio q / d in [Sun+20]."""
_LABEL: Final = b"shuffledp v1 projection"


def paper_projected(dimensions: int) -> int:
    """Return q = .3·d, rounded to the nearest integer, at least 1 [Sun+20]."""
    return max(1, round(SHARE * dimensions))


@lru_cache(maxsize=2)
def projection(nonce: bytes, dimensions: int, projected: int) -> NDArray[np.float64]:
    """
    Derive R from a nonce. Run by the user agent and the analyzer, with the same result.

    SHAKE-256 [FIPS202] of a label and the nonce gives uniform 53-bit numbers, Φ⁻¹ makes them
    normal, and Gram-Schmidt makes the columns orthonormal: their span is a uniform subspace.
    Library versions change only the rounding, which does not matter: numbers are rounded at random.

    R has the shape (d, q), for `dimensions` d and `projected` q, at most d. Cost: d·q normal
    numbers and 2·d·q² multiplications: a second at 2,000 × 600.
    """
    stream = hashlib.shake_256(_LABEL + nonce).digest(8 * dimensions * projected)
    words = np.frombuffer(stream, dtype="<u8") >> np.uint64(11)
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-53
    normal = scipy.special.ndtri(uniform).reshape(dimensions, projected)
    columns, upper = np.linalg.qr(normal)
    # The signs of Householder's method depend on the library; use those of Gram-Schmidt.
    return columns * np.where(np.diagonal(upper) < 0, -1.0, 1.0)


MAX_ENTRIES: Final = 2**21
"""Maximum d·q: a device computes the projection once per task, in a few seconds."""


@dataclass(frozen=True)
class MultiRphm(MultiHm):
    """
    Multi-HM on the projected vector; means are mapped back.

    The projection depends on no value, and a projected and clipped vector is another vector of the
    cube: reports, local ε and reduction are those of Multi-HM over q dimensions.
    """

    NAME: ClassVar[NumberMechanismName] = "multi-rphm"

    projected: int
    """q, the dimensions of the projected vector."""
    nonce: bytes = bytes(NONCE_BYTES)
    """The task's nonce, from which the projection is derived."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimensions * self.projected > MAX_ENTRIES:
            raise TaskError(
                f"projected is {self.projected} and dimensions {self.dimensions}; "
                f"their product may be at most {MAX_ENTRIES}"
            )

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """Choose q as in [Sun+20], and the integer weights of Multi-HM over q dimensions."""
        inner = MultiHm.for_epsilon(paper_projected(dimensions), local_epsilon)
        return cls(dimensions, inner.sampled, inner.answer, inner.dimensions)

    @classmethod
    def of(cls, task: Task) -> Self:
        return replace(super().of(task), nonce=task.nonce)

    @property
    def coordinates(self) -> int:
        return self.projected

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """R, shape (d, q)."""
        return projection(self.nonce, self.dimensions, self.projected)

    def project(self, values: Numbers) -> Numbers:
        """Return clip(tR, -1, 1) for each user: (n, d) -> (n, q). Run by the user agent."""
        return np.clip(values @ self.matrix, -1.0, 1.0)

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        values = number.check_numbers(values, self.dimensions)
        return super().randomize(self.project(values), rng)

    def estimate(self, cells: Counts) -> Moments:
        """
        Map the means of the projected vectors back. Run by the analyzer.

        The variances include only noise. They omit the covariances between projected dimensions, a
        share of about 1/q, which depend on unknown products of the numbers.
        """
        projected = super().estimate(cells)
        return Moments(
            means=self.matrix @ projected.means,
            variances=self.matrix**2 @ projected.variances,
            unbiased=False,
        )

    def variance(self, values: Numbers) -> Vector:
        """
        Return the exact variance of the estimated means for these users, due to noise alone.

        A report covers projected dimensions i and l with probability k(k-1)/(q(q-1)) and represents
        q/k times their numbers. So its covariance there is (q(k-1)/(k(q-1)) - 1)·x_i·x_l =
        -c·x_i·x_l, c = (q-k)/(k(q-1)), and c·((xRᵀ)² - Σ_i R_i²x_i²) is subtracted.
        """
        projected = self.project(values)
        k, q = self.sampled, self.projected
        c = (q - k) / (k * (q - 1)) if q > 1 else 0.0
        squares = (projected**2).sum(axis=0)
        mapped = ((projected @ self.matrix.T) ** 2).sum(axis=0)
        products = mapped - self.matrix**2 @ squares
        own = self.matrix**2 @ super().variance(projected)
        return np.asarray(own - c * products / len(values) ** 2)

    def bias(self, values: Numbers) -> Vector:
        """Return the exact bias for these users, clipping included: E[estimate] - mean."""
        return np.asarray(self.matrix @ self.project(values).mean(axis=0) - values.mean(axis=0))
