"""Inputs that every function of the accountant refuses."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.accounting.amplification import delta_upper, epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.composition import composed_claims, composed_epsilon
from shuffledp.common.accounting.count_distributions import (
    Binomial,
    Conditioned,
    Groups,
    NegativeBinomial,
)
from shuffledp.common.accounting.hybrid_noise import HybridRelease
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.published import BoundSetting, aue, balle_closed_form, sageo, sbin
from shuffledp.common.accounting.releases import AmplifiedRelease, LocalRelease
from shuffledp.common.errors import AccountingError
from shuffledp.common.task.shuffler_spec import (
    KEEP_SUM,
    BinomialNoise,
    GeometricNoise,
    ShufflerSpec,
)
from shuffledp.lab.accountant.query import Poisson
from shuffledp.lab.bounds.attack import epsilon_lower
from shuffledp.lab.bounds.general_blanket import (
    BlanketPair,
    blanket_delta,
    laplace_pair,
    rappor_pair,
)
from shuffledp.lab.bounds.other_bounds import (
    VariationRatio,
    clones_epsilon,
    clones_of_2021,
    clones_of_2023,
    compare,
)
from shuffledp.lab.bounds.randomizers import (
    duchi,
    optimized_unary,
    piecewise,
    rappor_probabilities,
    symmetric_unary,
)
from tests.support.reductions import of_grr, reduction_for
from tests.support.reference_bounds import unary
from tests.support.tables import table

_GRR: Final = of_grr(4, 2.0)
_BARE: Final = of_grr(4, math.inf)
_USERS: Final = AnonymitySet(users=10)
_COINS: Final = Binomial(5, 0.5)
_HALF: Final = np.full(2, 0.5)
_ONES: Final = np.ones(2)
_GEOMETRIC: Final = ShufflerSpec(
    noise=GeometricNoise(peak=1, left_weight=2**29, right_weight=2**29, most=3)
)


def _setting(delta: float = 1e-6, **changes: Any) -> BoundSetting:
    return BoundSetting(**{"reduction": _GRR, "anonymity_set": _USERS, "delta": delta, **changes})


_OF_DELTA: Final[list[Callable[[float], object]]] = [
    lambda delta: epsilon_upper(_GRR, _USERS, delta),
    lambda delta: epsilon_lower(_GRR, _USERS, delta),
    lambda delta: clones_epsilon(clones_of_2021, _setting(delta)),
    lambda delta: composed_epsilon([LocalRelease(local_epsilon=1.0)] * 2, delta),
    lambda delta: composed_claims([(0.1, 0.0)] * 2, delta),
    lambda delta: compare(_GRR, _USERS, delta),
    lambda delta: balle_closed_form(_setting(delta)),
    lambda delta: aue(_setting(delta)),
    lambda delta: sbin(_setting(delta, shuffler=ShufflerSpec(noise=BinomialNoise(trials=100)))),
    lambda delta: sageo(_setting(delta, shuffler=_GEOMETRIC)),
]


@table("delta", [0.0, 1.0, -0.1, math.nan])
@table("call", _OF_DELTA)
def test_delta_lies_strictly_between_0_and_1(call: Callable[[float], object], delta: float) -> None:
    """And is at least 1e-15, or 1e-12 for several releases."""
    with pytest.raises(AccountingError, match="delta is"):
        call(delta)
    if _OF_DELTA.index(call) in range(5):
        with pytest.raises(AccountingError, match="delta is"):
            call(1e-16)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_epsilon_is_at_least_0(epsilon: float) -> None:
    """In every function of ε."""
    with pytest.raises(AccountingError, match="epsilon is"):
        delta_upper(_GRR, _USERS, epsilon)
    with pytest.raises(AccountingError, match="epsilon is"):
        blanket_delta(laplace_pair(1.0), _USERS, epsilon)
    with pytest.raises(AccountingError, match="epsilon is"):
        ItemNoiseRelease(noise=_COINS).delta(epsilon)


@table("make", [duchi, piecewise, symmetric_unary, optimized_unary])
@table("local_epsilon", [0.0, -1.0, math.inf, math.nan, 60.0])
def test_described_randomizers_have_a_finite_local_epsilon(
    make: Callable[[float], object], local_epsilon: float
) -> None:
    """So that l stays below 10^9."""
    with pytest.raises(AccountingError, match="local epsilon is"):
        make(local_epsilon)


@table(
    ("call", "message"),
    [
        (lambda: AnonymitySet(users=0), "users is 0"),
        (lambda: AnonymitySet(users=5, dummies=-1), "dummies is -1"),
        (lambda: AnonymitySet(users=5, colluders=5), "5 colluders among 5 users"),
        (lambda: AnonymitySet(users=10**9 + 1), "users is 1000000001"),
        (lambda: Binomial(-1, 0.5), "trials is -1"),
        (lambda: Binomial(5, 1.5), "the probability is 1.5"),
        (lambda: Poisson(-0.1), "the mean is -0.1"),
        (lambda: NegativeBinomial(0.0, 3.0), "r is 0.0"),
        (lambda: Groups(Poisson(1.0), 0), "the group size is 0"),
        (lambda: Conditioned(_COINS, -0.1), "missing is"),
        (lambda: Conditioned(_COINS, 1.0), "missing is"),
        (lambda: Conditioned(_COINS, math.nan), "missing is"),
        (lambda: ItemNoiseRelease(noise=_COINS, keep_probability=0.0), "keep_probability is"),
        (lambda: ItemNoiseRelease(noise=_COINS, keep_probability=1.1), "keep_probability is"),
        (lambda: ItemNoiseRelease(noise=_COINS, missing=-0.1), "missing is"),
        (lambda: ItemNoiseRelease(noise=_COINS, missing=1.1), "missing is"),
        (lambda: composed_epsilon([], 1e-6), "no release"),
        (lambda: composed_claims([], 1e-6), "no claim"),
        (lambda: composed_claims([(-0.1, 0.0), (0.1, 0.0)], 1e-6), "is invalid"),
        (lambda: composed_claims([(0.1, 1.5), (0.1, 0.0)], 1e-6), "is invalid"),
        (lambda: composed_claims([(math.nan, 0.0), (0.1, 0.0)], 1e-6), "is invalid"),
        (lambda: clones_epsilon(clones_of_2021, _setting(reduction=_BARE)), "finite local ε"),
        (lambda: clones_epsilon(clones_of_2023, _setting(reduction=_BARE)), "finite local ε"),
        (lambda: VariationRatio.of(_BARE), "finite local ε"),
        (lambda: VariationRatio(odds=1.0, variation=0.1), "odds p are 1.0"),
        (lambda: VariationRatio(odds=math.inf, variation=0.1), "odds p are inf"),
        (lambda: VariationRatio(odds=3.0, variation=0.6), "total variation is 0.6"),
        (lambda: VariationRatio(odds=3.0, variation=0.0), "total variation is 0.0"),
        (lambda: unary(0.5, 1e-10), "at most 1000000000"),
        (lambda: rappor_probabilities(1.0, 0.2, 0.7), "f, p, q are"),
        (lambda: rappor_pair(0.5, 0.25, 0.75, hashes=0), "hashes is 0"),
        (lambda: rappor_pair(0.5, 0.25, 0.75, hashes=17), "hashes is 17"),
        (lambda: rappor_pair(0.0, 0.0, 1.0, hashes=2), "without noise"),
        (lambda: laplace_pair(0.0), "local epsilon is 0.0"),
        (lambda: laplace_pair(21.0), "local epsilon is 21.0"),
        (lambda: _pair(_HALF * 0.8, _ONES * 1.25, _ONES * 1.25), "the probabilities of U"),
        (lambda: _pair(_HALF, _ONES * 1.1, _ONES), "the probabilities of R_x "),
        (lambda: _pair(_HALF, _ONES, _ONES * 0.9), "the probabilities of R_x'"),
        (lambda: _hybrid(_GEOMETRIC, hashing=True), "hybrid"),
        (lambda: _hybrid(replace(_GEOMETRIC, keep_weight=KEEP_SUM // 2)), "hybrid"),
        (lambda: _hybrid(ShufflerSpec()), "hybrid"),
    ],
)
def test_invalid_inputs_are_refused(call: Callable[[], object], message: str) -> None:
    """The message names the number."""
    with pytest.raises(AccountingError, match=message):
        call()


def _pair(chances: Any, first: Any, second: Any) -> BlanketPair:
    return BlanketPair(blanket=0.5, local_epsilon=1.0, chances=chances, first=first, second=second)


def _hybrid(spec: ShufflerSpec, *, hashing: bool = False) -> HybridRelease:
    reduction = reduction_for(5, 2.0, hashing=hashing)
    amplified = AmplifiedRelease(reduction=reduction, anonymity_set=_USERS)
    return HybridRelease(amplified=amplified, shuffler=spec)
