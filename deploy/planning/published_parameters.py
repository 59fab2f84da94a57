"""
Parameters by the papers' own bounds: each theorem turned round, for its least error.

What a paper leaves open (how many dummies, into how many buckets) is chosen for the least error
that its bound allows. Where a bound cannot reach the target with any noise, reports are made as
private by themselves as the target is, and the note says so. `common.accounting.published` holds
the bounds; the tests put what comes out of here into them. Pure.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from common.errors import PlanError
from common.mechanisms.base import Vector
from common.mechanisms.hashing.local_hashing import optimal_buckets
from common.mechanisms.support import bernoulli_variance
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from common.task.shuffler_spec import ShufflerSpec
from common.task.task import MAX_LOCAL_EPSILON
from deploy.planning.frontier import fields
from deploy.planning.noise_calibration import (
    sageo_spec_published,
    sbin_trials_published,
)
from deploy.planning.parameters import (
    LOCAL,
    USUAL_MESSAGES,
    Parameters,
    each_item,
    local_parameters,
    within_caps,
)
from deploy.planning.requirements import Wishes

_PARTS: Final = np.arange(1, 20) / 20
"""Chances of a single dummy that are tried, beside whole numbers below _MOST_PARTED."""
_MOST_PARTED: Final = 20
_HASHING: Final = frozenset({"murs", "hp-sdp", "od-hp"})
_OUT_OF_REACH: Final = "its bound cannot reach the target: local epsilon is the target itself"


def published_parameters(protocol: str, wishes: Wishes) -> Parameters:
    """
    Give what a protocol's own bound asks for, at n_min honest users.

    Raises:
        PlanError: The paper has no answer: the protocol has no bound, or it asks for more than
            there can be.
    """
    if protocol in LOCAL:
        return local_parameters(protocol, wishes)
    if protocol not in _PUBLISHED:
        raise PlanError(f"no paper states a bound for {protocol}")
    return within_caps(_PUBLISHED[protocol](wishes), wishes)


def _blanket_of(wishes: Wishes) -> float:
    """B = ε²(n-1) / (14·ln(2/δ)): what e^ε0 + l - 1 may be by the closed form [BBGN19]."""
    return wishes.central_epsilon**2 * (wishes.honest - 1) / (14 * math.log(2 / wishes.delta))


def _sh(wishes: Wishes) -> Parameters:
    """e^ε0 = b - k + 1 [BBGN19]."""
    odds = _blanket_of(wishes) - wishes.domain_size + 1
    return _noisy("sh", odds, 0, wishes)


def _murs(wishes: Wishes) -> Parameters:
    """The better of SOLH, near g = (b+2)/3, and SH [WDX+20]."""
    plain = _blanket_of(wishes) - wishes.domain_size + 1
    hashed = _solh("murs", wishes)
    if plain <= 1 or not hashed.buckets:
        return hashed
    errors = [
        _single_message_error(_blanket_of(wishes), answers, hashed=is_hashed, wishes=wishes)
        for answers, is_hashed in ((hashed.buckets, True), (wishes.domain_size, False))
    ]
    return hashed if errors[0] <= errors[1] else _noisy("murs", plain, 0, wishes)


def _hp_sdp(wishes: Wishes) -> Parameters:
    """SOLH's: the paper's own bound is not to be had."""
    found = _solh("hp-sdp", wishes)
    note = "; ".join(filter(None, (found.note, "SOLH's bound stands in for the paper's own")))
    return Parameters(
        protocol="hp-sdp", local_epsilon=found.local_epsilon, buckets=found.buckets, note=note
    )


def _solh(protocol: str, wishes: Wishes) -> Parameters:
    """Hash into the prime with the least error; e^ε0 = b - g + 1."""
    blanket, primes = _blanket_of(wishes), fields(wishes.domain_size, wishes.most_seeds)
    if not len(primes):  # too few items to hash
        return _noisy(protocol, blanket - wishes.domain_size + 1, 0, wishes)
    primes = primes[primes < blanket]
    if not len(primes):
        return _noisy(protocol, 0.0, 0, wishes)
    errors = [
        _single_message_error(blanket, int(g), hashed=True, wishes=wishes) for g in primes.tolist()
    ]
    best = int(primes[int(np.argmin(errors))])
    return _noisy(protocol, blanket - best + 1, best, wishes)


def _single_message_error(blanket: float, answers: int, *, hashed: bool, wishes: Wishes) -> float:
    """Error of a report a user if e^ε0 + l - 1 = b."""
    p, other = (blanket - answers + 1) / blanket, 1 / blanket
    return float(
        bernoulli_variance(
            1 / wishes.domain_size,
            n_real=wishes.n_users,
            n_dummies=0,
            p=p,
            q=1 / answers if hashed else other,
            q_dummy=0.0,
        )
    )


def _noisy(protocol: str, odds: float, buckets: int, wishes: Wishes) -> Parameters:
    """Give a report whose truth has these odds, or what needs no shuffler if they are none."""
    if odds > math.exp(min(wishes.central_epsilon, MAX_LOCAL_EPSILON)):
        return Parameters(
            protocol=protocol,
            local_epsilon=min(math.log(odds), wishes.noise_cap),
            buckets=buckets,
        )
    epsilon = min(wishes.central_epsilon, wishes.noise_cap)
    hashes = protocol in _HASHING and len(fields(wishes.domain_size)) > 0
    return Parameters(
        protocol=protocol,
        local_epsilon=epsilon,
        buckets=optimal_buckets(epsilon, wishes.domain_size) if hashes else 0,
        note=_OUT_OF_REACH,
    )


def _ddps(wishes: Wishes) -> Parameters:
    """λ = 64·ln(4/δ)/ε², or n - ε·n^1.5/√(432·ln(4/δ)) at small ε; q = λ/2n [CSUZZ19]."""
    if wishes.domain_size != 2:  # noqa: PLR2004  # a bit
        raise PlanError(f"ddps collects a bit; the domain size is {wishes.domain_size}")
    n, epsilon, log = wishes.honest, wishes.central_epsilon, math.log(4 / wishes.delta)
    if epsilon >= math.sqrt(192 * log / n):
        coins = 64 * log / epsilon**2
    else:
        coins = n - epsilon * n**1.5 / math.sqrt(432 * log)
    return _noisy("ddps", (2 * n - coins) / coins, 0, wishes)


def _aue(wishes: Wishes) -> Parameters:
    """Each item once more with chance 200·ln(4/δ)/(ε²n) [BC20]."""
    n = wishes.honest
    chance = 200 * math.log(4 / wishes.delta) / (wishes.central_epsilon**2 * n)
    if chance >= 1:
        raise PlanError(
            f"aue's bound asks for a chance of {chance:.3g} at {n} users; it must be below 1"
        )
    return Parameters(
        protocol="aue",
        local_epsilon=math.inf,
        dummies=each_item(math.ceil(chance * EXTRA_WEIGHT_SUM), wishes),
    )


def _pure_dump(wishes: Wishes) -> Parameters:
    """As few dummies as the bound takes; a fraction is a flexible dummy [LLF+20]."""
    needed = 14 * wishes.domain_size * math.log(2 / wishes.delta) / wishes.central_epsilon**2 + 1
    flexible = 14 * wishes.domain_size * math.log(4 / wishes.delta) / wishes.central_epsilon**2 + 1
    return Parameters(
        protocol="puredump",
        local_epsilon=math.inf,
        dummies=_at_least(_fewest(needed, flexible, wishes)),
    )


def _fewest(needed: float, flexible: float, wishes: Wishes) -> float:
    """Give the fewest dummies a user of which a bound counts `needed`, or `flexible` if drawn."""
    n = wishes.honest
    fixed = math.ceil(needed / n)
    whole = math.floor(flexible / n)
    # n·s - √(2n·s·ln(2/δ)) = rest, for a part s of a dummy.
    tail = 2 * math.log(2 / wishes.delta)
    rest = max(0.0, flexible - n * whole)
    part = ((math.sqrt(tail) + math.sqrt(tail + 4 * rest)) / 2) ** 2 / n
    return min(whole + part if part < 1 else math.inf, fixed)


def _at_least(dummies_per_user: float) -> DummySpec:
    """Give the law with this mean, the chance of a last one rounded up."""
    up = math.ceil(dummies_per_user % 1 * EXTRA_WEIGHT_SUM) / EXTRA_WEIGHT_SUM
    return DummySpec.averaging(math.floor(dummies_per_user) + up)


def _mix_dump(wishes: Wishes) -> Parameters:
    """Randomized response and dummies, traded for the least error [LLF+20]."""
    found = _among_dummies("mixdump", [_Way.plain(wishes)], wishes)
    return _noisy("mixdump", 0.0, 0, wishes) if found is None else found


def _od_hp(wishes: Wishes) -> Parameters:
    """Buckets, local noise and dummies, traded for the least error by Theorem 1 [CC24]."""
    ways = [_Way.plain(wishes)]
    primes = fields(wishes.domain_size, wishes.most_seeds)
    if len(primes):
        ways.append(_Way(answers=primes, hashed=True))
    found = _among_dummies("od-hp", ways, wishes)
    return _noisy("od-hp", 0.0, 0, wishes) if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Plain items, or hashing into one of many numbers of buckets."""

    answers: Vector
    hashed: bool

    @classmethod
    def plain(cls, wishes: Wishes) -> "_Way":
        return cls(answers=np.array([float(wishes.domain_size)]), hashed=False)


