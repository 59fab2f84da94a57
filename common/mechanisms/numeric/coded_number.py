"""
Mechanisms that report a number as a code: Duchi's bit, the piecewise mechanism and the hybrid.

Each code represents a number, whose expectation is the user's number.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms.base import Counts, Reports, Vector, check_valid, reports_of
from shuffledp.common.mechanisms.bits import chunks
from shuffledp.common.mechanisms.numeric import number
from shuffledp.common.mechanisms.numeric.number import Moments, Numbers
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.weights import OddsOfWeights, ResponseWeights
from shuffledp.common.messages.result import Interval, interval_half_width
from shuffledp.common.protocols import NumberMechanismName

Totals = Vector
"""Number of codes, and the sums of the numbers that they represent and of these numbers' squares,
for every coordinate: shape (3, coordinates)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The expected square of a code's number: level + slope · (the user's number, rounded)²."""

    level: float
    slope: float
    """0 if codes carry no information on the square."""
    steps: int
    """Intervals of the grid; the slope also multiplies the variance of rounding."""

    def second_moment(self, numbers: Numbers) -> Numbers:
        """Return the exact expected square for each number, including rounding; same shape."""
        if self.slope == 0:
            return np.full(numbers.shape, self.level)
        squares = numbers**2 + number.rounding_variance(numbers, self.steps)
        return self.level + self.slope * squares

    def moments(self, totals: Totals, sampling: float = 1.0) -> Moments:
        """
        Estimate means and their variances from totals.

        A report represents `sampling` times the number of its code at a coordinate that it covers,
        and 0 at the others. So its variance is sampling·(level + slope·s) - s, where s is the mean
        square of users' numbers. If the slope is above 0, s is estimated from the codes, in 0 .. 1.
        At slope 0 the squared mean replaces s and the divisor is n - 1: the variance is too high by
        the variance between users, and by a factor of n / (n - 1).

        With too few reports the variances are infinite. `sampling` is the inverse of the share of
        coordinates that a report covers. Means and variances have shape (coordinates,).
        """
        counts, first, second = totals
        n_reports = round(float(counts.sum()) * sampling / len(counts))
        means = sampling * first / max(n_reports, 1)
        free = n_reports if self.slope > 0 else n_reports - 1
        if free <= 0:
            return Moments(means=means, variances=np.full(len(means), np.inf))
        if self.slope > 0:
            square = (sampling * second / n_reports - self.level) / self.slope
        else:
            square = means**2
        square = np.clip(square, 0, 1)
        variances = (sampling * (self.level + self.slope * square) - square) / free
        return Moments(means=means, variances=variances)

    def variance(self, values: Numbers, sampling: float) -> Vector:
        """Return the exact variance of the means from `moments` for these users."""
        own = sampling * self.second_moment(values) - values**2
        return np.asarray(own.sum(axis=0) / len(values) ** 2)

    def interval(self, moments: Moments, confidence: float) -> Interval | None:
        """
        Return the ends of intervals around the `moments` of reports that represent ±B and no other
        number; None if they may represent others, whose means are practically normal.

        The number of reports follows from the variances. See `bit_interval`. Harmony's reports also
        represent 0, at coordinates that they do not cover: its intervals are normal.
        """
        if self.slope > 0:
            return None
        of_report = self.level - np.clip(moments.means**2, 0, 1)
        part = moments.variances / (of_report + moments.variances)
        return bit_interval(moments.means, part, self.level, confidence)


def bit_interval(means: Vector, part: Vector, level: float, confidence: float) -> Interval:
    """
    Return the ends of intervals around means of n reports, each of which represents ±B.

    An interval holds the true means t from which the estimate is within half a step of the sum,
    B/n, and the half-width, with the variance (B² - t²) / n that it has there: a score interval
    [Wil27]. With few reports a normal one misses a mean near an end of the range with 10 to 25 %,
    and one in the middle with 6.5 %. `part` is 1/n, and `level` B².
    """
    size, square = math.sqrt(level), interval_half_width(confidence) ** 2 * part
    ends = []
    for sign in (-1, 1):
        near = np.clip(means + sign * size * part, -size, size)
        reach = np.sqrt(square * np.maximum((1 + square) * level - near**2, 0.0))
        ends.append((near + sign * reach) / (1 + square))
    return ends[0], ends[1]


_BYTE: Final = 0xFF
"""Maximum number of codes in one byte, which leaves one value for null reports."""
CODES_AT_ONCE: Final = 1 << 18
"""Codes summed at a time, to bound memory."""


class SpreadNumber(OddsOfWeights, number.NumberMechanism):
    """Base class of mechanisms whose reports represent numbers of a known spread."""

    @property
    @abstractmethod
    def spread(self) -> Spread:
        """Expected square of a report's number."""

    def variance(self, values: Numbers) -> Vector:
        return self.spread.variance(values, sampling=1.0)

    def interval(self, moments: Moments, confidence: float) -> Interval | None:
        return self.spread.interval(moments, confidence)


