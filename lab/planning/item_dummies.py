"""Protocols with dummies of each item, with the least noise for the target. Pure."""

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

from shuffledp.common.accounting.count_distributions import least_whole
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON, MIN_EPSILON, check_delta
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.published import sageo_left, sageo_right
from shuffledp.common.errors import AccountingError, PlanError, TaskError
from shuffledp.common.protocols import PROTOCOLS, ShufflerDistribution
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM, MAX_DUMMIES
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import BinomialNoise, GeometricNoise, ItemNoise
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MARGIN
from shuffledp.lab.planning.central_mechanisms import gaussian_error, share_square
from shuffledp.lab.planning.design import Design, excess_of, least_noisy
from shuffledp.lab.planning.frontier import share_error
from shuffledp.lab.planning.protocol_family import FamilyDesigns, ProtocolFamily
from shuffledp.lab.planning.requirements import Progress, Requirements, noise_fields

HYBRID_LOCAL_EPSILON: Final = 8.0
"""Local ε of hybrid without a local cap."""
_CUT_SHARE: Final = 1e-3
"""Share of δ that truncating the upper tail of the noise may cost."""
_SLACK: Final = 5e-3
"""The search for several rounds, or hybrid, ends when μ is within this share of its target."""
_SLACK_OF_USERS: Final = 1e-3
"""That for dummies by users; it costs .2 % of the error."""
_MAX_STEP: Final = 1.5
"""Largest step in ln μ before that target is bracketed."""
_CUT_PROBABILITY: Final = 1e-40
"""Largest probability that any user in a batch needs more dummies than the maximum."""
_STEPS: Final = 4096
"""Steps from the coalition ε down to the central ε, of which each noise of two shufflers is one."""
Noise = TypeVar("Noise", bound=ItemNoise)
_Pair = tuple[ItemNoise, ItemNoise]
_Enough = Callable[[ItemNoise], bool]
"""Whether a noise meets the target."""


