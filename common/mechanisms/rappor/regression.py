"""
Fit candidates to estimates of the true bits behind reports of RAPPOR [EPK14].

With N_j reports of cohort j, of which c_ij show bit i, t_ij = (c_ij - p*N_j) / (q* - p*) estimates
how many people of the cohort set bit i, without bias. If s_l is the share of the people who hold
candidate l, B_l its bits, and u the share of people who hold a text that is not on the list,

    E t_ij = N_j · (Σ_l s_l·B_lij + u·b_i),    u = 1 - Σ_l s_l,

where b_i is the chance that a random text sets bit i: the hash spreads unlisted strings over the
bits. Without that term the regression would attribute their bits to the candidates. It is

    t_ij - N_j·b_i = N_j·Σ_l s_l·(B_lij - b_i) + noise.

With very many candidates, the non-negative LASSO [Tib96] chooses those to fit, as in [EPK14]: on
one half of the cohorts, for a fit on the other half.
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

from common.errors import ReportError, SettingsError, TaskError
from common.mechanisms.base import Counts, Vector
from common.mechanisms.rappor import bloom
from common.mechanisms.rappor.rappor import Rappor

_MAX_SELECTED: Final = 500
_MAX_OF_CELLS: Final = 0.8
"""Maximum number of fitted candidates, and their maximum ratio to the cells [GRappor]."""
_MIN_DEVIATIONS: Final = 2.0
"""Final penalty of a path, which leaves out candidates whose bits stand out less."""
_STEPS: Final = 20
_SINGULAR: Final = 1e-8
"""Least squared part of a column of norm 1 that is independent of the others."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueBitCounts:
    """Estimated true bits of the cohorts that sent reports, and the candidates' bits there."""

    sizes: Vector
    """N_j: reports by cohort, shape (c,), all above 0."""
    shown: Counts
    """c_ij, shape (c, k)."""
    estimates: Matrix
    """t_ij, shape (c, k)."""
    positions: NDArray[np.intp]
    """Bits by candidate, cohort and hash, shape (M, c, h)."""
    chances: Vector
    """Probability that one hash of a random text selects each bit, shape (k,)."""
    baseline: Vector
    """b_i: probability that an unlisted text sets each bit, shape (k,)."""
    unset_chance: float
    """p*."""
    set_chance: float
    """q*."""

    @classmethod
    def of(cls, rappor: Rappor, cells: Counts, candidates: Sequence[str]) -> Self:
        """
        Debias the counts of cohorts with reports, and hash the candidates; see `decode`.

        With one bit per label, devices accept no unlisted text.

        Raises:
            ReportError: There is no report.
            TaskError: There is no candidate, or two set the same bits in every cohort with reports.
            ValueRangeError: A candidate is too long, or not a label.

        Cost: a digest for each candidate and cohort.
        """
        spec = rappor.spec
        if not candidates:
            raise TaskError("there are no candidates; decoding looks for strings of a list")
        seen = cells[: spec.cohorts] > 0
        if not seen.any():
            raise ReportError("no report came; there is nothing to decode")
        positions = rappor.set_bits(candidates)[:, seen]
        _check_different(positions, spec.bits, candidates)
        sizes = cells[: spec.cohorts][seen].astype(np.float64)
        shown = cells[spec.cohorts :].reshape(spec.cohorts, spec.bits)[seen]
        unset, is_set = rappor.unset_chance, rappor.set_chance
        if spec.encoding == "labels":
            chances, baseline = np.full(spec.bits, 1 / spec.bits), np.zeros(spec.bits)
        else:
            chances = bloom.hash_chances(spec.bits)
            baseline = 1 - (1 - chances) ** spec.hashes
        return cls(
            sizes=sizes,
            shown=shown,
            estimates=(shown - unset * sizes[:, None]) / (is_set - unset),
            positions=positions,
            chances=chances,
            baseline=baseline,
            unset_chance=unset,
            set_chance=is_set,
        )

    @property
    def n_reports(self) -> float:
        """N."""
        return float(self.sizes.sum())

    @property
    def n_candidates(self) -> int:
        """M."""
        return len(self.positions)

    @property
    def target(self) -> Matrix:
        """t_ij - N_j·b_i, shape (c, k)."""
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
        bits = len(self.chances)
        rows = (self.positions + bits * np.arange(cohorts)[:, None]).ravel().astype(np.int32)
        columns = np.repeat(np.arange(n_candidates, dtype=np.int32), cohorts * hashes)
        ones = np.ones(len(rows))
        shape = (cohorts * bits, n_candidates)
        found = sparse.csc_array(sparse.coo_array((ones, (rows, columns)), shape=shape))
        found.sum_duplicates()
        found.data[:] = 1.0  # a bit that two hashes name is set once
        return found

    def among(self, cohorts: NDArray[np.bool_]) -> Self:
        """Return the counts of the chosen cohorts; `choice` has shape (c,)."""
        fields = {name: getattr(self, name)[cohorts] for name in ("sizes", "shown", "estimates")}
        return dataclasses.replace(self, positions=self.positions[:, cohorts], **fields)

    def variances(self, expected: Matrix) -> Matrix:
        """
        Return the variance of each t_ij if `expected` people, shape (c, k), set the bit.

        The known variance of the noise, plus the hypergeometric variance of sampling the N_j people
        of the cohort, and so those who set the bit, from all N.
        """
        sizes = self.sizes[:, None]
        true = np.clip(expected, 0, sizes)
        one = self.set_chance * (1 - self.set_chance)
        zero = self.unset_chance * (1 - self.unset_chance)
        noise = (true * one + (sizes - true) * zero) / (self.set_chance - self.unset_chance) ** 2
        elsewhere = (self.n_reports - sizes) / max(1.0, self.n_reports - 1)
        drawn: Matrix = true * (1 - true / sizes) * elsewhere
        return noise + drawn


