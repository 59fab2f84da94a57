import math
from typing import Any

import pytest

from common.dummy_spec import EXTRA_WEIGHT_SUM, MAX_DUMMIES, DummySpec
from common.errors import TaskError


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
def test_a_mean_is_as_many_for_certain_and_a_chance_of_one_more(
    mean: float, law: str, certain: int, extra: int, maximum: int
) -> None:
    """The fraction is rounded to 2^-32, up to the next whole number or down to this one."""
    spec = DummySpec.averaging(mean, "user-agent")

    assert (law, certain, extra) == (spec.law, spec.per_user, spec.extra_weight)
    assert maximum == spec.maximum
    assert abs(spec.expected_per_user - mean) <= 0.5 / EXTRA_WEIGHT_SUM


def test_a_whole_number_may_be_an_int() -> None:
    """Programs that count dummies need not know of fractions."""
    assert DummySpec.averaging(2.0, "user-agent") == DummySpec.averaging(2, "user-agent")


@pytest.mark.parametrize("mean", [-0.1, -1.0, math.nan, math.inf, MAX_DUMMIES + 0.5])
def test_a_mean_has_a_range(mean: float) -> None:
    """Neither negative nor endless."""
    with pytest.raises(TaskError, match="dummies_per_user is"):
        DummySpec.averaging(mean, "user-agent")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra_weight": 1}, "the law of the dummies is fixed and extra_weight is 1"),
        ({"law": "fractional"}, "the law of the dummies is fractional and extra_weight is 0"),
        ({"law": "fractional", "extra_weight": 2**32}, "extra_weight is 4294967296"),
        ({"extra_weight": -1}, "extra_weight is -1"),
        ({"law": "fractional", "extra_weight": True}, "extra_weight must be a whole number"),
        ({"per_user": -1}, "dummies per user is -1"),
        ({"law": "poisson"}, "the law of the dummies must be one of: fixed, fractional"),
        ({"added_by": "nobody"}, "the maker of the dummies must be one of"),
    ],
)
def test_a_law_that_breaks_a_rule_cannot_exist(change: dict[str, Any], message: str) -> None:
    """Law and weight say the same thing, so that one law has one form."""
    fields: dict[str, Any] = {"law": "fixed", "per_user": 1, "added_by": "user-agent"}
    with pytest.raises(TaskError, match=message):
        DummySpec(**fields | change)
