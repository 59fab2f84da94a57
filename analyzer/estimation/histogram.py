"""From cell counts to a histogram: debias, state the error, refine. Run by the analyzer. Pure."""

from analyzer.estimation.em import maximise_likelihood
from analyzer.estimation.frequencies import debias, expected_mse, standard_errors
from analyzer.estimation.norm_sub import norm_sub
from common.mechanisms.mechanism import Counts, Mechanism
from common.protocols import Refinement
from common.result import Histogram


def estimate(
    mechanism: Mechanism,
    cells: Counts,
    *,
    n_real: float,
    n_dummies: float,
    refinement: Refinement,
) -> Histogram:
    """
    Estimate the distribution of items from reports counted by cell.

    Args:
        mechanism: The task's mechanism.
        cells: From its `tally`.
        n_real: Users' own reports among those counted, above 0.
        n_dummies: Dummies among those counted.
        refinement: How the protocol refines.
    """
    users = {"n_real": n_real, "n_dummies": n_dummies}
    shares = debias(mechanism.support_counts(cells), mechanism=mechanism, **users)
    if refinement == "em":
        channel = mechanism.channel(n_real / (n_real + n_dummies))
        refined = maximise_likelihood(cells, channel, mechanism.domain_size)
    else:
        refined = norm_sub(shares)
    return Histogram(
        frequencies=shares,
        standard_errors=standard_errors(shares, mechanism=mechanism, **users),
        refined=refined,
        mse_theory=expected_mse(mechanism.domain_size, mechanism=mechanism, **users),
    )
