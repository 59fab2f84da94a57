"""Designs whose dummies the shuffler makes: the least noise that the exact accountant accepts."""

import contextlib
import math
from collections.abc import Callable
from typing import Final

from common.accounting.count_distributions import Binomial
from common.accounting.epsilon_search import MAX_EPSILON, MIN_EPSILON, check_delta, gaussian_mu
from common.accounting.guarantees import central_epsilon
from common.accounting.item_noise import (
    ItemDistribution,
    ItemNoiseRelease,
    shuffler_noise_distribution,
)
from common.accounting.published import sageo_left, sageo_peak, sageo_right
from common.errors import AccountingError, PlanError, TaskError
from common.mechanisms.support import bernoulli_variance
from common.task.dummy_spec import MAX_PER_ITEM, RATIO_SUM, ShufflerSpec
from deploy.planning.design import Design
from deploy.planning.requirements import Requirements

SHUFFLER_PROTOCOLS: Final = ("hybrid", "sageo", "sbin")
MARGIN: Final = 0.99
"""Share of the wanted δ to search with, so that a task's claim keeps all of it."""
CLAIM_ROOM: Final = 1.00015
"""A task's claim may exceed the ε of its noise by this: devices recompute it, and it is rounded."""
HYBRID_LOCAL_EPSILON: Final = 8.0
"""Of hybrid without a cap."""
_CUT_SHARE: Final = 1e-3
"""Share of δ that cutting the upper flank may cost."""
_REL_TOL: Final = 1.01
_MAX_HALVINGS: Final = 40


# --- designs --------------------------------------------------------------------------------------


def keeps_guarantee(design: Design) -> bool:
    """Ask the exact accountant whether a task of this design keeps the guarantee."""
    terms, wanted = design.terms, design.wanted
    anonymity_set = terms.anonymity_set(wanted.n_min)
    epsilon = wanted.central_epsilon / CLAIM_ROOM
    if wanted.rounds == 1:
        return terms.release(anonymity_set).delta(epsilon) <= MARGIN * wanted.delta
    return central_epsilon(terms, anonymity_set) <= epsilon


def shuffler_designs(wanted: Requirements) -> list[Design]:
    """Find the best design of every protocol whose dummies the shuffler makes."""
    found = []
    for protocol in SHUFFLER_PROTOCOLS if wanted.may_be_plain else ("hybrid",):
        # Without a design it would take more noise than a task can have.
        with contextlib.suppress(PlanError, AccountingError, TaskError):
            found.append(shuffler_design(protocol, wanted))
    return found


def approximate_shuffler_mse(wanted: Requirements) -> float:
    """
    Approximate the least error of these protocols by central mechanisms of the same noise.

    Searched, never stated; infinite where the shuffler makes no dummies.
    """
    if wanted.trust != "shuffler-dummies":
        return math.inf
    n, rounds, epsilon = wanted.n_users, wanted.rounds, wanted.central_epsilon
    laplace = 8 * (rounds / (epsilon * n)) ** 2
    support = Design(protocol="hybrid", wanted=wanted, local_epsilon=_hybrid_local(wanted)).support
    alone = bernoulli_variance(
        1 / wanted.domain_size, n_real=n, n_dummies=0, p=support.p, q=support.q, q_dummy=0.0
    )
    errors = [float(alone) + laplace / (support.p - support.q) ** 2]
    if wanted.may_be_plain:
        errors += [laplace, 2 * rounds / (gaussian_mu(epsilon, wanted.delta) * n) ** 2]
    return min(errors)