def _among_dummies(protocol: str, ways: Sequence[_Way], wishes: Wishes) -> Parameters | None:
    """
    Turn ε = √(14·l·ln(4/δ) / (|S| + x - √(2x·ln(2/δ)) - 1)), x = γ(n-1), round for x.

    Tried for every l and number of dummies at once; a part of a dummy counts for its lower tail,
    to which half of δ goes. Without a cap there are USUAL_MESSAGES, or as many as it takes.
    """
    dummies = _numbers_of_dummies(ways, wishes)
    delta = np.where(dummies % 1 > 0, wishes.delta / 2, wishes.delta)
    others = max(wishes.honest - 1, 1)
    best: tuple[float, Parameters] | None = None
    for way in ways:
        answers = way.answers[:, None]
        needed = 14 * answers * np.log(4 / delta) / wishes.central_epsilon**2 + 1
        short = needed - _counted(dummies, wishes)
        least = others * _sharpest(answers, protocol, wishes)
        blanket = _enough(short, least, 2 * np.log(2 / delta)) / others
        errors = _errors(answers, blanket, dummies, wishes, hashed=way.hashed)
        row, column = np.unravel_index(int(np.argmin(errors)), errors.shape)
        error = float(errors[row, column])
        if math.isfinite(error) and (best is None or error < best[0]):
            gamma, l_best = float(blanket[row, column]), float(way.answers[row])
            best = (
                error,
                Parameters(
                    protocol=protocol,
                    local_epsilon=math.log1p(l_best * (1 - gamma) / gamma)
                    if gamma > 0
                    else math.inf,
                    buckets=int(l_best) if way.hashed else 0,
                    dummies=_at_least(float(dummies[column])),
                ),
            )
    return None if best is None else best[1]


