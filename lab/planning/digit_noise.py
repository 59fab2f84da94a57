"""
Designs that report numbers as digits, whose shufflers add geometric noise to each view. Pure.

Noise with a privacy loss of at most ε has a variance of about 8/ε² an item. The losses of a few
views add up nearly in full, so that a total ε is best split ∝ x^(2/3), by the loads x of
`lab.planning.digit_design`. Those of many views compose like Gaussian noise of μ² = ε²/2 each, best
split with ε ∝ x^(1/2). Splits in between are tried, and scaled with the exact accountant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.accounting.composition import composed_epsilon
from common.accounting.item_noise import ItemNoiseRelease
from common.errors import AccountingError, PlanError
from common.task.draft import RelayDraft
from common.task.shuffler_spec import ItemNoise, ShufflerSpec, sum_of
from lab.planning.calibration import gaussian_mu, least_noise
from lab.planning.digit_design import Radices, RadixSearch, design_of, loads_of
from lab.planning.requirements import Requirements
from lab.planning.shuffler_noise import CLAIM_ROOM, MARGIN, RELAY_KEY, geometric_spec
from lab.planning.value_design import ValueDesign

_FEW_VIEWS: Final = 2 / 3
"""Exponent of the loads x that ε is split by if losses add up."""
_POWERS: Final = (0.5, 0.55, 0.6, _FEW_VIEWS, 0.7)
"""Exponents to try."""
_CUT_SHARE: Final = 0.9
"""Share of δ for truncating the noise of all views; the rest is for the sum of their losses."""
_SLACK: Final = 2e-3
"""The search for the noise ends when μ is within this share below its target."""
_MAX_STEP: Final = 0.7
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
    if not two and not (target.may_be_plain and target.trust == "shuffler-dummies"):
        raise PlanError(
            f"{protocol} needs a shuffler that is trusted to add dummies, and no local cap"
        )
    central, coalition = target.central_epsilon, target.coalition_epsilon
    alone = (min(central, coalition), coalition) if two else (central,)

    def item_variances(loads: Sequence[float]) -> list[float]:
        shares = _shares(loads, _FEW_VIEWS)
        per_square = math.fsum(8 / _approximate_total(shares, each, target) ** 2 for each in alone)
        return [per_square / share**2 for share in shares]

    def design(radices: Radices) -> ValueDesign:
        tried = {tuple(_shares(loads_of(radices), power)) for power in _POWERS}  # one of one digit
        splits = [_Split(target, shares) for shares in sorted(tried)]
        fields = [split.two() if two else split.one() for split in splits]
        found = [design_of(protocol, target, radices, **each) for each in fields if each]
        if not found:
            raise PlanError(f"no noise of {protocol} meets a central epsilon of {central:g}")
        return min(found, key=lambda each: each.mse)

    search = RadixSearch(target=target, item_variances=item_variances, by_users=False)
    return search.first_design(design)


def _shares(loads: Sequence[float], power: float) -> list[float]:
    powers = [load**power for load in loads]
    return [each / math.fsum(powers) for each in powers]


def _approximate_total(shares: Sequence[float], epsilon: float, target: Requirements) -> float:
    """Return the sum of the ε of one number's views if all numbers' views together meet ε."""
    squares = target.domain_size * math.fsum(share**2 for share in shares)
    return max(
        epsilon / target.domain_size, gaussian_mu(epsilon, target.delta) * math.sqrt(2 / squares)
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """A split of ε over the views of a number."""

    target: Requirements
    shares: tuple[float, ...]

    def one(self) -> dict[str, Any]:
        """Return the draft's fields of one shuffler with the least noise; empty without one."""
        noise = self._least(self.target.central_epsilon)
        return {"shuffler_views": noise} if noise else {}

    def two(self) -> dict[str, Any]:
        """Return the draft's fields of two shufflers with the least noises; empty without them."""
        second = self._least(self.target.coalition_epsilon)
        first = self._least(self.target.coalition_epsilon, second) if second else ()
        if not first:
            return {}
        relay = RelayDraft(name="second", key=RELAY_KEY, views=second)
        return {"shuffler_views": first, "shuffler_name": "first", "relay": relay}

    def _least(self, epsilon: float, second: _Noises = ()) -> _Noises:
        """Return the least noise that meets ε, and with a second one the central ε; or nothing."""
        total = _approximate_total(self.shares, epsilon, self.target)

        def attempt(level: float) -> tuple[_Noises | None, float]:
            try:
                noises = self._noises(total * math.exp(level))
                excess = self._excess(noises, epsilon)
                if second:
                    both = tuple(map(sum_of, zip(noises, second, strict=True)))
                    excess = max(excess, self._excess(both, self.target.central_epsilon))
            except AccountingError:  # more dummies than a task can have
                return None, -math.inf
            return noises, excess

        best = least_noise(attempt, start=-_SLACK / 2, slack=_SLACK, max_step=_MAX_STEP)
        return best[0] if best else ()

    def _noises(self, total: float) -> _Noises:
        """Return the noise of each view if the ε of one number's views sum to `total`."""
        numbers = self.target.domain_size
        delta = _CUT_SHARE * MARGIN * self.target.delta / (numbers * len(self.shares))
        each = [geometric_spec(total * share, delta).noise for share in self.shares]
        return tuple(each * numbers)

    def _excess(self, noises: _Noises, epsilon: float) -> float:
        """Return ln(ε of the views' noise / target ε), with room for rounding claims."""
        releases = [ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=noise)) for noise in noises]
        found = composed_epsilon(releases, MARGIN * self.target.delta)
        return math.log(found * CLAIM_ROOM / epsilon)
