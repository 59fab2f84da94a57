"""
Fit candidates to estimates of the true bits behind reports of RAPPOR [EPK14].

With N_j reports of cohort j, of which c_ij show bit i, t_ij = (c_ij - p*·N_j) / (q* - p*) is an
unbiased estimate of the number of users in the cohort who set bit i. If a share s_l of users holds
candidate l, with bits B_l, and a share u holds unlisted texts, then

    E t_ij = N_j · (Σ_l s_l·B_lij + u·b_i),    u = 1 - Σ_l s_l,

where b_i is the probability that a random text sets bit i, since the hash spreads unlisted texts
over the bits. Without the term u·b_i the regression would attribute their bits to candidates. So
the regression is

    t_ij - N_j·b_i = N_j·Σ_l s_l·(B_lij - b_i) + noise.

With many candidates, the non-negative LASSO [Tib96] selects those to fit, as in [EPK14], on one
half of the cohorts for a fit on the other half.
"""

import dataclasses
import importlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from shuffledp.common.errors import ReportError, SettingsError, TaskError
from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.rappor import bloom
from shuffledp.common.mechanisms.rappor.rappor import Rappor

_MAX_SELECTED: Final = 500
_MAX_OF_CELLS: Final = 0.8
"""Maximum number of fitted candidates, and their maximum ratio to the cells [GRappor]."""
_MIN_DEVIATIONS: Final = 2.0
"""Least penalty of the path, in standard deviations of a candidate's product with the noise."""
_STEPS: Final = 20
"""Number of penalties."""
_SINGULAR: Final = 1e-8
"""Squared norm up to which the independent part of a unit column counts as 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueBitCounts:
    """Estimated true bits of the cohorts with reports, and the candidates' bits there."""

    sizes: Vector
    """N_j: reports by cohort, shape (c,), all above 0."""
    shown: Counts
    """c_ij: reports that show each bit, shape (c, k)."""
    estimates: Vector
    """t_ij: estimated users who set each bit, shape (c, k)."""
    positions: NDArray[np.intp]
    """Bits by candidate, cohort and hash, shape (M, c, h)."""
    distribution: Vector
    """Probability that one hash of a random text selects each bit, shape (k,)."""
    baseline: Vector
    """b_i: probability that an unlisted text sets each bit, shape (k,)."""
    rappor: Rappor
    """The mechanism, with the probabilities p* and q* that a report shows a bit as set."""

    @classmethod
    def of(cls, rappor: Rappor, cells: Counts, candidates: Sequence[str]) -> Self:
        """
        Debias the counts of cohorts with reports, and hash the candidates; see `decode`.

        With one bit per label, devices refuse unlisted texts, so the baseline is 0. Raises the
        errors of `decode`. Cost: a digest for each candidate and cohort.
        """
        spec = rappor.spec
        if not candidates:
            raise TaskError("there are no candidates; decoding needs at least one")
        seen = cells[: spec.cohorts] > 0
        if not seen.any():
            raise ReportError("there are 0 reports; decoding needs at least one")
        positions = rappor.set_bits(candidates)[:, seen]
        _check_different(positions, spec.bits, candidates)
        sizes = cells[: spec.cohorts][seen].astype(np.float64)
        shown = cells[spec.cohorts :].reshape(spec.cohorts, spec.bits)[seen]
        unset, is_set = rappor.unset_probability, rappor.set_probability
        if spec.encoding == "labels":
            distribution, baseline = np.full(spec.bits, 1 / spec.bits), np.zeros(spec.bits)
        else:
            distribution = bloom.hash_distribution(spec.bits)
            baseline = 1 - (1 - distribution) ** spec.hashes
        return cls(
            sizes=sizes,
            shown=shown,
            estimates=(shown - unset * sizes[:, None]) / (is_set - unset),
            positions=positions,
            distribution=distribution,
            baseline=baseline,
            rappor=rappor,
        )

    @property
    def n_reports(self) -> float:
        """N, the number of reports."""
        return float(self.sizes.sum())

    @property
    def n_candidates(self) -> int:
        """M, the number of candidates."""
        return len(self.positions)

    @property
    def target(self) -> Vector:
        """The regression's left side t_ij - N_j·b_i, shape (c, k)."""
        return self.estimates - self.sizes[:, None] * self.baseline

    @cached_property
    def rows(self) -> Vector:
        """N_j for each row of the regression, shape (c·k,)."""
        return np.repeat(self.sizes, len(self.baseline))

    @cached_property
    def spread(self) -> Vector:
        """b_i for each row of the regression, shape (c·k,)."""
        return np.tile(self.baseline, len(self.sizes))

    @cached_property
    def incidence(self) -> sparse.csc_array[np.float64]:
        """B: 1 where a candidate sets a bit of a cohort; shape (c·k, M), rows by cohort."""
        n_candidates, cohorts, hashes = self.positions.shape
        bits = len(self.distribution)
        rows = (self.positions + bits * np.arange(cohorts)[:, None]).ravel().astype(np.int32)
        columns = np.repeat(np.arange(n_candidates, dtype=np.int32), cohorts * hashes)
        ones = np.ones(len(rows))
        shape = (cohorts * bits, n_candidates)
        incidence = sparse.csc_array(sparse.coo_array((ones, (rows, columns)), shape=shape))
        incidence.sum_duplicates()
        incidence.data[:] = 1.0  # a bit that two hashes select is set once
        return incidence

    def among(self, cohorts: NDArray[np.bool_]) -> Self:
        """Return the counts of the cohorts in a mask of shape (c,)."""
        fields = {name: getattr(self, name)[cohorts] for name in ("sizes", "shown", "estimates")}
        return dataclasses.replace(self, positions=self.positions[:, cohorts], **fields)

    def variances(self, expected: Vector) -> Vector:
        """
        Return the variance of each t_ij if `expected` users, shape (c, k), set the bit.

        The sum of p*(1-p*) or q*(1-q*) over reports, divided by (q*-p*)², plus the hypergeometric
        variance of the number of these users, because the cohort's N_j users are a sample of all N.
        """
        sizes = self.sizes[:, None]
        true = np.clip(expected, 0, sizes)
        q, p = self.rappor.set_probability, self.rappor.unset_probability
        noise = (true * (q * (1 - q)) + (sizes - true) * (p * (1 - p))) / (q - p) ** 2
        elsewhere = (self.n_reports - sizes) / max(1.0, self.n_reports - 1)
        sampling: Vector = true * (1 - true / sizes) * elsewhere
        return noise + sampling


