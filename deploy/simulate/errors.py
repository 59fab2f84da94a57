"""Errors of estimates against the truth, and their spread over repeats. Shares throughout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from common.mechanisms.base import Vector
from common.messages.result import Histogram

TOP: Final = 50


class ByValue(NamedTuple):
    """Truth and unbiased estimates of one collection, by value; each of shape (values,)."""

    truth: Vector
    estimates: Vector
    standard_errors: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One simulated collection."""

    errors: Mapping[str, float]
    """By name; the same names in every repeat of a setting."""
    mse_theory: float
    """The expected mean squared error, averaged over values, at the true shares."""
    seconds: float
    """From values to estimates. Where counts are drawn instead of messages, without making them."""
    one_by_one: bool = True
    """Whether every message was made."""
    by_value: ByValue | None = None


def mse(estimates: Vector, truth: Vector) -> float:
    """Return the mean squared error."""
    return float(np.mean((estimates - truth) ** 2))


def histogram_errors(histogram: Histogram, truth: Vector) -> dict[str, float]:
    """
    Compare an estimate with the shares among the very users who contributed.

    `relative_error` averages |error| / share over the 50 most frequent values; `regret` is how much
    less frequent the value of the largest estimate is than the most frequent one.
    """
    top = np.argsort(truth)[::-1][:TOP]
    top = top[truth[top] > 0]
    error = histogram.frequencies - truth
    return {
        "mse": mse(histogram.frequencies, truth),
        "mse_refined": mse(histogram.refined, truth),
        "mse_top50": mse(histogram.frequencies[top], truth[top]),
        "mse_top50_refined": mse(histogram.refined[top], truth[top]),
        "max_error": float(np.abs(error).max()),
        "relative_error": float(np.mean(np.abs(error[top]) / truth[top])),
        "regret": float(truth.max() - truth[np.argmax(histogram.frequencies)]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A mean over repeats, with its standard error; 0 for a single repeat, which has none."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarise the figures of repeats."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(mean=float(np.mean(values)), standard_error=spread / len(values) ** 0.5)

    def written(self, form: str) -> str:
        """Write the mean in a form such as ".3g", and the error as a share of it if it has one."""
        if not (self.standard_error and self.mean):
            return f"{self.mean:{form}}"
        return f"{self.mean:{form}} ±{self.standard_error / self.mean:.0%}"
