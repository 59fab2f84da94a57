"""
Decode reports of RAPPOR: shares of candidates, and p-values over the randomness of the hash.

If users hold a string, its bits are set more often than the other candidates explain. If no user
does, the hash has chosen those bits at random, independently of all reports. So the sum of the
residuals at its bits is compared with the sums over h random bits per cohort, whose distribution is
known exactly, as in a conditional randomization test [CFJL18]. This holds with unlisted strings,
any distribution of noise, and candidates selected on the same data, provided that the residuals
come from a fit without the candidate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from shuffledp.common.errors import SettingsError, TaskError
from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.count_law import interval_table
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.messages import result
from shuffledp.common.runtime.validation import read_file
from shuffledp.common.task.labels import normalize
from shuffledp.deploy.results.regression import Regression, TrueBitCounts, independent, select

MAX_CANDIDATES: Final = 100_000
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Limits of a file of candidates."""
LEVEL: Final = 0.05
"""Family-wise error rate: bound on the probability of any false discovery."""
MAX_TOGETHER: Final = 1 / 8
"""Up to this ratio of candidates to bits of all cohorts, all candidates are fitted together."""
_MAX_AT_ONCE: Final = 256
"""Candidates estimated at a time, to bound memory."""
_MAX_NORMAL: Final = 1.0
"""Standard deviations up to which a normal approximation suffices: nothing is detected there."""
_MIN_DRAWS: Final = 8
"""Minimum number of hashes over all cohorts for the saddlepoint approximation."""
_MAX_TILT: Final = 1e6
"""Maximum θ of the saddlepoint; beyond it the sum is practically the largest possible."""