def _enough(short: Vector, least: Vector, log: Vector) -> Vector:
    """
    Give the least x of at least `least` for which x - √(x·log) is no less than `short`.

    A few reports of a blanket count for less than none: between two roots there are too few.
    """
    apart = np.sqrt(np.maximum(log + 4 * short, 0))
    low, high = ((np.sqrt(log) - apart) / 2) ** 2, ((np.sqrt(log) + apart) / 2) ** 2
    free = (log + 4 * short < 0) | ((short <= 0) & (least <= low))
    return np.where(free, least, np.maximum(high, least))


def _numbers_of_dummies(ways: Sequence[_Way], wishes: Wishes) -> Vector:
    most = wishes.messages_cap - 1
    if math.isinf(most):
        least = min(float(way.answers.min()) for way in ways)
        needed = 14 * least * math.log(4 / wishes.delta) / wishes.central_epsilon**2 + 1
        most = max(USUAL_MESSAGES - 1, math.ceil(needed / wishes.honest))
    whole = np.arange(1 + max(0, math.floor(most)), dtype=np.float64)
    parts = (whole[:_MOST_PARTED, None] + _PARTS).ravel()
    # Where plain items need no noise of their own.
    needed, flexible = (
        14 * wishes.domain_size * math.log(share / wishes.delta) / wishes.central_epsilon**2 + 1
        for share in (4, 8)
    )
    found = np.concatenate([whole, parts, [_fewest(needed, flexible, wishes)]])
    return np.unique(found[found <= most])


