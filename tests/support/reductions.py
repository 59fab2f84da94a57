"""Match-count reductions and noise of the shuffler for tests."""

from common.mechanisms.reduction import MatchCountReduction
from common.task.shuffler_spec import RATIO_SUM, GeometricNoise


def reduction_for(answers: int, local_epsilon: float, *, hashing: bool) -> MatchCountReduction:
    """Return the reduction of randomized response, or of local hashing."""
    return MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashing
    )


def geometric_noise(peak: int, left: float, right: float, most: int) -> GeometricNoise:
    """Return noise whose flanks have these ratios."""
    return GeometricNoise(
        peak=peak,
        left_weight=int(left * RATIO_SUM),
        right_weight=int(right * RATIO_SUM),
        most=most,
    )
