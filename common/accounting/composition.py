"""What several released rounds cost together the same users: basic composition."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.accounting.amplification import epsilon_upper
from common.accounting.crowd import Crowd
from common.mechanisms.reduction import MatchCountReduction
from common.task import MIN_DELTA

MIN_COMPOSED_DELTA: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One released round."""

    reduction: MatchCountReduction
    crowd: Crowd


def composed_epsilon(releases: Sequence[Release], delta: float) -> float:
    """Bound the central ε of all these releases about the same users, together, at delta."""
    share = max(delta / max(1, len(releases)), MIN_DELTA)
    claims = [(epsilon_upper(each.reduction, each.crowd, share), share) for each in releases]
    return composed_claims(claims, delta)


def composed_claims(claims: Sequence[tuple[float, float]], delta: float) -> float:
    """Bound the same, knowing only each round's (ε, δ); infinite if the δ alone exceed delta."""
    if math.fsum(spent for _, spent in claims) > delta * (1 + 1e-12):
        return math.inf
    return math.fsum(epsilon for epsilon, _ in claims)