class ShufflerNoise(ProtocolFamily):
    """Dummies of each item by the shuffler, or by each of two: `hybrid`, `sageo` and `sbin`."""

    def designs(self, target: Requirements, progress: Progress) -> FamilyDesigns:
        """Return the best design of each protocol; silently none if no shuffler is to add any."""
        asked = target.protocol or target.shufflers > 1 or target.trust == "shuffler-dummies"
        found = super().designs(target.of_items, progress) if asked else FamilyDesigns()
        return dataclasses.replace(found, approximate=_approximate_mse)

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the design in which the shuffler adds the least noise.

        `sageo` adds two-sided geometric noise to plain items, `sbin` binomial noise [MSE25];
        `hybrid` adds geometric noise to randomized response at the local cap. Two noises have the
        least sum of variances. Cost: about twenty evaluations of δ, 200 for two shufflers, and a
        few compositions.
        """
        row, delta = PROTOCOLS[protocol], MARGIN * target.delta
        local, room = (math.inf, CLAIM_ROOM) if row.noiseless else (_hybrid_local(target), 1.0)
        find = _NOISES[row.shuffler_distribution]

        def of_noise(*noises: ItemNoise) -> Design:
            fields = noise_fields(*((noise,) for noise in noises))
            return Design.of(protocol, target, local_epsilon=local, **fields)

        def at(epsilon: float) -> Design:
            goal = epsilon / room, delta / target.rounds
            if target.shufflers > 1:
                return of_noise(*find.two(*goal, target.coalition_epsilon / CLAIM_ROOM))
            return of_noise(find.least(*goal, None))

        if target.accounting == "published":
            goal = target.central_epsilon, target.delta
            return of_noise(find.least(*goal, lambda noise: excess_of(of_noise(noise)) <= 0))
        if target.rounds == 1 and row.noiseless:
            return at(target.central_epsilon)  # its noise is exact for one round

        def design_at(level: float) -> Design | None:
            epsilon = min(target.central_epsilon * math.exp(level), MAX_EPSILON)
            return None if epsilon < MIN_EPSILON else at(epsilon)

        return least_noisy(target, protocol, design_at, excess_of, slack=_SLACK)


def _approximate_mse(target: Requirements) -> float:
    """Approximate the least error by that of central mechanisms; infinite without the trust."""
    if target.trust != "shuffler-dummies":
        return math.inf
    n, rounds, epsilon = target.n_users, target.rounds, target.central_epsilon
    square = rounds * share_square(target.domain_size)
    laplace = 4 * square * rounds / (epsilon * n) ** 2
    error, signal = share_error(target, _hybrid_local(target))
    errors = [error + laplace / signal**2]
    if target.may_be_plain:
        errors += [laplace, gaussian_error(square, n, epsilon, target.delta)]
    return min(errors)


def _hybrid_local(target: Requirements) -> float:
    return target.noise_cap if math.isfinite(target.local_cap) else HYBRID_LOCAL_EPSILON


def least_binomial(epsilon: float, delta: float, enough: _Enough | None = None) -> BinomialNoise:
    """Return the fewest fair coins per item for (ε, δ), or raise AccountingError."""
    return _least(lambda n: BinomialNoise(trials=n), 1, enough or _exactly(epsilon, delta))


def least_geometric(epsilon: float, delta: float, enough: _Enough | None = None) -> GeometricNoise:
    """
    Return the two-sided geometric noise with the least peak for (ε, δ), or raise AccountingError.

    The ratios of both tails follow [MSE25] and are rounded up. The upper tail is truncated at a
    cost of 1e-3 of δ. By default, the exact accountant says whether noise is enough.
    """
    return _least(partial(_two_sided, epsilon, delta), 0, enough or _exactly(epsilon, delta))


def _exactly(epsilon: float, delta: float) -> _Enough:
    """Return the exact test whether a noise is (ε, δ)-DP; raise AccountingError out of range."""
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise AccountingError(f"epsilon is {epsilon}; it must be above 0 and finite")
    release = ItemNoiseRelease.of_shuffler
    return lambda noise: release(shuffler_spec.ShufflerSpec(noise=noise)).delta(epsilon) <= delta


def _two_binomial(central: float, delta: float, coalition: float) -> _Pair:
    """Return the fewest coins that meet the central ε together and the coalition ε alone."""
    least = least_binomial(coalition, delta)
    total = max(least_binomial(central, delta).trials, 2 * least.trials)
    return BinomialNoise(trials=total - least.trials), least


def _two_geometric(central: float, delta: float, coalition: float) -> _Pair:
    """
    Return two noises with nearly the least sum of variances that meet both ε.

    The second one's ε is the coalition ε, or a smaller one, which helps if δ is large; the first
    one's is the largest with which the sum is enough.
    """
    lowest = math.log(min(1.0, central / coalition))

    def noise(step: int) -> GeometricNoise:
        return least_geometric(coalition * math.exp(lowest * step / _STEPS), delta)

    def with_stronger(second: GeometricNoise) -> tuple[GeometricNoise, GeometricNoise]:
        def enough(step: int) -> bool:
            both = shuffler_spec.SummedNoise((noise(step), second))
            return step == _STEPS or ItemNoiseRelease(noise=both).delta(central) <= delta

        return noise(bisect_left(range(_STEPS), x=True, key=enough)), second

    pairs = [with_stronger(noise(step)) for step in range(0, _STEPS, _STEPS // 16)]
    return min(pairs, key=lambda pair: shuffler_spec.SummedNoise(pair).moments()[1])


class _Noises(NamedTuple):
    """The searches for the least noise of one distribution."""

    least: Callable[[float, float, _Enough | None], ItemNoise]
    """Of one shuffler, for (ε, δ), by the exact accountant or another test."""
    two: Callable[[float, float, float], _Pair]
    """Of two, for a central ε, δ and a coalition ε."""


_NOISES: Final[Mapping[ShufflerDistribution, _Noises]] = {
    "binomial": _Noises(least_binomial, _two_binomial),
    "geometric": _Noises(least_geometric, _two_geometric),
}


def _two_sided(epsilon: float, delta: float, peak: int) -> GeometricNoise:
    """Return the two-sided geometric noise for (ε, δ) with this peak, or raise AccountingError."""
    left_weight = _ratio_weight(sageo_left(epsilon, 1.0))
    right_weight = _ratio_weight(sageo_right(epsilon, 1.0))
    # The noise exceeds peak + cut with a probability below right^cut.
    right = math.log(right_weight / shuffler_spec.RATIO_SUM)
    cut = max(1, math.ceil(math.log(_CUT_SHARE * delta) / right))
    if peak + cut > shuffler_spec.MAX_PER_ITEM:
        raise _too_many()
    return GeometricNoise(
        peak=peak, left_weight=left_weight, right_weight=right_weight, most=peak + cut
    )


def _ratio_weight(ratio: float) -> int:
    """Return a ratio, rounded up, as a weight from 1 to RATIO_SUM - 1, or raise AccountingError."""
    weight = math.ceil(ratio * shuffler_spec.RATIO_SUM) + 1
    if weight >= shuffler_spec.RATIO_SUM:
        raise _too_many()
    return max(1, weight)


def _least(noise_of: Callable[[int], Noise], low: int, enough: _Enough) -> Noise:
    """Return the noise of the least number from `low` on that is enough, or AccountingError."""

    def is_enough(number: int) -> bool:
        if number > shuffler_spec.MAX_PER_ITEM:
            raise _too_many()
        try:
            return enough(noise_of(number))
        except TaskError:  # a flank so short that most of its draws are rejected
            return False

    return noise_of(least_whole(is_enough, low))


def _too_many() -> AccountingError:
    most = shuffler_spec.MAX_PER_ITEM
    return AccountingError(f"the target needs more than {most} dummies per item")


class EachItem(ProtocolFamily):
    """True items; users add each item as a dummy with a small probability: `aue`."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """Return the design with the least dummy probability, to within 0.2 %."""
        # An item's noise is largest at probability one half; a paper's bound may count on more.
        most = EXTRA_WEIGHT_SUM // 2 if target.accounting == "tight" else EXTRA_WEIGHT_SUM - 1

        def design_at(level: float) -> Design | None:
            if level < 0:
                return None
            weight = max(1, math.ceil(most * math.exp(-2 * level)))
            return Design.of(protocol, target, dummies=_each_item_dummies(weight, target))

        return least_noisy(
            target, protocol, design_at, excess_of, slack=_SLACK_OF_USERS, max_step=_MAX_STEP
        )


def _each_item_dummies(extra_weight: int, target: Requirements) -> ItemDummies:
    """
    Return the distribution that adds each item as a dummy with probability extra_weight / 2^32.

    Raises PlanError if a user may need more than MAX_DUMMIES dummies.
    """
    chance = extra_weight / EXTRA_WEIGHT_SUM
    mean = target.domain_size * chance
    log = math.log(target.n_users / _CUT_PROBABILITY)
    # P(X ≥ mean + t) ≤ exp(-t² / (2·(variance + t/3))): Bernstein's inequality, solved for t.
    excess = log / 3 + math.sqrt(log**2 / 9 + 2 * mean * (1 - chance) * log)
    most = min(math.ceil(mean + excess), target.domain_size)
    if most > MAX_DUMMIES:
        raise PlanError(f"aue needs up to {most} dummies per user; the limit is {MAX_DUMMIES}")
    return ItemDummies(trials=target.domain_size, extra_weight=extra_weight, most=most)
