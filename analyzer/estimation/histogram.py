"""Estimate a histogram from cell counts: debias, state the error, refine. Run by the analyzer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from analyzer.estimation.em import maximise_likelihood, smoothed_likelihood
from analyzer.estimation.projection import base_cut, norm_cut, norm_mul, norm_sub, power_ns
from common.errors import TaskError
from common.mechanisms.base import Channel, Counts, Mechanism, Mixture, Vector
from common.messages.estimate import Histogram
from common.protocols import Refinement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DebiasedShares:
    """What the analyzer has of a batch once it has debiased; each refinement takes its part."""

    shares: Vector
    """Debiased, shape (domain_size,)."""
    standard_errors: Vector
    """Of each share; shape (domain_size,)."""
    absent_errors: Vector
    """Standard error of each share if nobody held its item; shape (domain_size,)."""
    n_users: float
    """Users whose reports may be among those counted, above 0."""
    cells: Counts
    """Reports by cell, shape (cells,)."""
    channel: Channel | None
    """The law of a report; None where reports do not fall into cells that can be listed."""


Refine = Callable[[DebiasedShares], Vector]
"""Gives shares of shape (domain_size,), each at least 0, sum 1, whatever the evidence."""


def _em(evidence: DebiasedShares) -> Vector:
    channel = _channel("em", evidence)
    return maximise_likelihood(evidence.cells, channel, len(evidence.shares))


def _ems(evidence: DebiasedShares) -> Vector:
    channel = _channel("ems", evidence)
    return smoothed_likelihood(evidence.cells, channel, len(evidence.shares))


def _channel(name: Refinement, evidence: DebiasedShares) -> Channel:
    if evidence.channel is None:
        raise TaskError(
            f"the refinement {name} needs reports that fall into cells which can be listed; those "
            "of this mechanism do not"
        )
    return evidence.channel


REFINEMENTS: Final[Mapping[Refinement, Refine]] = MappingProxyType(
    {
        "em": _em,
        "ems": _ems,
        "norm-sub": lambda evidence: norm_sub(evidence.shares),
        "norm-cut": lambda evidence: norm_cut(evidence.shares),
        "norm-mul": lambda evidence: norm_mul(evidence.shares),
        "base-cut": lambda evidence: base_cut(evidence.shares, evidence.absent_errors),
        "power-ns": lambda evidence: power_ns(
            evidence.shares, evidence.standard_errors, evidence.n_users
        ),
    }
)
"""One for each name that a protocol's row may have (common/protocols.py)."""


def refine(evidence: DebiasedShares, refinement: Refinement) -> Vector:
    """
    Refine a batch's shares to a distribution.

    Raises:
        TaskError: "em" or "ems" is asked for, and the mechanism's reports do not fall into cells
            that can be listed.
    """
    return REFINEMENTS[refinement](evidence)


def estimate(
    mechanism: Mechanism,
    cells: Counts,
    mixture: Mixture,
    refinement: Refinement,
) -> Histogram:
    """
    Estimate the distribution of items from reports counted by cell.

    Args:
        mechanism: The task's mechanism.
        cells: From its `tally`.
        mixture: What the counted reports are.
        refinement: How the protocol refines.

    Raises:
        TaskError: The refinement does not fit the mechanism.
    """
    evidence = gather(mechanism, cells, mixture)
    refined = refine(evidence, refinement)
    return Histogram(
        frequencies=evidence.shares,
        standard_errors=evidence.standard_errors,
        refined=refined,
        mse_theory=float(mechanism.variance(refined, mixture).mean()),
    )


def gather(mechanism: Mechanism, cells: Counts, mixture: Mixture) -> DebiasedShares:
    """Debias the counts and say how far they may be off; arguments as of `estimate`."""
    shares = mechanism.debias(cells, mixture)
    absent = mechanism.variance(np.zeros(mechanism.domain_size), mixture)
    return DebiasedShares(
        shares=shares,
        standard_errors=np.sqrt(mechanism.variance(np.clip(shares, 0, 1), mixture)),
        absent_errors=np.sqrt(absent),
        n_users=mixture.n_real,
        cells=cells,
        channel=mechanism.channel(mixture.real_share(mechanism.domain_size)),
    )
