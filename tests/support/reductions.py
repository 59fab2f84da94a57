"""Match-count reductions and noise of the shuffler for tests."""

from functools import partial
from typing import Final

from common.mechanisms.reduction import MatchCountReduction
from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec


def reduction_for(answers: int, local_epsilon: float, *, hashing: bool) -> MatchCountReduction:
    """Return the reduction of randomized response, or of local hashing."""
    return MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashing
    )


of_grr: Final = partial(reduction_for, hashing=False)
of_hashing: Final = partial(reduction_for, hashing=True)


def geometric_noise(peak: int, left: float, right: float, most: int) -> ShufflerSpec:
    """Return noise whose flanks have these ratios."""
    return ShufflerSpec(
        law="geometric",
        peak=peak,
        left_weight=int(left * RATIO_SUM),
        right_weight=int(right * RATIO_SUM),
        most=most,
    )
