import math

import pytest

from common.accounting.epsilon_search import least_epsilon


@pytest.mark.parametrize("guess", [1e-6, 0.1, 5.0, 90.0])
@pytest.mark.parametrize("rate", [0.5, 3.0, 1000.0])
def test_the_epsilon_found_keeps_delta_and_is_the_least_that_does(
    rate: float, guess: float
) -> None:
    """On a curve whose answer is known: never below it, at most 3e-5 above."""
    exact = math.log(1e6) / rate
    found = least_epsilon(
        lambda epsilon: math.exp(-rate * epsilon), delta=1e-6, local_epsilon=math.inf, guess=guess
    )

    assert math.exp(-rate * found) <= 1e-6
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 3e-5)


def test_a_curve_that_never_comes_down_ends_at_the_local_epsilon() -> None:
    """Finite or not."""
    for local_epsilon in (2.0, math.inf):
        found = least_epsilon(lambda _: 0.5, delta=1e-6, local_epsilon=local_epsilon)
        assert local_epsilon == found
