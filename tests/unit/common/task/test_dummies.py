import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.dummy_entries import arrivals_of
from shuffledp.common.errors import TaskError
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM, MAX_DUMMIES
from shuffledp.common.task.dummy_forms import DUMMIES
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.uniform_dummies import averaging
from tests.support.tables import table


@table(
    ("mean", "distribution", "certain", "extra", "maximum"),
    [
        (0.0, "fixed", 0, 0, 0),
        (3.0, "fixed", 3, 0, 3),
        (0.5, "fractional", 0, 2**31, 1),
        (1.3, "fractional", 1, 1288490189, 2),
        (2.0**-32, "fractional", 0, 1, 1),
        (1 - 2.0**-32, "fractional", 0, 2**32 - 1, 1),
        (1 - 2.0**-40, "fixed", 1, 0, 1),
        (2.0**-40, "fixed", 0, 0, 0),
    ],
)
def test_a_mean_becomes_a_certain_number_and_a_chance_of_one_more(
    mean: float, distribution: str, certain: int, extra: int, maximum: int
) -> None:
    """The fraction is rounded to 2^-32; a mean that is negative or too large is refused."""
    spec = averaging(mean)

    assert (distribution, certain, extra) == (spec.distribution, spec.per_user, spec.extra_weight)
    assert maximum == spec.maximum
    assert abs(spec.expected_per_user - mean) <= 0.5 / EXTRA_WEIGHT_SUM
    for wrong in (-0.1, math.nan, math.inf, MAX_DUMMIES + 0.5):
        with pytest.raises(TaskError, match="dummies_per_user is"):
            averaging(wrong)


_QUARTER: Final = EXTRA_WEIGHT_SUM // 4
_DISTRIBUTIONS: Final[dict[str, dict[str, Any]]] = {
    "fixed": {"per_user": 2},
    "fractional": {"per_user": 2, "extra_weight": _QUARTER},
    "binomial": {"per_user": 2, "trials": 5, "extra_weight": _QUARTER},
    "negative-binomial": {"per_user": 2, "trials": 3, "extra_weight": _QUARTER, "most": 60},
    "each-item": {"trials": 8, "extra_weight": _QUARTER, "most": 4},
    "views": {"averages": (2**33, 7)},
}


def _distribution(of: str, **changes: Any) -> Any:
    return DUMMIES[of](**_DISTRIBUTIONS[of] | changes)


@table(
    ("distribution", "change", "message"),
    [
        ("fixed", {"per_user": -1}, "per_user is -1"),
        ("fixed", {"per_user": MAX_DUMMIES + 1}, f"per_user is {MAX_DUMMIES + 1}"),
        ("fractional", {"per_user": MAX_DUMMIES}, "most is 1; it must be 0"),
        ("fractional", {"extra_weight": 0}, "extra_weight is 0; it must lie between 1"),
        ("fractional", {"extra_weight": 2**32}, "extra_weight is 4294967296"),
        ("fractional", {"extra_weight": True}, "extra_weight must be a whole number"),
        ("fractional", {"one_length": 1}, "one_length must be true or false"),
        ("binomial", {"trials": 1}, "trials is 1; it must lie between 2"),
        ("binomial", {"extra_weight": 0}, "extra_weight is 0; it must lie between 1"),
        ("negative-binomial", {"trials": 0}, "trials is 0; it must lie between 1"),
        ("negative-binomial", {"most": 0}, "most is 0; it must lie between 1"),
        ("negative-binomial", {"most": MAX_DUMMIES - 1}, f"most is {MAX_DUMMIES - 1}"),
        ("each-item", {"trials": 0}, "trials is 0; it must lie between 1"),
        ("each-item", {"trials": 16 * MAX_DUMMIES + 1}, f"trials is {16 * MAX_DUMMIES + 1}"),
        ("each-item", {"trials": 800}, "most is 4 for a distribution with mean 200; too many"),
        ("views", {"averages": ()}, "averages is empty"),
        ("views", {"averages": (-1,)}, "a view's dummies is -1"),
    ],
)
def test_each_distribution_has_the_numbers_that_it_needs(
    distribution: str, change: dict[str, Any], message: str
) -> None:
    """The message has the rule and the number that breaks it."""
    _distribution(distribution)
    with pytest.raises(TaskError, match=message):
        _distribution(distribution, **change)


