"""
OD-HP as its paper prints it: a user's dummies reuse the seed of the user's own report.

So whoever reads the batch can put a user's messages together again. Here the printed algorithm is
run with the deployed reports and dummies, the dummies' seeds written over, and Theorem 1 [CC24] is
refuted twice: measured where few users are enough to see it, and at the paper's own size by the
exact law of one statistic, whose parts are tested against what is drawn.

All other users hold one value z. Of a group of messages under one seed, those with none in z's
bucket are suspect: few, unless it is the victim's. A counts the suspects with a message in the
bucket of x and none in that of x', B the other way round; their difference is the statistic.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from common.accounting.anonymity_set import Crowd
from common.accounting.assumptions import HONEST_SHUFFLER
from common.accounting.published import od_hp_theorem_1
from common.mechanisms.base import Vector
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.weights import ResponseWeights
from common.messages.guarantee import REPLACE_ONE
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game import play
from deploy.audit.privacy.messages import weights
from deploy.audit.significance import CONFIDENCE, TEST_LEVEL

_DELTA: Final = 1e-6
_X, _OTHER_X, _Z = 0, 1, 2
_ITEMS: Final = ("x", "x'", "z")
_THEOREM: Final = "OD-HP, Theorem 1, as printed: dummies reuse their user's seed [CC24]"
_ASSUMED: Final = (
    HONEST_SHUFFLER,
    "all users randomize and add dummies as is printed",
)
_ADVICE: Final = (
    "Nothing to change here: every dummy of this project has a fresh seed. Do not deploy the "
    "algorithm as it is printed."
)
_CLOSE: Final = 1e-3
_WINDOW: Final = 12.0
"""Standard deviations of the number of suspects within which their law is summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One choice of the printed algorithm's parameters."""

    n_users: int
    buckets: int
    local_epsilon: float
    dummies: int

    @property
    def mechanism(self) -> StringHashing:
        """Local hashing with 64-bit seeds, as in print."""
        weights = ResponseWeights.for_epsilon(self.local_epsilon)
        return StringHashing(_ITEMS, self.buckets, weights, bytes(32))

    @property
    def claim(self) -> float:
        """What Theorem 1 claims."""
        crowd = Crowd(users=self.n_users, dummies=self.n_users * self.dummies)
        return od_hp_theorem_1(self.mechanism.reduction, crowd, _DELTA)


_FEW: Final = _Setting(n_users=350, buckets=16, local_epsilon=12.0, dummies=10)
_AS_PRINTED: Final = _Setting(n_users=602_325, buckets=16, local_epsilon=8.0, dummies=4)


