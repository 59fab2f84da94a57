"""
Estimate the true bits behind reports of RAPPOR, and list the bits of candidates [EPK14].

With N_j reports of cohort j, of which c_ij show bit i, t_ij = (c_ij - p*N_j) / (q* - p*) estimates
how many people of the cohort set bit i, without bias. If s_l is the share of the people who hold
candidate l, B_l its bits, and u the share of people who hold a text that is not on the list,

    E t_ij = N_j · (Σ_l s_l·B_lij + u·b_i),    u = 1 - Σ_l s_l,

where b_i is the chance that a random text sets bit i: the hash spreads unlisted strings over the
bits. Without that term the regression would attribute their bits to the candidates. It is

    t_ij - N_j·b_i = N_j·Σ_l s_l·(B_lij - b_i) + noise.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from common.errors import ReportError, TaskError
from common.mechanisms.base import Counts, Vector
from common.mechanisms.rappor import bloom
from common.mechanisms.rappor.rappor import Rappor

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
    """How likely one hash of a random text names each bit, shape (k,)."""
    baseline: Vector
    """b_i: how likely a text that is on no list sets each bit, shape (k,)."""
    unset_chance: float
    """p*."""
    set_chance: float
    """q*."""

    @classmethod
    def of(cls, rappor: Rappor, cells: Counts, candidates: Sequence[str]) -> Self:
        """
        Debias the counts of cohorts with reports, and hash the candidates; see `decode`.

        With one bit a label there is nothing off the list that a device would take.

        Raises:
            ReportError: There is no report.
            TaskError: There is no candidate, or two set the same bits in every cohort with reports.
            ValueRangeError: A candidate is too long, or none of the labels.

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
        """Return the counts of some cohorts only; shape of the choice (c,)."""
        fields = {name: getattr(self, name)[cohorts] for name in ("sizes", "shown", "estimates")}
        return dataclasses.replace(self, positions=self.positions[:, cohorts], **fields)

    def variances(self, expected: Matrix) -> Matrix:
        """
        Return the variance of each t_ij if `expected` people, shape (c, k), set the bit.

        The known variance of the noise, and that of who happens to be in the cohort: N_j of the N
        people come into it by lot, among them those who set the bit there: hypergeometric.
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
    """Check that no two candidates set the same bits in every cohort: nothing tells them apart."""
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
