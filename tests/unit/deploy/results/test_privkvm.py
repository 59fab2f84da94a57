import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import TaskError
from common.mechanisms.key_value.privkv import PairRequest, PrivKv
from deploy.results.privkvm import bias_left, budgets, fakes_after, iteration


@given(st.floats(1e-3, 20.0), st.integers(1, 12), st.floats(0.01, 0.99))
def test_all_iterations_together_cost_no_more_than_the_whole(
    epsilon: float, iterations: int, share: float
) -> None:
    """Exactly summed; and the integers that a task of each would state keep to its part."""
    split = budgets(epsilon, iterations, share)
    whole = PairRequest(keys=2, low=-1.0, high=1.0, local_epsilon=epsilon, key_share=share)
    specs = [PrivKv.specify(iteration(whole, budget, None)) for budget in split]
    spent = sum(Fraction(each.key_epsilon) + Fraction(each.value_epsilon) for each in split)

    assert iterations == len(split)
    assert spent <= Fraction(epsilon)
    assert float(spent) == pytest.approx(epsilon)
    assert sum(Fraction(each.local_epsilon) for each in split) <= Fraction(epsilon)
    for spec, budget in zip(specs, split, strict=True):
        assert PrivKv.of_spec(spec, 2).keeps_promise(budget.local_epsilon)


def test_only_the_first_iteration_pays_for_the_key() -> None:
    """Half of the whole, and a c-th of the other half; fair coins for the key afterwards."""
    first, *later = budgets(4.0, 4, 0.5)
    whole = PairRequest(keys=2, low=-1.0, high=1.0, local_epsilon=4.0)
    spec = PrivKv.specify(iteration(whole, later[0], np.zeros(2)))

    assert (2.0, 0.5) == (first.key_epsilon, first.value_epsilon)
    assert [(0.0, 0.5)] * 3 == [(each.key_epsilon, each.value_epsilon) for each in later]
    assert (1, 1) == (spec.key_true_weight, spec.key_other_weight)
    assert PrivKv.of_spec(spec, 2).local_epsilon == pytest.approx(0.5, abs=1e-9)


def test_one_iteration_is_the_mechanism_itself() -> None:
    """The same weights as without iterating, and the same fakes."""
    whole = PairRequest(
        keys=2, low=0.0, high=5.0, local_epsilon=3.0, key_share=0.25, fakes=(1.0, 4.0)
    )
    (only,) = budgets(3.0, 1, 0.25)

    assert PrivKv.specify(whole) == PrivKv.specify(iteration(whole, only, None))


def test_fakes_are_the_means_before_in_the_range_of_the_task() -> None:
    """What noise has carried beyond it is put back to its ends."""
    assert (10.0, 15.0, 17.5, 20.0, 20.0) == fakes_after(
        np.array([-1.0, 0.0, 0.5, 1.0, 3.0]), 10.0, 20.0
    )


@given(st.floats(-1e12, 1e12), st.floats(1e-3, 1e12), st.floats(-2.0, 2.0))
def test_no_fake_leaves_the_range_by_rounding(low: float, width: float, mean: float) -> None:
    """A task would be refused for the last digit."""
    high = low + width
    (fake,) = fakes_after(np.array([mean]), low, high)

    assert low <= fake <= high


def test_the_bias_left_is_the_product_of_all_shares_of_fakes() -> None:
    """By hand: .4 · .5 · .5 of the way from m = -.2 to t = 0, and the limit of certain owners."""
    shares = [np.array([0.4, 0.0]), np.array([0.5, 0.0]), np.array([0.5, 0.0])]

    assert [0.02, 0.0] == pytest.approx(
        bias_left(shares, np.zeros(2), np.array([-0.2, 0.7])).tolist()
    )


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((1.0, 0, 0.5), "there are 0 iterations"),
        ((1.0, 1001, 0.5), "there are 1001 iterations"),
        ((0.0, 2, 0.5), "local_epsilon is 0.0"),
        ((math.inf, 2, 0.5), "local_epsilon is inf"),
        ((5e-324, 3, 0.5), "the least part would be 0.0; below 2\\^-32"),
        ((1e-9, 8, 0.5), "of 8 iterations, the least part would be 6.25e-11"),
        ((1.0, 2, 0.0), "key_share is 0.0"),
        ((1.0, 2, 1.0), "key_share is 1.0"),
    ],
)
def test_a_split_that_there_is_not_is_refused(arguments: Any, rule: str) -> None:
    """By the number that breaks a rule."""
    with pytest.raises(TaskError, match=rule):
        budgets(*arguments)
