import math

import numpy as np
import pytest

from shuffledp.common.errors import ReportError, TaskError
from shuffledp.common.limits import MAX_USERS
from shuffledp.common.mechanisms.numeric.laplace import FAR, Laplace
from tests.support.mechanisms import Scripted
from tests.support.numbers import number_example

_HEAD = (0, 0, 2)
"""Draws by which a coin of probability 1/e shows heads: heads of 1 and of 1/2, tails of 1/3."""
_TAIL = (0, 1)


def test_a_promise_is_checked_to_the_last_bit() -> None:
    """The float 1/3 is below 1/3, so steps/scale = 1/3 exceeds it by 2e-17."""
    assert not Laplace(2, 6).keeps_promise(1 / 3)
    assert Laplace(2, 6).keeps_promise(math.nextafter(1 / 3, 1))
    assert math.nextafter(1 / 3, 1) == Laplace(2, 6).local_epsilon


def test_noise_is_added_to_the_grid_point() -> None:
    """The report is the middle of 0 .. 4 minus 3·2 + 1 = 7 steps of noise."""
    mechanism = Laplace(4, 3)
    # Rounding; U = 1, accepted with probability e^(-1/3); two heads and a tail; a fair sign.
    coins = [[draw] for draw in (*_HEAD, *_HEAD, *_TAIL)]
    rng = Scripted([0], [1], [1], *coins, [1])
    reports = mechanism.randomize(np.array([[0.0]]), rng)

    assert [2 - 7 + FAR * 3] == reports["place"].tolist()


@pytest.mark.parametrize(("sign", "place"), [(0, 2 + 2 * FAR), (1, 0)])
def test_far_reports_are_clipped(sign: int, place: int) -> None:
    """Noise of seventy scales is clipped on either side."""
    mechanism = Laplace(2, 1)
    coins = [[draw] for draw in (*_HEAD * 70, *_TAIL)]
    rng = Scripted([0], [0], [0], *coins, [sign])
    reports = mechanism.randomize(np.array([[0.0]]), rng)

    assert [place] == reports["place"].tolist()
    assert mechanism.valid(reports).all()


def test_a_billion_reports_can_be_added_up() -> None:
    """The sum of 10^9 reports of the last place stays below 2^63."""
    mechanism = number_example("laplace", 6e-5)
    assert isinstance(mechanism, Laplace)
    last = mechanism.places - 1
    cells = np.array([MAX_USERS, last * MAX_USERS], dtype=np.int64)

    assert last * MAX_USERS < 2**63
    mean = mechanism.estimate(cells).means[0]
    assert (last - FAR * mechanism.scale) / 2048 - 1 == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(("steps", "scale"), [(0, 5), (3, 5), (4, 0), (4, -1)])
def test_invalid_grids_and_scales_are_refused(steps: int, scale: int) -> None:
    """A grid must have a middle, and a scale must be above 0."""
    with pytest.raises(TaskError, match=r"at least [12]"):
        Laplace(steps, scale)


def test_a_place_beyond_the_last_is_invalid() -> None:
    """The null report is such a place, too."""
    mechanism = Laplace(4, 3)
    reports = np.zeros(3, dtype=mechanism.report_dtype)
    reports["place"] = [mechanism.places - 1, mechanism.places, 2**64 - 1]

    assert [True, False, False] == mechanism.valid(reports).tolist()
    with pytest.raises(ReportError, match=f"not below {mechanism.places}"):
        mechanism.tally(reports)
