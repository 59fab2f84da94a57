"""Fit candidates to true bits, and choose which of very many: the non-negative LASSO [Tib96].

As in [EPK14]. The choice is made on one half of the cohorts, for a fit on the other half.
"""

import importlib
import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from common.errors import SettingsError
from common.mechanisms.base import Vector
from common.mechanisms.rappor.true_bits import Matrix, TrueBitCounts

_MAX_SELECTED: Final = 500
_MAX_OF_CELLS: Final = 0.8
"""At most so many, and so many of the cells that they are fitted to [GRappor]."""
_MIN_DEVIATIONS: Final = 2.0
"""Penalty at which a path ends: a candidate stays out whose bits stand out less than so far."""
_STEPS: Final = 20
_SINGULAR: Final = 1e-8
"""Least squared part of a column of norm 1 that is independent of the others."""


def select(evidence: TrueBitCounts, fit_cells: int) -> NDArray[np.intp]:
    """
    Choose the candidates that explain the most.

    Args:
        evidence: Of the cohorts to choose by.
        fit_cells: Bits of the cohorts that the chosen ones will be fitted to.

    Returns:
        Candidates, in order; at most min(500, .8·fit_cells).

    Raises:
        SettingsError: scikit-learn is not installed.

    Cost: 20 fits by coordinate descent.
    """
    try:
        linear_model: Any = importlib.import_module("sklearn.linear_model")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "choosing among so many candidates needs scikit-learn: install shuffledp with its "
            "extra research (pip install 'shuffledp[research]'), or scikit-learn beside it"
        ) from error
    model = linear_model.Lasso(positive=True, warm_start=True, tol=1e-3, max_iter=2000)
    # Equal variances: a row is divided by √N_j. Centring is the model's own intercept.
    roots = np.sqrt(evidence.rows)
    columns = evidence.incidence.multiply(roots[:, None]).tocsc()
    target = evidence.target.ravel() / roots
    typical = evidence.sizes[:, None] * evidence.baseline
    deviation = math.sqrt(float((evidence.variances(typical).ravel() / roots**2).mean()))
    norm = math.sqrt(float(columns.power(2).sum()) / evidence.n_candidates)
    least = _MIN_DEVIATIONS * deviation * norm / len(target)
    largest = float((columns.T @ (target - target.mean())).max()) / len(target)
    chosen = np.zeros(0, dtype=np.intp)
    for alpha in np.geomspace(max(largest, least), least, _STEPS):
        model.set_params(alpha=alpha)
        with warnings.catch_warnings():
            # Whether the last digit has settled does not matter for which are above 0.
            warnings.simplefilter("ignore")
            model.fit(columns, target)
        found = np.nonzero(model.coef_ > 0)[0]
        if len(found) > min(_MAX_SELECTED, int(_MAX_OF_CELLS * fit_cells)):
            break
        chosen = found
    return chosen


def independent(evidence: TrueBitCounts, candidates: NDArray[np.intp]) -> NDArray[np.intp]:
    """
    Leave out candidates whose bits are sums and differences of others', in order.

    Cost: the cube of their number.
    """
    if not len(candidates):
        return candidates
    gram = _gram(evidence, candidates, candidates)
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(np.float64).tiny))
    triangle, order = linalg.qr(gram / np.outer(scale, scale), mode="r", pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > _SINGULAR).sum())
    return np.sort(candidates[order[:rank]])


