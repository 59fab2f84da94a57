import itertools
import math
from collections.abc import Callable

import pytest

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.reference.randomizers import (
    duchi,
    optimized_unary,
    piecewise,
    rappor,
    symmetric_unary,
    unary,
)
from common.errors import AccountingError
from common.mechanisms.reduction import MatchCountReduction
from tests.support.exhaustive_delta import true_delta
from tests.support.report_laws import duchi_law, unary_law


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.2), (0.75, 0.25), (0.9, 0.5), (0.6, 0.55)])
@pytest.mark.parametrize(
    ("items", "users", "dummies"),
    [(2, 1, 0), (2, 2, 1), (2, 4, 0), (2, 2, 2), (3, 1, 1), (3, 3, 0)],
)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_unary_encoding_is_never_below_brute_force(  # noqa: PLR0917
    p: float, q: float, items: int, users: int, dummies: int, share: float
) -> None:
    """Over all data sets of tiny instances; dummies have bits set with chance q."""
    reduction = unary(p, q)
    epsilon = share * reduction.local_epsilon
    laws = [unary_law(value, items, p, q) for value in range(items)]
    truth = true_delta(
        laws,
        users=users,
        dummies=dummies,
        dummy=unary_law(None, items, p, q),
        epsilon=epsilon,
    )

    assert (
        truth <= delta_upper(reduction, AnonymitySet(users=users, dummies=dummies), epsilon) + 1e-15
    )


@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
@pytest.mark.parametrize("users", [1, 2, 4, 6])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_duchi_is_never_below_brute_force(local_epsilon: float, users: int, share: float) -> None:
    """With inputs between the ends too."""
    laws = [duchi_law(value, local_epsilon) for value in (-1.0, -0.3, 0.6, 1.0)]
    epsilon = share * local_epsilon
    truth = true_delta(laws, users=users, dummies=0, dummy=laws[0], epsilon=epsilon)
    bound = delta_upper(duchi(local_epsilon), AnonymitySet(users=users), epsilon)

    assert truth <= bound + 1e-15
    if users == 1:
        assert bound == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [(duchi, 0.0450), (piecewise, 0.0425), (symmetric_unary, 0.0397), (optimized_unary, 0.0310)],
)
def test_the_known_figures_are_met(
    reduction: Callable[[float], MatchCountReduction], expected: float
) -> None:
    """At n = 602,325, ε0 = 4, δ = 1e-6, to .5 %, from an independent program."""
    epsilon = epsilon_upper(reduction(4.0), AnonymitySet(users=602_325), 1e-6)

    assert epsilon == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("make", [duchi, piecewise, symmetric_unary, optimized_unary])
@pytest.mark.parametrize("local_epsilon", [1e-9, 0.3, 4.0, 20.0])
def test_the_reduction_gives_its_local_epsilon(
    make: Callable[[float], MatchCountReduction], local_epsilon: float
) -> None:
    """γ + signal = 1, and the largest ratio 1 + l·signal/γ is e^ε0."""
    reduction = make(local_epsilon)

    assert reduction.blanket + reduction.signal == pytest.approx(1, abs=1e-15)
    ratio = math.log1p(reduction.answers * reduction.signal / reduction.blanket)
    assert ratio == pytest.approx(local_epsilon, rel=1e-9)
    assert local_epsilon <= reduction.local_epsilon


@pytest.mark.parametrize("local_epsilon", [0.5, 4.0])
def test_the_named_encodings_are_unary(local_epsilon: float) -> None:
    """SUE and OUE agree with p and q."""
    odds = math.exp(local_epsilon / 2)
    by_chances = {
        symmetric_unary: unary(odds / (odds + 1), 1 / (odds + 1)),
        optimized_unary: unary(0.5, 1 / (odds**2 + 1)),
    }
    for make, general in by_chances.items():
        named = make(local_epsilon)
        assert named.answers == pytest.approx(general.answers, rel=1e-12)
        assert named.blanket == pytest.approx(general.blanket, rel=1e-12)
        assert named.signal == pytest.approx(general.signal, rel=1e-12)
        assert named.local_epsilon == pytest.approx(general.local_epsilon, rel=1e-12)
        assert named.pairwise_independent
        assert general.pairwise_independent


def test_the_piecewise_mechanism_matches_its_density() -> None:
    """γ is 2C times the lower density and 1/l the share of an interval [WXY+19]."""
    local_epsilon = 1.7
    odds = math.exp(local_epsilon / 2)
    half_width = (odds + 1) / (odds - 1)
    low_density = (1 / (odds + 1)) / (half_width + 1)
    reduction = piecewise(local_epsilon)

    assert reduction.blanket == pytest.approx(2 * half_width * low_density, rel=1e-12)
    assert reduction.answers == pytest.approx(2 * half_width / (half_width - 1), rel=1e-12)
    ends = {x: (half_width + 1) / 2 * x - (half_width - 1) / 2 for x in (-1, 1)}
    assert ends[-1] + half_width - 1 < ends[1]


@pytest.mark.parametrize(
    ("p", "q"),
    [
        pair
        for pair in itertools.product([-0.1, 0.0, 0.4, 1.1, math.nan], repeat=2)
        if pair != (0.4, 0.0)
    ],
)
def test_invalid_chances_are_refused(p: float, q: float) -> None:
    """0 < q < p ≤ 1."""
    with pytest.raises(AccountingError, match="a bit is set with"):
        unary(p, q)


@pytest.mark.parametrize("make", [duchi, piecewise, symmetric_unary, optimized_unary])
@pytest.mark.parametrize("local_epsilon", [0.0, -1.0, math.inf, math.nan, 60.0])
def test_local_epsilon_has_a_range(
    make: Callable[[float], MatchCountReduction], local_epsilon: float
) -> None:
    """Finite, so that l stays below 10^9."""
    with pytest.raises(AccountingError, match="local epsilon is"):
        make(local_epsilon)


def test_rare_bits_are_refused() -> None:
    """L = 1/q is limited."""
    with pytest.raises(AccountingError, match="at most 1000000000"):
        unary(0.5, 1e-10)
    with pytest.raises(AccountingError, match="f, p, q are"):
        rappor(1.0, 0.2, 0.7)
