"""Match-count reductions, noise of the shuffler and parameters of tasks for tests."""

from functools import partial
from typing import Any, Final

from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.shuffler_spec import RATIO_SUM, GeometricNoise
from shuffledp.common.task.uniform_dummies import NO_DUMMIES


def reduction_for(answers: int, local_epsilon: float, *, hashing: bool) -> MatchCountReduction:
    """Return the reduction of randomized response, or of local hashing."""
    return MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashing
    )


of_grr: Final = partial(reduction_for, hashing=False)
of_hashing: Final = partial(reduction_for, hashing=True)


def geometric_noise(peak: int, left: float, right: float, most: int) -> GeometricNoise:
    """Return noise whose flanks have these ratios."""
    return GeometricNoise(
        peak=peak, left_weight=int(left * RATIO_SUM), right_weight=int(right * RATIO_SUM), most=most
    )


def parameters(
    reduction: MatchCountReduction | None, dummies: AnyDummies = NO_DUMMIES, **fields: Any
) -> PrivacyParameters:
    """Return the parameters of a task at δ = 1e-6 whose users are all honest, unless changed."""
    fields = {"delta": 1e-6, "assumed_honest_fraction": 1.0, **fields}
    if reduction is not None:
        fields["local_epsilon"] = reduction.local_epsilon
    return PrivacyParameters(reduction=reduction, dummies=dummies, **fields)
