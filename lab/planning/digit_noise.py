"""
Designs that report numbers as digits, whose shufflers add geometric noise to each view. Pure.

Noise with a privacy loss of at most ε has a variance of about 8/ε² an item. The losses of a few
views add up nearly in full, so that a total ε is best split ∝ x^(2/3), by the loads x of
`shuffledp.lab.planning.digit_design`. Those of many views compose like Gaussian noise of
μ² = ε²/2 each, best split with ε ∝ x^(1/2). Splits in between are tried, and scaled with the exact
accountant.
"""

import math
from collections.abc import Sequence
from typing import Final

from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.errors import AccountingError
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.shuffler_spec import ItemNoise, ShufflerSpec, sum_of
from shuffledp.lab.planning.calibration import gaussian_mu, least_noisy, log_excess
from shuffledp.lab.planning.design import check_plain
from shuffledp.lab.planning.digit_design import Radices, RadixSearch, design_of, loads_of
from shuffledp.lab.planning.requirements import Requirements
from shuffledp.lab.planning.shuffler_noise import CLAIM_ROOM, MARGIN, RELAY_KEY, geometric_spec
from shuffledp.lab.planning.value_design import ValueDesign

_FEW_VIEWS: Final = 2 / 3
"""Exponent of the loads x that ε is split by if losses add up."""
_POWERS: Final = (0.5, 0.55, 0.6, _FEW_VIEWS, 0.7)
"""Exponents to try."""
_CUT_SHARE: Final = 0.9
"""Share of δ for truncating the noise of all views; the rest is for the sum of their losses."""
_SLACK: Final = 2e-3
"""The search for the noise ends when μ is within this share below its target."""
_Noises = tuple[ItemNoise, ...]
"""The noise of each view."""


def noisy_digit_design(protocol: str, target: Requirements) -> ValueDesign:
    """
    Return the design with the least error in which one shuffler, or each of two, adds noise.

    The second of two has the least noise that meets the coalition ε; the first has the least that
    meets it too, and together with the second the central ε. Raises PlanError if no noise meets the
    target within the caps. Cost: about a second.
    """
    two = target.shufflers > 1
    check_plain(protocol, target)
    central, coalition = target.central_epsilon, target.coalition_epsilon
    alone = [coalition, min(central, coalition)] if two else [central]

    def item_variances(loads: Sequence[float]) -> list[float]:
        shares = _shares(loads, _FEW_VIEWS)
        per_square = math.fsum(8 / _approximate_total(shares, each, target) ** 2 for each in alone)
        return [per_square / share**2 for share in shares]

    def design(radices: Radices) -> ValueDesign:
        split, noise = _best_split(loads_of(radices), alone[0], target)
        if not two:
            return design_of(protocol, target, radices, noises=noise)
        first = _least(split, alone[1], target, second=noise)
        relay = RelayDraft(name="second", key=RELAY_KEY, noises=noise)
        fields = {"noises": first, "shuffler_name": "first", "relay": relay}
        return design_of(protocol, target, radices, **fields)

    search = RadixSearch(target=target, item_variances=item_variances, sent=lambda *_: [])
    return search.first_design(design)


def _shares(loads: Sequence[float], power: float) -> list[float]:
    powers = [load**power for load in loads]
    return [each / math.fsum(powers) for each in powers]


def _approximate_total(shares: Sequence[float], epsilon: float, target: Requirements) -> float:
    """Return the sum of the ε of one number's views if all numbers' views together meet ε."""
    squares = target.domain_size * math.fsum(share**2 for share in shares)
    mu = gaussian_mu(epsilon, target.delta)
    return max(epsilon / target.domain_size, mu * math.sqrt(2 / squares))


def _best_split(
    loads: Sequence[float], epsilon: float, target: Requirements
) -> tuple[list[float], _Noises]:
    """Return the split of ε with the least error, and its noise; raise PlanError without any."""
    splits = [_shares(loads, power) for power in _POWERS[: None if len(loads) > 1 else 1]]

    def error(found: tuple[list[float], _Noises]) -> float:
        return sum(
            load**2 * noise.moments()[1] for load, noise in zip(loads, found[1], strict=False)
        )

    return min(((split, _least(split, epsilon, target)) for split in splits), key=error)


def _least(
    shares: Sequence[float], epsilon: float, target: Requirements, second: _Noises = ()
) -> _Noises:
    """
    Return the least noise of every number's views that meets ε.

    With a second shuffler's noise, it meets the coalition ε alone and the central ε together, and ε
    is near that of the result. Raises PlanError if there is none.
    """
    total = _approximate_total(shares, epsilon, target)
    delta = _CUT_SHARE * MARGIN * target.delta / (target.domain_size * len(shares))

    def attempt(level: float) -> tuple[_Noises | None, float]:
        try:
            each = [
                geometric_spec(total * math.exp(level) * share, delta).noise for share in shares
            ]
            noises = tuple(each * target.domain_size)
            if not second:
                return noises, _excess(noises, epsilon, target)
            both = tuple(map(sum_of, zip(noises, second, strict=True)))
            excess = max(
                _excess(noises, target.coalition_epsilon, target),
                _excess(both, target.central_epsilon, target),
            )
        except AccountingError:  # more dummies than a task can have
            return None, -math.inf
        return noises, excess

    return least_noisy("noise of digits", target, attempt, start=-_SLACK / 2, slack=_SLACK)


def _excess(noises: _Noises, epsilon: float, target: Requirements) -> float:
    """Return the `log_excess` of the views' noise, with room for rounding claims."""
    releases = [ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=noise)) for noise in noises]
    delta = MARGIN * target.delta
    return log_excess((composed_epsilon(releases, delta), delta), (epsilon / CLAIM_ROOM, delta))
