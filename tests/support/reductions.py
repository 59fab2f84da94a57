"""What accounting needs of a mechanism, for tests."""

from common.mechanisms.reduction import MatchCountReduction


def reduction_for(answers: int, local_epsilon: float, *, hashing: bool) -> MatchCountReduction:
    """Return that of randomized response, or of hashing to so many buckets."""
    return MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashing
    )
