"""
A number, or several, as digits: the protocols `digits`, `geo-digits` and those of vectors.

A user rounds a number at random, without bias, to one of N equidistant points of the range, and
reports every digit of the point's number in mixed radix as a view of its own. The mean is the sum
of the mean digits times their place values. A view of radix r needs a sum of sensitivity r - 1, in
all views together that of the number: splitting the number costs no accuracy, while N grows as the
product of the radices.

Of a view only the sum of centred digits d - (r - 1)/2 is used. The dummies' total does not move it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms.base import Counts, Mixture, Vector, check_report_bytes
from shuffledp.common.mechanisms.numeric import number
from shuffledp.common.mechanisms.numeric.number import Moments, Numbers
from shuffledp.common.mechanisms.views import View, ViewMechanism
from shuffledp.common.messages.submission import PLAIN_REPORT
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import DigitSpec


@dataclass(frozen=True)
class Digits(ViewMechanism, number.MeanMechanism):
    """True digits of a random rounding of each number."""

    dimensions: int
    """Numbers per user; each has as many views, number by number."""

    @classmethod
    def specify(cls, draft: NumberDraft, dimensions: int, local_epsilon: float) -> DigitSpec:
        """Return the description of the draft's radices; the protocol checks the local ε."""
        return DigitSpec(
            name="digits",
            low=draft.low,
            high=draft.high,
            report_bytes=PLAIN_REPORT.itemsize,
            radices=draft.radices,
            numbers=dimensions,
        )

    @classmethod
    def of(cls, task: Task) -> Self:
        spec = spec_as(task.mechanism, DigitSpec)
        check_report_bytes(spec, cls.report_dtype)
        return cls(views=View.of_task(task), dimensions=spec.numbers)

    @cached_property
    def _radices(self) -> NDArray[np.int64]:
        """Number of values of each digit of one number, the most significant first."""
        return np.array(self.sizes[: len(self.sizes) // self.dimensions])

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Place value of each digit."""
        return np.append(np.cumprod(self._radices[:0:-1])[::-1], 1).astype(np.int64)

    @property
    def steps(self) -> int:
        """N - 1: intervals between the points."""
        return int(self._radices.prod()) - 1

    @property
    def place_values(self) -> Vector:
        """Change of a number in -1 .. 1 by one unit of each digit; Σ (radix - 1)·value = 2."""
        return np.asarray(self._places * (2 / self.steps))

    def encode(self, values: Numbers, rng: np.random.Generator) -> NDArray[np.int64]:
        points = number.to_grid(number.check_numbers(values, self.dimensions), self.steps, rng)
        digits = points[:, :, np.newaxis] // self._places % self._radices
        return digits.reshape(len(points), len(self.views))

    def moments(self, cells: Counts, mixture: Mixture) -> Moments:
        """
        Estimate the means without bias, and the variances of the dummies and the worst rounding.

        Users' dummies are those that arrived beyond the users' own; of shufflers' dummies only the
        distribution is known.
        """
        sums, noise = list[float](), list[float]()
        for view, counts in zip(self.views, self.by_view(cells), strict=True):
            centred = np.arange(view.size) - (view.size - 1) / 2
            sums.append(float(centred @ counts))
            adding = view.adding(float(counts.sum()), mixture.n_real)
            noise.append(view.item_variance(adding) * float(centred @ centred))
        rounding = 1 / (self.steps**2 * mixture.n_real)
        return Moments(
            means=self._of_numbers(sums, self.place_values) / mixture.n_real,
            variances=self._noise_of_numbers(noise) / mixture.n_real**2 + rounding,
            rounding=rounding,
        )

    def noise_variance(self, n_users: float) -> Vector:
        """Return the variance of each estimated mean by the expected dummies; (dimensions,)."""
        noise = [
            view.item_variance(n_users) * view.size * (view.size**2 - 1) / 12 for view in self.views
        ]
        return self._noise_of_numbers(noise) / n_users**2

    def worst_variance(self, n_users: int) -> float:
        """Return the variance by the dummies, and by rounding numbers halfway between points."""
        return float(self.noise_variance(n_users).mean()) + 1 / (self.steps**2 * n_users)

    @property
    def users_per_report(self) -> float:
        """Users at an end of the range that equal one report of the largest first digit."""
        return float(((self._radices - 1) * self.place_values).max()) / 2

    def variance(self, values: Numbers) -> Vector:
        rounding = number.rounding_variance(values, self.steps).sum(axis=0) / len(values) ** 2
        return np.asarray(self.noise_variance(len(values)) + rounding)

    def _of_numbers(self, of_views: list[float], weights: Vector) -> Vector:
        """Sum figures of a number's views, weighted by digit. (views,) -> (dimensions,)."""
        return np.asarray(np.reshape(of_views, (self.dimensions, -1)) @ weights)

    def _noise_of_numbers(self, of_views: list[float]) -> Vector:
        return self._of_numbers(of_views, self.place_values**2)