@pytest.mark.parametrize(
    ("distribution", "mean", "maximum", "uniform"),
    [
        ("fractional", 2.25, 3, True),
        ("binomial", 3.25, 7, True),
        ("negative-binomial", 3.0, 62, True),
        ("each-item", 2.0, 4, False),
    ],
)
def test_a_mean_is_the_direct_sum(
    distribution: str, mean: float, maximum: int, *, uniform: bool
) -> None:
    """The probability is 1/4; the negative binomial's truncated part is negligible here."""
    spec = _distribution(distribution)
    chance, trials = 0.25, spec.trials
    if distribution == "negative-binomial":
        summed = sum(
            k * math.comb(k + trials - 1, k) * chance**k * (1 - chance) ** trials
            for k in range(spec.most + 1)
        )
    else:
        summed = sum(
            k * math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
            for k in range(trials + 1)
        )

    assert (mean, maximum, uniform) == (spec.expected_per_user, spec.maximum, spec.uniform)
    assert mean == pytest.approx(spec.per_user + summed, rel=1e-12)


@table(
    ("distribution", "changes", "wanted"),
    [
        ("fixed", {}, [1.0]),
        ("fractional", {}, [0.75, 0.25]),
        ("binomial", {}, stats.binom.pmf(range(6), 5, 0.25)),
        ("negative-binomial", {}, stats.nbinom.pmf(range(61), 3, 0.75)),
        ("negative-binomial", {"most": 2}, stats.nbinom.pmf(range(3), 3, 0.75)),
        ("each-item", {}, [1.0]),
        ("binomial", {"trials": 600}, stats.binom.pmf(range(601), 600, 0.25)),
        ("negative-binomial", {"trials": 99, "most": 500}, stats.nbinom.pmf(range(501), 99, 0.75)),
    ],
)
def test_lengths_show_the_number_of_uniform_dummies(
    distribution: str, changes: dict[str, Any], wanted: Sequence[float]
) -> None:
    """At most 256 lengths; a number between two of them is padded to the next."""
    spec = _distribution(distribution, **changes)
    summed = np.cumsum(wanted) / np.sum(wanted)
    ends = np.array(spec.lengths) - spec.certain

    assert spec.maximum == spec.lengths[-1]
    assert len(wanted) == len(ends) or len(wanted) > 256 > len(ends) or not spec.uniform
    if spec.uniform:
        expected = np.diff(summed[ends], prepend=0.0)
        np.testing.assert_allclose(spec.length_probabilities(), expected, rtol=1e-10, atol=1e-15)


def test_many_views_have_at_most_256_lengths() -> None:
    """Their number of dummies is padded to the next of every second, and known by its length."""
    spec = ViewDummies(averages=(3 * EXTRA_WEIGHT_SUM // 2,) * 401)
    numbers = np.asarray(stats.binom.pmf(range(402), 401, 0.5))
    probabilities = spec.length_probabilities()
    arrived, *_ = arrivals_of(spec, [1] * 201)

    assert tuple(range(402, 803, 2)) == spec.lengths
    assert numbers.reshape(-1, 2).sum(axis=1) == pytest.approx(probabilities)
    assert [0.5, 0.5] == pytest.approx(probabilities @ arrived.more)
    assert 256 == len(ViewDummies(averages=(1,) * 255).lengths)


def test_a_task_may_pad_a_random_number_to_one_length() -> None:
    """Only where there is a choice."""
    spec = _distribution("binomial", trials=9, one_length=True)

    assert ((spec.maximum,), [1.0]) == (spec.lengths, spec.length_probabilities().tolist())
    with pytest.raises(TypeError, match="one_length"):
        _distribution("fixed", one_length=True)
