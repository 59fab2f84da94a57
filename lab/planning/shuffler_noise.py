"""Designs in which the shuffler adds the dummies, with the least noise for the target."""

import contextlib
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

import numpy as np

from shuffledp.common.accounting.count_distributions import Binomial, least_whole
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON, MIN_EPSILON, check_delta
from shuffledp.common.accounting.guarantees import central_epsilon
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.published import sageo_left, sageo_peak, sageo_right, sbin_coins
from shuffledp.common.errors import AccountingError, BoundRangeError, PlanError, TaskError
from shuffledp.common.protocols import PROTOCOLS, ShufflerDistribution
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.shuffler_spec import (
    MAX_PER_ITEM,
    RATIO_SUM,
    BinomialNoise,
    GeometricNoise,
    ItemNoise,
    ShufflerSpec,
    SummedNoise,
)
from shuffledp.lab.planning.calibration import least_noisy, log_excess
from shuffledp.lab.planning.central_gaussian import gaussian_error, share_square
from shuffledp.lab.planning.design import Design, ItemDesign, blanket_probability, share_errors
from shuffledp.lab.planning.requirements import Requirements

SHUFFLER_PROTOCOLS: Final = ("hybrid", "sageo", "sbin")
MARGIN: Final = 0.99
"""Share of the target δ that searches use, so that the task's rounded claim meets the target."""
CLAIM_ROOM: Final = 1.00015
"""Factor by which a task's claim may exceed the ε of its noise: claims are rounded up."""
HYBRID_LOCAL_EPSILON: Final = 8.0
"""Local ε of hybrid without a local cap."""
_CUT_SHARE: Final = 1e-3
"""Share of δ that truncating the upper tail of the noise may cost."""
_SLACK: Final = 5e-3
"""The search for several rounds, or hybrid, ends when μ is within this share of its target."""
_STEPS: Final = 4096
"""Steps from the coalition ε down to the central ε, of which each noise of two shufflers is one."""
_Pair = tuple[ItemNoise, ItemNoise]
RELAY_KEY: Final = bytes(31) + b"\x08"
"""Placeholder for the key of a second shuffler."""


def design_excess(design: Design) -> float:
    """Return ln(μ / target μ) of a design by exact accounting, with room for rounding claims."""
    parameters, target = design.parameters, design.target
    if parameters.local_epsilon_of_all_rounds <= target.central_epsilon:
        return -math.inf
    release = parameters.release_of(target.n_min, target.honest, target.honest)
    epsilon = target.central_epsilon / CLAIM_ROOM
    if target.rounds == 1:
        found = (epsilon, release.curve((epsilon,))(epsilon))
        return log_excess(found, (epsilon, MARGIN * target.delta))
    found = (central_epsilon(parameters, release), target.delta)
    return log_excess(found, (epsilon, target.delta))


def shuffler_designs(target: Requirements) -> list[ItemDesign]:
    """Return the best design of every allowed SHUFFLER_PROTOCOLS entry that can meet the target."""
    designs = []
    for protocol in SHUFFLER_PROTOCOLS if target.may_be_plain else ("hybrid",):
        # An error means that the target needs more noise than a task can have.
        with contextlib.suppress(PlanError, AccountingError, TaskError):
            designs.append(shuffler_design(protocol, target))
    return designs


def approximate_shuffler_mse(target: Requirements) -> float:
    """
    Approximate the least error of SHUFFLER_PROTOCOLS by that of central mechanisms.

    Infinite if the shuffler is not trusted to add dummies.
    """
    if target.trust != "shuffler-dummies":
        return math.inf
    n, rounds, epsilon = target.n_users, target.rounds, target.central_epsilon
    square = rounds * share_square(target.domain_size)
    laplace = 4 * square * rounds / (epsilon * n) ** 2
    answers, none = np.array(float(target.domain_size)), np.zeros(())
    blanket = blanket_probability(answers, _hybrid_local(target))
    alone = share_errors(target, answers, blanket, none, hashed=False)
    errors = [float(alone + laplace / (1 - blanket) ** 2)]
    if target.may_be_plain:
        errors += [laplace, gaussian_error(square, n, epsilon, target.delta)]
    return min(errors)


