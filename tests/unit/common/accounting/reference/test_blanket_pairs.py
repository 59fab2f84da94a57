import math
from typing import Any

import numpy as np
import pytest

from common.accounting.reference.general_blanket import (
    BlanketPair,
    laplace_pair,
    rappor_pair,
)
from common.accounting.reference.randomizers import piecewise
from common.errors import AccountingError
from tests.support.reference_bounds import match_count_pair


@pytest.mark.parametrize("local_epsilon", [0.1, 2.0, 20.0])
def test_laplace_atoms_are_above_in_convex_order(local_epsilon: float) -> None:
    """E(R_x/U - t)_+ under U: never below its integral, within 1e-3; the mean is 1."""
    pair = laplace_pair(local_epsilon)
    rate = local_epsilon / 2
    points = np.linspace(0, 1, 2_000_001)
    middle = (points[1:] + points[:-1]) / 2
    weights = rate / 2 * np.exp(-rate * middle) * np.diff(points)
    ratios = np.exp(rate * (2 * middle - 1))

    for level in (0.5, 1.0, 2.0, math.exp(rate) * 0.9):
        exact = float(weights @ np.maximum(ratios - level, 0))
        exact += math.exp(-rate) / 2 * max(0.0, math.exp(rate) - level)
        exact += max(0.0, math.exp(-rate) - level) / 2
        split = float(pair.chances @ np.maximum(pair.first - level, 0))
        assert exact * (1 - 1e-9) <= split <= exact * 1.001 + 1e-15
    assert float(pair.chances @ pair.first) == pytest.approx(1, abs=1e-13)


def test_the_largest_ratio_is_the_local_epsilon() -> None:
    """For every kind of pair."""
    for pair in (
        laplace_pair(1.3),
        laplace_pair(1.3, first=0.4, second=-0.1),
        rappor_pair(0.5, 0.3, 0.7, hashes=3),
        rappor_pair(0.5, 0.3, 0.7, hashes=3, shared=2),
        match_count_pair(piecewise(1.3)),
    ):
        ratio = float(np.max((pair.first / pair.second)[pair.chances > 0]))
        assert math.log(ratio) == pytest.approx(pair.local_epsilon, rel=1e-12)
        assert (pair.first >= pair.blanket * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    ("pair", "arguments", "message"),
    [
        (rappor_pair, {"f": 0.5, "p": 0.25, "q": 0.75, "hashes": 0}, "hashes is 0"),
        (rappor_pair, {"f": 0.5, "p": 0.25, "q": 0.75, "hashes": 17}, "hashes is 17"),
        (rappor_pair, {"f": 0.5, "p": 0.25, "q": 0.75, "hashes": 2, "shared": 2}, "shared 2"),
        (rappor_pair, {"f": 0.0, "p": 0.0, "q": 1.0, "hashes": 2}, "without noise"),
        (rappor_pair, {"f": 1.0, "p": 0.25, "q": 0.75, "hashes": 2}, "f, p, q are"),
        (laplace_pair, {"local_epsilon": 0.0}, "local epsilon is 0.0"),
        (laplace_pair, {"local_epsilon": 21.0}, "local epsilon is 21.0"),
        (laplace_pair, {"local_epsilon": 1.0, "first": 1.1}, "the inputs are 1.1"),
        (laplace_pair, {"local_epsilon": 1.0, "first": 0.0, "second": 0.0}, "the inputs are 0.0"),
    ],
)
def test_invalid_pairs_are_refused(pair: Any, arguments: dict[str, Any], message: str) -> None:
    """The message names the number."""
    with pytest.raises(AccountingError, match=message):
        pair(**arguments)


def test_chances_that_do_not_sum_to_1_are_refused() -> None:
    """The message names the distribution."""
    half, ones = np.full(2, 0.5), np.ones(2)
    for name, changes in (
        ("U", {"chances": np.full(2, 0.4), "first": ones * 1.25, "second": ones * 1.25}),
        ("R_x ", {"chances": half, "first": ones * 1.1, "second": ones}),
        ("R_x'", {"chances": half, "first": ones, "second": ones * 0.9}),
    ):
        with pytest.raises(AccountingError, match=f"the chances of {name}"):
            BlanketPair(blanket=0.5, local_epsilon=1.0, **changes)
