"""
Stand-ins for views of many sizes, so that a device can check a claim of many tables in time.

Without local noise, δ depends on the number T of dummies of two items, and falls in it. T counts
the heads of independent coins, one for each dummy of the view. Equal coins, each with at least the
chance of any other, whose hazards -ln(1 - chance) sum to at most those of another view, show
stochastically fewer heads; so their δ is at least as large. Proof: docs/theory/accounting.md#views.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.count_distributions import MAX_COUNT, Binomial
from shuffledp.common.accounting.releases import AmplifiedRelease, Release

MAX_DISTINCT_VIEWS: Final = 16
"""Maximum number of different views: each takes a device a tenth of a second to check."""
_ROUNDING: Final = 1e-9
"""Relative margin for the rounding of sums of hazards."""


def grouped(releases: Sequence[Release]) -> tuple[Release, ...]:
    """
    Return releases of at most MAX_DISTINCT_VIEWS kinds that together reveal at least as much.

    The smallest views stay. One stand-in for the others has their least size m, and a share of
    about 1/m fewer dummies. Views with local noise or known dummies stay.
    """
    kinds, plain = {*releases}, dict[AmplifiedRelease, float]()
    for each in kinds:
        if isinstance(each, AmplifiedRelease) and (hazards := _hazards(each)):
            plain[each] = hazards
    kept = MAX_DISTINCT_VIEWS - 1 - (len(kinds) - len(plain))
    others = sorted(plain, key=lambda each: each.reduction.answers)[max(0, kept) :]
    if len(kinds) <= MAX_DISTINCT_VIEWS or not others:
        return tuple(releases)
    least = min(plain[each] for each in others) / _hazard(2 / others[0].reduction.answers)
    dummies = min(MAX_COUNT, math.floor(least * (1 - _ROUNDING)))
    users = others[0].anonymity_set.users
    stand_in = dataclasses.replace(
        others[0], anonymity_set=AnonymitySet(users=users, dummies=dummies)
    )
    return tuple(stand_in if each in others else each for each in releases)


def _hazard(chance: float) -> float:
    return -math.log1p(-chance)


def _hazards(release: AmplifiedRelease) -> float:
    """Return the sum of hazards of a view's dummies; 0 if the view must stay."""
    added, share = release.anonymity_set, 2 / release.reduction.answers
    random = added.random_dummies or Binomial(0, 0.0)
    stays = release.reduction.signal < 1 or added.known_dummies or share >= 1
    if stays or not isinstance(random, Binomial):
        return 0.0
    return added.dummies * _hazard(share) + random.trials * _hazard(random.chance * share)