def _check_different(positions: NDArray[np.intp], bits: int, candidates: Sequence[str]) -> None:
    """Check that no two candidates set the same bits in every cohort."""
    ordered = np.sort(positions, axis=2)
    again = ordered[..., 1:] == ordered[..., :-1]
    ordered[..., 1:][again] = bits  # a bit that two hashes name is set once
    rows = np.sort(ordered, axis=2).reshape(len(positions), -1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    twins = np.nonzero(first[which.ravel()] != np.arange(len(rows)))[0]
    if twins.size:
        one, other = candidates[first[which.ravel()[twins[0]]]], candidates[twins[0]]
        raise TaskError(
            f"{twins.size} of {len(candidates)} candidates set the same bits as one before them, "
            f"in every cohort with reports, such as {other!r} and {one!r}: leave them out, or "
            "collect with more cohorts"
        )


def select(evidence: TrueBitCounts, fit_cells: int) -> NDArray[np.intp]:
    """
    Choose the best candidates, in order: at most 500, and .8 of the fit's cells.

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
            # The choice only needs which coefficients are above 0, not full convergence.
            warnings.simplefilter("ignore")
            model.fit(columns, target)
        found = np.nonzero(model.coef_ > 0)[0]
        if len(found) > min(_MAX_SELECTED, int(_MAX_OF_CELLS * fit_cells)):
            break
        chosen = found
    return chosen


def independent(evidence: TrueBitCounts, candidates: NDArray[np.intp]) -> NDArray[np.intp]:
    """Drop candidates whose bits depend linearly on earlier ones'. Cost: their number cubed."""
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
    """Projected B_l - b, shape (c·k, L)."""
    products: Vector
    """Products of those columns with the target, shape (L,)."""
    weights: Vector
    """Squared norms of those columns, shape (L,): a share is product / weight. 0 for a candidate
    that depends on the others."""
    residuals: Matrix
    """Residuals of the target after the *other* fitted candidates, shape (c·k, L)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """Shares of the fitted candidates, and projections of any candidate."""

    evidence: TrueBitCounts
    fitted: NDArray[np.intp]
    """Indices of the fitted candidates, shape (S,)."""
    inverse: Matrix
    """Inverse of the fitted columns' Gram matrix, shape (S, S)."""
    shares: Vector
    """Shape (S,)."""

    @classmethod
    def fit(cls, evidence: TrueBitCounts, fitted: NDArray[np.intp]) -> Self:
        """Fit independent candidates together. Cost: the cube of their number."""
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

        Computed from the fit's expected bits; scaled up by one factor if the residuals are larger,
        as unlisted strings make them.
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
        Project each of L candidates, fitted or not, separately.

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
    """Return the products of candidates' columns, less the baseline, weighted by N_j."""
    weighted = seen.rows * seen.spread
    left, right = seen.incidence[:, some], seen.incidence[:, others]
    product: Matrix = (left.T @ sparse.diags_array(seen.rows) @ right).toarray()
    product -= np.asarray(left.T @ weighted)[:, None]
    product -= np.asarray(right.T @ weighted)
    product += float(weighted @ seen.spread)
    return product
