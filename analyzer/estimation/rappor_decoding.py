"""
RAPPOR's decoder: which strings of a list people hold, how many hold each, and how many hold what is
not on the list [EPK14]. Run by the analyzer. Pure.

Up to a candidate for every eight bits of all cohorts, and one in any case, all are fitted together.
Of more, each half of the cohorts is fitted with those that the non-negative LASSO chose on the
*other* half: other people, and hashes that have nothing to do with these. Either way every
candidate, chosen or not, is then looked at alone, after what the others explain; its estimate is
unbiased, and its p-value knows nothing of the choice. README.md beside this file has what other
ways were measured to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from analyzer.estimation.rappor_evidence import Evidence
from analyzer.estimation.rappor_regression import Regression, independent
from analyzer.estimation.rappor_selection import select
from analyzer.estimation.rappor_significance import (
    benjamini_hochberg,
    bonferroni,
    hash_p_value,
    noise_p_values,
)
from common.errors import TaskError
from common.mechanisms.randomizer import Counts, Vector
from common.mechanisms.rappor import Rappor

Correction = Literal["bonferroni", "benjamini-hochberg"]
"""What the level bounds: the chance of any false discovery, or their expected share."""

MOST_TOGETHER: Final = 1 / 8
"""Candidates for each bit of all cohorts up to which all are fitted together."""
_AT_ONCE: Final = 256
"""Candidates that are looked at together, so that memory stays bounded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoding:
    """What was found of each candidate; vectors have shape (M,)."""

    candidates: tuple[str, ...]
    n_reports: int
    counts: Vector
    """How many people hold each, without bias; may be negative. Not cut, not refined."""
    standard_errors: Vector
    """Of those counts; infinite where nothing tells a candidate from those that were fitted."""
    p_values: Vector
    """One-sided, against "nobody holds it"."""
    detected: NDArray[np.bool_]
    """By the correction over all M candidates."""
    unexplained: float
    """How many people hold what is not on the list, without bias; may be negative."""
    unexplained_error: float
    """Its standard error."""
    exhaustive: bool
    """Whether the list names all that a device takes, every label: then nothing is unexplained, and
    what shares leave of 1 is noise."""
    n_fitted: int
    """Candidates that were fitted together: all, or those that were chosen."""

    @property
    def shares(self) -> Vector:
        """Counts as shares of all reports."""
        shares: Vector = self.counts / self.n_reports
        return shares


