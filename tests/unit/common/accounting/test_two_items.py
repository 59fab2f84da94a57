"""Randomized response over two items: δ is that of the worst values of all others, and no less."""

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.assumptions import TWO_ITEMS
from shuffledp.common.accounting.claims import claimable_epsilon, delta_at_claim
from shuffledp.common.accounting.composition import ComposedRelease, composed_epsilon
from shuffledp.common.accounting.count_distributions import Binomial, NegativeBinomial
from shuffledp.common.accounting.guarantees import theorem_of
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.accounting.two_items import TwoItemRelease, amplified, exact_delta
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.numeric.coded_number import Duchi
from shuffledp.common.mechanisms.numeric.coordinate_sampling import Harmony
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.lab.bounds.attack import epsilon_lower
from tests.support.exhaustive_delta import (
    duchi_distribution,
    grr_distribution,
    true_delta,
    uniform_distribution,
)
from tests.support.protocol_tasks import protocol_task
from tests.support.reductions import of_grr, of_hashing
from tests.support.tables import table
from tests.support.vectors import vectors

_DUMMY = uniform_distribution([(0,), (1,)])
_TOLERANCE = 1.0045
"""Ratio of a bound to δ: that of the intervals, and some of the margins."""


def _release(local_epsilon: float, users: int, **dummies: Any) -> AmplifiedRelease:
    return amplified(of_grr(2, local_epsilon), AnonymitySet(users=users, **dummies))


@settings(max_examples=60, deadline=None)
@given(
    users=st.integers(1, 8),
    dummies=st.integers(0, 4),
    random=st.one_of(st.none(), st.tuples(st.integers(1, 4), st.floats(0.05, 0.95))),
    local_epsilon=st.floats(0.01, 8.0),
    share=st.floats(0.0, 0.99),
)
def test_every_data_set_and_outcome_is_covered(
    users: int, dummies: int, random: tuple[int, float] | None, local_epsilon: float, share: float
) -> None:
    """The bound is at most .45 % above the largest δ of all values and messages, enumerated."""
    pmfs = [grr_distribution(value, 2, local_epsilon) for value in range(2)]
    numbers = {dummies: 1.0}
    more = None
    if random is not None:
        more, counts = Binomial(*random), np.arange(random[0] + 1)
        chances = stats.binom.pmf(counts, *random)
        numbers = {dummies + int(n): float(c) for n, c in zip(counts, chances, strict=True)}
    epsilon = share * local_epsilon
    truth = true_delta(pmfs, users=users, dummies=numbers, dummy=_DUMMY, epsilon=epsilon)
    found = _release(local_epsilon, users, dummies=dummies, random_dummies=more).delta(epsilon)

    assert truth <= found + 1e-15
    assert found <= _TOLERANCE * truth + 1e-13


@table("row", vectors("two_items")["vectors"])
def test_vectors_are_met_from_above(row: dict[str, Any]) -> None:
    """Against convolutions for up to 2,000 users at every j, and for more at some."""
    random = Binomial(*row["M_binom"]) if "M_binom" in row else None
    release = _release(row["eps_l"], row["n"], dummies=row["M"], random_dummies=random)
    found = release.delta(row["eps"])

    assert row["delta"] * (1 - 1e-9) <= found
    assert found <= (1.02 if "some" in row else _TOLERANCE) * row["delta"]


@pytest.mark.parametrize(
    ("users", "dummies", "local_epsilon", "expected"),
    [
        (1000, 0, 1.0, 0.12661),
        (1000, 0, 3.0, 0.69485),
        (20_000, 0, 0.5, 0.01108),
        (20_000, 0, 1.0, 0.02443),
        (20_000, 0, 3.0, 0.11459),
        (20_000, 5000, 3.0, 0.06980),
        (100_000, 0, 4.0, 0.08471),
        (3000, 0, 6.0, 5.99772),
        (10**7, 0, 4.0, 0.006815),
    ],
)
def test_two_items_have_their_figures(
    users: int, dummies: int, local_epsilon: float, expected: float
) -> None:
    """ε at δ = 1e-6, within .25 % of the truth and of what an attack proves; δ is as asked."""
    release = _release(local_epsilon, users, dummies=dummies)
    found = release.epsilon(1e-6)

    assert 0.9995 * expected <= found <= 1.0025 * expected
    assert 0.97e-6 <= release.delta(found) <= 1.004e-6
    proven = epsilon_lower(release.reduction, release.anonymity_set, 1e-6)
    assert 0.9975 * found <= proven <= found


def test_an_epsilon_far_from_the_first_guess_is_as_exact() -> None:
    """Of seven users with little noise, where intervals laid out for the guess are too coarse."""
    exact = 0.1353020178  # by enumeration

    assert exact <= _release(0.2, 7).epsilon(1e-3) <= 1.0025 * exact