def _errors(
    answers: Vector, blanket: Vector, dummies: Vector, wishes: Wishes, *, hashed: bool
) -> Vector:
    """Predict the error of each design; infinite where reports would say nothing."""
    other = blanket / answers
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = bernoulli_variance(
            1 / wishes.domain_size,
            n_real=wishes.n_users,
            n_dummies=wishes.n_users * dummies,
            p=1 - blanket + other,
            q=1 / answers if hashed else other,
            q_dummy=1 / answers,
        )
    return np.where(blanket < 1, errors, math.inf)


def _sharpest(answers: Vector, protocol: str, wishes: Wishes) -> Vector:
    """The least γ that the cap on the local ε leaves; 0 where reports may be plain."""
    if protocol == "od-hp" and wishes.may_be_plain:
        return np.zeros_like(answers)
    inverse = math.exp(-wishes.noise_cap)
    return np.asarray(answers * inverse / (1 + (answers - 1) * inverse))


def _counted(dummies: Vector, wishes: Wishes) -> Vector:
    """|S| that a bound may count on: all certain dummies, and the lower tail of the others."""
    n, part = wishes.honest, dummies % 1
    tail = n * part - np.sqrt(2 * n * part * math.log(2 / wishes.delta))
    return np.asarray(n * np.floor(dummies) + np.maximum(tail, 0))


def _fe1(wishes: Wishes) -> Parameters:
    """μ = 32·ln(2/δ)/ε² dummies a bucket; as many buckets as the messages allow [LWY22]."""
    density = 32 * math.log(2 / wishes.delta) / wishes.central_epsilon**2 / wishes.honest
    most = USUAL_MESSAGES if math.isinf(wishes.messages_cap) else wishes.messages_cap
    if density * wishes.domain_size <= most - 1:
        buckets, answers = 0, wishes.domain_size
    else:
        primes = fields(wishes.domain_size, wishes.most_seeds)
        primes = primes[primes * density <= most - 1]
        if not len(primes):
            raise PlanError(
                f"fe1 needs {2 * density:.3g} dummies a user even for two buckets; "
                f"the messages cap leaves {most - 1:g}"
            )
        buckets = answers = int(primes.max())
    return Parameters(
        protocol="fe1",
        local_epsilon=math.inf,
        buckets=buckets,
        dummies=_at_least(density * answers),
    )


def _sbin(wishes: Wishes) -> Parameters:
    """Fair coins for each item, every report kept [MSE25]."""
    trials = sbin_trials_published(wishes.central_epsilon, wishes.delta, 1.0)
    spec = ShufflerSpec(law="binomial", trials=trials, most=trials)
    return Parameters(protocol="sbin", local_epsilon=math.inf, shuffler=spec)


def _sageo(wishes: Wishes) -> Parameters:
    """Geometric dummies for each item, every report kept [MSE25]."""
    spec = sageo_spec_published(wishes.central_epsilon, wishes.delta, 1.0)
    return Parameters(protocol="sageo", local_epsilon=math.inf, shuffler=spec)


_PUBLISHED: Final[Mapping[str, Callable[[Wishes], Parameters]]] = MappingProxyType(
    {
        "sh": _sh,
        "murs": _murs,
        "hp-sdp": _hp_sdp,
        "ddps": _ddps,
        "aue": _aue,
        "puredump": _pure_dump,
        "mixdump": _mix_dump,
        "od-hp": _od_hp,
        "fe1": _fe1,
        "sbin": _sbin,
        "sageo": _sageo,
    }
)
