"""
Decode reports of RAPPOR: shares of candidates, and p-values over the randomness of the hash.

If users hold a string, the bits it hashes to are fuller than the other candidates explain. If none
does, a hash draws those bits at random, independently of all reports. So the sum of the residuals
at its bits is compared with the sums of h random bits a cohort, whose distribution is known exactly
[CFJL18]. This holds for strings off the list, for any distribution of noise, and for candidates
that were chosen by these data, as long as the residuals leave out the candidate's own bits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from common.errors import TaskError
from common.mechanisms.base import Counts, Vector
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.rappor.regression import (
    Matrix,
    Regression,
    TrueBitCounts,
    independent,
    select,
)

LEVEL: Final = 0.05
"""Bound on the probability of any false discovery."""
MAX_TOGETHER: Final = 1 / 8
"""Maximum ratio of candidates to bits of all cohorts at which all are fitted together."""
_MAX_AT_ONCE: Final = 256
"""Candidates estimated at a time, which bounds memory."""
_MAX_NORMAL: Final = 1.0
"""Standard deviations up to which the normal approximation is used: nothing is detected there."""
_MIN_DRAWS: Final = 8
"""Minimum number of hashes in all cohorts for the saddlepoint approximation."""
_MAX_TILT: Final = 1e6


def hash_p_value(left: Matrix, positions: NDArray[np.intp], chances: Vector) -> float:
    """
    Return the probability that random bits have residuals as large as a candidate's.

    Uses the saddlepoint approximation [LR80], or Chernoff's bound if there are few hashes.

    Args:
        left: Residuals of the other candidates, by cohort and bit, shape (c, k).
        positions: The candidate's bits, shape (c, h).
        chances: Probability of each bit for one hash, shape (k,).

    Cost: some 20 passes over c·k numbers where the sum is large, one where it is not.
    """
    hashes = positions.shape[1]
    apart = left - (left @ chances)[:, None]
    deviation = math.sqrt(hashes * float((apart**2 @ chances).sum()))
    if deviation == 0:
        return 1.0
    apart = apart / deviation
    found = float(np.take_along_axis(apart, positions, axis=1).sum())
    if found <= _MAX_NORMAL:
        return float(stats.norm.sf(found))
    return _upper_tail(apart, chances, hashes, found)


def _upper_tail(apart: Matrix, chances: Vector, hashes: int, found: float) -> float:
    """Return P(sum of h draws a cohort ≥ found), for sums of mean 0 and variance 1."""

    def moments(tilt: float) -> tuple[float, float, float]:
        exponents = tilt * apart
        top = exponents.max(axis=1, keepdims=True)
        tilted = chances * np.exp(exponents - top)
        total = tilted.sum(axis=1, keepdims=True)
        tilted = tilted / total
        means = (tilted * apart).sum(axis=1)
        spreads = (tilted * apart**2).sum(axis=1) - means**2
        log = float((np.log(total) + top).sum())
        return hashes * log, hashes * float(means.sum()), hashes * float(spreads.sum())

    largest = hashes * float(apart.max(axis=1).sum())
    high = 1.0
    while moments(high)[1] < found and high < _MAX_TILT:
        high *= 2
    if found >= largest or high >= _MAX_TILT:
        # All draws are the largest: their own probability, with ties.
        ties = np.isclose(apart, apart.max(axis=1, keepdims=True))
        return float(np.exp(hashes * np.log(ties @ chances).sum()))
    tilt = float(optimize.brentq(lambda at: moments(at)[1] - found, 0.0, high))
    log, _, spread = moments(tilt)
    exponent = log - tilt * found
    chernoff = math.exp(min(0.0, exponent))
    root = math.sqrt(max(0.0, -2 * exponent))
    slope = tilt * math.sqrt(spread)
    if hashes * len(apart) < _MIN_DRAWS or root == 0 or slope == 0:
        return chernoff
    # sf(w) + φ(w)(1/u - 1/w), and φ(w) is Chernoff's bound over √2π.
    scaled = float(special.erfcx(root / math.sqrt(2))) / 2
    near = chernoff * (scaled + (1 / slope - 1 / root) / math.sqrt(2 * math.pi))
    return min(chernoff, max(0.0, near))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoding:
    """The estimate of each candidate; vectors have shape (M,)."""

    shares: Vector
    """Unbiased shares of the people who hold each candidate; may be negative."""
    share_errors: Vector
    """Standard errors; infinite if a candidate cannot be distinguished from the fitted ones."""
    p_values: Vector
    """One-sided p-values of the hypothesis that no user holds the candidate."""
    detected: NDArray[np.bool_]
    """p-values after Bonferroni's correction over all M candidates."""
    unexplained: float
    """Unbiased share of the people whose text is not a candidate; may be negative."""
    unexplained_error: float
    """Its standard error."""
    exhaustive: bool
    """Whether every label is a candidate: then the sum of shares differs from 1 by noise alone."""


