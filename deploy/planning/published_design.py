"""
Designs by the papers' own bounds: each theorem solved for its parameters, with its least error.

Numbers of dummies and buckets that a paper leaves open are chosen for the least error. Where a
bound cannot reach the target with any noise, the local ε is the target itself, and the note says
so. `common.accounting.published` holds the bounds; the tests put these designs into them. Pure.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from common.accounting.published import sbin_trials
from common.errors import PlanError
from common.mechanisms.base import Vector
from common.mechanisms.hashing.local_hashing import optimal_buckets
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec, ShufflerSpec
from common.task.task import MAX_LOCAL_EPSILON
from deploy.planning.design import (
    NOT_AMPLIFIED,
    USUAL_MESSAGES,
    Design,
    blanket_probability,
    check_bit,
    each_item_dummies,
    local_design,
    share_errors,
    within_caps,
)
from deploy.planning.frontier import fields
from deploy.planning.requirements import Requirements
from deploy.planning.shuffler_noise import published_sageo_spec

_PARTS: Final = np.arange(1, 20) / 20
"""Chances of a single dummy that are tried, beside whole numbers below _MAX_PARTED."""
_MAX_PARTED: Final = 20
_HASHING: Final = frozenset({"murs", "hp-sdp", "od-hp"})
_OUT_OF_REACH: Final = "its bound cannot reach the target: local epsilon is the target itself"


def published_design(protocol: str, wanted: Requirements) -> Design:
    """Return the design that a protocol's own bound asks for with n_min users, or PlanError."""
    if protocol in NOT_AMPLIFIED:
        return local_design(protocol, wanted)
    if protocol not in _PUBLISHED:
        raise PlanError(f"no paper states a bound for {protocol}")
    return within_caps(_PUBLISHED[protocol](wanted))


# --- one report a user ----------------------------------------------------------------------------


def _one_report(protocol: str, wanted: Requirements) -> Design:
    """Return SH [BBGN19] or SOLH [WDX+20] with the least error: e^ε0 = b - l + 1."""
    # B = ε²(n-1) / (14·ln(2/δ)): the largest e^ε0 + l - 1 by the closed form [BBGN19].
    blanket = wanted.central_epsilon**2 * (wanted.honest - 1) / (14 * math.log(2 / wanted.delta))
    best_error, best = math.inf, _noisy(protocol, 0.0, 0, wanted)
    for numbers, hashed in _options(wanted, plain=protocol != "hp-sdp", hashed=protocol != "sh"):
        answers = numbers[numbers < blanket]
        # A report's blanket probability is γ = l/b.
        errors = share_errors(wanted, answers, answers / blanket, np.zeros(1), hashed=hashed)
        if len(answers) and errors.min() < best_error:
            found = int(answers[int(np.argmin(errors))])
            best_error = float(errors.min())
            best = _noisy(protocol, blanket - found + 1, found if hashed else 0, wanted)
    if protocol == "hp-sdp":
        note = "; ".join(filter(None, (best.note, "SOLH's bound stands in for the paper's own")))
        return dataclasses.replace(best, note=note)
    return best


def _ddps(wanted: Requirements) -> Design:
    """e^ε0 = (2n-λ)/λ for λ coins that are random [CSUZZ19]."""
    check_bit(wanted)
    n, epsilon, log = wanted.honest, wanted.central_epsilon, math.log(4 / wanted.delta)
    if epsilon >= math.sqrt(192 * log / n):
        coins = 64 * log / epsilon**2
    else:
        coins = n - epsilon * n**1.5 / math.sqrt(432 * log)
    return _noisy("ddps", (2 * n - coins) / coins, 0, wanted)


def _noisy(protocol: str, odds: float, buckets: int, wanted: Requirements) -> Design:
    """Return a report whose truth has these odds; without a gain from shuffling, ε0 = ε."""
    note = ""
    if odds > math.exp(min(wanted.central_epsilon, MAX_LOCAL_EPSILON)):
        epsilon = min(math.log(odds), wanted.noise_cap)
    else:
        epsilon, note = min(wanted.central_epsilon, wanted.noise_cap), _OUT_OF_REACH
        hashes = protocol in _HASHING and len(fields(wanted.domain_size)) > 0
        buckets = optimal_buckets(epsilon, wanted.domain_size) if hashes else 0
    return Design(
        protocol=protocol, wanted=wanted, buckets=buckets, local_epsilon=epsilon, note=note
    )


