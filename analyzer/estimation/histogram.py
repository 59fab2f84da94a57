"""From cell counts to a histogram: debias, state the error, refine. Run by the analyzer. Pure."""

import numpy as np

from analyzer.estimation.em import maximise_likelihood
from analyzer.estimation.norm_sub import norm_sub
from common.mechanisms.mechanism import Counts, Mechanism, Mixture
from common.protocols import Refinement
from common.result import Histogram


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
    """
    shares = mechanism.debias(cells, mixture)
    uniform = np.full(mechanism.domain_size, 1 / mechanism.domain_size)
    channel = mechanism.channel(mixture.real_share(mechanism.domain_size))
    if refinement == "em" and channel is not None:
        refined = maximise_likelihood(cells, channel, mechanism.domain_size)
    else:
        refined = norm_sub(shares)
    return Histogram(
        frequencies=shares,
        standard_errors=np.sqrt(mechanism.variance(np.clip(shares, 0, 1), mixture)),
        refined=refined,
        mse_theory=float(mechanism.variance(uniform, mixture).mean()),
    )
