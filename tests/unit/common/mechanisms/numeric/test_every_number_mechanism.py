"""Properties of every mechanism for numbers."""

import dataclasses
import math
from decimal import Context, Decimal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.numeric.number import Moments
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.specs import MAX_DIMENSIONS, NumberSpec
from tests.support import numbers
from tests.support.kind_tasks import kind_task
from tests.support.tables import table

_EVERY = table("name", numbers.EVERY)
_EPSILONS = table("local_epsilon", [0.05, 0.61, 1.0, 2.4, 5.1, 20.0])
_PRECISE = Context(prec=60)


@_EVERY
@_EPSILONS
def test_the_local_epsilon_is_met_and_used(name: NumberMechanismName, local_epsilon: float) -> None:
    """Odds are at most e^ε, and short of it by 1e-6 or, of laplace, by less than a step."""
    spec, mechanism = (
        numbers.spec_for(name, local_epsilon),
        numbers.number_example(name, local_epsilon),
    )
    if name == "laplace":
        exponent = Decimal(spec.steps) / spec.scale
        assert Decimal(spec.steps) / (spec.scale - 1) > Decimal(local_epsilon)
    else:
        odds = _PRECISE.divide(spec.true_weight, spec.other_weight)
        exponent = _PRECISE.ln(odds) * spec.sampled

    short = Decimal(local_epsilon) - exponent
    assert 0 <= short <= Decimal("5e-3" if name == "laplace" else "1e-6") * Decimal(local_epsilon)
    assert exponent <= Decimal(mechanism.local_epsilon)
    assert mechanism.local_epsilon <= local_epsilon
    assert mechanism.keeps_promise(local_epsilon)
    assert mechanism.keeps_promise(math.inf)
    assert not mechanism.keeps_promise(float(exponent) * (1 - 1e-12))


@_EVERY
@table(
    "field", ["steps", "scale", "reach", "piecewise_weight", "sampled", "projected", "report_bytes"]
)
def test_one_mechanism_has_one_form(name: NumberMechanismName, field: str) -> None:
    """Unused integers are 0 (1 of sampled), and the report length is fixed."""
    spec = numbers.spec_for(name)
    used = {
        "laplace": {"steps", "scale"},
        "duchi": set(),
        "piecewise": {"steps", "reach"},
        "hybrid": {"steps", "reach", "piecewise_weight"},
        "harmony": set(),
        "mean-est": set(),
        "multi-hm": {"steps", "reach", "piecewise_weight"},
        "multi-rphm": {"steps", "reach", "piecewise_weight", "projected"},
    }[name]
    changed = dataclasses.replace(spec, **{field: getattr(spec, field) + 2})
    if field in used:
        assert numbers.built(changed).report_dtype.itemsize == spec.report_bytes
    else:
        with pytest.raises(TaskError):
            numbers.built(changed)


@_EVERY
def test_another_mechanisms_integers_are_refused(name: NumberMechanismName) -> None:
    """A specification with another name is refused."""
    other: NumberMechanismName = "duchi" if name != "duchi" else "harmony"
    spec = dataclasses.replace(numbers.spec_for(name), name=other)
    with pytest.raises(TaskError, match=f"name is {other}"):
        numbers.class_of(name).of_spec(spec, numbers.dimensions_of(name))


@table("name", [name for name in numbers.EVERY if name != "laplace"])
@table("weights", [(0, 0), (1, 0), (5, 5), (2**63 - 1, 2**62)])
def test_invalid_odds_are_refused(name: NumberMechanismName, weights: tuple[int, int]) -> None:
    """Weights of 0, equal weights and weights too large to draw are refused."""
    true, other = weights
    spec = dataclasses.replace(numbers.spec_for(name), true_weight=true, other_weight=other)
    with pytest.raises(TaskError, match=r"needs local noise|1 <= other < true|below 2\^63"):
        numbers.built(spec)


@_EVERY
def test_invalid_requests_are_refused(name: NumberMechanismName) -> None:
    """The message names the local ε or the number of dimensions."""
    protocol = "hybrid-mean" if name == "hybrid" else name
    for local_epsilon in (math.inf, 0.0, -1.0, 20.1, math.nan):
        with pytest.raises(TaskError, match="local_epsilon"):
            kind_task(protocol, local_epsilon=local_epsilon)
    for dimensions in (0, 2 if name in numbers.ONE_NUMBER else MAX_DIMENSIONS + 1):
        with pytest.raises(TaskError, match=f"domain_size is {dimensions}"):
            kind_task(protocol, domain_size=dimensions)


@_EVERY
def test_invalid_numbers_are_refused(name: NumberMechanismName) -> None:
    """The message for a number out of range or a wrong shape does not repeat the number."""
    mechanism, rng = numbers.number_example(name), np.random.default_rng(1)
    for wrong in (1.0000001, -3.25, math.nan, math.inf, -math.inf):
        values = np.zeros((3, mechanism.dimensions))
        values[1, -1] = wrong
        with pytest.raises(ValueRangeError) as refusal:
            mechanism.randomize(values, rng)
        assert "a number must lie in the task's range" == str(refusal.value)
    for shape in ((3,), (3, 2), (3, 6), (1, 3, 5)):
        with pytest.raises(ValueRangeError, match=f"must hold {mechanism.dimensions} numbers"):
            mechanism.randomize(np.zeros(shape), rng)