def _check_different(positions: NDArray[np.intp], bits: int, candidates: Sequence[str]) -> None:
    """Raise TaskError if two candidates set the same bits in every cohort."""
    ordered = np.sort(positions, axis=2)
    repeated = ordered[..., 1:] == ordered[..., :-1]
    ordered[..., 1:][repeated] = bits  # a bit that two hashes select is set once
    rows = np.sort(ordered, axis=2).reshape(len(positions), -1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    twins = np.nonzero(first[which.ravel()] != np.arange(len(rows)))[0]
    if twins.size:
        earlier, later = candidates[first[which.ravel()[twins[0]]]], candidates[twins[0]]
        raise TaskError(
            f"{twins.size} of {len(candidates)} candidates set the same bits as an earlier one in "
            f"every cohort with reports, such as {later!r} and {earlier!r}: leave them out, or "
            "collect with more cohorts"
        )


def select(bit_counts: TrueBitCounts, fit_cells: int) -> NDArray[np.intp]:
    """
    Select candidates by the LASSO, at most 500 and 80 % of fit_cells, and return their indices.

    Raises SettingsError if scikit-learn is not installed. Cost: at most 20 fits by coordinate
    descent.
    """
    try:
        linear_model: Any = importlib.import_module("sklearn.linear_model")
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"selecting among {bit_counts.n_candidates} candidates needs scikit-learn: install it, "
            "or shuffledp with the research extra (pip install 'shuffledp[research]')"
        ) from error
    model = linear_model.Lasso(positive=True, warm_start=True, tol=1e-3, max_iter=2000)
    # Rows are divided by √N_j for equal variances. The model's intercept does the centring.
    roots = np.sqrt(bit_counts.rows)
    columns = bit_counts.incidence.multiply(roots[:, None]).tocsc()
    target = bit_counts.target.ravel() / roots
    typical = bit_counts.sizes[:, None] * bit_counts.baseline
    deviation = math.sqrt(float((bit_counts.variances(typical).ravel() / roots**2).mean()))
    norm = math.sqrt(float(columns.power(2).sum()) / bit_counts.n_candidates)
    least = _MIN_DEVIATIONS * deviation * norm / len(target)
    largest = float((columns.T @ (target - target.mean())).max()) / len(target)
    chosen = np.zeros(0, dtype=np.intp)
    for alpha in np.geomspace(max(largest, least), least, _STEPS):
        model.set_params(alpha=alpha)
        with warnings.catch_warnings():
            # Selection only needs the signs of coefficients, not full convergence.
            warnings.simplefilter("ignore")
            model.fit(columns, target)
        active = np.nonzero(model.coef_ > 0)[0]
        if len(active) > min(_MAX_SELECTED, int(_MAX_OF_CELLS * fit_cells)):
            break
        chosen = active
    return chosen


def independent(bit_counts: TrueBitCounts, candidates: NDArray[np.intp]) -> NDArray[np.intp]:
    """Drop candidates whose bits depend linearly on others'. Cost: the cube of their number."""
    if not len(candidates):
        return candidates
    gram = _gram(bit_counts, candidates, candidates)
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(np.float64).tiny))
    triangle, order = linalg.qr(gram / np.outer(scale, scale), mode="r", pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > _SINGULAR).sum())
    return np.sort(candidates[order[:rank]])