def shuffler_design(protocol: str, target: Requirements) -> ItemDesign:
    """
    Return the design of one protocol in which the shuffler adds dummies of each item.

    `sageo` adds two-sided geometric noise to plain items, `sbin` binomial noise [MSE25]; `hybrid`
    adds geometric noise to randomized response at the local cap. Two noises have the least sum of
    variances. Raises PlanError or AccountingError if no possible number of dummies meets the
    target. Cost: about twenty evaluations of δ, 200 for two shufflers, and a few compositions.
    """
    row, delta = PROTOCOLS[protocol], MARGIN * target.delta
    local, room = (math.inf, CLAIM_ROOM) if row.noiseless else (_hybrid_local(target), 1.0)

    search = _SEARCHES[row.shuffler_distribution]

    def at(epsilon: float) -> ItemDesign:
        if target.shufflers > 1:
            coalition = target.coalition_epsilon / CLAIM_ROOM
            first, second = search.two(epsilon / room, coalition, delta / target.rounds)
            relay = RelayDraft(name="second", key=RELAY_KEY, noise=second)
            spec = ShufflerSpec(noise=first)
            return ItemDesign.of(
                protocol, target, shuffler=spec, shuffler_name="first", relay=relay
            )
        spec = search.one(epsilon / room, delta, target.rounds)
        return ItemDesign.of(protocol, target, local_epsilon=local, shuffler=spec)

    if target.rounds == 1 and row.noiseless:
        return at(target.central_epsilon)  # its noise is exact for one round

    def attempt(level: float) -> tuple[ItemDesign | None, float]:
        epsilon = target.central_epsilon * math.exp(level)
        if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
            # Hardly any noise is needed, or no noise is enough.
            return None, math.copysign(math.inf, level)
        design = at(epsilon)
        return design, design_excess(design)

    return least_noisy(protocol, target, attempt, start=0.0, slack=_SLACK)


def _hybrid_local(target: Requirements) -> float:
    return target.noise_cap if math.isfinite(target.local_cap) else HYBRID_LOCAL_EPSILON


def binomial_trials(epsilon: float, delta: float) -> int:
    """Return the fewest fair coins per item for (ε, δ), or raise AccountingError."""

    def coins(trials: int) -> ItemNoiseRelease:
        return ItemNoiseRelease(noise=Binomial(trials, 0.5))

    return _least_count(coins, 1, epsilon, delta)


def geometric_spec(epsilon: float, delta: float) -> ShufflerSpec:
    """
    Return the two-sided geometric noise with the least peak for (ε, δ), or raise AccountingError.

    The ratios of both tails follow [MSE25] and are rounded up. The upper tail is truncated at a
    cost of 1e-3 of δ.
    """

    def geometric(peak: int) -> ItemNoiseRelease:
        return ItemNoiseRelease.of_shuffler(_two_sided(epsilon, delta, peak))

    return _two_sided(epsilon, delta, _least_count(geometric, 0, epsilon, delta))


def _two_binomial(central: float, coalition: float, delta: float) -> _Pair:
    """Return the fewest coins that meet the central ε together and the coalition ε alone."""
    least = binomial_trials(coalition, delta)
    total = max(binomial_trials(central, delta), 2 * least)
    return BinomialNoise(trials=total - least), BinomialNoise(trials=least)


