"""
Designs by the papers' own privacy bounds: each theorem solved for the parameters. Pure.

Parameters that a paper leaves open, such as numbers of dummies or buckets, minimize the error.
If a bound cannot reach the target ε with any noise, the local ε is the target, and a note says so.
The bounds are in `shuffledp.common.accounting.published`; tests evaluate them at these designs.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from shuffledp.common.errors import PlanError
from shuffledp.common.limits import MAX_LOCAL_EPSILON
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.hashing.local_hashing import fields, optimal_buckets
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM
from shuffledp.common.task.shuffler_spec import BinomialNoise, ShufflerSpec
from shuffledp.common.task.uniform_dummies import BinomialDummies, averaging
from shuffledp.lab.planning.design import (
    USUAL_MESSAGES,
    ItemDesign,
    blanket_probability,
    check_bit,
    each_item_dummies,
    local_design,
    share_errors,
    within_caps,
)
from shuffledp.lab.planning.requirements import Requirements
from shuffledp.lab.planning.shuffler_noise import published_sageo_spec, sbin_trials

_PARTS: Final = np.arange(1, 20) / 20
"""Fractional parts of dummies per user to try, below _MAX_PARTED dummies."""
_MAX_PARTED: Final = 20
_OUT_OF_REACH: Final = "its bound cannot reach the target epsilon, so the local epsilon equals it"


def published_design(protocol: str, target: Requirements) -> ItemDesign:
    """Return the design that meets the target by the protocol's own bound, or raise PlanError."""
    if target.shufflers > 1:
        raise PlanError("no paper states a bound for the noise of two shufflers")
    if not PROTOCOLS[protocol].amplified:
        return local_design(protocol, target)
    find = _PUBLISHED.get(protocol)
    if find is None:
        raise PlanError(f"no paper states a bound for {protocol}")
    return within_caps(find(target))


def _one_report(protocol: str, target: Requirements, *, plain: bool, hashed: bool) -> ItemDesign:
    """Return the least-error design of SH [BBGN19], SOLH [WDX+20], or the better of both."""
    # b = ε²(n-1) / (14·ln(2/δ)) is the largest e^ε0 + l - 1 by the closed form [BBGN19].
    blanket = target.central_epsilon**2 * (target.honest - 1) / (14 * math.log(2 / target.delta))
    best_error, best = math.inf, _noisy(protocol, 0.0, 0, target)
    for numbers, hashes in _options(target, plain=plain, hashed=hashed):
        answers = numbers[numbers < blanket]
        # A report's blanket probability is γ = l/b.
        errors = share_errors(target, answers, answers / blanket, np.zeros(1), hashed=hashes)
        if len(answers) and errors.min() < best_error:
            l_best = int(answers[int(np.argmin(errors))])
            best_error = float(errors.min())
            best = _noisy(protocol, blanket - l_best + 1, l_best if hashes else 0, target)
    return best


def _hp_sdp(target: Requirements) -> ItemDesign:
    """Return the least-error design of SOLH, which serves hp-sdp."""
    design = _one_report("hp-sdp", target, plain=False, hashed=True)
    note = "; ".join(filter(None, (design.note, "SOLH's bound replaces that of the paper")))
    return dataclasses.replace(design, note=note)


def _ddps(target: Requirements) -> ItemDesign:
    """Return the design of [CSUZZ19]: e^ε0 = (2n-λ)/λ for an expected λ random answers."""
    check_bit(target)
    n, epsilon, log = target.honest, target.central_epsilon, math.log(4 / target.delta)
    if epsilon >= math.sqrt(192 * log / n):
        coins = 64 * log / epsilon**2
    else:
        coins = n - epsilon * n**1.5 / math.sqrt(432 * log)
    return _noisy("ddps", (2 * n - coins) / coins, 0, target)


def _noisy(protocol: str, odds: float, buckets: int, target: Requirements) -> ItemDesign:
    """Return randomized response with odds e^ε0, or with ε0 = ε and a note if ε is larger."""
    note = ""
    if odds > math.exp(min(target.central_epsilon, MAX_LOCAL_EPSILON)):
        epsilon = min(math.log(odds), target.noise_cap)
    else:
        epsilon, note = min(target.central_epsilon, target.noise_cap), _OUT_OF_REACH
        hashes = PROTOCOLS[protocol].hashes and len(fields(target.domain_size)) > 0
        buckets = optimal_buckets(epsilon, target.domain_size) if hashes else 0
    return ItemDesign.of(protocol, target, note=note, buckets=buckets, local_epsilon=epsilon)


