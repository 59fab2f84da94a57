"""How far an estimate is from the truth, and how far over repeats. Shares throughout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from common.mechanisms.base import Vector
from common.messages.estimate import Histogram

TOP: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of one estimate, against the shares among the very users who contributed."""

    mse: float
    """Mean over values of the squared error of the unrefined shares."""
    mse_refined: float
    mse_top50: float
    """The same over the 50 most frequent values, unrefined."""
    mse_top50_refined: float
    max_error: float
    """Largest error of an unrefined share."""
    relative_error: float
    """Mean over those 50 of |error| / share, unrefined."""
    regret: float
    """How much less frequent the value of the largest unrefined share is than the most frequent
    one: the error of whoever asks for that value only."""

    @classmethod
    def of(cls, histogram: Histogram, truth: Vector) -> Self:
        """Compare."""
        top = np.argsort(truth)[::-1][:TOP]
        top = top[truth[top] > 0]
        error = histogram.frequencies - truth
        refined = histogram.refined - truth
        return cls(
            mse=float(np.mean(error**2)),
            mse_refined=float(np.mean(refined**2)),
            mse_top50=float(np.mean(error[top] ** 2)),
            mse_top50_refined=float(np.mean(refined[top] ** 2)),
            max_error=float(np.abs(error).max()),
            relative_error=float(np.mean(np.abs(error[top]) / truth[top])),
            regret=float(truth.max() - truth[np.argmax(histogram.frequencies)]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A mean over repeats, with its standard error; 0 for a single repeat, which has none."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarise."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(mean=float(np.mean(values)), standard_error=spread / len(values) ** 0.5)

    def stated_error(self, repeats: int) -> float | None:
        """Give the standard error for programs; None of a single repeat, which has none."""
        return self.standard_error if repeats > 1 else None

    def written(self, form: str) -> str:
        """Write the mean in a form such as ".3g", and the error as a share of it if it has one."""
        if not (self.standard_error and self.mean):
            return f"{self.mean:{form}}"
        return f"{self.mean:{form}} ±{self.standard_error / self.mean:.0%}"
