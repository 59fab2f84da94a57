"""
The estimator of pairs: the share of owners and the mean value of each key, with errors.

A report concerns one key, drawn uniformly; p1 is the chance of a truthful answer on whether the key
is owned, p2 of a truthful sign of the value.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Counts, Vector

ABSENT: Final = 0
MINUS: Final = 1
PLUS: Final = 2
"""The three answers on a key, which are the columns of the counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairEstimates:
    """Estimates of shape (keys,), all finite."""

    frequencies: Vector
    """Share of people who own each key; unbiased, so possibly outside 0 .. 1."""
    frequency_errors: Vector
    """Their standard errors."""
    means_with_fakes: Vector
    """Mean of the values reported for each key, fakes included; in -1 .. 1."""
    errors_with_fakes: Vector
    """Their standard errors by noise alone, without the bias of fakes."""
    told: NDArray[np.bool_]
    """Keys for which at least one report has a value or a fake."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnersMeans:
    """Estimates of shape (keys,), all finite."""

    means: Vector
    """Mean value among the owners of each key, in -1 .. 1."""
    mean_errors: Vector
    """Their standard errors, at most 1."""


class PairEstimator(ABC):
    """Estimate shares and means from counts by key, with their errors; a base class."""

    @property
    @abstractmethod
    def p_key(self) -> float:
        """Chance p1 of a truthful answer on whether the key is owned."""

    @property
    @abstractmethod
    def key_signal(self) -> float:
        """Difference 2·p1 - 1 in the chance to report owned and other keys as present; may be 0."""

    @property
    @abstractmethod
    def value_signal(self) -> float:
        """Correlation 2·p2 - 1 of the reported sign and the true one, above 0."""

    @property
    @abstractmethod
    def fake_values(self) -> Vector:
        """Value used for a key that is not owned, in -1 .. 1; shape (keys,)."""

    def estimate(self, cells: Counts) -> PairEstimates:
        """
        Estimate the share of owners of each key and their mean value. Run by the analyzer.

        The share is unbiased. The mean covers all reports of the key as present, fakes included, as
        in [YHMZ19]: (n+ - n-) / (2·p2 - 1)(n+ + n-), clipped to -1 .. 1.

        Without information (no reports on a key, none with a value, or a fair coin for the key) the
        estimate is the middle of the possible range, ± half of it.

        Args:
            cells: From `tally`.

        Returns:
            Shares, and means in -1 .. 1. The errors of shares refer to the people asked, those of
            means to a
            large population from which they were drawn.
        """
        total = float(cells.sum())
        about = cells.sum(axis=1).astype(np.float64)
        present = about - cells[:, ABSENT]
        known = (about > 0) & (self.key_signal > 0)
        signal = self.key_signal or 1.0
        reported = np.maximum(about, 1.0)
        shares = (present / reported - (1 - self.p_key)) / signal
        held = np.clip(shares, 0.0, 1.0)
        missed = (total - about) / max(total - 1, 1.0)
        coin = self.p_key * (1 - self.p_key) / signal**2
        spread = np.sqrt((coin + held * (1 - held) * missed) / reported)
        signs = (cells[:, PLUS] - cells[:, MINUS]) / np.maximum(present, 1.0)
        means = np.clip(signs / self.value_signal, -1.0, 1.0)
        noise = np.sqrt((self.value_signal**-2 - means**2) / np.maximum(present, 1.0))
        return PairEstimates(
            frequencies=np.where(known, shares, 0.5),
            frequency_errors=np.where(known, spread, 0.5),
            means_with_fakes=means,
            # A number in -1 .. 1 has a standard deviation of at most 1, below the noise of a sign.
            errors_with_fakes=np.minimum(noise, 1.0),
            told=present > 0,
        )

    def share_of_fakes(self, frequencies: Vector) -> Vector:
        """
        Return the share of fakes among the reports of a key as present.

        φ = (1-f)(1-p1) / (f·p1 + (1-f)(1-p1)), f the share of people who own it, in 0 .. 1.
        """
        false, true = (1 - frequencies) * (1 - self.p_key), frequencies * self.p_key
        share: Vector = false / (true + false)
        return share

    def bias_of_fakes(self, frequencies: Vector, means: Vector) -> Vector:
        """
        Return the expected bias of an estimated mean m by fakes: φ·(t - m), t the fake.

        The sender of a report of the key as present is not an owner with chance φ, whatever the
        other reports are, and then the sign is that of t. Given one or more such reports, the
        expectation is exact for people drawn at random, except for clipping to -1 .. 1. For a fixed
        population it is off by the order of keys / people.

        Args:
            frequencies: True shares of people who own each key, in 0 .. 1.
            means: True means of their values, in -1 .. 1.
        """
        bias: Vector = self.share_of_fakes(frequencies) * (self.fake_values - means)
        return bias

    def expected(self, frequencies: Vector, means: Vector, n_users: int) -> PairEstimates:
        """
        Return the expectation and the standard errors of `estimate`, for people drawn at random.

        Shares vary around those of the people drawn, means around those of the population. Both use
        the second-order mean of 1/R over numbers R of reports, and ignore clipping to -1 .. 1.

        Args:
            frequencies: True shares of people who own each key, in 0 .. 1.
            means: True means of their values, in -1 .. 1.
            n_users: Number of people, at least a few for each key.
        """
        chance = np.full(len(frequencies), 1 / len(frequencies))
        inverse = _mean_inverse(n_users, chance)
        coin = self.p_key * (1 - self.p_key) / (self.key_signal or 1.0) ** 2
        missed = np.maximum(n_users * inverse - 1, 0.0) / max(n_users - 1, 1)
        known = self.key_signal > 0
        spread = np.sqrt(coin * inverse + frequencies * (1 - frequencies) * missed)
        fakes = self.bias_of_fakes(frequencies, means)
        found = means + fakes
        told = frequencies * self.key_signal + 1 - self.p_key
        signs = _mean_inverse(n_users, told * chance)
        return PairEstimates(
            frequencies=np.where(known, frequencies, 0.5),
            frequency_errors=np.where(known, spread, 0.5),
            means_with_fakes=found,
            errors_with_fakes=np.sqrt((self.value_signal**-2 - found**2) * signs),
            told=np.ones(len(frequencies), dtype=np.bool_),
        )

    def without_fakes(self, estimates: PairEstimates) -> OwnersMeans:
        """
        Remove the fakes from estimated means by the estimated shares: (M - φ·t) / (1 - φ).

        Nearly unbiased from a single round, where the iterations of [YHMZ19] take several; the
        noise grows by 1/(1 - φ). With fakes in the middle it is the baseline estimator of
        [GLCXC20]. Where the estimated share is not above 0, or no report has a value, the estimate
        is the middle of the range, ± half of it.

        Raises:
            ValueError: Reports carry no information on ownership, so shares cannot be estimated.
        """
        if not self.key_signal:
            raise ValueError("reports tell nothing of key ownership: fakes cannot be removed")
        share = np.clip(estimates.frequencies, 0.0, 1.0)
        known = (share > 0) & estimates.told
        safe = np.where(known, share, 0.5)
        told = safe * self.key_signal + 1 - self.p_key
        kept = safe * self.p_key / told  # 1 - φ, which would be 0 for the smallest shares
        means = (estimates.means_with_fakes - self.share_of_fakes(safe) * self.fake_values) / kept
        # Derivative of the mean by the share used: dφ/df = -p1·(1-p1) / told².
        slope = (means - self.fake_values) / kept * self.p_key * (1 - self.p_key) / told**2
        errors = np.hypot(estimates.errors_with_fakes / kept, slope * estimates.frequency_errors)
        return OwnersMeans(
            means=np.where(known, np.clip(means, -1.0, 1.0), 0.0),
            mean_errors=np.where(known, np.minimum(errors, 1.0), 1.0),
        )


def _mean_inverse(trials: int, chances: Vector) -> Vector:
    """Return E[1/R] of a binomial R that is not 0, to the second order."""
    mean = trials * chances
    inverse: Vector = (1 + (1 - chances) / mean) / mean
    return inverse
