"""
Mechanisms whose report on one number is a code: Duchi's bit, the piecewise mechanism, the hybrid.

A report stands for a number in each coordinate, whose expectation is the person's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError
from common.mechanisms.base import Counts, Reports, Vector
from common.mechanisms.numeric.number import Moments, Numbers, check_numbers, rounding_variance
from common.mechanisms.reduction import Reduction
from common.mechanisms.weights import OddsOfWeights
from common.protocols import NumberMechanismName


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Totals:
    """Of what reports stand for, coordinate by coordinate: each of shape (coordinates,)."""

    count: Vector
    first: Vector
    """Their sum."""
    second: Vector
    """The sum of their squares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The expected square of what an answer stands for: level + slope · the square on the grid."""

    level: float
    slope: float
    """0 where answers tell nothing of the square."""
    steps: int
    """Of the grid; what rounding adds to the square counts with the slope."""

    def second_moment(self, numbers: Numbers) -> Numbers:
        """Give that of each number, exactly, rounding to the grid included; of the same shape."""
        if self.slope == 0:
            return np.full(numbers.shape, self.level)
        squares = numbers**2 + rounding_variance(numbers, self.steps)
        moment: Numbers = self.level + self.slope * squares
        return moment

    def moments(self, totals: Totals, n_reports: int, sampling: float) -> Moments:
        """
        Estimate means from totals, and how far they may be off.

        Where a report has an answer for a coordinate it stands for `sampling` times what that does,
        elsewhere for 0: Var = sampling·(level + slope·s) - s of one report, s the people's mean
        square. Where there is a slope the answers tell s, which is kept in 0 .. 1. Where not, s is
        taken for the square of the mean, and the variance is that of a sample: it errs upward, by
        how much people differ and by one part in the number of reports.

        Args:
            totals: Of all answers.
            n_reports: How many reports there were. Where that is too few to say anything, the
                variances are infinite.
            sampling: One over the share of coordinates that each of them tells.
        """
        means = sampling * totals.first / max(n_reports, 1)
        free = n_reports if self.slope > 0 else n_reports - 1
        if free <= 0:
            return Moments(means=means, variances=np.full(len(means), np.inf))
        if self.slope > 0:
            square = (sampling * totals.second / n_reports - self.level) / self.slope
        else:
            square = means**2
        square = np.clip(square, 0, 1)
        variances = (sampling * (self.level + self.slope * square) - square) / free
        return Moments(means=means, variances=variances)

    def variance(self, values: Numbers, sampling: float) -> Vector:
        """Give the exact variance of the means that `moments` estimates for these people."""
        own = sampling * self.second_moment(values) - values**2
        exact: Vector = own.sum(axis=0) / len(values) ** 2
        return exact


_BYTE: Final = 0xFF
"""Codes that one byte has room for, beside padding."""
_CHUNK: Final = 1 << 18
"""Codes that are added up at a time, so that memory stays bounded."""


class CodedNumber(OddsOfWeights, ABC):
    """A randomizer of one number that answers with a code; also a mechanism by itself."""

    NAME: ClassVar[NumberMechanismName]

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many codes there are: 0 .. answers-1."""

    @property
    @abstractmethod
    def features(self) -> int:
        """How many whole numbers are kept of all codes that were added up."""

    @property
    @abstractmethod
    def spread(self) -> Spread:
        """How far what a code stands for is spread around the number."""

    @property
    @abstractmethod
    def reduction(self) -> Reduction:
        """What accounting for a shuffler needs."""

    @abstractmethod
    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Answer for each number. Run by the user agent.

        Args:
            numbers: Shape (n,), in -1 .. 1, which is not checked here.
            rng: Source of randomness.

        Returns:
            Codes, shape (n,), each in 0 .. answers-1.
        """

    @abstractmethod
    def decode(self, codes: NDArray[np.int64]) -> Vector:
        """Give what each code stands for."""

    @abstractmethod
    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the whole numbers of each code that are added up, none below 0: (features, n)."""

    @abstractmethod
    def totals(self, sums: Counts) -> Totals:
        """Give what codes stand for in all, from sums of parts: (coordinates, features)."""

    @property
    def dimensions(self) -> int:
        """A person has one number."""
        return 1

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Of a code in a report: a byte, or four."""
        return np.dtype("u1") if self.answers <= _BYTE else np.dtype("<u4")

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """One unsigned code; never of 1 bits alone, as padding is."""
        return np.dtype([("code", self.code_dtype)])

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """
        Randomize each person's number. Run by the user agent.

        Args:
            values: Shape (n, 1), in -1 .. 1.
            rng: Source of randomness.

        Returns:
            n reports, field code.

        Raises:
            ValueRangeError: A number is not in -1 .. 1.
        """
        check_numbers(values, 1)
        reports = np.empty(len(values), dtype=self.report_dtype)
        reports["code"] = self.encode(values[:, 0], rng)
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports have a code that there is. Run by the analyzer."""
        fine: NDArray[np.bool_] = reports["code"] < self.answers
        return fine

    def tally(self, reports: Reports) -> Counts:
        """
        Add reports up. Run by the analyzer.

        Returns:
            The sums of `parts`, shape (features,): whole numbers, below 2^63 for 10^9 people.

        Raises:
            ReportError: There is no such code.
        """
        if not self.valid(reports).all():
            raise ReportError(f"a code is not below {self.answers}")
        cells = np.zeros(self.features, dtype=np.int64)
        for chunk in chunks(reports):
            cells += self.parts(chunk["code"].astype(np.int64)).sum(axis=1)
        return cells

    def estimate(self, cells: Counts) -> Moments:
        """Estimate the mean, without bias, from what `tally` gave. Run by the analyzer."""
        totals = self.totals(cells[np.newaxis])
        return self.spread.moments(totals, int(totals.count[0]), sampling=1.0)

    def variance(self, values: Numbers) -> Vector:
        """Give the exact variance of the estimated mean for these people; shape (1,)."""
        return self.spread.variance(values, sampling=1.0)


def chunks(reports: Reports) -> Iterator[Reports]:
    """Give reports a few at a time."""
    return (reports[start : start + _CHUNK] for start in range(0, len(reports), _CHUNK))
