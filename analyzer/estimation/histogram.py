"""From cell counts to a histogram: debias, state the error, refine. Run by the analyzer. Pure."""

from dataclasses import dataclass

from analyzer.estimation.em import maximise_likelihood
from analyzer.estimation.frequencies import Frequencies, debias, expected_mse
from analyzer.estimation.norm_sub import norm_sub
from common.mechanisms.mechanism import Counts, Mechanism, Vector
from common.protocols import Refinement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """The estimate of one batch."""

    frequencies: Frequencies
    """Unbiased, with standard errors; intervals belong to these."""
    refined: Vector
    """A distribution: at least 0, sum 1. Usually closer to the truth, but biased."""
    mse_theory: float
    """Mean over items of the exact variance of the unbiased shares."""


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
    support = mechanism.support_counts(cells)
    frequencies = debias(support, n_real=n_real, n_dummies=n_dummies, mechanism=mechanism)
    if refinement == "em":
        channel = mechanism.channel(n_real / (n_real + n_dummies))
        refined = maximise_likelihood(cells, channel, mechanism.domain_size).shares
    else:
        refined = norm_sub(frequencies.values)
    return Histogram(
        frequencies=frequencies,
        refined=refined,
        mse_theory=expected_mse(
            mechanism.domain_size, n_real=n_real, n_dummies=n_dummies, mechanism=mechanism
        ),
    )
