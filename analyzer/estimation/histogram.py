"""From cell counts to a histogram: debias, state the error, refine. Run by the analyzer. Pure."""

import numpy as np

from analyzer.estimation.refinement import Evidence, refine
from common.mechanisms.base import Counts, Mechanism, Mixture
from common.messages.estimate import Histogram
from common.protocols import Refinement


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


def gather(mechanism: Mechanism, cells: Counts, mixture: Mixture) -> Evidence:
    """Debias the counts and say how far they may be off; arguments as of `estimate`."""
    shares = mechanism.debias(cells, mixture)
    absent = mechanism.variance(np.zeros(mechanism.domain_size), mixture)
    return Evidence(
        shares=shares,
        standard_errors=np.sqrt(mechanism.variance(np.clip(shares, 0, 1), mixture)),
        absent_errors=np.sqrt(absent),
        n_users=mixture.n_real,
        cells=cells,
        channel=mechanism.channel(mixture.real_share(mechanism.domain_size)),
    )
