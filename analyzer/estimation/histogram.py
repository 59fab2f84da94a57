"""Estimate a histogram from cell counts: debias, state the error, refine. Run by the analyzer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

import numpy as np

from shuffledp.analyzer.estimation import expectation_maximization, projection
from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Channel, Counts, Mechanism, Mixture, Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.messages.result import Histogram
from shuffledp.common.protocols import Refinement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DebiasedShares:
    """Debiased shares, with the errors, counts and channel that refinements use."""

    shares: Vector
    """Shape (domain_size,)."""
    standard_errors: Vector
    """Standard error of each share, shape (domain_size,)."""
    absent_errors: Vector
    """Standard error of each share if no user held its item; shape (domain_size,)."""
    n_users: float
    """Users whose reports may have been counted, above 0."""
    cells: Counts
    """Reports by cell, shape (cells,)."""
    channel: Channel | None
    """Distribution of a report given its item; None if cells cannot be enumerated."""

    @classmethod
    def of(cls, mechanism: Mechanism, cells: Counts, mixture: Mixture) -> Self:
        """Debias counts and compute their standard errors; see `estimate` for the arguments."""
        shares = mechanism.debias(cells, mixture)
        absent = np.zeros(mechanism.domain_size)
        return cls(
            shares=shares,
            standard_errors=np.sqrt(mechanism.observed_variance(cells, shares, mixture)),
            absent_errors=np.sqrt(mechanism.variance(absent, mixture)),
            n_users=mixture.n_real,
            cells=cells,
            channel=mechanism.channel(mixture.real_share(mechanism.domain_size)),
        )


Refine = Callable[[DebiasedShares], Vector]
"""Returns a distribution of shape (domain_size,): each share at least 0, sum 1. Raises TaskError
for "em" and "ems" if the mechanism's cells cannot be enumerated."""


def _on_channel(name: Refinement, fit: Callable[[Counts, Channel, int], Vector]) -> Refine:
    def refined(debiased: DebiasedShares) -> Vector:
        if debiased.channel is None:
            raise TaskError(
                f"the refinement {name} needs a mechanism whose cells can be enumerated; those of "
                "this mechanism cannot"
            )
        return fit(debiased.cells, debiased.channel, len(debiased.shares))

    return refined


REFINEMENTS: Final[Mapping[Refinement, Refine]] = MappingProxyType(
    {
        "em": _on_channel("em", expectation_maximization.maximize_likelihood),
        "ems": _on_channel("ems", expectation_maximization.smoothed_likelihood),
        "norm-sub": lambda debiased: projection.norm_sub(debiased.shares),
        "norm-cut": lambda debiased: projection.norm_cut(debiased.shares),
        "norm-mul": lambda debiased: projection.norm_mul(debiased.shares),
        "base-cut": lambda debiased: projection.base_cut(debiased.shares, debiased.absent_errors),
        "power-ns": lambda debiased: projection.power_ns(
            debiased.shares, debiased.standard_errors, debiased.n_users
        ),
    }
)
"""The refinement for each name in common/protocols.py."""


def estimate(
    mechanism: Mechanism, cells: Counts, mixture: Mixture, refinement: Refinement
) -> Histogram:
    """
    Estimate the distribution of items from reports counted by cell, as `tally` returns them.

    Since every user has one item, shares are corrected to sum to 1, with the weights of least
    variance at the refined shares. Run by the analyzer. Raises the errors of `Refine`.
    """
    debiased = DebiasedShares.of(mechanism, cells, mixture)
    refined = REFINEMENTS[refinement](debiased)
    covariance = ShareCovariance.of_mechanism(mechanism, refined, mixture)
    shares = covariance.summing_to_one(debiased.shares)
    return Histogram(
        frequencies=shares,
        standard_errors=debiased.standard_errors * np.sqrt(covariance.left()),
        refined=refined,
        mse_theory=float(covariance.at(shares).of_shares().mean()),
        table=mechanism.interval_table(mixture),
    )