# --- dummies of the users -------------------------------------------------------------------------


def _aue(wanted: Requirements) -> Design:
    """Each item once more with chance 200·ln(4/δ)/(ε²n) [BC20]."""
    n = wanted.honest
    chance = 200 * math.log(4 / wanted.delta) / (wanted.central_epsilon**2 * n)
    if chance >= 1:
        raise PlanError(
            f"aue's bound asks for a chance of {chance:.3g} at {n} users; it must be below 1"
        )
    dummies = each_item_dummies(math.ceil(chance * EXTRA_WEIGHT_SUM), wanted)
    return Design(protocol="aue", wanted=wanted, dummies=dummies)


def _pure_dump(wanted: Requirements) -> Design:
    """As few dummies as the bound takes; a fraction is a flexible dummy [LLF+20]."""
    needed, flexible = (_needed(wanted.domain_size, share, wanted) for share in (2, 4))
    dummies = _at_least(_fewest(needed, flexible, wanted))
    return Design(protocol="puredump", wanted=wanted, dummies=dummies)


def _fe1(wanted: Requirements) -> Design:
    """μ = 32·ln(2/δ)/ε² dummies a bucket; as many buckets as the messages allow [LWY22]."""
    density = 32 * math.log(2 / wanted.delta) / wanted.central_epsilon**2 / wanted.honest
    most = USUAL_MESSAGES if math.isinf(wanted.messages_cap) else wanted.messages_cap
    if density * wanted.domain_size <= most - 1:
        buckets = 0
    else:
        primes = fields(wanted.domain_size, wanted.most_seeds)
        primes = primes[primes * density <= most - 1]
        if not len(primes):
            raise PlanError(
                f"fe1 needs {2 * density:.3g} dummies a user even for two buckets; "
                f"the messages cap leaves {most - 1:g}"
            )
        buckets = int(primes.max())
    dummies = _at_least(density * (buckets or wanted.domain_size))
    return Design(protocol="fe1", wanted=wanted, buckets=buckets, dummies=dummies)


def _among_dummies(protocol: str, wanted: Requirements) -> Design:
    """
    Trade noise, dummies and, for OD-HP, buckets for the least error [LLF+20], [CC24, Theorem 1].

    Solves ε = √(14·l·ln(4/δ) / (|S| + x - √(2x·ln(2/δ)) - 1)), x = γ(n-1), for x, for every l and
    number of dummies at once; a part of a dummy counts for its lower tail, to which half of δ goes.
    """
    options = _options(wanted, plain=True, hashed=protocol == "od-hp")
    dummies = _numbers_of_dummies(min(float(numbers.min()) for numbers, _ in options), wanted)
    delta = np.where(dummies % 1 > 0, wanted.delta / 2, wanted.delta)
    n, others, part = wanted.honest, max(wanted.honest - 1, 1), dummies % 1
    # |S| that the bound counts on: all certain dummies, and the lower tail of the others.
    tail = n * part - np.sqrt(2 * n * part * math.log(2 / wanted.delta))
    counted = n * np.floor(dummies) + np.maximum(tail, 0)
    plain = protocol == "od-hp" and wanted.may_be_plain
    best_error, best = math.inf, _noisy(protocol, 0.0, 0, wanted)
    for numbers, hashed in options:
        answers = numbers[:, None]
        needed = 14 * answers * np.log(4 / delta) / wanted.central_epsilon**2 + 1
        sharpest = blanket_probability(answers, wanted.noise_cap) * (not plain)
        blanket = _enough(needed - counted, others * sharpest, 2 * np.log(2 / delta)) / others
        errors = share_errors(wanted, answers, blanket, dummies, hashed=hashed)
        row, column = np.unravel_index(int(np.argmin(errors)), errors.shape)
        if errors[row, column] < best_error:
            best_error = float(errors[row, column])
            gamma, l_best = float(blanket[row, column]), float(numbers[row])
            epsilon = math.log1p(l_best * (1 - gamma) / gamma) if gamma > 0 else math.inf
            best = Design(
                protocol=protocol,
                wanted=wanted,
                buckets=int(l_best) if hashed else 0,
                local_epsilon=epsilon,
                dummies=_at_least(float(dummies[column])),
            )
    return best


