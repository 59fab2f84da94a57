"""Match-count reductions for tests."""

from common.mechanisms.reduction import MatchCountReduction


def reduction_for(answers: int, local_epsilon: float, *, hashing: bool) -> MatchCountReduction:
    """Return the reduction of randomized response, or of local hashing."""
    return MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashing
    )