class Alone(NamedTuple):
    """Some candidates, each after projecting out the other fitted ones."""

    columns: Matrix
    """B_l - b, so projected, shape (c·k, L)."""
    products: Vector
    """Of those columns and the target, shape (L,)."""
    weights: Vector
    """Of those columns and themselves, shape (L,): a share is a product over a weight. 0 for a
    candidate that depends on the others."""
    residuals: Matrix
    """Residuals of the target after the *other* fitted candidates, shape (c·k, L)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """Shares of the fitted candidates, and projections of any candidate."""

    evidence: TrueBitCounts
    fitted: NDArray[np.intp]
    """Which candidates, shape (S,)."""
    inverse: Matrix
    """Of the fitted columns' Gram matrix, shape (S, S)."""
    shares: Vector
    """Shape (S,)."""

    @classmethod
    def fit(cls, evidence: TrueBitCounts, fitted: NDArray[np.intp]) -> Self:
        """
        Fit some candidates together, which must be independent.

        Cost: the cube of their number.
        """
        inverse = linalg.inv(_gram(evidence, fitted, fitted))
        target = evidence.target.ravel()
        product = np.asarray(evidence.incidence[:, fitted].T @ target) - evidence.spread @ target
        return cls(evidence=evidence, fitted=fitted, inverse=inverse, shares=inverse @ product)

    @cached_property
    def residual(self) -> Vector:
        """Residual of the target, shape (c·k,)."""
        explained: Vector = self.evidence.rows * self._mixed(self.shares)
        return self.evidence.target.ravel() - explained

    def variances(self) -> Vector:
        """
        Return the variance of each bit's estimate, shape (c·k,).

        From the bits that the fit expects; all raised by one factor if the residuals are larger,
        as strings off the list make them.
        """
        seen, residual = self.evidence, self.residual
        expected = seen.estimates - residual.reshape(seen.estimates.shape)
        known = seen.variances(expected).ravel()
        freedom = len(known) - len(self.fitted)
        if freedom <= 0:
            return known
        raised: Vector = known * max(1.0, float((residual**2 / known).sum()) / freedom)
        return raised

    def alone(self, candidates: NDArray[np.intp]) -> Alone:
        """
        Project L candidates, fitted or not, each by itself.

        Cost: for each the square of the number of fitted ones, and c·k; memory for L columns.
        """
        seen, rows = self.evidence, self.evidence.rows[:, None]
        place = {candidate: number for number, candidate in enumerate(self.fitted.tolist())}
        among = np.array([place.get(candidate, -1) for candidate in candidates.tolist()])
        inside = among >= 0
        cross = self.inverse @ _gram(seen, self.fitted, candidates)
        cross[:, inside] = 0
        columns: Matrix = seen.incidence[:, candidates].toarray()
        columns -= seen.spread[:, None] + self._mixed(cross)
        own = self.inverse[:, among[inside]]
        columns[:, inside] = self._mixed(own) / np.diag(own[among[inside]])
        weights = (columns**2 * rows).sum(axis=0)
        nothing = weights <= _SINGULAR * np.diag(_gram(seen, candidates, candidates))
        columns[:, nothing] = 0
        weights[nothing] = 0
        held = np.where(inside, self.shares[among] if len(self.shares) else 0.0, 0.0)
        return Alone(
            columns=columns,
            products=columns.T @ seen.target.ravel(),
            weights=weights,
            residuals=self.residual[:, None] + rows * columns * held,
        )

    def _mixed(self, coefficients: Matrix) -> Matrix:
        """Sum the fitted columns with coefficients, shape (S,) or (S, L), to (c·k,) or (c·k, L)."""
        seen = self.evidence
        common = np.multiply.outer(seen.spread, coefficients.sum(axis=0))
        mixed: Matrix = np.asarray(seen.incidence[:, self.fitted] @ coefficients) - common
        return mixed


def _gram(seen: TrueBitCounts, some: NDArray[np.intp], others: NDArray[np.intp]) -> Matrix:
    """Multiply candidates' columns, less the baseline, with each other, weighted by N_j."""
    weighted = seen.rows * seen.spread
    left, right = seen.incidence[:, some], seen.incidence[:, others]
    product: Matrix = (left.T @ sparse.diags_array(seen.rows) @ right).toarray()
    product -= np.asarray(left.T @ weighted)[:, None]
    product -= np.asarray(right.T @ weighted)
    product += float(weighted @ seen.spread)
    return product