def _two_geometric(central: float, coalition: float, delta: float) -> _Pair:
    """
    Return two noises with nearly the least sum of variances that meet both ε.

    The second one's ε is the coalition ε, or a smaller one, which helps if δ is large; the first
    one's is the largest with which the sum is enough.
    """
    lowest = math.log(min(1.0, central / coalition))

    def noise(step: int) -> GeometricNoise:
        epsilon = coalition * math.exp(lowest * step / _STEPS)
        return cast("GeometricNoise", geometric_spec(epsilon, delta).noise)

    def with_stronger(second: GeometricNoise) -> tuple[GeometricNoise, GeometricNoise]:
        def enough(step: int) -> bool:
            both = SummedNoise((noise(step), second))
            return step == _STEPS or ItemNoiseRelease(noise=both).delta(central) <= delta

        return noise(bisect_left(range(_STEPS), x=True, key=enough)), second

    pairs = [with_stronger(noise(step)) for step in range(0, _STEPS, _STEPS // 16)]
    return min(pairs, key=lambda pair: SummedNoise(pair).moments()[1])


def _one_binomial(epsilon: float, delta: float, _rounds: int) -> ShufflerSpec:
    return ShufflerSpec(noise=BinomialNoise(trials=binomial_trials(epsilon, delta)))


def _one_geometric(epsilon: float, delta: float, rounds: int) -> ShufflerSpec:
    return geometric_spec(epsilon, delta / rounds)


class _Search(NamedTuple):
    """The searches for the least noise of one distribution."""

    one: Callable[[float, float, int], ShufflerSpec]
    """Of one shuffler, for an ε of one round, a δ of all rounds, and their number."""
    two: Callable[[float, float, float], _Pair]
    """Of two, for a central and a coalition ε, and a δ, of one round."""


_SEARCHES: Final[Mapping[ShufflerDistribution, _Search]] = {
    "none": _Search(_one_geometric, _two_geometric),  # any: its task states why it is refused
    "binomial": _Search(_one_binomial, _two_binomial),
    "geometric": _Search(_one_geometric, _two_geometric),
}


def sbin_trials(epsilon: float, delta: float, keep_probability: float) -> int:
    """Return the number of fair coins for each item that SBin requires [MSE25]."""
    check_delta(delta)
    return max(1, _covered("SBin", sbin_coins(epsilon, delta, keep_probability)))


def _covered(name: str, number: float) -> int:
    """Round up a number that a bound requires; raise BoundRangeError if it is infinite."""
    if math.isinf(number):
        raise BoundRangeError(
            f"{name}'s bound does not cover these values of epsilon, delta and keep_probability"
        )
    return math.ceil(number)


def published_sageo_spec(epsilon: float, delta: float) -> ShufflerSpec:
    """
    Return SAGeo's noise by its published formula [MSE25], truncated at a cost of 1e-3 of δ.

    Raises BoundRangeError or AccountingError if the formula does not apply.
    """
    _check(epsilon, delta)
    left, right = sageo_left(epsilon, 1.0), sageo_right(epsilon, 1.0)
    peak = _covered("SAGeo", sageo_peak(epsilon, delta, 1.0, left, right))
    return _two_sided(epsilon, delta, max(0, peak))


def _check(epsilon: float, delta: float) -> None:
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise AccountingError(f"epsilon is {epsilon}; it must be above 0 and finite")


def _two_sided(epsilon: float, delta: float, peak: int) -> ShufflerSpec:
    """Return the two-sided geometric noise for (ε, δ) with this peak, or raise AccountingError."""
    left_weight = _ratio_weight(sageo_left(epsilon, 1.0))
    right_weight = _ratio_weight(sageo_right(epsilon, 1.0))
    # The noise exceeds peak + cut with a probability below right^cut.
    right = math.log(right_weight / RATIO_SUM)
    cut = max(1, math.ceil(math.log(_CUT_SHARE * delta) / right))
    if peak + cut > MAX_PER_ITEM:
        raise _too_many()
    noise = GeometricNoise(
        peak=peak, left_weight=left_weight, right_weight=right_weight, most=peak + cut
    )
    return ShufflerSpec(noise=noise)


def _ratio_weight(ratio: float) -> int:
    """Return a ratio, rounded up, as a weight from 1 to RATIO_SUM - 1, or raise AccountingError."""
    weight = math.ceil(ratio * RATIO_SUM) + 1
    if weight >= RATIO_SUM:
        raise _too_many()
    return max(1, weight)


def _least_count(
    release: Callable[[int], ItemNoiseRelease], low: int, epsilon: float, delta: float
) -> int:
    """Return the least number from `low` on whose noise is (ε, δ)-DP, or raise AccountingError."""
    _check(epsilon, delta)

    def enough(number: int) -> bool:
        if number > MAX_PER_ITEM:
            raise _too_many()
        try:
            return release(number).delta(epsilon) <= delta
        except TaskError:  # a flank so short that most of its draws are rejected
            return False

    return least_whole(enough, low)


def _too_many() -> AccountingError:
    return AccountingError(f"the target needs more than {MAX_PER_ITEM} dummies per item")
