"""What the accountant's own attack proves against a crowd: nearly all that can be claimed."""

from typing import Final

from common.accounting.anonymity_set import Crowd
from common.accounting.guarantees import Terms
from common.accounting.reference.attack import epsilon_lower
from common.accounting.releases import CrowdRelease

FEW: Final = 100
"""Users among whom the attack is computed though the number of dummies is random: with more of
them it takes minutes."""


def proven_epsilon(terms: Terms, crowd: Crowd) -> float | None:
    """
    Compute the attack on the view that the analyzer has of a crowd.

    Returns:
        A lower bound of ε at the terms' δ; None where the attack knows no law of the noise, takes
        minutes, or proves nothing.
    """
    release = terms.release(crowd)
    if not isinstance(release, CrowdRelease):
        return None
    if release.crowd.random_dummies is not None and crowd.users > FEW:
        return None
    return epsilon_lower(release.reduction, release.crowd, terms.delta) or None