def read_candidates(path: Path) -> tuple[str, ...]:
    """
    Read candidates, one per line of a UTF-8 file, and normalize them as devices do.

    A blank line is the empty text, which devices send too, except after the last line's end.
    """
    try:
        text = read_file(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n") if text else ()
    texts = tuple(normalize(line) for line in lines)
    if not 1 <= len(texts) <= MAX_CANDIDATES:
        raise SettingsError(
            f"{path} has {len(texts)} candidates; it must have 1 to {MAX_CANDIDATES}"
        )
    if repeated := len(texts) - len(set(texts)):
        raise SettingsError(f"{path} repeats {repeated} candidates; each must appear once")
    return texts


def hash_p_value(residuals: Vector, positions: NDArray[np.intp], distribution: Vector) -> float:
    """
    Return the probability that random bits have at least the residual sum of a candidate's bits.

    Uses the normal approximation up to one standard deviation; beyond it the saddlepoint
    approximation [LR80], or Chernoff's bound if there are few hashes.

    `residuals`, shape (c, k), are those after fitting the other candidates; `positions`, (c, h),
    the candidate's bits; `distribution`, (k,), the probability of each bit under one hash. Cost:
    about 20 passes over c·k numbers if the sum is large, else one.
    """
    hashes = positions.shape[1]
    scores = residuals - (residuals @ distribution)[:, None]
    deviation = math.sqrt(hashes * float((scores**2 @ distribution).sum()))
    if deviation == 0:
        return 1.0
    scores = scores / deviation
    observed = float(np.take_along_axis(scores, positions, axis=1).sum())
    if observed <= _MAX_NORMAL:
        return float(stats.norm.sf(observed))
    return _upper_tail(scores, distribution, hashes, observed)


def _upper_tail(scores: Vector, distribution: Vector, hashes: int, observed: float) -> float:
    """
    Return P(S ≥ observed) for the sum S of h drawn scores per cohort, of mean 0 and variance 1.

    With the cumulant generating function K of S and K'(θ) = observed: w = √(2(θ·observed - K(θ))),
    u = θ·√K''(θ), and the tail is about 1 - Φ(w) + φ(w)·(1/u - 1/w) [LR80].
    """

    def cumulants(tilt: float) -> tuple[float, float, float]:
        exponents = tilt * scores
        top = exponents.max(axis=1, keepdims=True)
        tilted = distribution * np.exp(exponents - top)
        total = tilted.sum(axis=1, keepdims=True)
        tilted = tilted / total
        means = (tilted * scores).sum(axis=1)
        variances = (tilted * scores**2).sum(axis=1) - means**2
        log = float((np.log(total) + top).sum())
        return hashes * log, hashes * float(means.sum()), hashes * float(variances.sum())

    largest = hashes * float(scores.max(axis=1).sum())
    high = 1.0
    while cumulants(high)[1] < observed and high < _MAX_TILT:
        high *= 2
    if observed >= largest or high >= _MAX_TILT:
        # The sum is the largest possible: return the probability that all draws have top scores.
        ties = np.isclose(scores, scores.max(axis=1, keepdims=True))
        return float(np.exp(hashes * np.log(ties @ distribution).sum()))
    tilt = float(optimize.brentq(lambda at: cumulants(at)[1] - observed, 0.0, high))
    log, _, variance = cumulants(tilt)
    exponent = log - tilt * observed
    chernoff = math.exp(min(0.0, exponent))
    w = math.sqrt(max(0.0, -2 * exponent))
    u = tilt * math.sqrt(max(0.0, variance))
    if hashes * len(scores) < _MIN_DRAWS or w == 0 or u == 0:
        return chernoff
    # φ(w) is Chernoff's bound over √2π.
    scaled = float(special.erfcx(w / math.sqrt(2))) / 2
    near = chernoff * (scaled + (1 / u - 1 / w) / math.sqrt(2 * math.pi))
    return min(chernoff, max(0.0, near))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoding:
    """The estimate of each candidate; vectors have shape (M,)."""

    shares: Vector
    """Unbiased share of users who hold each candidate; may be negative."""
    share_errors: Vector
    """Standard errors; infinite if a candidate cannot be told from the fitted candidates."""
    p_values: Vector
    """One-sided p-values of the hypothesis that no user holds the candidate."""
    detected: NDArray[np.bool_]
    """Candidates significant at LEVEL, after Bonferroni's correction for all M."""
    unexplained: float
    """Unbiased share of users whose text is not a candidate; may be negative, 0 if exhaustive."""
    unexplained_error: float
    """Standard error of `unexplained`."""
    exhaustive: bool
    """True if every label is a candidate: the sum of shares then differs from 1 by noise alone."""
    table: result.IntervalTable | None = None
    """Intervals by the exact distribution of a label's count; None if shares are nearly normal."""

    def interval(self, confidence: float) -> result.Interval:
        """Return the ends of each share's confidence interval; not simultaneous."""
        if self.table:
            return self.table.interval(self.shares, self.share_errors, confidence)
        reach = result.interval_half_width(confidence) * self.share_errors
        return result.interval_around(self.shares, reach)


def decode(
    rappor: Rappor, cells: Counts, candidates: Sequence[str], *, most_together: float = MAX_TOGETHER
) -> Decoding:
    """
    Estimate and test each candidate from `rappor.tally`'s result. Run by operators and simulators.

    Candidates are distinct, and labels with the encoding `labels`.

    Raises:
        ReportError: There is no report.
        SettingsError: There are too many candidates to fit together, and scikit-learn is missing.
        TaskError: There is no candidate, two candidates set the same bits, or one cohort cannot
            tell them apart.
        ValueRangeError: A candidate is too long, not encodable, or not a label.

    Cost: a tenth of a second for hundreds of candidates, seconds for thousands.
    """
    bit_counts = TrueBitCounts.of(rappor, cells, candidates)
    labelled, table = rappor.spec.encoding == "labels", None
    if labelled:
        shares, errors, p_values, sum_error = _each_label(bit_counts)
        chances = rappor.set_probability, rappor.unset_probability
        table = interval_table(bit_counts.n_reports, *chances, added=())
    else:
        folds = _folds(bit_counts, most_together)
        shares, errors, p_values, sum_error = _each_alone(bit_counts, folds)
    exhaustive = labelled and len(candidates) == rappor.spec.bits
    return Decoding(
        shares=shares,
        share_errors=errors,
        p_values=p_values,
        detected=p_values <= LEVEL / len(candidates),
        unexplained=0.0 if exhaustive else 1 - float(shares.sum()),
        unexplained_error=0.0 if exhaustive else sum_error,
        exhaustive=exhaustive,
        table=table,
    )


_Estimates = tuple[Vector, Vector, Vector, float]
"""Shares, their errors, p-values, and the standard error of the sum of all shares."""


def _each_label(bit_counts: TrueBitCounts) -> _Estimates:
    """Estimate each label from its bit, which no other label sets."""
    places = bit_counts.positions[:, 0, 0]
    variances = bit_counts.variances(bit_counts.estimates)[0, places]
    n_reports, shown = bit_counts.n_reports, bit_counts.shown[0, places]
    # If no user holds the label, its count is only noise, and binomial.
    p_values = stats.binom.sf(shown - 1, int(n_reports), bit_counts.rappor.unset_probability)
    sum_error = float(np.sqrt(variances.sum())) / n_reports
    shares = bit_counts.estimates[0, places] / n_reports
    return shares, np.sqrt(variances) / n_reports, p_values, sum_error


_Fold = tuple[NDArray[np.bool_], Regression]
"""A mask of cohorts fitted together, shape (c,), and their fit."""


def _folds(bit_counts: TrueBitCounts, most_together: float) -> list[_Fold]:
    """Fit all cohorts together or, if too many or dependent candidates, each half separately."""
    cohorts, n_candidates = len(bit_counts.sizes), bit_counts.n_candidates
    if n_candidates <= max(1.0, most_together * bit_counts.estimates.size):
        fitted = independent(bit_counts, np.arange(n_candidates))
        if len(fitted) == n_candidates:
            return [(np.ones(cohorts, dtype=np.bool_), Regression.fit(bit_counts, fitted))]
    if cohorts < 2:  # noqa: PLR2004  # there are two halves
        raise TaskError(
            f"one cohort of {bit_counts.estimates.size} bits cannot tell {n_candidates} candidates "
            "apart: look for fewer, or collect with more cohorts"
        )
    even = np.arange(cohorts) % 2 == 0
    return [(half, _fit_half(bit_counts, half)) for half in (even, ~even)]


def _fit_half(bit_counts: TrueBitCounts, half: NDArray[np.bool_]) -> Regression:
    """Fit one half of the cohorts with the candidates selected on the other half."""
    own = bit_counts.among(half)
    chosen = select(bit_counts.among(~half), own.estimates.size)
    return Regression.fit(own, independent(own, chosen))


def _each_alone(bit_counts: TrueBitCounts, folds: Sequence[_Fold]) -> _Estimates:
    """Estimate each candidate separately in every fold, and combine the folds."""
    n_candidates, bits = bit_counts.n_candidates, len(bit_counts.distribution)
    shares, errors = np.zeros(n_candidates), np.full(n_candidates, np.inf)
    p_values = np.ones(n_candidates)
    noise = np.zeros((len(bit_counts.sizes), bits))
    for cohorts, regression in folds:
        noise[cohorts] = regression.variances().reshape(-1, bits)
    of_sum = np.zeros_like(noise)
    for start in range(0, n_candidates, _MAX_AT_ONCE):
        some = np.arange(start, min(n_candidates, start + _MAX_AT_ONCE))
        products, weights = np.zeros(len(some)), np.zeros(len(some))
        columns, residuals = np.zeros((2, len(some), *noise.shape))
        for cohorts, regression in folds:
            alone = regression.alone(some)
            products += alone.products
            weights += alone.weights
            columns[:, cohorts] = alone.columns.T.reshape(len(some), -1, bits)
            residuals[:, cohorts] = alone.residuals.T.reshape(len(some), -1, bits)
        known = weights > 0
        per_weight = np.divide(1.0, weights, out=np.zeros(len(some)), where=known)
        shares[some] = products * per_weight
        of_sum += np.tensordot(per_weight, columns, axes=1)
        deviations = np.sqrt((columns**2 * noise).sum(axis=(1, 2))) * per_weight
        errors[some[known]] = deviations[known]
        for number in np.nonzero(known)[0]:
            p_values[some[number]] = hash_p_value(
                residuals[number], bit_counts.positions[some[number]], bit_counts.distribution
            )
    return shares, errors, p_values, float(np.sqrt((of_sum**2 * noise).sum()))