class Alone(NamedTuple):
    """L candidates, each after projecting out the other fitted candidates."""

    columns: Vector
    """Projected B_l - b, shape (c·k, L)."""
    products: Vector
    """Products of `columns` with the target, shape (L,)."""
    weights: Vector
    """Weighted squared norms of `columns`, shape (L,): a share is product / weight. 0 for a
    candidate that depends linearly on the others."""
    residuals: Vector
    """Residuals of the target after fitting the *other* candidates, shape (c·k, L)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """A weighted least-squares fit, and projections of any candidate."""

    bit_counts: TrueBitCounts
    fitted: NDArray[np.intp]
    """Indices of the fitted candidates, shape (S,)."""
    inverse: Vector
    """Inverse of the fitted columns' Gram matrix, shape (S, S)."""
    shares: Vector
    """Estimated shares of the fitted candidates, shape (S,)."""

    @classmethod
    def fit(cls, bit_counts: TrueBitCounts, fitted: NDArray[np.intp]) -> Self:
        """Fit linearly independent candidates together. Cost: the cube of their number."""
        inverse = linalg.inv(_gram(bit_counts, fitted, fitted))
        target = bit_counts.target.ravel()
        right = np.asarray(bit_counts.incidence[:, fitted].T @ target) - bit_counts.spread @ target
        return cls(bit_counts=bit_counts, fitted=fitted, inverse=inverse, shares=inverse @ right)

    @cached_property
    def residual(self) -> Vector:
        """Residual of the target after the fit, shape (c·k,)."""
        explained: Vector = self.bit_counts.rows * self._mixed(self.shares)
        return self.bit_counts.target.ravel() - explained

    def variances(self) -> Vector:
        """
        Return the variance of each bit's estimate, shape (c·k,).

        Computed from the fit's expected bits, and scaled up by one factor if the residuals are
        larger than these variances predict, for example due to unlisted texts.
        """
        bit_counts, residual = self.bit_counts, self.residual
        expected = bit_counts.estimates - residual.reshape(bit_counts.estimates.shape)
        variances = bit_counts.variances(expected).ravel()
        freedom = len(variances) - len(self.fitted)
        if freedom <= 0:
            return variances
        return variances * max(1.0, float((residual**2 / variances).sum()) / freedom)

    def alone(self, candidates: NDArray[np.intp]) -> Alone:
        """
        Project each of L candidates, fitted or not, separately.

        A fitted candidate's column, projected, is the combination of all fitted columns with the
        coefficients inverse[:, l] / inverse[l, l]. Cost: for each, the square of the number of
        fitted columns, plus c·k; memory for L columns.
        """
        bit_counts, rows = self.bit_counts, self.bit_counts.rows[:, None]
        place = {candidate: number for number, candidate in enumerate(self.fitted.tolist())}
        index = np.array([place.get(candidate, -1) for candidate in candidates.tolist()])
        fitted = index >= 0
        cross = self.inverse @ _gram(bit_counts, self.fitted, candidates)
        cross[:, fitted] = 0
        columns: Vector = bit_counts.incidence[:, candidates].toarray()
        columns -= bit_counts.spread[:, None] + self._mixed(cross)
        own = self.inverse[:, index[fitted]]
        columns[:, fitted] = self._mixed(own) / np.diag(own[index[fitted]])
        weights = (columns**2 * rows).sum(axis=0)
        dependent = weights <= _SINGULAR * np.diag(_gram(bit_counts, candidates, candidates))
        columns[:, dependent] = 0
        weights[dependent] = 0
        shares = np.where(fitted, self.shares[index] if len(self.shares) else 0.0, 0.0)
        return Alone(
            columns=columns,
            products=columns.T @ bit_counts.target.ravel(),
            weights=weights,
            residuals=self.residual[:, None] + rows * columns * shares,
        )

    def _mixed(self, coefficients: Vector) -> Vector:
        """Combine the fitted columns linearly: (S,) or (S, L) -> (c·k,) or (c·k, L)."""
        bit_counts = self.bit_counts
        common = np.multiply.outer(bit_counts.spread, coefficients.sum(axis=0))
        mixed: Vector = np.asarray(bit_counts.incidence[:, self.fitted] @ coefficients) - common
        return mixed


def _gram(bit_counts: TrueBitCounts, some: NDArray[np.intp], others: NDArray[np.intp]) -> Vector:
    """Return the matrix of products of candidates' columns B_l - b, weighted by N_j."""
    weighted = bit_counts.rows * bit_counts.spread
    left, right = bit_counts.incidence[:, some], bit_counts.incidence[:, others]
    gram: Vector = (left.T @ sparse.diags_array(bit_counts.rows) @ right).toarray()
    gram -= np.asarray(left.T @ weighted)[:, None]
    gram -= np.asarray(right.T @ weighted)
    gram += float(weighted @ bit_counts.spread)
    return gram
