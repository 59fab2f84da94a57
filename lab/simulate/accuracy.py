"""Errors of simulated estimates against the truth, and their mean over repeats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np
from scipy import special

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.messages.result import Histogram
from shuffledp.deploy.results.estimate_table import mse_of

TOP: Final = 50
"""Number of most frequent items over which the `top50` and relative errors are averaged."""


class ByValue(NamedTuple):
    """True figures and unbiased estimates of one collection; each of shape (values,)."""

    truth: Vector
    estimates: Vector
    standard_errors: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The errors and run time of one simulated collection."""

    errors: Mapping[str, float]
    """Errors by name; every repeat of a setting has the same names."""
    mse_theory: float
    """Expected mean squared error at the true figures, averaged over values."""
    seconds: float
    """Time from values, or from drawing cell counts, to estimates."""
    one_by_one: bool = True
    """Whether every report was simulated; otherwise cell counts were drawn."""
    by_value: ByValue | None = None
    theories: Mapping[str, float] = field(default_factory=dict)
    """Further expected errors, by name; every repeat of a setting has the same."""


def histogram_errors(histogram: Histogram, truth: Vector) -> dict[str, float]:
    """
    Return a histogram's errors against the true shares of its contributors, by name.

    `relative_error` averages |error| / share over the 50 most frequent values that occur. `regret`
    is the largest true share minus the true share of the value with the largest estimate.
    """
    top = np.argsort(truth)[::-1][:TOP]
    top = top[truth[top] > 0]
    error = histogram.frequencies - truth
    return {
        "mse": mse_of(histogram.frequencies, truth),
        "mse_refined": mse_of(histogram.refined, truth),
        "mse_top50": mse_of(histogram.frequencies[top], truth[top]),
        "mse_top50_refined": mse_of(histogram.refined[top], truth[top]),
        "max_error": float(np.abs(error).max()),
        "relative_error": float(np.mean(np.abs(error[top]) / truth[top])),
        "regret": float(truth.max() - truth[np.argmax(histogram.frequencies)]),
    }


def prefix_errors(unrefined: Vector, refined: Vector, truth: Vector) -> dict[str, float]:
    """Return the mean squared errors of shares below an edge, averaged over edges, by name."""
    below = np.cumsum(truth)
    return {
        "mse": mse_of(np.cumsum(unrefined), below),
        "mse_refined": mse_of(np.cumsum(refined), below),
    }


LEAST_REPEATS: Final = 5
"""Least number of repeats from which an interval is stated."""
_LEVEL: Final = 0.975
"""Quantile of the end of a two-sided 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A mean over repeats, its standard error, and half of its 95 % interval by Student's t."""

    mean: float
    standard_error: float = 0.0
    """0 for fewer than LEAST_REPEATS repeats, like half_width."""
    half_width: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the summary of one figure per repeat."""
        n = len(values)
        if n < LEAST_REPEATS:
            return cls(mean=float(np.mean(values)))
        error = float(np.std(values, ddof=1)) / n**0.5
        quantile = float(special.stdtrit(n - 1, _LEVEL))
        return cls(mean=float(np.mean(values)), standard_error=error, half_width=quantile * error)

    def format(self, spec: str) -> str:
        """Format the mean by a format spec, with half the interval as a percentage if not 0."""
        if not (self.half_width and self.mean):
            return f"{self.mean:{spec}}"
        return f"{self.mean:{spec}} ±{self.half_width / self.mean:.0%}"
