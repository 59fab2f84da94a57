"""
Discrete Laplace noise on a number in -1 .. 1 [DMNS06], the baseline.

The number is rounded to a grid of `steps` intervals, and integer noise with P(x) ∝ e^(-|x|/scale)
is added. The ends of the range are `steps` apart, so the likelihood ratio is at most
e^(steps/scale).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.limits import MAX_USERS
from shuffledp.common.mechanisms.base import Counts, Reports, Vector, check_valid, reports_of
from shuffledp.common.mechanisms.numeric import number
from shuffledp.common.mechanisms.numeric.number import Moments, Numbers
from shuffledp.common.mechanisms.reduction import PureReduction
from shuffledp.common.mechanisms.sampling import discrete_laplace
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.specs import MAX_WEIGHT_SUM
from shuffledp.common.task.task import check_local_epsilon

FAR: Final = 64
"""Distance from the ends of the grid, in scales of the noise, at which reports are clipped.
Clipping is post-processing and costs no privacy. Noise exceeds this distance with probability below
e^-64 < 2e-28, so estimates do not change."""


@dataclass(frozen=True)
class Laplace(number.NumberMechanism):
    """Report place i + noise + FAR·scale, clipped, for a number at grid point i."""

    NAME: ClassVar[NumberMechanismName] = "laplace"

    steps: int
    """Intervals of the grid, even."""
    scale: int
    """Scale of the noise, in steps of the grid."""

    def __post_init__(self) -> None:
        if self.steps < 2 or self.steps % 2:  # noqa: PLR2004  # an end on either side of the middle
            raise TaskError(f"steps is {self.steps}; it must be an even number of at least 2")
        if self.scale < 1:
            raise TaskError(f"scale is {self.scale}; it must be at least 1")
        if self.places * MAX_USERS > MAX_WEIGHT_SUM:
            most = (MAX_WEIGHT_SUM // MAX_USERS - self.steps - 1) // (2 * FAR)
            raise TaskError(
                f"scale is {self.scale}; it must be at most {most}, so that reports can be summed: "
                f"local_epsilon must be at least {self.steps / most:.2g}"
            )

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """Choose the least scale with steps / scale ≤ local_epsilon."""
        return cls(
            number.STEPS, math.ceil(number.STEPS / Fraction(check_local_epsilon(local_epsilon)))
        )

    dimensions = 1
    """One number per user."""

    @property
    def places(self) -> int:
        """Number of places: steps + 1 + 2·FAR·scale."""
        return self.steps + 1 + 2 * FAR * self.scale

    @property
    def local_epsilon(self) -> float:
        exact = Fraction(self.steps, self.scale)
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)

    def keeps_promise(self, local_epsilon: float) -> bool:
        return math.isinf(local_epsilon) or self.steps <= Fraction(local_epsilon) * self.scale

    @property
    def reduction(self) -> PureReduction:
        return PureReduction(local_epsilon=self.local_epsilon)

    report_dtype = np.dtype([("place", "<u8")])
    """One unsigned 64-bit place, far below the null report's 2^64 - 1."""

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        values = number.check_numbers(values, 1)
        noisy = number.to_grid(values[:, 0], self.steps, rng)
        noisy += discrete_laplace(self.scale, len(noisy), rng)
        places = np.clip(noisy + FAR * self.scale, 0, self.places - 1)
        return reports_of(self.report_dtype, place=places)

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return reports["place"] < self.places

    def tally(self, reports: Reports) -> Counts:
        """Count reports and add up their places, shape (2,). Run by the analyzer."""
        check_valid(self.valid(reports), f"a place is not below {self.places}")
        places = reports["place"].astype(np.int64)
        return np.array([len(places), places.sum()], dtype=np.int64)

    def estimate(self, cells: Counts) -> Moments:
        """
        Estimate the mean without bias from the result of `tally`. Run by the analyzer.

        The variance is that of the noise plus the largest possible variance of rounding, 1/steps².
        """
        n_reports = int(cells[0])
        if n_reports == 0:
            return Moments(means=np.zeros(1), variances=np.full(1, np.inf))
        half = self.steps // 2
        centred = int(cells[1]) - n_reports * (half + FAR * self.scale)
        variance = (self._noise_variance + self.steps**-2) / n_reports
        return Moments(
            means=np.array([centred / (n_reports * half)]), variances=np.array([variance])
        )

    def variance(self, values: Numbers) -> Vector:
        own = self._noise_variance + number.rounding_variance(values, self.steps)
        return np.asarray(own.sum(axis=0) / len(values) ** 2)

    @property
    def _noise_variance(self) -> float:
        """Return the variance of the noise, 2a/(1-a)² for a = e^(-1/scale), scaled to -1 .. 1."""
        in_steps = 0.5 / math.sinh(0.5 / self.scale) ** 2
        return in_steps * (2 / self.steps) ** 2
