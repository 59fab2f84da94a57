"""
The estimator of pairs: the share of owners and the mean value of each key, with standard errors.

A report concerns one key, drawn uniformly. p1 is the probability of a truthful answer on ownership,
and p2 that of the true sign of the value.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms.arguments import CheckedArguments
from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.numeric.coded_number import bit_interval
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import Interval, interval_half_width

ABSENT: Final = 0
MINUS: Final = 1
PLUS: Final = 2
"""The three answers on a key, and their columns in the counts."""
_TINY: Final = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairEstimates:
    """Estimated shares of owners, and means with fakes, by key: shape (keys,), all finite."""

    frequencies: Vector
    """Share of users who own each key; unbiased, so possibly outside 0 .. 1."""
    frequency_errors: Vector
    """Standard errors of `frequencies`."""
    means_with_fakes: Vector
    """Mean of the values reported for each key, fakes included; in -1 .. 1."""
    errors_with_fakes: Vector
    """Standard errors of `means_with_fakes` due to noise, without the bias of fakes."""
    has_values: NDArray[np.bool_]
    """Keys for which at least one report has a value, true or fake."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnersMeans:
    """Estimated means without fakes, by key: shape (keys,), all finite."""

    means: Vector
    """Mean value among the owners of each key, in -1 .. 1."""
    mean_errors: Vector
    """Standard errors of `means`, at most 1."""