@_EVERY
def test_no_reports_give_infinite_variances(name: NumberMechanismName) -> None:
    """The cells are 0, and so are the means."""
    mechanism = numbers.number_example(name)
    none = mechanism.randomize(np.zeros((0, mechanism.dimensions)), np.random.default_rng(6))
    cells = mechanism.tally(none)
    moments = mechanism.estimate(cells)

    assert 0 == len(none)
    assert not cells.any()
    assert not moments.means.any()
    assert np.isinf(moments.variances).all()


@_EVERY
def test_the_reduction_states_at_least_the_local_epsilon(name: NumberMechanismName) -> None:
    """Blanket and signal of a match count sum to 1 and give the same ε."""
    for local_epsilon in (0.3, 1.0, 8.0):
        mechanism = numbers.number_example(name, local_epsilon)
        reduction = mechanism.reduction
        assert reduction is not None
        assert mechanism.local_epsilon <= reduction.local_epsilon
        if isinstance(reduction, MatchCountReduction):
            assert reduction.blanket + reduction.signal == pytest.approx(1, abs=1e-12)
            ratio = math.log1p(reduction.answers * reduction.signal / reduction.blanket)
            assert ratio == pytest.approx(local_epsilon, rel=1e-6)


@pytest.mark.parametrize("steps", [-2, 3, 2**21])
def test_a_grid_has_an_even_number_of_steps(steps: int) -> None:
    """Odd, negative and very large numbers of steps are refused."""
    with pytest.raises(TaskError, match="steps is"):
        dataclasses.replace(numbers.spec_for("duchi"), steps=steps)
    assert 0 == NumberSpec(**dataclasses.asdict(numbers.spec_for("duchi"))).steps


def _printed(name: NumberMechanismName, e: float, d: int, t: NDArray[np.float64]) -> float:
    """Return the printed variance of one report, averaged over all numbers t."""
    root, c = math.exp(e / 2), 1 / math.tanh(e / 2)
    k = max(1, min(d, math.floor(e / 2.5)))
    each = math.exp(e / k / 2)
    hybrid = (each + 3) / (3 * each * (each - 1)) + 1 / math.tanh(e / k / 2) ** 2 / each
    square = float(np.mean(t**2))
    printed: dict[str, float] = {
        "laplace": 2 * (2 / e) ** 2,
        "duchi": c**2 - square,
        "piecewise": square / (root - 1) + (root + 3) / (3 * (root - 1) ** 2),
        "hybrid": hybrid,
        "harmony": d * c**2 - square,
        "mean-est": (2 ** (d - 1) / math.comb(d - 1, (d - 1) // 2) * c) ** 2 - square,
        "multi-hm": d / k * (hybrid + square) - square,
    }
    return printed[name]


@table("name", [name for name in numbers.EVERY if name != "multi-rphm"])
@table("local_epsilon", [0.7, 1.0, 2.5, 4.0, 6.0])
@table("number", [-1.0, 0.0, 0.4])
def test_variances_match_the_printed_ones(
    name: NumberMechanismName, local_epsilon: float, number: float
) -> None:
    """They agree to .5 %, due to rounding of the weights and of the numbers."""
    mechanism = numbers.number_example(name, local_epsilon)
    value = np.full((1, mechanism.dimensions), number)
    printed = _printed(name, local_epsilon, mechanism.dimensions, value)

    assert printed == pytest.approx(mechanism.variance(value).mean(), rel=5e-3)


@pytest.mark.parametrize(
    ("name", "local_epsilon"), [("duchi", 0.5), ("duchi", 4.0), ("hybrid", 0.5), ("mean-est", 4.0)]
)
@pytest.mark.parametrize("n_users", [10, 50, 1000])
def test_intervals_of_bits_cover_every_mean(
    name: NumberMechanismName, local_epsilon: float, n_users: int
) -> None:
    """
    With at least 95 % probability, summed exactly over all counts of ±B.

    All users have the same number, which varies most. Normal intervals cover .9 with .85 of Duchi's
    bits, at ε = 4 and of 50 users.
    """
    mechanism = numbers.number_example(name, local_epsilon)
    counts = np.arange(n_users + 1)
    found = [
        mechanism.estimate(
            np.array([n_users, *[count] * 5] if name == "mean-est" else [n_users - count, count])
        )
        for count in counts
    ]
    means, variances = (
        np.array([getattr(each, field)[0] for each in found]) for field in ("means", "variances")
    )
    ends = mechanism.interval(Moments(means=means, variances=variances), 0.95)
    assert ends is not None
    size = means[-1]  # B, the estimate if all bits are +
    for mean in np.linspace(-1, 1, 81):
        chances = stats.binom.pmf(counts, n_users, (1 + mean / size) / 2)
        covered = (ends[0] <= mean + 1e-12) & (mean - 1e-12 <= ends[1])
        assert chances[covered].sum() >= 0.95


@pytest.mark.parametrize("name", ["laplace", "piecewise", "hybrid", "harmony", "multi-hm"])
def test_intervals_of_other_reports_are_normal(name: NumberMechanismName) -> None:
    """They represent other numbers than ±B."""
    moments = Moments(means=np.zeros(1), variances=np.ones(1))

    assert numbers.number_example(name, 4.0).interval(moments, 0.95) is None