def decode(
    rappor: Rappor,
    cells: Counts,
    candidates: Sequence[str],
    *,
    most_together: float = MAX_TOGETHER,
) -> Decoding:
    """
    Decode a tally.

    Args:
        rappor: The task's mechanism.
        cells: From its `tally`, shape (m + m·k,).
        candidates: At least one distinct string to look for; with the encoding `labels`, labels.
        most_together: See MAX_TOGETHER.

    Raises:
        ReportError: There is no report.
        SettingsError: So many candidates need scikit-learn, which is missing.
        TaskError: There is no candidate, two set the same bits, or there are too many for a single
            cohort.
        ValueRangeError: A candidate is too long, or not a label.

    Cost: a tenth of a second for some hundred candidates, seconds for thousands.
    """
    evidence = TrueBitCounts.of(rappor, cells, candidates)
    labelled = rappor.spec.encoding == "labels"
    estimates = (
        _each_label(evidence)
        if labelled
        else _each_alone(evidence, _folds(evidence, most_together))
    )
    shares, errors, p_values, sum_error = estimates
    exhaustive = labelled and len(candidates) == rappor.spec.bits
    return Decoding(
        shares=shares,
        share_errors=errors,
        p_values=p_values,
        detected=p_values <= LEVEL / len(candidates),
        unexplained=0.0 if exhaustive else 1 - float(shares.sum()),
        unexplained_error=0.0 if exhaustive else sum_error,
        exhaustive=exhaustive,
    )


_Estimates = tuple[Vector, Vector, Vector, float]
"""Shares, their errors, p-values, and the standard error of the sum of all shares."""


def _each_label(evidence: TrueBitCounts) -> _Estimates:
    """Estimate each label from its own bit, which no other label sets."""
    places = evidence.positions[:, 0, 0]
    variances = evidence.variances(evidence.estimates)[0, places]
    n_reports, shown = evidence.n_reports, evidence.shown[0, places]
    # If no user holds the label, its count is binomial, from noise alone.
    p_values = stats.binom.sf(shown - 1, int(n_reports), evidence.unset_chance)
    sum_error = float(np.sqrt(variances.sum())) / n_reports
    shares = evidence.estimates[0, places] / n_reports
    return shares, np.sqrt(variances) / n_reports, p_values, sum_error


_Fold = tuple[NDArray[np.bool_], Regression]
"""A mask of cohorts fitted together, shape (c,), and their fit."""


def _folds(evidence: TrueBitCounts, most_together: float) -> list[_Fold]:
    """Fit all cohorts together; with too many candidates, each half with the other's choice."""
    cohorts, n_candidates = len(evidence.sizes), evidence.n_candidates
    if n_candidates <= max(1.0, most_together * evidence.estimates.size):
        fitted = independent(evidence, np.arange(n_candidates))
        if len(fitted) == n_candidates:
            return [(np.ones(cohorts, dtype=np.bool_), Regression.fit(evidence, fitted))]
    if cohorts < 2:  # noqa: PLR2004  # halves
        raise TaskError(
            f"one cohort of {evidence.estimates.size} bits cannot tell {n_candidates} candidates "
            "apart: look for fewer, or collect with more cohorts"
        )
    even = np.arange(cohorts) % 2 == 0
    return [(half, _fit_half(evidence, half)) for half in (even, ~even)]


def _fit_half(evidence: TrueBitCounts, half: NDArray[np.bool_]) -> Regression:
    """Fit one half of the cohorts with the candidates that the other half chose."""
    own = evidence.among(half)
    chosen = select(evidence.among(~half), own.estimates.size)
    return Regression.fit(own, independent(own, chosen))


def _each_alone(evidence: TrueBitCounts, folds: Sequence[_Fold]) -> _Estimates:
    """Estimate each candidate alone in every fold, and join the folds."""
    n_candidates, bits = evidence.n_candidates, len(evidence.chances)
    shares, errors = np.zeros(n_candidates), np.full(n_candidates, np.inf)
    p_values = np.ones(n_candidates)
    noise = np.zeros((len(evidence.sizes), bits))
    for cohorts, regression in folds:
        noise[cohorts] = regression.variances().reshape(-1, bits)
    of_sum = np.zeros_like(noise)
    for start in range(0, n_candidates, _MAX_AT_ONCE):
        some = np.arange(start, min(n_candidates, start + _MAX_AT_ONCE))
        products, weights = np.zeros(len(some)), np.zeros(len(some))
        columns, left = np.zeros((2, len(some), *noise.shape))
        for cohorts, regression in folds:
            alone = regression.alone(some)
            products += alone.products
            weights += alone.weights
            columns[:, cohorts] = alone.columns.T.reshape(len(some), -1, bits)
            left[:, cohorts] = alone.residuals.T.reshape(len(some), -1, bits)
        known = weights > 0
        per_weight = np.divide(1.0, weights, out=np.zeros(len(some)), where=known)
        shares[some] = products * per_weight
        of_sum += np.tensordot(per_weight, columns, axes=1)
        spread = np.sqrt((columns**2 * noise).sum(axis=(1, 2))) * per_weight
        errors[some[known]] = spread[known]
        for number in np.nonzero(known)[0]:
            positions = evidence.positions[some[number]]
            p_values[some[number]] = hash_p_value(left[number], positions, evidence.chances)
    return shares, errors, p_values, float(np.sqrt((of_sum**2 * noise).sum()))