def shuffler_design(protocol: str, wanted: Requirements) -> Design:
    """
    Return the design of one protocol with dummies of each item by the shuffler, or PlanError.

    `sageo` adds two geometric flanks to true items, `sbin` heads among fair coins [MSE25]; `hybrid`
    adds the flanks to randomized response as sharp as the cap allows. Cost: some twenty evaluations
    of δ, or compositions.
    """
    hybrid = protocol == "hybrid"
    local = _hybrid_local(wanted) if hybrid else math.inf
    room = 1.0 if hybrid else CLAIM_ROOM
    delta = MARGIN * wanted.delta

    def at(epsilon: float) -> Design:
        if protocol == "sbin":
            trials = binomial_trials(epsilon / room, delta)
            spec = ShufflerSpec(law="binomial", trials=trials, most=trials)
        else:
            spec = geometric_spec(epsilon / room, delta / wanted.rounds)
        return Design(protocol=protocol, wanted=wanted, local_epsilon=local, shuffler=spec)

    epsilon = wanted.central_epsilon
    design = at(epsilon)
    if wanted.rounds == 1 and not hybrid:
        return design  # made for exactly this
    # The noise grows as the ε that it is made for falls.
    kept: tuple[float, Design] | None = None
    broken: float | None = None
    for _ in range(_MAX_HALVINGS):
        if keeps_guarantee(design):
            kept = (epsilon, design)
        else:
            broken = epsilon
        if kept is None or broken is None:
            epsilon = epsilon * 2 if broken is None else epsilon / 2
        elif broken / kept[0] < _REL_TOL:
            break
        else:
            epsilon = math.sqrt(kept[0] * broken)
        if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
            break  # hardly any noise is needed, or none is enough
        design = at(epsilon)
    if kept is None:
        raise PlanError("no number of shuffler-made dummies keeps the promise")
    return kept[1]


def _hybrid_local(wanted: Requirements) -> float:
    return wanted.noise_cap if math.isfinite(wanted.local_cap) else HYBRID_LOCAL_EPSILON


# --- noise on each item, for one round and users who hide nothing themselves ----------------------


def binomial_trials(epsilon: float, delta: float) -> int:
    """Return the least fair coins per item for (ε, δ); raise AccountingError if none suffice."""
    return _least_count(lambda trials: Binomial(trials, 0.5), 1, epsilon, delta)


def geometric_spec(epsilon: float, delta: float) -> ShufflerSpec:
    """
    Return the two-sided geometric noise of least variance for (ε, δ), or AccountingError.

    Flanks of ratio e^-ε/2 [MSE25], rounded to be less steep; the least peak by the exact
    accountant; an upper end that costs 1e-3 of δ.
    """

    def noise(peak: int) -> ItemDistribution:
        return shuffler_noise_distribution(_two_sided(epsilon, delta, peak))

    return _two_sided(epsilon, delta, _least_count(noise, 0, epsilon, delta))


def published_sageo_spec(epsilon: float, delta: float) -> ShufflerSpec:
    """
    Return the noise that SAGeo's authors use [MSE25], cut at an upper end that costs 1e-3 of δ.

    Raises AccountingError or BoundRangeError where the formula or a task cannot have it.
    """
    _check(epsilon, delta)
    left, right = sageo_left(epsilon, 1.0), sageo_right(epsilon, 1.0)
    peak = sageo_peak(epsilon, delta, 1.0, left, right)
    return _two_sided(epsilon, delta, max(0, peak))


def _check(epsilon: float, delta: float) -> None:
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise AccountingError(f"epsilon is {epsilon}; it must be above 0 and finite")


def _two_sided(epsilon: float, delta: float, peak: int) -> ShufflerSpec:
    left_weight = _less_steep(sageo_left(epsilon, 1.0))
    right_weight = _less_steep(sageo_right(epsilon, 1.0))
    # The weight above the peak, whose own is 1, is less than a share right^cut of everything.
    right = math.log(right_weight / RATIO_SUM)
    cut = max(1, math.ceil(math.log(_CUT_SHARE * delta) / right))
    if peak + cut > MAX_PER_ITEM:
        raise _too_many()
    return ShufflerSpec(
        law="geometric",
        peak=peak,
        left_weight=left_weight,
        right_weight=right_weight,
        most=peak + cut,
    )


def _less_steep(ratio: float) -> int:
    """Return the weight of a ratio rounded up; at least 1 and below RATIO_SUM."""
    weight = math.ceil(ratio * RATIO_SUM) + 1
    if weight >= RATIO_SUM:
        raise _too_many()
    return max(1, weight)


def _least_count(
    noise: Callable[[int], ItemDistribution], low: int, epsilon: float, delta: float
) -> int:
    """Find the least number from `low` on whose noise is enough, by doubling and halving."""
    _check(epsilon, delta)

    def enough(number: int) -> bool:
        return ItemNoiseRelease(noise=noise(number)).delta(epsilon) <= delta

    high = max(low, 1)
    if enough(low):
        return low
    while not enough(high):
        low, high = high, 2 * high
        if high > MAX_PER_ITEM:
            raise _too_many()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _too_many() -> AccountingError:
    return AccountingError(f"more than {MAX_PER_ITEM} dummies of an item would be needed")