def test_the_worst_number_of_others_may_lie_between_the_ends() -> None:
    """An accountant that tried only j = 0 and j = N would be 15 % below δ."""
    release, epsilon = _release(3.0, 40), 0.6
    at = np.arange(40.0)
    each = exact_delta(release.reduction, at, 39 - at, 0.0, epsilon)

    assert 33 == np.argmax(each)
    assert each[33] > 1.15 * max(each[0], each[39])
    assert each[33] <= release.delta(epsilon) <= _TOLERANCE * each[33]


@pytest.mark.parametrize("others", [1, 30, 10**5, 10**9 - 1])
@pytest.mark.parametrize("local_epsilon", [1e-3, 1.0, 6.0])
def test_the_sum_is_rounded_up_by_little(others: int, local_epsilon: float) -> None:
    """Against the same δ in 50 digits, with many more points: above it, by at most 1e-5."""
    reduction = of_grr(2, local_epsilon)
    for held, dummies in ((0, 0), (others // 3, 0), (others, others // 2)):
        spread = math.sqrt(max(others * reduction.blanket / 2 + dummies / 4, 0.1))
        for deviations in (0.0, 1.0, 5.0, 9.0):
            epsilon = min(0.99 * local_epsilon, deviations * reduction.signal / spread)
            counts = (held, others - held, dummies)
            exact = _in_50_digits(reduction.blanket, counts, epsilon)
            of_counts = np.array(counts, dtype=float)[:, None]
            [found] = exact_delta(reduction, of_counts[0], of_counts[1], of_counts[2], epsilon)
            assert exact <= found <= exact * (1 + 1e-5) + 1e-30


def _in_50_digits(blanket: float, counts: tuple[int, int, int], epsilon: float) -> float:
    """Sum the contour with points for a mass of e^-110."""
    with mpmath.workdps(50):
        q = mpmath.mpf(blanket) / 2
        p, growth = 1 - q, mpmath.exp(epsilon)
        a, tilt = p - growth * q, (growth * p - q) / (p - growth * q)
        chances = [c * tilt / (1 - c + c * tilt) for c in (p, q, mpmath.mpf(1) / 2)]
        pairs = list(zip(counts, chances, strict=True))
        moment = mpmath.fsum(
            n * mpmath.log(1 - c + c * tilt)
            for n, c in zip(counts, (p, q, mpmath.mpf(1) / 2), strict=True)
        )
        spread = mpmath.fsum(n * c * (1 - c) for n, c in pairs)
        points = min(int(40 + mpmath.sqrt(1400 + 220 * spread)) + 40, sum(counts) + 2)
        middle = int(mpmath.nint(mpmath.fsum(n * c for n, c in pairs)))
        best = mpmath.mpf(0)
        terms = []
        for step in range(1, points // 2 + 1):
            turn = mpmath.expjpi(mpmath.mpf(2 * step) / points)
            if 2 * spread * mpmath.sin(mpmath.pi * step / points) ** 2 > 110:
                break
            mean = mpmath.fprod((1 - c + c * turn) ** n for n, c in pairs)
            twice = 1 if 2 * step == points else 2
            terms.append((turn, twice * mean * tilt * (turn - 1) / (tilt * turn - 1)))
        for mode in (middle - 1, middle, middle + 1):
            total = mpmath.fsum(mpmath.re(term * turn**-mode) for turn, term in terms) / points
            wrapped = (tilt - 1) / (tilt**points - 1) if tilt > 1 else mpmath.mpf(1) / points
            found = a * mpmath.exp(moment) * tilt**-mode * total + a * wrapped
            best = max(best, found)
        return float(best)


@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_no_number_is_worse_for_duchis_bit_than_an_end(local_epsilon: float, share: float) -> None:
    """All numbers of all users are enumerated, some at random between the ends."""
    rng = np.random.default_rng(5)
    points = [-1.0, 1.0, *rng.uniform(-1, 1, 3)]
    pmfs = [duchi_distribution(point, local_epsilon) for point in points]
    epsilon = share * local_epsilon
    for users in (2, 5):
        truth = true_delta(pmfs, users=users, dummies=1, dummy=_DUMMY, epsilon=epsilon)
        found = _release(local_epsilon, users, dummies=1).delta(epsilon)
        assert truth <= found <= _TOLERANCE * truth


def test_a_random_number_of_dummies_costs_little_more_than_its_mean() -> None:
    """Bins of the number add less than .1 % to ε."""
    for users, trials, chance in ((10**4, 10**4, 0.1), (10**6, 10**6, 0.3)):
        fixed = _release(3.0, users, dummies=int(trials * chance)).epsilon(1e-6)
        found = _release(3.0, users, random_dummies=Binomial(trials, chance)).epsilon(1e-6)
        assert fixed <= found <= 1.001 * fixed


def test_known_dummies_are_dropped_from_fixed_and_random_ones() -> None:
    """The average over all numbers is met, for the one j that makes it largest."""
    random, numbers = NegativeBinomial(9.0, 12.0), np.arange(150.0)
    release = _release(2.0, 30, dummies=3, random_dummies=random, known_dummies=9)
    at = np.arange(30.0)[:, np.newaxis]
    each = exact_delta(release.reduction, at, 29 - at, np.maximum(numbers - 6, 0), 0.3)
    exact = (each @ random.probabilities(numbers)).max()

    assert exact <= release.delta(0.3) <= _TOLERANCE * exact


@pytest.mark.parametrize(("users", "dummies"), [(1, 3), (2, 0), (3, 2)])
def test_composed_rounds_are_never_below_their_enumeration(users: int, dummies: int) -> None:
    """Two rounds, each with any values of the others; the sum over both counts is exact."""
    release, local_epsilon = _release(2.0, users, dummies=dummies), 2.0
    q = 1 / (1 + math.exp(local_epsilon))
    worlds = []
    for held in range(users):
        rest = [(held, 1 - q), (users - 1 - held, q), (dummies, 0.5)]
        count = np.ones(1)
        for number, chance in rest:
            count = np.convolve(count, stats.binom.pmf(np.arange(number + 1), number, chance))
        one, none = np.append(0, count), np.append(count, 0)
        worlds.append(((1 - q) * one + q * none, q * one + (1 - q) * none))
    pairs = list(itertools.product(worlds, repeat=2))
    deltas = []
    for epsilon in (0.0, 0.4, 1.5, 3.0):
        exact = max(
            np.maximum(np.outer(p, s) - math.exp(epsilon) * np.outer(r, t), 0).sum()
            for (p, r), (s, t) in pairs
        )
        found = ComposedRelease(releases=(release,) * 2).delta(epsilon)
        assert exact <= found <= 1.15 * exact
        deltas.append((exact, epsilon))
    for exact, epsilon in deltas[1:]:
        assert epsilon <= composed_epsilon([release] * 2, exact)


@pytest.mark.parametrize("random", [None, Binomial(40, 0.3)])
def test_a_curve_belongs_to_one_pair_of_distributions(random: Binomial | None) -> None:
    """It falls, is convex in e^ε, and lies above δ far from the ε that it is laid out for."""
    release = _release(3.0, 200, random_dummies=random)
    curve = release.curve((0.3,))
    growths = np.linspace(1, math.exp(3.0), 60)
    found = np.array([curve(math.log(growth)) for growth in growths])

    assert (np.diff(found) <= 0).all()
    assert (np.diff(found, 2) >= -1e-9 * found[:-2]).all()
    for epsilon in (0.0, 0.05, 1.5, 2.9):
        assert curve(epsilon) >= release.delta(epsilon) * (1 - 5e-3) - 1e-17


def test_only_reports_of_one_of_two_answers_are_exact() -> None:
    """Neither hashing, Harmony, more items nor reports without noise are counted so."""
    weights = ResponseWeights(true=3, other=1)
    reductions = {
        "two": of_grr(2, 1.0),
        "number": Duchi(weights).reduction,
        "harmony": Harmony(3, 1, Duchi(weights)).reduction,
        "hashing": of_hashing(2, 1.0),
        "three": of_grr(3, 1.0),
        "plain": of_grr(2, math.inf),
    }
    exact = {
        name
        for name, each in reductions.items()
        if isinstance(amplified(each, AnonymitySet(users=9)), TwoItemRelease)  # type: ignore[arg-type]
    }

    assert {"two", "number"} == exact


@pytest.mark.parametrize("protocol", ["ddps", "duchi", "sh", "mixdump"])
def test_claims_of_two_items_are_exact(protocol: str) -> None:
    """A claim is by the exact count, with its theorem, and devices confirm it."""
    size = {"duchi": 1}.get(protocol, 2)
    task = protocol_task(protocol, n_min=5000, domain_size=size, labels=())
    parameters = PrivacyParameters.of(task)
    release = parameters.release(parameters.anonymity_set(task.n_min))

    assert TWO_ITEMS == theorem_of(release)
    assert claimable_epsilon(task) == task.central_epsilon
    assert delta_at_claim(task) <= 0.998 * task.delta


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_an_epsilon_below_0_is_refused(epsilon: float) -> None:
    """As by every release."""
    with pytest.raises(AccountingError, match="at least 0"):
        _release(1.0, 10).delta(epsilon)