class CodedNumber(SpreadNumber):
    """Base class of mechanisms that report one number as a code; see also `SampledCoordinates`."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """Number of codes: 0 .. answers-1."""

    @property
    @abstractmethod
    def features(self) -> int:
        """Number of integers that each code adds to the sums."""

    @abstractmethod
    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        """Randomize numbers, (n,), not checked here, to codes. Run by the user agent."""

    @abstractmethod
    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the integers ≥ 0 that each code adds to the sums: shape (n,) -> (features, n)."""

    @abstractmethod
    def totals(self, sums: Counts) -> Totals:
        """Return totals from sums of parts, shape (coordinates, features)."""

    dimensions = 1
    """One number per user."""

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Type of a code in a report: one byte if all codes fit, else four."""
        return np.dtype("u1") if self.answers <= _BYTE else np.dtype("<u4")

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """One unsigned code, never all 1 bits as in a null report."""
        return np.dtype([("code", self.code_dtype)])

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        values = number.check_numbers(values, 1)
        return reports_of(self.report_dtype, code=self.encode(values[:, 0], rng))

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return reports["code"] < self.answers

    def tally(self, reports: Reports) -> Counts:
        """Sum the parts of reports, shape (features,); below 2^63. Run by the analyzer."""
        check_valid(self.valid(reports), f"a code is not below {self.answers}")
        cells = np.zeros(self.features, dtype=np.int64)
        for part in chunks(len(reports), 1, CODES_AT_ONCE):
            cells += self.parts(reports["code"][part].astype(np.int64)).sum(axis=1)
        return cells

    def estimate(self, cells: Counts) -> Moments:
        return self.spread.moments(self.totals(cells[np.newaxis]))


@dataclass(frozen=True)
class Duchi(CodedNumber):
    """
    Duchi's bit of a number in -1 .. 1 [DJW18]; Harmony in one dimension [NXY+16].

    The number t is rounded at random to an end, preserving its mean, and Warner's randomized
    response reports the end: Pr[+] = 1/2 + t·(true - other) / (2(true + other)). So the bit is
    unbiased if it represents ±C, C = (true + other)/(true - other) = (e^ε+1)/(e^ε-1).
    """

    NAME: ClassVar[NumberMechanismName] = "duchi"
    FACTORS: ClassVar[int] = 1

    weights: ResponseWeights

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        return cls(ResponseWeights.for_epsilon(local_epsilon))

    answers = 2
    """Two codes: 0 for the lower end, 1 for the upper."""

    features = 2
    """Two counts, one for each end."""

    @property
    def scale(self) -> float:
        """C = (true + other) / (true - other), the size of the number that a bit represents."""
        true, other = self.weights.true, self.weights.other
        return (true + other) / (true - other)

    @property
    def spread(self) -> Spread:
        return Spread(level=self.scale**2, slope=0.0, steps=0)

    @property
    def reduction(self) -> MatchCountReduction:
        """Randomized response over two answers; the two ends are the least private pair."""
        return MatchCountReduction.for_weights(answers=2, weights=self.weights, hashed=False)

    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        return self.weights.respond(number.to_grid(numbers, 1, rng), 2, rng)

    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.stack([codes == 0, codes == 1]).astype(np.int64)

    def totals(self, sums: Counts) -> Totals:
        count = (sums[:, 0] + sums[:, 1]).astype(np.float64)
        first = (sums[:, 1] - sums[:, 0]).astype(np.float64) * self.scale
        return np.stack([count, first, count * self.scale**2])