def decode(
    rappor: Rappor,
    cells: Counts,
    candidates: Sequence[str],
    *,
    level: float = 0.05,
    correction: Correction = "bonferroni",
    most_together: float = MOST_TOGETHER,
) -> Decoding:
    """
    Decode a tally.

    Args:
        rappor: The task's mechanism.
        cells: From its `tally`, shape (m + m·k,).
        candidates: Strings to look for, each once; with the encoding `labels`, labels.
        level: Above 0 and below 1.
        correction: What the level bounds.
        most_together: Candidates for each bit of all cohorts up to which all are fitted together.

    Raises:
        ReportError: There is no report.
        SettingsError: There are so many candidates that scikit-learn is needed, and it is missing.
        TaskError: The level is out of range; there is no candidate, or two set the same bits; or a
            single cohort is to tell too many apart.
        ValueRangeError: A candidate is too long, or none of the labels.

    Cost: a tenth of a second for some hundred candidates, seconds for thousands.
    """
    if not 0 < level < 1:
        raise TaskError(f"level is {level}; it must be above 0 and below 1")
    evidence = Evidence.of(rappor, cells, candidates)
    if rappor.spec.encoding == "labels":
        estimates = _each_label(evidence)
    else:
        estimates = _each_alone(evidence, _regressions(evidence, most_together))
    exhaustive = rappor.spec.encoding == "labels" and len(candidates) == rappor.spec.bits
    reject = bonferroni if correction == "bonferroni" else benjamini_hochberg
    n_reports = evidence.n_reports
    return Decoding(
        candidates=tuple(candidates),
        n_reports=int(n_reports),
        counts=estimates.shares * n_reports,
        standard_errors=estimates.errors * n_reports,
        p_values=estimates.p_values,
        detected=reject(estimates.p_values, level),
        unexplained=0.0 if exhaustive else (1 - float(estimates.shares.sum())) * n_reports,
        unexplained_error=0.0 if exhaustive else estimates.sum_error * n_reports,
        exhaustive=exhaustive,
        n_fitted=estimates.n_fitted,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Estimates:
    shares: Vector
    errors: Vector
    p_values: Vector
    sum_error: float
    """Standard error of the sum of all shares."""
    n_fitted: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fold:
    """Cohorts, fitted together."""

    cohorts: NDArray[np.bool_]
    """Which, shape (c,)."""
    regression: Regression


def _each_label(evidence: Evidence) -> _Estimates:
    """Give what each label's own bit says: no other label touches it."""
    places = evidence.positions[:, 0, 0]
    variances = evidence.variances(evidence.estimates)[0, places]
    n_reports = evidence.n_reports
    return _Estimates(
        shares=evidence.estimates[0, places] / n_reports,
        errors=np.sqrt(variances) / n_reports,
        p_values=noise_p_values(evidence.shown[0, places], int(n_reports), evidence.unset_chance),
        sum_error=float(np.sqrt(variances.sum())) / n_reports,
        n_fitted=len(places),
    )


def _regressions(evidence: Evidence, most_together: float) -> list[_Fold]:
    everybody = np.arange(evidence.n_candidates)
    cohorts = len(evidence.sizes)
    if evidence.n_candidates <= max(1.0, most_together * evidence.cells):
        fitted = independent(evidence, everybody)
        if len(fitted) == len(everybody):
            every = np.ones(cohorts, dtype=np.bool_)
            return [_Fold(cohorts=every, regression=Regression.fit(evidence, fitted))]
    if cohorts < 2:  # noqa: PLR2004  # halves
        raise TaskError(
            f"one cohort of {evidence.cells} bits cannot tell {evidence.n_candidates} candidates "
            "apart: look for fewer, or collect with more cohorts"
        )
    even = np.arange(cohorts) % 2 == 0
    return [_half(evidence, half) for half in (even, ~even)]


def _half(evidence: Evidence, half: NDArray[np.bool_]) -> _Fold:
    """Fit one half of the cohorts with what the other half chose."""
    own = evidence.among(half)
    chosen = independent(own, select(evidence.among(~half), own.cells))
    return _Fold(cohorts=half, regression=Regression.fit(own, chosen))


def _each_alone(evidence: Evidence, folds: Sequence[_Fold]) -> _Estimates:
    """Look at each candidate alone in every fold, and put the folds together."""
    n_candidates, bits = evidence.n_candidates, len(evidence.chances)
    shares, errors = np.zeros(n_candidates), np.full(n_candidates, np.inf)
    p_values = np.ones(n_candidates)
    noise = np.zeros((len(evidence.sizes), bits))
    for fold in folds:
        noise[fold.cohorts] = fold.regression.variances().reshape(-1, bits)
    of_sum = np.zeros_like(noise)
    for start in range(0, n_candidates, _AT_ONCE):
        some = np.arange(start, min(n_candidates, start + _AT_ONCE))
        products, weights = np.zeros(len(some)), np.zeros(len(some))
        columns, left = np.zeros((2, len(some), *noise.shape))
        for fold in folds:
            alone = fold.regression.alone(some)
            products += alone.products
            weights += alone.weights
            columns[:, fold.cohorts] = alone.columns.T.reshape(len(some), -1, bits)
            left[:, fold.cohorts] = alone.residuals.T.reshape(len(some), -1, bits)
        known = weights > 0
        per_weight = np.divide(1.0, weights, out=np.zeros(len(some)), where=known)
        shares[some] = products * per_weight
        of_sum += np.tensordot(per_weight, columns, axes=1)
        spread = np.sqrt((columns**2 * noise).sum(axis=(1, 2))) * per_weight
        errors[some[known]] = spread[known]
        for number in np.nonzero(known)[0]:
            candidate = some[number]
            p_values[candidate] = hash_p_value(
                left[number], evidence.positions[candidate], evidence.chances
            )
    fitted = {int(each) for fold in folds for each in fold.regression.fitted}
    return _Estimates(
        shares=shares,
        errors=errors,
        p_values=p_values,
        sum_error=float(np.sqrt((of_sum**2 * noise).sum())),
        n_fitted=len(fitted),
    )
