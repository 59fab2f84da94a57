import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import TaskError
from common.mechanisms.base import Vector
from common.mechanisms.key_value.privkv import PrivKv
from common.task.draft import PairDraft
from deploy.results.privkvm import iteration


@given(st.floats(1e-3, 20.0), st.integers(1, 12), st.floats(0.01, 0.99))
def test_all_iterations_together_cost_no_more_than_the_whole(
    epsilon: float, iterations: int, share: float
) -> None:
    """The exact sum is at most the whole's ε, and each task's integers meet its part."""
    split = [
        iteration(PairDraft(key_share=share), epsilon, iterations, number, None)
        for number in range(1, iterations + 1)
    ]
    spent = sum(Fraction(part_epsilon) for part_epsilon, _ in split)

    assert spent <= Fraction(epsilon)
    assert float(spent) == pytest.approx(epsilon)
    for part_epsilon, part in split:
        assert PrivKv.of_spec(PrivKv.specify(part, part_epsilon), 2).keeps_promise(part_epsilon)


@pytest.mark.parametrize(
    ("number", "means", "epsilon", "key_share"),
    [(1, None, 2.5, 0.8), (2, np.zeros(2), 0.5, 0.0), (4, np.zeros(2), 0.5, 0.0)],
)
def test_only_the_first_iteration_pays_for_the_key(
    number: int, means: Vector | None, epsilon: float, key_share: float
) -> None:
    """The key costs half of ε at first and nothing later; each value costs a c-th of the rest."""
    local_epsilon, draft = iteration(PairDraft(), 4.0, 4, number, means)
    spec = PrivKv.specify(draft, local_epsilon)

    assert (epsilon, key_share) == (local_epsilon, draft.key_share)
    assert (number > 1) == (spec.key_true_weight == spec.key_other_weight)
    assert PrivKv.of_spec(spec, 2).local_epsilon == pytest.approx(epsilon, abs=1e-9)


@given(st.floats(-1e12, 1e12), st.floats(1e-3, 1e12), st.floats(-2.0, 2.0))
def test_no_fake_leaves_the_range_by_rounding(low: float, width: float, mean: float) -> None:
    """Fakes are clipped, because a task would be refused for the last digit."""
    whole = PairDraft(low=low, high=low + width)
    (fake,) = iteration(whole, 1.0, 2, 2, np.array([mean]))[1].fakes

    assert low <= fake <= low + width


@pytest.mark.parametrize(
    ("epsilon", "iterations", "key_share", "rule"),
    [
        (1.0, 0, 0.5, "there are 0 iterations"),
        (1.0, 1001, 0.5, "there are 1001 iterations"),
        (0.0, 2, 0.5, "local_epsilon is 0.0"),
        (math.inf, 2, 0.5, "local_epsilon is inf"),
        (5e-324, 3, 0.5, "the smallest part is 0.0; it must be at least 2\\^-32"),
        (1e-9, 8, 0.5, "with 8 iterations, the smallest part is 6.25e-11"),
        (1.0, 2, 0.0, "key_share is 0.0"),
        (1.0, 2, 1.0, "key_share is 1.0"),
    ],
)
def test_an_impossible_split_is_refused(
    epsilon: float, iterations: int, key_share: float, rule: str
) -> None:
    """The message names the number that breaks the rule."""
    with pytest.raises(TaskError, match=rule):
        iteration(PairDraft(key_share=key_share), epsilon, iterations, 1, None)