def play_printed(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Refute the printed theorem; the audited task plays no part in it."""
    return Outcome(findings=(_measured(audited, rng), _computed(audited, rng)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """What whoever reads messages puts together: those of one seed."""

    odds: list[Vector]
    """For each of the three values the sums of w over each group, shape (groups,)."""
    batch: NDArray[np.int64]
    """In which batch each group is."""


def _groups(setting: _Setting, held: NDArray[np.int64], rng: np.random.Generator) -> _Groups:
    """
    Draw batches as printed, and put their messages together by nothing but their seeds.

    Args:
        setting: The parameters.
        held: What users hold, shape (batches, users).
        rng: Of all draws.
    """
    mechanism = setting.mechanism
    own = mechanism.randomize(held.ravel(), rng)
    dummies = mechanism.dummies(held.size * setting.dummies, rng)
    dummies["seed"] = np.repeat(own["seed"], setting.dummies)
    messages = np.concatenate([own, dummies])
    _, first, group = np.unique(messages["seed"], return_index=True, return_inverse=True)
    user = np.concatenate([np.arange(held.size), np.repeat(np.arange(held.size), setting.dummies)])
    odds = [
        np.bincount(group, weights=weights(mechanism, messages, item)).astype(np.float64)
        for item in range(len(_ITEMS))
    ]
    return _Groups(odds=odds, batch=user[first] // held.shape[1])


def _measured(audited: Audited, rng: np.random.Generator) -> Finding:
    """Play among few users: put the groups together, and ask each for its odds."""
    setting = _FEW
    trials = max(2000, audited.effort.crowds // 1500)
    together = max(1, 10**6 // (setting.n_users * (1 + setting.dummies)))
    worlds = []
    for item in (_X, _OTHER_X):
        found = []
        for start in range(0, trials, together):
            held = np.full((min(together, trials - start), setting.n_users), _Z, dtype=np.int64)
            held[:, 0] = item
            groups = _groups(setting, held, rng)
            odds = [
                np.bincount(groups.batch, weights=groups.odds[value] / groups.odds[_Z])
                for value in (_X, _OTHER_X)
            ]
            found.append(np.log(odds[0]) - np.log(odds[1]))
        worlds.append(np.concatenate(found))
    played = play(worlds[0], worlds[1], _DELTA)
    return Finding(
        verdict="refuted" if played.epsilon_lower > setting.claim else "not refuted",
        claim_epsilon=setting.claim,
        empirical_epsilon_lower=played.epsilon_lower,
        ceiling=played.ceiling,
        confidence=CONFIDENCE,
        trials=played.trials,
        advantage=played.advantage,
        statistic="likelihood ratio of messages grouped by their seed",
        tests=1,
        roc=played.roc,
        scenario="reused-seeds",
        subject="OD-HP as printed",
        title=f"The printed dummies, {setting.n_users} users: measured",
        heading="anonymity",
        coalition="analyzer",
        delta=_DELTA,
        theorem=_THEOREM,
        neighbouring=REPLACE_ONE,
        assumptions=_ASSUMED,
        sentence="Printed as it is, the algorithm lets the analyzer put each user's messages "
        "together again, and its theorem promises more than it keeps.",
        advice=_ADVICE,
    )


def _computed(audited: Audited, rng: np.random.Generator) -> Finding:
    """Compute the δ of one statistic at the paper's own size, and test its parts."""
    setting = _AS_PRINTED
    chances = {value: _suspect(setting, value) for value in (_X, _OTHER_X, _Z)}
    n_groups = audited.effort.reports // (2 + 2 * setting.dummies)
    tests = []
    for value in (_X, _Z):
        groups = _groups(setting, np.full((1, n_groups), value, dtype=np.int64), rng)
        none = (1 + setting.dummies) * setting.mechanism.reduction.blanket * 1.0001
        hit = [each > none for each in groups.odds]
        suspects = int((hit[_X] & ~hit[_OTHER_X] & ~hit[_Z]).sum())
        tests.append(fit.of_chance(suspects, n_groups, chances[value]))
    claim = setting.claim
    proves = _proves(setting, chances)
    proven = proves(claim)
    fits = min(tests) >= TEST_LEVEL
    return Finding(
        verdict="refuted" if proven > _DELTA and fits else "not refuted",
        claim_epsilon=claim,
        exact_epsilon=_last_proven(proves, claim),
        trials=n_groups,
        confidence=CONFIDENCE,
        statistic="δ at the claimed ε of the difference of suspects, from its exact law; least p "
        f"that its parts are what is drawn: {min(tests):.2g}",
        expected=_DELTA,
        measured=proven,
        tests=len(tests),
        scenario="reused-seeds",
        subject="OD-HP as printed",
        title=f"The printed dummies, {setting.n_users:,} users: computed",
        heading="anonymity",
        coalition="analyzer",
        delta=_DELTA,
        theorem=_THEOREM,
        neighbouring=REPLACE_ONE,
        assumptions=_ASSUMED,
        sentence=f"At the size of the paper the promise is broken {proven / _DELTA:,.0f} times "
        "more often than it says.",
        advice=_ADVICE,
    )


def _suspect(setting: _Setting, value: int) -> float:
    """
    Give the chance that the group of who holds a value counts for A.

    It does if no message is in the buckets of z and of x', and one is in that of x. The buckets of
    the three are independent and uniform; x must not share its own. By inclusion and exclusion over
    the messages, own report and dummies, that avoid a set of buckets.
    """
    g, total = setting.buckets, setting.mechanism.weights.total(setting.buckets)
    p, q = setting.mechanism.weights.true / total, setting.mechanism.weights.other / total

    def avoid(*held: int, size: int) -> float:
        own = (size - 1) * q + p if value in held else size * q
        return (1 - own) * (1 - size / g) ** setting.dummies

    distinct = (1 - 1 / g) * (1 - 2 / g)
    shared = (1 - 1 / g) / g  # x' in the bucket of z, x in another
    return distinct * (avoid(_OTHER_X, _Z, size=2) - avoid(_X, _OTHER_X, _Z, size=3)) + shared * (
        avoid(_OTHER_X, _Z, size=1) - avoid(_X, _OTHER_X, _Z, size=2)
    )


def _proves(setting: _Setting, chances: dict[int, float]) -> Callable[[float], float]:
    """
    Give the δ that is proven at an ε: Σ (P(A - B = k | x) - e^ε P(A - B = k | x'))₊, without tails.

    A + B of the others is binomial, and by symmetry A given A + B is so with chance 1/2.
    """
    others, background = setting.n_users - 1, 2 * chances[_Z]
    mean = others * background
    reach = int(_WINDOW * math.sqrt(mean) + _WINDOW)
    totals = np.arange(max(0, int(mean) - reach), int(mean) + reach)
    law = np.zeros(2 * (2 * reach) + 3)
    middle = len(law) // 2
    for total, chance in zip(totals, stats.binom.pmf(totals, others, background), strict=True):
        low = max(0, (int(total) - middle + 2) // 2)
        heads = np.arange(low, int(total) - low + 1)
        law[middle + 2 * heads - total] += chance * stats.binom.pmf(heads, total, 0.5)
    up, down = np.roll(law, 1), np.roll(law, -1)
    more, less = chances[_X], chances[_OTHER_X]

    def world(plus: float, minus: float) -> Vector:
        return plus * up + minus * down + (1 - plus - minus) * law

    one, other = world(more, less), world(less, more)
    return lambda epsilon: float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


def _last_proven(proves: Callable[[float], float], least: float) -> float:
    """Give nearly the largest ε at which more than the δ of the claim is still proven."""
    low, high = least, least
    while proves(high) > _DELTA:
        low, high = high, 2 * high
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if proves(middle) > _DELTA else (low, middle)
    return low
