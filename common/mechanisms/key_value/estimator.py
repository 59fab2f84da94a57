"""
What is estimated of pairs: who owns each key, and the mean value, each with its error.

A report is about one key of all, drawn evenly; p1 is the chance of telling truly whether it is
owned, p2 that of telling the true sign of the value.
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
"""What a report may say of its key; the columns of the counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairEstimates:
    """All of shape (keys,), and all numbers finite."""

    frequencies: Vector
    """Shares of people who own each key; unbiased, so that they may lie outside 0 .. 1."""
    frequency_errors: Vector
    """Their standard errors."""
    means_with_fakes: Vector
    """Of the values told of each key, fakes among them; in -1 .. 1."""
    errors_with_fakes: Vector
    """Their standard errors: noise alone, not what fakes add."""
    told: NDArray[np.bool_]
    """Of which keys somebody told a value, or a fake."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnersMeans:
    """Both of shape (keys,), and finite."""

    means: Vector
    """Of the values of those who own a key, in -1 .. 1."""
    mean_errors: Vector
    """Their standard errors, at most 1."""


class PairEstimator(ABC):
    """Estimate shares and means from counts by key, and say how far they are off; inherited."""

    @property
    @abstractmethod
    def p_key(self) -> float:
        """Chance p1 of telling the truth of whether a key is owned."""

    @property
    @abstractmethod
    def key_signal(self) -> float:
        """How much likelier an owned key is told to be present: 2·p1 - 1; may be 0."""

    @property
    @abstractmethod
    def value_signal(self) -> float:
        """How much of a value is left in the sign that is told: 2·p2 - 1, above 0."""

    @property
    @abstractmethod
    def fake_values(self) -> Vector:
        """What is taken for the value of a key that is not owned, in -1 .. 1; shape (keys,)."""

    def estimate(self, cells: Counts) -> PairEstimates:
        """
        Estimate the share of people who own each key, and their mean value. Run by the analyzer.

        The share is unbiased. The mean is that of everybody who said that the key is present,
        fakes included, as [YHMZ19] has it: (n+ - n-) / (2·p2 - 1)(n+ + n-), put back into -1 .. 1.

        Where nothing is known (no reports of a key, none of a value, or a fair coin for the key)
        the answer is the middle of what is possible, ± half of it.

        Args:
            cells: What `tally` gave.

        Returns:
            In shares and in -1 .. 1. The errors of shares are about the very people who were asked,
            those of means about many people of whom they were drawn.
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
            # No number in -1 .. 1 varies by more than 1, which is less than the noise of one sign.
            errors_with_fakes=np.minimum(noise, 1.0),
            told=present > 0,
        )

    def share_of_fakes(self, frequencies: Vector) -> Vector:
        """
        Give the share of fakes among those who say that a key is present.

        φ = (1-f)(1-p1) / (f·p1 + (1-f)(1-p1)), f the share of people who own it, in 0 .. 1.
        """
        false, true = (1 - frequencies) * (1 - self.p_key), frequencies * self.p_key
        share: Vector = false / (true + false)
        return share

    def bias_of_fakes(self, frequencies: Vector, means: Vector) -> Vector:
        """
        Give how far fakes pull an estimated mean m on average: φ·(t - m), t the fake.

        Of each report that says present, whoever sent it is one who does not own the key with
        chance φ, and then its sign is that of t, whatever the other reports are: given how many
        there are, one or more, the expectation is exact for people drawn at random, but for what
        lies beyond -1 .. 1 and is put back. For a population that is given once and for all it is
        off by the order of keys / people.

        Args:
            frequencies: True shares of people who own each key, in 0 .. 1.
            means: True means of their values, in -1 .. 1.
        """
        bias: Vector = self.share_of_fakes(frequencies) * (self.fake_values - means)
        return bias

    def expected(self, frequencies: Vector, means: Vector, n_users: int) -> PairEstimates:
        """
        Say what `estimate` comes to on average and how far it varies, of people drawn at random.

        Shares vary around those of the people drawn, means around those of all. Both through the
        mean of 1/R over numbers R of reports, to the second order, and but for means that are
        put back to -1 .. 1.

        Args:
            frequencies: True shares of people who own each key, in 0 .. 1.
            means: True means of their values, in -1 .. 1.
            n_users: How many people there are; at least a few for each key.
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
        Take the fakes out of estimated means, with the estimated shares: (M - φ·t) / (1 - φ).

        Nearly unbiased from a single round, where iterating takes many; the noise grows by
        1/(1 - φ). With fakes in the middle it is the baseline estimator of [GLCXC20]. Where no
        share above 0 is estimated, or nobody told a value, nothing is known: the middle, ± half.

        Raises:
            ValueError: Reports tell nothing of who owns a key, so that there are no such shares.
        """
        if not self.key_signal:
            raise ValueError("reports tell nothing of who owns a key: fakes cannot be taken out")
        share = np.clip(estimates.frequencies, 0.0, 1.0)
        known = (share > 0) & estimates.told
        safe = np.where(known, share, 0.5)
        told = safe * self.key_signal + 1 - self.p_key
        kept = safe * self.p_key / told  # 1 - φ, which would be 0 for the smallest shares
        means = (estimates.means_with_fakes - self.share_of_fakes(safe) * self.fake_values) / kept
        # How a mean changes with the share it was corrected by: dφ/df = -p1·(1-p1) / told².
        slope = (means - self.fake_values) / kept * self.p_key * (1 - self.p_key) / told**2
        errors = np.hypot(estimates.errors_with_fakes / kept, slope * estimates.frequency_errors)
        return OwnersMeans(
            means=np.where(known, np.clip(means, -1.0, 1.0), 0.0),
            mean_errors=np.where(known, np.minimum(errors, 1.0), 1.0),
        )


def _mean_inverse(trials: int, chances: Vector) -> Vector:
    """Give E[1/R] of a binomial R that is not 0, to the second order."""
    mean = trials * chances
    inverse: Vector = (1 + (1 - chances) / mean) / mean
    return inverse
