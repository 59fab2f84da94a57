"""Attacks: lower bounds that are never above brute force, and close to formula 1."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from shuffledp.common.accounting.amplification import delta_upper, epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.conditional import ConditionalDelta, grid_for
from shuffledp.common.accounting.count_distributions import Binomial, Conditioned, Groups
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.accounting.two_items import amplified
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.lab.accountant.query import Poisson
from shuffledp.lab.bounds.attack import epsilon_lower, epsilon_of_rounds
from tests.support.reductions import reduction_for
from tests.support.reference_bounds import delta_lower

_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("answers", "local_epsilon", "hashed", "users", "dummies", "gap"),
    [
        pytest.param(100, 6.0, False, 50_000, 0, 1e-3, marks=_SLOW),
        pytest.param(8, 3.0, False, 50_000, 0, 1e-3, marks=_SLOW),
        pytest.param(20, 8.0, False, 20_000, 20_000, 1e-3, marks=_SLOW),
        pytest.param(3, 0.5, True, 50_000, 0, 3e-3, marks=_SLOW),
        pytest.param(5, 1.0, True, 1000, 0, 3e-3, marks=_SLOW),
        pytest.param(3, 6.0, True, 1000, 1000, 6e-3, marks=_SLOW),
        (53, 8.0, True, 1000, 1000, 2e-2),
        (2, 3.0, False, 20_000, 20_000, 2.5e-3),
        (2, 5.0, False, 2000, 0, 2.5e-3),
        (2, 6.0, False, 3000, 0, 2.5e-3),
        (2, 8.0, False, 10**6, 0, 2.5e-3),
        pytest.param(8, 2.0, True, 50_000, 0, 2e-3, marks=_SLOW),
        pytest.param(53, 4.0, True, 50_000, 0, 1e-3, marks=_SLOW),
    ],
)
def test_the_gap_to_the_upper_bound_is_known(
    answers: int, local_epsilon: float, users: int, dummies: int, gap: float, *, hashed: bool
) -> None:
    """.1 % for GRR and .25 % over two items; for hashing at most .3 %, or 2 % with dummies."""
    reduction = reduction_for(answers, local_epsilon, hashing=hashed)
    anonymity_set = AnonymitySet(users=users, dummies=dummies)
    upper = amplified(reduction, anonymity_set).epsilon(1e-6)

    assert (1 - gap) * upper <= epsilon_lower(reduction, anonymity_set, 1e-6) <= upper


@pytest.mark.parametrize(
    "anonymity_set",
    [
        pytest.param(AnonymitySet(users=3000, random_dummies=Binomial(3000, 0.5)), marks=_SLOW),
        AnonymitySet(users=3000, dummies=1000, random_dummies=Poisson(500.0)),
        AnonymitySet(users=3000, dummies=1000, known_dummies=400),
        pytest.param(
            AnonymitySet(users=3000, random_dummies=Groups(Binomial(3000, 0.5), 2)), marks=_SLOW
        ),
        AnonymitySet(users=3000, colluders=2000),
        AnonymitySet(users=3000, random_dummies=Binomial(8, 0.1), known_dummies=6),
    ],
    ids=str,
)
def test_attacks_stay_below_formula_1(anonymity_set: AnonymitySet) -> None:
    """With random, known and grouped dummies, and close to it where an attack is known."""
    reduction = reduction_for(30, 5.0, hashing=True)
    upper = delta_upper(reduction, anonymity_set, 0.3)
    lower = delta_lower(reduction, anonymity_set, 0.3)

    assert 0 <= lower <= upper
    if not isinstance(anonymity_set.random_dummies, Groups):
        assert lower > 0.6 * upper


@pytest.mark.slow
def test_attacks_on_large_batches_stay_below_the_bound() -> None:
    """That for the items, with Fourier transforms, and δ far below their rounding."""
    for answers in (2, 20):
        reduction = reduction_for(answers, 1.0, hashing=False)
        anonymity_set = AnonymitySet(users=10**6, dummies=10**6)
        for epsilon in (0.001, 0.003, 0.005, 0.1):
            proven = delta_lower(reduction, anonymity_set, epsilon)
            assert proven <= amplified(reduction, anonymity_set).delta(epsilon)


@pytest.mark.slow
def test_bins_of_messages_give_a_lower_bound() -> None:
    """At most the sum over every number of messages, and close to it."""
    reduction = replace(reduction_for(20, 4.0, hashing=True), third_value="independent")
    anonymity_set, epsilon = AnonymitySet(users=50_000), 0.15
    others = Binomial(anonymity_set.others, reduction.blanket * (1 - 1 / 20))
    mean = anonymity_set.others * others.chance
    sizes = np.arange(math.floor(mean - 9 * mean**0.5), math.ceil(mean + 9 * mean**0.5))
    with_victim = others.probabilities(sizes - 1.0) * (1 - 1 / 20)
    total = with_victim + others.probabilities(sizes.astype(float)) / 20
    grid = grid_for(reduction, round(mean), epsilon, 1e-4)
    each = ConditionalDelta(reduction, sizes.astype(float), grid, with_victim / total)
    exact = float(total @ each(epsilon))

    assert 0.985 * exact <= delta_lower(reduction, anonymity_set, epsilon) <= exact


def _exact_on_a_line(buckets: int, local_epsilon: float, users: int, epsilon: float) -> float:
    """
    Return the exact δ if all others hold z, on a line with x and x', over all counts of messages.

    Relative to z's distribution, a message for x alone is e^ε0 times as likely under x, one for z
    alone is so much less likely under x and x', and any other is as likely.
    """
    p = math.exp(local_epsilon) / (math.exp(local_epsilon) + buckets - 1)
    ratio, alone = math.exp(local_epsilon), 1 - 1 / buckets
    x, other, z = np.ogrid[: users + 1, : users + 1, : users + 1]
    rest = users - x - other - z
    masses = [p / ratio * alone, p / ratio * alone, p * alone]
    counts = [*zip((x, other, z), masses, strict=True), (rest, 1 - sum(masses))]
    logs = sum(special.xlogy(n, mass) - special.gammaln(n + 1) for n, mass in counts)
    weights = np.where(rest >= 0, np.exp(special.gammaln(users + 1) + logs), 0.0)
    neutral = users - (1 - 1 / ratio) * z
    one, two = ((neutral + (ratio - 1) * own) / users for own in (x, other))
    return float((weights * np.maximum(one - math.exp(epsilon) * two, 0)).sum())


@pytest.mark.parametrize(
    ("buckets", "local_epsilon", "epsilon"), [(3, 1.0, 0.3), (5, 3.0, 1.2), (11, 2.0, 0.5)]
)
def test_on_a_line_the_attack_proves_nearly_the_exact_delta(
    buckets: int, local_epsilon: float, epsilon: float
) -> None:
    """That of the worst data set of hashing, summed without any formula of the accountant."""
    reduction = reduction_for(buckets, local_epsilon, hashing=True)
    anonymity_set = AnonymitySet(users=120)
    exact = _exact_on_a_line(buckets, local_epsilon, 120, epsilon)

    assert 0.93 * exact <= delta_lower(reduction, anonymity_set, epsilon) <= exact
    assert exact <= delta_upper(reduction, anonymity_set, epsilon)


def test_more_collisions_than_chance_allow_no_attack() -> None:
    """Nothing is known of a third value."""
    reduction = MatchCountReduction.for_epsilon(
        answers=8, local_epsilon=3.0, hashed=True, collision=0.4
    )

    assert 0.0 == delta_lower(reduction, AnonymitySet(users=300), 0.3)


@pytest.mark.slow
@pytest.mark.parametrize(("answers", "hashed"), [(7, True), (7, False), (3, False), (4, False)])
def test_rounds_prove_almost_the_composed_claim(answers: int, *, hashed: bool) -> None:
    """One round as the attack on it, ten as the composed claim; with few values too."""
    reduction = reduction_for(answers, 2.0, hashing=hashed)
    for anonymity_set in (AnonymitySet(users=1000), AnonymitySet(users=1001, dummies=5000)):
        one = epsilon_of_rounds(reduction, anonymity_set, 1, 1e-6)
        claim = composed_epsilon(
            [AmplifiedRelease(reduction=reduction, anonymity_set=anonymity_set)] * 10, 1e-6
        )

        assert 0.85 * epsilon_lower(reduction, anonymity_set, 1e-6) < one
        assert one <= epsilon_upper(reduction, anonymity_set, 1e-6)
        assert 0.8 * claim < epsilon_of_rounds(reduction, anonymity_set, 10, 1e-6) <= claim


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, 10, 100])
def test_rounds_without_local_noise_are_computed(rounds: int) -> None:
    """An unbounded ratio of two probabilities is not raised to a power."""
    reduction = reduction_for(20, math.inf, hashing=False)
    anonymity_set = AnonymitySet(users=150, dummies=450)
    claim = composed_epsilon(
        [AmplifiedRelease(reduction=reduction, anonymity_set=anonymity_set)] * rounds, 0.01
    )

    assert 0 < epsilon_of_rounds(reduction, anonymity_set, rounds, 0.01) <= claim


def test_conditioning_dummies_weakens_an_attack_by_its_probability() -> None:
    """By (e^ε + 1)·missing."""
    reduction, dummies = reduction_for(7, 2.0, hashing=True), Binomial(600, 0.5)
    plain = delta_lower(reduction, AnonymitySet(users=300, random_dummies=dummies), 0.1)
    conditioned = AnonymitySet(users=300, random_dummies=Conditioned(dummies, 1e-3))

    expected = plain - (math.exp(0.1) + 1) * 1e-3
    assert 0 < expected == pytest.approx(delta_lower(reduction, conditioned, 0.1))


def test_one_round_of_one_user_proves_the_exact_epsilon() -> None:
    """A report supports x alone or x' alone with two probabilities: δ = plus - e^ε·minus."""
    reduction = reduction_for(7, 2.0, hashing=True)
    p = reduction.blanket / 7 + reduction.signal
    plus, minus = p * 6 / 7, (1 - p) / 7
    proven = epsilon_of_rounds(reduction, AnonymitySet(users=1), 1, 0.01)

    assert proven == pytest.approx(math.log((plus - 0.01) / minus), rel=1e-3)


def test_rounds_need_a_third_value() -> None:
    """Of two values none can be dropped."""
    with pytest.raises(ValueError, match="a third value"):
        epsilon_of_rounds(reduction_for(2, 2.0, hashing=False), AnonymitySet(users=1000), 2, 1e-6)