def _options(wanted: Requirements, *, plain: bool, hashed: bool) -> list[tuple[Vector, bool]]:
    """Return numbers of answers, and whether they are hashed; plain ones if there are no others."""
    primes = fields(wanted.domain_size, wanted.most_seeds)
    found = [(primes, True)] if hashed and len(primes) else []
    if plain or not found:
        found.append((np.array([float(wanted.domain_size)]), False))
    return found


def _needed(answers: float, share: float, wanted: Requirements) -> float:
    """14·l·ln(share/δ)/ε² + 1: the blanket reports that a bound asks for."""
    return 14 * answers * math.log(share / wanted.delta) / wanted.central_epsilon**2 + 1


def _fewest(needed: float, flexible: float, wanted: Requirements) -> float:
    """Return the fewest dummies a user: a bound counts `needed`, or `flexible` if drawn."""
    n = wanted.honest
    fixed = math.ceil(needed / n)
    whole = math.floor(flexible / n)
    # n·s - √(2n·s·ln(2/δ)) = rest, for a part s of a dummy.
    tail = 2 * math.log(2 / wanted.delta)
    rest = max(0.0, flexible - n * whole)
    part = ((math.sqrt(tail) + math.sqrt(tail + 4 * rest)) / 2) ** 2 / n
    return min(whole + part if part < 1 else math.inf, fixed)


def _at_least(dummies_per_user: float) -> DummySpec:
    """Return the distribution with this mean, the chance of a last dummy rounded up."""
    up = math.ceil(dummies_per_user % 1 * EXTRA_WEIGHT_SUM) / EXTRA_WEIGHT_SUM
    return DummySpec.averaging(math.floor(dummies_per_user) + up)


def _enough(short: Vector, least: Vector, log: Vector) -> Vector:
    """Return the least x of at least `least` for which x - √(x·log) is no less than `short`."""
    apart = np.sqrt(np.maximum(log + 4 * short, 0))
    low, high = ((np.sqrt(log) - apart) / 2) ** 2, ((np.sqrt(log) + apart) / 2) ** 2
    free = (log + 4 * short < 0) | ((short <= 0) & (least <= low))
    return np.where(free, least, np.maximum(high, least))


def _numbers_of_dummies(least_answers: float, wanted: Requirements) -> Vector:
    most = wanted.messages_cap - 1
    if math.isinf(most):
        needed = _needed(least_answers, 4, wanted)
        most = max(USUAL_MESSAGES - 1, math.ceil(needed / wanted.honest))
    whole = np.arange(1 + max(0, math.floor(most)), dtype=np.float64)
    parts = (whole[:_MAX_PARTED, None] + _PARTS).ravel()
    # Where plain items need no noise of their own.
    needed, flexible = (_needed(wanted.domain_size, share, wanted) for share in (4, 8))
    found = np.concatenate([whole, parts, [_fewest(needed, flexible, wanted)]])
    return np.unique(found[found <= most])


# --- dummies of the shuffler ----------------------------------------------------------------------


def _sbin(wanted: Requirements) -> Design:
    """Fair coins for each item, every report kept [MSE25]."""
    trials = sbin_trials(wanted.central_epsilon, wanted.delta, 1.0)
    spec = ShufflerSpec(law="binomial", trials=trials, most=trials)
    return Design(protocol="sbin", wanted=wanted, shuffler=spec)


def _sageo(wanted: Requirements) -> Design:
    """Geometric dummies for each item, every report kept [MSE25]."""
    spec = published_sageo_spec(wanted.central_epsilon, wanted.delta)
    return Design(protocol="sageo", wanted=wanted, shuffler=spec)


_PUBLISHED: Final[Mapping[str, Callable[[Requirements], Design]]] = {
    "sh": partial(_one_report, "sh"),
    "murs": partial(_one_report, "murs"),
    "hp-sdp": partial(_one_report, "hp-sdp"),
    "ddps": _ddps,
    "aue": _aue,
    "puredump": _pure_dump,
    "mixdump": partial(_among_dummies, "mixdump"),
    "od-hp": partial(_among_dummies, "od-hp"),
    "fe1": _fe1,
    "sbin": _sbin,
    "sageo": _sageo,
}