def _aue(target: Requirements) -> ItemDesign:
    """Return [BC20]'s design, dummies of chance 200·ln(4/δ)/(ε²n) per item, or raise PlanError."""
    n = target.honest
    chance = 200 * math.log(4 / target.delta) / (target.central_epsilon**2 * n)
    if chance >= 1:
        raise PlanError(
            f"aue's bound needs dummies with probability {chance:.3g} at {n} users; it must be "
            "below 1: use more users or a larger epsilon"
        )
    dummies = each_item_dummies(math.ceil(chance * EXTRA_WEIGHT_SUM), target)
    return ItemDesign.of("aue", target, dummies=dummies)


def _pure_dump(target: Requirements) -> ItemDesign:
    """Return the design of [LLF+20] with the fewest dummies; a fraction means a random dummy."""
    needed, flexible = (_needed(target.domain_size, share, target) for share in (2, 4))
    dummies = _at_least(_fewest(needed, flexible, target))
    return ItemDesign.of("puredump", target, dummies=dummies)


def _fe1(target: Requirements) -> ItemDesign:
    """
    Return [LWY22]'s design with the most buckets that the messages cap allows.

    Each bucket needs 32·ln(2/δ)/ε² dummies from all honest users together. Raises PlanError if
    there is no such design.
    """
    density = 32 * math.log(2 / target.delta) / target.central_epsilon**2 / target.honest
    most = USUAL_MESSAGES if math.isinf(target.messages_cap) else target.messages_cap
    if density * target.domain_size <= most - 1:
        buckets = 0
    else:
        primes = fields(target.domain_size, target.most_seeds)
        primes = primes[primes * density <= most - 1]
        if not len(primes):
            raise PlanError(
                f"fe1 needs at least {2 * density:.3g} dummies per user, for two buckets; the "
                f"messages cap allows {most - 1:g}"
            )
        buckets = int(primes.max())
    dummies = _at_least(density * (buckets or target.domain_size))
    return ItemDesign.of("fe1", target, buckets=buckets, dummies=dummies)


def _among_dummies(protocol: str, target: Requirements) -> ItemDesign:
    """
    Return the design of MixDUMP [LLF+20] or OD-HP [CC24, Theorem 1] with the least error.

    Solves ε = √(14·l·ln(4/δ) / (|S| + x - √(2x·ln(2/δ)) - 1)) for x = γ(n-1) and |S| dummies, for
    every l and |S| at once. Random dummies count by their lower tail, which costs half of δ.
    """
    known = PROTOCOLS[protocol]
    options = _options(target, plain=True, hashed=known.hashes)
    dummies = _numbers_of_dummies(min(float(numbers.min()) for numbers, _ in options), target)
    delta = np.where(dummies % 1 > 0, target.delta / 2, target.delta)
    n, others, part = target.honest, max(target.honest - 1, 1), dummies % 1
    # |S|: the certain dummies, and the lower tail of the random ones.
    tail = n * part - np.sqrt(2 * n * part * math.log(2 / target.delta))
    counted = n * np.floor(dummies) + np.maximum(tail, 0)
    plain = known.may_be_noiseless and target.may_be_plain
    best_error, best = math.inf, _noisy(protocol, 0.0, 0, target)
    for numbers, hashed in options:
        answers = numbers[:, None]
        needed = 14 * answers * np.log(4 / delta) / target.central_epsilon**2 + 1
        least = blanket_probability(answers, target.noise_cap) * (not plain)
        blanket = _solve_blanket(needed - counted, others * least, 2 * np.log(2 / delta)) / others
        errors = share_errors(target, answers, blanket, dummies, hashed=hashed)
        row, column = np.unravel_index(int(np.argmin(errors)), errors.shape)
        if errors[row, column] < best_error:
            best_error = float(errors[row, column])
            gamma, l_best = float(blanket[row, column]), float(numbers[row])
            epsilon = math.log1p(l_best * (1 - gamma) / gamma) if gamma > 0 else math.inf
            best = ItemDesign.of(
                protocol,
                target,
                buckets=int(l_best) if hashed else 0,
                local_epsilon=epsilon,
                dummies=_at_least(float(dummies[column])),
            )
    return best