@dataclass(frozen=True)
class PairEstimator(CheckedArguments):
    """Estimate shares and means, with their errors, from the counts of each key's answers."""

    keys: int
    """Number of keys, 1 .. MAX_KEYS."""
    steps: int
    """Intervals of the grid of values."""
    key_true: int
    key_other: int
    """Odds of a truthful answer on ownership; 1 : 1 reveals nothing."""
    value: ResponseWeights
    """Odds of reporting the true sign."""
    fakes: tuple[int, ...] = ()
    """Grid point of the fake value of each key; empty for the middle of the grid."""

    @property
    def p_key(self) -> float:
        """Probability p1 of a truthful answer on ownership."""
        return self.key_true / (self.key_true + self.key_other)

    @property
    def key_signal(self) -> float:
        """2·p1 - 1: P("present" | owned) - P("present" | not owned); may be 0."""
        return (self.key_true - self.key_other) / (self.key_true + self.key_other)

    @property
    def value_signal(self) -> float:
        """2·p2 - 1, the correlation of the reported sign and the true one; above 0."""
        return (self.value.true - self.value.other) / (self.value.true + self.value.other)

    @cached_property
    def fake_steps(self) -> NDArray[np.int64]:
        """Grid point reported for a key that is not owned, shape (keys,)."""
        if not self.fakes:
            return np.full(self.keys, self.steps // 2, dtype=np.int64)
        return np.array(self.fakes, dtype=np.int64)

    @property
    def fake_values(self) -> Vector:
        """Value reported for a key that is not owned, in -1 .. 1; shape (keys,)."""
        return self.fake_steps / self.steps * 2 - 1

    def estimate(self, cells: Counts) -> PairEstimates:
        """
        Estimate each key's share of owners, and its mean value with fakes. Run by the analyzer.

        The share is (s - (1-p1)) / (2·p1 - 1), unbiased, where s is the share of the key's reports
        that state "present". Its variance is that of p1's coins plus that of sampling, without
        replacement, the users asked about the key. The mean covers all reports of the key as
        present, fakes included, as in [YHMZ19]: (n+ - n-) / ((2·p2 - 1)(n+ + n-)), clipped to -1 ..
        1. A single sign has the variance 1/(2·p2 - 1)² - mean².

        Without information (no reports on a key, none with a value, or a fair coin for the key) the
        estimate is the middle of the possible range, and its error is half of the range.

        `cells` is from `tally`, shape (keys, 3). The errors of shares refer to the users who
        reported, those of means to a large population from which they were drawn.
        """
        total = float(cells.sum())
        asked = cells.sum(axis=1).astype(np.float64)
        present = asked - cells[:, ABSENT]
        known = (asked > 0) & (self.key_signal > 0)
        signal = self.key_signal or 1.0
        reports = np.maximum(asked, 1.0)
        shares = (present / reports - (1 - self.p_key)) / signal
        owners = np.clip(shares, 0.0, 1.0)
        not_asked = (total - asked) / max(total - 1, 1.0)
        coin = self.p_key * (1 - self.p_key) / signal**2
        errors = np.sqrt((coin + owners * (1 - owners) * not_asked) / reports)
        signs = (cells[:, PLUS] - cells[:, MINUS]) / np.maximum(present, 1.0)
        means = np.clip(signs / self.value_signal, -1.0, 1.0)
        noise = np.sqrt((self.value_signal**-2 - means**2) / np.maximum(present, 1.0))
        return PairEstimates(
            frequencies=np.where(known, shares, 0.5),
            frequency_errors=np.where(known, errors, 0.5),
            means_with_fakes=means,
            # A number in -1 .. 1 has a standard deviation of at most 1, below the noise of a sign.
            errors_with_fakes=np.minimum(noise, 1.0),
            has_values=present > 0,
        )

    def share_interval(self, shares: Vector, by_key: Counts, confidence: float) -> Interval:
        """
        Return the ends of each estimated share's interval, from the numbers of reports `by_key`.

        It holds the true shares f from which the estimate is within its half-width, with the
        variance that it has there: a score interval [Wil27], a quadratic in f. With few reports the
        variance at the estimate is itself too uncertain. Without information it is 0 .. 1.
        """
        known = (by_key > 0) & (self.key_signal > 0)
        per_report = interval_half_width(confidence) ** 2 / np.maximum(by_key, 1)
        total = int(by_key.sum())
        spread = per_report * (total - by_key) / max(total - 1, 1)
        coin = self.p_key * (1 - self.p_key) / (self.key_signal or 1.0) ** 2
        middle = (shares + spread / 2) / (1 + spread)
        rest = (shares**2 - per_report * coin) / (1 + spread)
        reach = np.sqrt(np.maximum(middle**2 - rest, 0.0))
        return np.where(known, middle - reach, 0.0), np.where(known, middle + reach, 1.0)

    def share_of_fakes(self, frequencies: Vector) -> Vector:
        """
        Return the share φ of fakes among the reports of a key as present, by Bayes' rule.

        φ = (1-f)(1-p1) / (f·p1 + (1-f)(1-p1)), where a share f of users, in 0 .. 1, owns the key.
        """
        false, true = (1 - frequencies) * (1 - self.p_key), frequencies * self.p_key
        return false / (true + false)

    def bias_of_fakes(self, frequencies: Vector, means: Vector) -> Vector:
        """
        Return the expected bias of an estimated mean m due to fakes t: φ·(t - m).

        Whatever the other reports are, a report of the key as present is a fake with probability φ,
        and its expected value is then t. Given at least one such report, φ·(t - m) is exact for
        users drawn at random, except for clipping to -1 .. 1. For a fixed population its error is
        of the order of keys / users.

        Takes the true shares of owners and the true means of their values, by key.
        """
        return self.share_of_fakes(frequencies) * (self.fake_values - means)

    def without_fakes(self, estimates: PairEstimates) -> OwnersMeans:
        """
        Remove fakes t from estimated means M by the estimated shares f: (M - φ·t) / (1 - φ).

        One round suffices, where [YHMZ19] needs several iterations; the noise grows by 1/(1 - φ).
        Since the quotient and the clipping are not linear, means of rare keys are biased towards
        the middle: in simulations with a mean of .8, at ε from 1 to 4, by up to .1, .2, .4 and .8
        where the share is 5, 3, 2 and 1 times its standard error. With fakes in the middle it is
        the baseline estimator of [GLCXC20]. Errors propagate to first order through M and f, with
        dφ/df = -p1·(1-p1) / P("present")². Where the estimated share is not above 0, or no report
        has a value, the estimate is the middle of the range, and its error is half of the range.
        Raises ValueError if reports carry no information on ownership.
        """
        if not self.key_signal:
            raise ValueError("key_signal is 0; it must be above 0 to remove fakes")
        share = np.clip(estimates.frequencies, 0.0, 1.0)
        known = (share > 0) & estimates.has_values
        safe = np.where(known, share, 0.5)
        present = safe * self.key_signal + 1 - self.p_key
        true = safe * self.p_key / present  # 1 - φ, which would be 0 for the smallest shares
        means = (estimates.means_with_fakes - self.share_of_fakes(safe) * self.fake_values) / true
        slope = (means - self.fake_values) / true * self.p_key * (1 - self.p_key) / present**2
        errors = np.hypot(estimates.errors_with_fakes / true, slope * estimates.frequency_errors)
        return OwnersMeans(
            means=np.where(known, np.clip(means, -1.0, 1.0), 0.0),
            mean_errors=np.where(known, np.minimum(errors, 1.0), 1.0),
        )

    def stretch(
        self, with_fakes: Vector, errors: Vector, confidence: float
    ) -> tuple[Vector, Vector]:
        """
        Return how many errors intervals of means reach down and up: as many as a `bit_interval` of
        the means with fakes, in errors of theirs. Run by the analyzer's operator.

        With ten values of a key, normal intervals miss with 10 %.
        """
        within, level = np.clip(with_fakes, -1.0, 1.0), self.value_signal**-2
        low, high = bit_interval(within, errors**2 / (level - within**2), level, confidence)
        safe = np.maximum(errors, _TINY)
        return (within - low) / safe, (high - within) / safe
