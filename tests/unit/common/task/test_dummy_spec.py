import math
from typing import Any

import pytest

from common.errors import TaskError
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, MAX_DUMMIES, DummySpec


@pytest.mark.parametrize(
    ("mean", "law", "certain", "extra", "maximum"),
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
    mean: float, law: str, certain: int, extra: int, maximum: int
) -> None:
    """The fraction is rounded to 2^-32; a mean that is negative or too large is refused."""
    spec = DummySpec.averaging(mean)

    assert (law, certain, extra) == (spec.law, spec.per_user, spec.extra_weight)
    assert maximum == spec.maximum
    assert abs(spec.expected_per_user - mean) <= 0.5 / EXTRA_WEIGHT_SUM
    for wrong in (-0.1, math.nan, math.inf, MAX_DUMMIES + 0.5):
        with pytest.raises(TaskError, match="dummies_per_user is"):
            DummySpec.averaging(wrong)


_LAWS: dict[str, dict[str, Any]] = {
    "fixed": {"per_user": 1, "extra_weight": 0},
    "fractional": {"trials": 1, "most": 1},
    "binomial": {"trials": 5, "most": 5},
    "negative-binomial": {"trials": 3, "most": 60},
    "each-item": {"trials": 8, "most": 4},
}


def _law(of: str, **changes: Any) -> DummySpec:
    fields: dict[str, Any] = {
        "law": of,
        "per_user": 0 if of == "each-item" else 2,
        "extra_weight": EXTRA_WEIGHT_SUM // 4,
    }
    return DummySpec(**fields | _LAWS[of] | changes)


@pytest.mark.parametrize(
    ("law", "change", "message"),
    [
        ("fixed", {"extra_weight": 1}, "the law of the dummies is fixed and extra_weight is 1"),
        ("fixed", {"extra_weight": -1}, "extra_weight is -1"),
        ("fixed", {"per_user": -1}, "dummies per user is -1"),
        ("fixed", {"law": "poisson"}, "the law of the dummies must be one of: fixed, fractional"),
        ("fixed", {"trials": 1, "most": 1}, "is fixed and trials is 1"),
        ("fractional", {"extra_weight": 0}, "fractional and extra_weight is 0"),
        ("fractional", {"extra_weight": 2**32}, "extra_weight is 4294967296"),
        ("fractional", {"extra_weight": True}, "extra_weight must be a whole number"),
        ("fractional", {"trials": 2, "most": 2}, "is fractional and trials is 2"),
        ("fractional", {"most": 2}, "most is 2 and trials is 1; they are the same for"),
        ("binomial", {"trials": 1, "most": 1}, "is binomial and trials is 1"),
        ("binomial", {"most": 4}, "most is 4 and trials is 5"),
        ("binomial", {"extra_weight": 0}, "is binomial and extra_weight is 0"),
        ("negative-binomial", {"trials": 0}, "is negative-binomial and trials is 0"),
        ("negative-binomial", {"most": 0}, "most is 0; it must be at least 1"),
        ("negative-binomial", {"most": MAX_DUMMIES - 1}, f"most dummies is {MAX_DUMMIES - 1}"),
        ("each-item", {"trials": 0}, "is each-item and trials is 0"),
        ("each-item", {"trials": 16 * MAX_DUMMIES + 1}, f"dummies is {16 * MAX_DUMMIES + 1}"),
    ],
)
def test_each_law_has_the_numbers_that_it_needs(
    law: str, change: dict[str, Any], message: str
) -> None:
    """No other combination of law, weight, trials and maximum exists."""
    _law(law)
    with pytest.raises(TaskError, match=message):
        _law(law, **change)


@pytest.mark.parametrize(
    ("law", "mean", "maximum", "uniform"),
    [
        ("fractional", 2.25, 3, True),
        ("binomial", 3.25, 7, True),
        ("negative-binomial", 3.0, 62, True),
        ("each-item", 2.0, 4, False),
    ],
)
def test_a_laws_mean_is_the_direct_sum(
    law: str,
    mean: float,
    maximum: int,
    uniform: bool,  # noqa: FBT001
) -> None:
    """With probability a quarter; the negative binomial's truncated part is negligible here."""
    spec = _law(law)
    chance, trials = 0.25, spec.trials
    if law == "negative-binomial":
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
    assert (law in {"fractional", "binomial"}) == spec.bounded