def _options(target: Requirements, *, plain: bool, hashed: bool) -> list[tuple[Vector, bool]]:
    """Return numbers of answers to try, hashed (True) or plain; plain if hashing is impossible."""
    primes = fields(target.domain_size, target.most_seeds)
    options = [(primes, True)] if hashed and len(primes) else []
    if plain or not options:
        options.append((np.array([float(target.domain_size)]), False))
    return options


def _needed(answers: float, share: float, target: Requirements) -> float:
    """Return 14·l·ln(share/δ)/ε² + 1, the blanket reports that a bound needs."""
    return 14 * answers * math.log(share / target.delta) / target.central_epsilon**2 + 1


def _fewest(needed: float, flexible: float, target: Requirements) -> float:
    """Return the fewest dummies per user that total `needed` if fixed, `flexible` if random."""
    n = target.honest
    fixed = math.ceil(needed / n)
    whole = math.floor(flexible / n)
    # Solve n·s - √(2n·s·ln(2/δ)) = rest for the fraction s of a dummy.
    tail = 2 * math.log(2 / target.delta)
    rest = max(0.0, flexible - n * whole)
    part = ((math.sqrt(tail) + math.sqrt(tail + 4 * rest)) / 2) ** 2 / n
    return min(whole + part if part < 1 else math.inf, fixed)


def _at_least(dummies_per_user: float) -> BinomialDummies:
    """Return the distribution of dummies with this mean, rounded up to a valid weight."""
    up = math.ceil(dummies_per_user % 1 * EXTRA_WEIGHT_SUM) / EXTRA_WEIGHT_SUM
    return averaging(math.floor(dummies_per_user) + up)


def _solve_blanket(short: Vector, least: Vector, log: Vector) -> Vector:
    """Return the least x ≥ `least` with x - √(x·log) ≥ `short`."""
    root = np.sqrt(np.maximum(log + 4 * short, 0))
    low, high = ((np.sqrt(log) - root) / 2) ** 2, ((np.sqrt(log) + root) / 2) ** 2
    satisfied = (log + 4 * short < 0) | ((short <= 0) & (least <= low))
    return np.where(satisfied, least, np.maximum(high, least))


def _numbers_of_dummies(least_answers: float, target: Requirements) -> Vector:
    """Return the numbers of dummies per user to try, within the messages cap."""
    most = target.messages_cap - 1
    if math.isinf(most):
        needed = _needed(least_answers, 4, target)
        most = max(USUAL_MESSAGES - 1, math.ceil(needed / target.honest))
    whole = np.arange(1 + max(0, math.floor(most)), dtype=np.float64)
    parts = (whole[:_MAX_PARTED, None] + _PARTS).ravel()
    # Also the fewest dummies with which plain items need no local noise.
    needed, flexible = (_needed(target.domain_size, share, target) for share in (4, 8))
    numbers = np.concatenate([whole, parts, [_fewest(needed, flexible, target)]])
    return np.unique(numbers[numbers <= most])


def _sageo(target: Requirements) -> ItemDesign:
    """Return the design of SAGeo [MSE25]: geometric noise of each item, without sampling."""
    spec = published_sageo_spec(target.central_epsilon, target.delta)
    return ItemDesign.of("sageo", target, shuffler=spec)


def _sbin(target: Requirements) -> ItemDesign:
    """Return the design of SBin [MSE25]: binomial noise of each item, without sampling."""
    trials = sbin_trials(target.central_epsilon, target.delta, 1.0)
    spec = ShufflerSpec(noise=BinomialNoise(trials=trials))
    return ItemDesign.of("sbin", target, shuffler=spec)


_PUBLISHED: Final[Mapping[str, Callable[[Requirements], ItemDesign]]] = {
    "sh": partial(_one_report, "sh", plain=True, hashed=False),
    "murs": partial(_one_report, "murs", plain=True, hashed=True),
    "hp-sdp": _hp_sdp,
    "ddps": _ddps,
    "aue": _aue,
    "puredump": _pure_dump,
    "mixdump": partial(_among_dummies, "mixdump"),
    "od-hp": partial(_among_dummies, "od-hp"),
    "fe1": _fe1,
    "sbin": _sbin,
    "sageo": _sageo,
}
